//! Packed weights kept in a file beside the model's, so that a later start reads them instead of packing.
//!
//! The file is a cache and no more than that. It is used when it belongs to this very model file and to this
//! version of packing, each piece of it is checked before its numbers are used, a few rows of each format are
//! packed again and compared, and whatever is wrong with it costs one packing and a line in the log. It is written after loading, from the weights in memory, by
//! [`PackedWriter`].

mod background;
mod place;
mod read;
mod source;
mod table;
#[cfg(test)]
mod tests;
mod write;

pub use background::PackedWriter;
pub(crate) use source::Tensors;

use formwork_kernels::{BlockFormat, Cpu, QuantMatrix};
use place::Unfinished;
use read::Reader;
use source::ModelFile;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// What comes after the name of the model's file.
const SUFFIX: &str = ".packed";
/// What comes after that while the file is being written.
const UNFINISHED: &str = ".tmp";

/// Quantised weights from this size on are worth a file: below, packing takes less than a tenth of a second of
/// processor time. `docs/cpu.md` has the measurements.
const AUTO_BYTES: u64 = 64 << 20;

/// Whether packed weights are kept beside the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PackedCache {
    /// They are neither read nor written.
    #[default]
    Never,
    /// Where that saves time: for models of 64 MiB and more of quantised weights.
    Auto,
    /// For each model with quantised weights.
    Always,
}

impl PackedCache {
    const ALL: [Self; 3] = [Self::Auto, Self::Always, Self::Never];

    fn name(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Auto => "auto",
            Self::Always => "always",
        }
    }

    /// Whether a model with so many bytes of quantised weights has a file.
    pub(crate) fn wants(self, quantised: u64) -> bool {
        match self {
            Self::Never => false,
            Self::Auto => quantised >= AUTO_BYTES,
            Self::Always => quantised > 0,
        }
    }
}

impl std::fmt::Display for PackedCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for PackedCache {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|mode| mode.name() == name);
        known.ok_or_else(|| format!("{name:?} is not known; known are auto, always and never"))
    }
}

/// Why packed weights cannot be read or kept.
#[derive(Debug, thiserror::Error)]
pub enum PackedError {
    /// The file cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file was written by another version of the program.
    #[error("it is of version {found}, this program's is {expected}")]
    Version {
        /// The file's.
        found: String,
        /// This program's.
        expected: String,
    },
    /// The model's file is another one now.
    #[error("the model's file has changed since")]
    Stale,
    /// What the file holds is not what was written, or never was a whole file.
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// A matrix is not what packing makes of the model's now.
    #[error("{0} is not as this program packs it")]
    Differs(String),
    /// The file, or who may write to it, gives no reason to trust it.
    #[error("{0}")]
    Untrusted(&'static str),
    /// Another process writes the file.
    #[error("another process is writing it")]
    Busy,
    /// There is too little room on the disk.
    #[error("it takes {needed} bytes, and {free} are free, of which {kept} stay free")]
    Room {
        /// Bytes of the file.
        needed: u64,
        /// Bytes free.
        free: u64,
        /// Bytes that are left to others.
        kept: u64,
    },
    /// The process ends.
    #[error("it was not finished when the server stopped")]
    Stopped,
}

impl PackedError {
    fn damaged(what: impl Into<String>) -> Self {
        Self::Damaged(what.into())
    }
}

/// The file that a model's packed weights are kept in: the model's name with `.packed` after it.
#[must_use]
pub fn packed_file(model: &Path) -> PathBuf {
    with_suffix(model, SUFFIX)
}

/// Whether a file of this name holds packed weights, finished or not, rather than a model.
#[must_use]
pub fn is_packed_file(name: &str) -> bool {
    name.strip_suffix(UNFINISHED)
        .unwrap_or(name)
        .ends_with(SUFFIX)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// A matrix as the model's file describes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) name: &'a str,
    pub(crate) format: BlockFormat,
    pub(crate) shape: [usize; 2],
    /// Its bytes there. Most are not looked at.
    pub(crate) stored: &'a [u8],
}

/// Packed weights of a model that is being loaded.
pub(crate) struct Cache {
    path: PathBuf,
    model: ModelFile,
    /// `None` when there is no file, or nothing of it is used any more.
    reader: Option<Reader>,
    /// The file's table was right and what it says of was not.
    damaged: bool,
}

impl Cache {
    /// Looks for the file of the model at `model`, which is open as `file`. `None` where the system does not
    /// say what it takes to tell files apart.
    pub(crate) fn open(model: &Path, file: &File, tensors: Tensors<'_>) -> Option<Self> {
        let path = packed_file(model);
        let model = match ModelFile::of(file, tensors) {
            Ok(model) => model,
            Err(error) => {
                tracing::info!(file = %path.display(), "packed weights are not used: {error}");
                return None;
            }
        };
        let reader = match Reader::open(&path, &model) {
            Ok(reader) => Some(reader),
            Err(PackedError::Io(error)) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                tracing::info!(file = %path.display(), "packed weights are not used: {error}");
                None
            }
        };
        Some(Self {
            path,
            model,
            reader,
            damaged: false,
        })
    }

    /// The matrix as it was kept. Once something is wrong with the file, nothing of it is used any more: what
    /// was read before was checked and stays.
    pub(crate) fn matrix(&mut self, cpu: &Cpu, wanted: Wanted<'_>) -> Option<QuantMatrix> {
        match self.reader.as_mut()?.matrix(cpu, wanted) {
            Ok(matrix) => Some(matrix),
            Err(error) => {
                tracing::warn!(file = %self.path.display(), "packed weights are not used: {error}");
                self.reader = None;
                self.damaged = true;
                None
            }
        }
    }

    /// What is left to do when all weights are loaded: writing the file, unless all was read from it.
    pub(crate) fn finish(self) -> Option<Pending> {
        if self.reader.is_some() {
            tracing::info!(file = %self.path.display(), "read the packed weights");
            return None;
        }
        Some(Pending {
            path: self.path,
            model: self.model,
            damaged: self.damaged,
        })
    }
}

/// A file that is yet to be written.
pub(crate) struct Pending {
    pub(crate) path: PathBuf,
    model: ModelFile,
    damaged: bool,
}

impl Pending {
    /// Writes the file; returns its size in bytes. There is a file only when all of it is there.
    pub(crate) fn write(
        &self,
        matrices: &[(String, &QuantMatrix)],
        stop: &AtomicBool,
    ) -> Result<u64, PackedError> {
        let unfinished = Unfinished::open(&with_suffix(&self.path, UNFINISHED), &self.model.owner)?;
        // While this one loaded, another process may have done the work. A table alone shows no damage.
        if !self.damaged
            && let Ok(reader) = Reader::open(&self.path, &self.model)
        {
            return Ok(reader.bytes());
        }
        let written = write::write(unfinished.file(), &self.model, matrices, stop)?;
        unfinished.keep_as(&self.path)?;
        Ok(written)
    }
}
