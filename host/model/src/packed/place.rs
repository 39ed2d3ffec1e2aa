//! What packed weights need of the file system. Where it is not there, they are not kept.

use super::PackedError;
use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

#[cfg(unix)]
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};

/// Who the model's file belongs to, and who may read it.
pub(super) struct Owner {
    #[cfg(unix)]
    user: u32,
    #[cfg(unix)]
    mode: u32,
}

#[cfg(unix)]
impl Owner {
    pub(super) fn of(model: &Metadata) -> Self {
        Self {
            user: model.uid(),
            mode: model.mode(),
        }
    }

    /// Whether a file is of somebody who could as well have changed the model or this process.
    pub(super) fn trusts(&self, file: &Metadata) -> bool {
        [self.user, formwork_kernels::effective_user(), 0].contains(&file.uid())
    }
}

/// When a file was changed last: seconds since 1970, nanoseconds.
#[cfg(unix)]
pub(super) fn modified(metadata: &Metadata) -> io::Result<(i64, i64)> {
    Ok((metadata.mtime(), metadata.mtime_nsec()))
}

/// Fills `bytes` from place `at` of a file, whose own position does not matter.
#[cfg(unix)]
pub(super) fn read_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<()> {
    file.read_exact_at(bytes, at)
}

/// Opens a regular file that only trusted users can have written.
#[cfg(unix)]
pub(super) fn open_trusted(path: &Path, owner: &Owner) -> Result<File, PackedError> {
    if cfg!(target_endian = "big") {
        return Err(PackedError::Untrusted(
            "this machine's numbers are big-endian",
        ));
    }
    // Before it is opened: opening a pipe waits for a writer.
    if !fs::metadata(path)?.is_file() {
        return Err(PackedError::Untrusted("it is no regular file"));
    }
    let file = File::open(path)?;
    if !owner.trusts(&file.metadata()?) {
        return Err(PackedError::Untrusted(
            "it belongs to another user than the model's file and this process",
        ));
    }
    Ok(file)
}

/// Says that the file will be read from its beginning to its end.
pub(super) fn will_read_all(file: &File) {
    #[cfg(target_os = "linux")]
    // Advice: where it is not taken, reading is slower.
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::Sequential);
    #[cfg(not(target_os = "linux"))]
    let _ = file;
}

/// Bytes that may still be written to the disk of a file; `None` where nobody knows.
pub(super) fn free_bytes(file: &File) -> Option<u64> {
    #[cfg(unix)]
    {
        let known = rustix::fs::fstatvfs(file).ok()?;
        Some(known.f_bavail.saturating_mul(known.f_frsize))
    }
    #[cfg(not(unix))]
    {
        let _ = file;
        None
    }
}

/// A file that is being written and that no other process writes. It is gone afterwards unless it is kept, and
/// what a process that was killed has left is written over.
pub(super) struct Unfinished {
    file: File,
    path: PathBuf,
    kept: bool,
}

#[cfg(unix)]
impl Unfinished {
    /// Opens the file at `path`, empty.
    pub(super) fn open(path: &Path, owner: &Owner) -> Result<Self, PackedError> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        // Neither through a link nor waiting for a pipe's reader: the folder may be anybody's.
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        let flags = i32::try_from(flags.bits()).unwrap_or_default();
        let file = options.mode(0o600).custom_flags(flags).open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(PackedError::Busy),
            Err(TryLockError::Error(error)) => {
                // Where files cannot be locked nobody writes this one.
                let _ = fs::remove_file(path);
                return Err(error.into());
            }
        }
        let (opened, there) = (file.metadata()?, fs::symlink_metadata(path));
        // Between the opening and the lock another process may have finished this very file and moved it to
        // its place. Then it must stay as it is.
        let same = |there: Metadata| (there.dev(), there.ino()) == (opened.dev(), opened.ino());
        if !there.is_ok_and(same) {
            return Err(PackedError::Busy);
        }
        if !opened.is_file() || opened.nlink() != 1 || !owner.trusts(&opened) {
            return Err(PackedError::Untrusted(
                "what is in the place of the unfinished file is not ours",
            ));
        }
        let unfinished = Self {
            file,
            path: path.to_owned(),
            kept: false,
        };
        unfinished.file.set_len(0)?;
        // Whoever may not read the model may not read its weights here either.
        let mode = owner.mode & 0o644 | 0o600;
        let permissions = fs::Permissions::from_mode(mode);
        unfinished.file.set_permissions(permissions)?;
        Ok(unfinished)
    }
}

impl Unfinished {
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Moves the file to its place.
    pub(super) fn keep_as(mut self, place: &Path) -> io::Result<()> {
        fs::rename(&self.path, place)?;
        self.kept = true;
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Still locked, so it is this one that is removed. After a move the name may be another process's.
        if !self.kept {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(not(unix))]
mod elsewhere {
    //! Other systems say neither whose a file is nor whether two are the same: nothing is kept there.

    use super::*;

    fn unsupported() -> io::Error {
        io::ErrorKind::Unsupported.into()
    }

    impl Owner {
        pub(in super::super) fn of(_model: &Metadata) -> Self {
            Self {}
        }
    }

    impl Unfinished {
        pub(in super::super) fn open(_path: &Path, _owner: &Owner) -> Result<Self, PackedError> {
            Err(unsupported().into())
        }
    }

    pub(in super::super) fn modified(_metadata: &Metadata) -> io::Result<(i64, i64)> {
        Err(unsupported())
    }

    pub(in super::super) fn read_at(_: &File, _: &mut [u8], _: u64) -> io::Result<()> {
        Err(unsupported())
    }

    pub(in super::super) fn open_trusted(_: &Path, _: &Owner) -> Result<File, PackedError> {
        Err(unsupported().into())
    }
}
#[cfg(not(unix))]
pub(super) use elsewhere::{modified, open_trusted, read_at};
