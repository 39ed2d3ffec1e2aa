//! Components on disk, named by what is in them: `blobs/<sha256>.wasm`.
//!
//! A blob is complete or absent, whenever the power fails: it is written beside its place, synced,
//! renamed, and the directory synced. Whoever points at a blob (the catalogue) does so afterwards.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::RegistryError;

/// SHA-256 of `bytes` in lower-case hex: a plugin's digest.
pub fn digest(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The blobs' directory.
pub(super) struct Blobs {
    dir: PathBuf,
}

impl Blobs {
    pub(super) fn open(dir: PathBuf) -> Result<Blobs, RegistryError> {
        fs::create_dir_all(&dir).map_err(RegistryError::io(&dir))?;
        Ok(Blobs { dir })
    }

    fn path(&self, digest: &str) -> PathBuf {
        self.dir.join(format!("{digest}.wasm"))
    }

    /// Stores `bytes`, whose digest is `digest`. Writing again what is there is cheap and mends a
    /// damaged file.
    pub(super) fn put(&self, digest: &str, bytes: &[u8]) -> Result<(), RegistryError> {
        let path = self.path(digest);
        if fs::read(&path).is_ok_and(|old| old == bytes) {
            return Ok(());
        }
        write_durably(&path, bytes).map_err(RegistryError::io(&path))
    }

    /// Reads a blob and checks that it is what was stored.
    pub(super) fn get(&self, wanted: &str) -> Result<Vec<u8>, RegistryError> {
        let damaged = |reason: String| RegistryError::Damaged {
            digest: wanted.to_owned(),
            reason,
        };
        let bytes = fs::read(self.path(wanted)).map_err(|error| damaged(error.to_string()))?;
        match digest(&bytes) {
            found if found == wanted => Ok(bytes),
            found => Err(damaged(format!("its bytes hash to {found}"))),
        }
    }

    pub(super) fn remove(&self, digest: &str) -> Result<(), RegistryError> {
        let path = self.path(digest);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(RegistryError::Io {
                path,
                source: error,
            }),
            _ => Ok(()),
        }
    }

    /// Removes what no catalogue row points at: what a crash left between blob and row.
    pub(super) fn sweep(&self, keep: &BTreeSet<String>) -> Result<usize, RegistryError> {
        let mut removed = 0;
        for entry in fs::read_dir(&self.dir).map_err(RegistryError::io(&self.dir))? {
            let path = entry.map_err(RegistryError::io(&self.dir))?.path();
            if path.is_dir() {
                continue;
            }
            let stem = path
                .file_stem()
                .map(|stem| stem.to_string_lossy().into_owned());
            let complete = path
                .extension()
                .is_some_and(|extension| extension == "wasm");
            if complete && stem.is_some_and(|stem| keep.contains(&stem)) {
                continue;
            }
            fs::remove_file(&path).map_err(RegistryError::io(&path))?;
            removed += 1;
        }
        Ok(removed)
    }
}

/// Writes a file so that after a crash it is whole or as it was before.
pub(crate) fn write_durably(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let mut file = temporary_in(dir)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    File::open(dir)?.sync_all()
}

/// A temporary file that gets the permissions of any new file, where temporary files are private
/// by default: it is renamed to something that others may read.
pub(crate) fn temporary_in(dir: &Path) -> std::io::Result<tempfile::NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(dir)
}
