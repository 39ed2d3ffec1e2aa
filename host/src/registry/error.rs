//! What can go wrong in the registry.

use std::path::PathBuf;

use formwork_sandbox::AdmissionError;
use semver::Version;

/// Why the registry refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// Not a plugin name.
    #[error("{name:?} is not a plugin name (like acme/ticket): {reason}")]
    BadName {
        /// What was given, shortened.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Not a version or a version requirement.
    #[error("{version:?} is not a version that can be used here: {reason}")]
    BadVersion {
        /// What was given, shortened.
        version: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No plugin has this name.
    #[error("no plugin is called {name}{}", did_you_mean(.near))]
    UnknownPlugin {
        /// The name asked for.
        name: String,
        /// Names that differ little from it.
        near: Vec<String>,
    },
    /// The plugin exists, but in no such version.
    #[error("{name} has no version that matches {selector}; it has {}", list(.versions))]
    NoVersion {
        /// The plugin.
        name: String,
        /// What was asked for.
        selector: String,
        /// The versions that there are, highest first.
        versions: Vec<String>,
    },
    /// Versions are immutable, and this one holds other bytes.
    #[error(
        "{name}@{version} exists with digest {digest} and versions never change: publish a new version"
    )]
    VersionTaken {
        /// The plugin.
        name: String,
        /// The version.
        version: Version,
        /// The digest of the bytes that it holds.
        digest: String,
    },
    /// The namespace belongs to the server.
    #[error("the namespace {0} is kept for the plugins that come with the server")]
    Reserved(String),
    /// Requests are running on it.
    #[error(
        "{name}@{version} is in use by {uses} running request(s); try again when they are done"
    )]
    InUse {
        /// The plugin.
        name: String,
        /// The version.
        version: Version,
        /// How many uses there are.
        uses: usize,
    },
    /// The sandbox does not take the component.
    #[error(transparent)]
    Admission(#[from] AdmissionError),
    /// A stored component is missing or is not what was stored.
    #[error("the stored component {digest} is damaged ({reason}): upload this plugin again")]
    Damaged {
        /// SHA-256 that the bytes should have, in hex.
        digest: String,
        /// What was found.
        reason: String,
    },
    /// A file among the stock plugins is not named `formwork--NAME@VERSION.wasm`.
    #[error("{0} is among the stock plugins but is not named formwork--NAME@VERSION.wasm")]
    StockFileName(PathBuf),
    /// Another process has the directory.
    #[error(
        "{0} belongs to a running server: stop it, or give this one another directory with --data-dir"
    )]
    Locked(PathBuf),
    /// The catalogue was written by a newer version.
    #[error(
        "the catalogue in {dir} has schema {found}; this version of formwork reads {supported}"
    )]
    Schema {
        /// The registry's directory.
        dir: PathBuf,
        /// The schema's number in the file.
        found: i64,
        /// The newest number that is understood.
        supported: i64,
    },
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The catalogue could not be read or written.
    #[error("plugin catalogue: {0}")]
    Sqlite(#[from] rusqlite::Error),
}

impl RegistryError {
    /// For `map_err`: an I/O error at `path`.
    pub(super) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> RegistryError {
        let path = path.into();
        move |source| RegistryError::Io { path, source }
    }
}

fn did_you_mean(near: &[String]) -> String {
    match near {
        [] => String::new(),
        near => format!("; did you mean {}?", near.join(" or ")),
    }
}

fn list(versions: &[String]) -> String {
    const SHOWN: usize = 8;
    let mut text = versions[..versions.len().min(SHOWN)].join(", ");
    if versions.len() > SHOWN {
        text += &format!(" and {} more", versions.len() - SHOWN);
    }
    text
}
