//! What can go wrong with a model.

use std::path::PathBuf;

/// Why a model cannot be loaded or used.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("{}: {reason}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A setting of the model is missing or makes no sense.
    #[error("{key}: {reason}")]
    Config {
        /// Name of the setting, as in the model's files.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A tensor is missing, has the wrong shape, or a type that cannot be computed with.
    #[error("tensor {name}: {reason}")]
    Tensor {
        /// Its name, as in the model's files.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The vocabulary cannot be used.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
    /// The chat template does not parse, or refuses its input.
    #[error("chat template: {0}")]
    ChatTemplate(String),
    /// The backend cannot run with these settings.
    #[error("backend: {0}")]
    Backend(String),
}

impl ModelError {
    pub(crate) fn config(key: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Config {
            key: key.into(),
            reason: reason.into(),
        }
    }

    pub(crate) fn tensor(name: &str, reason: impl ToString) -> Self {
        Self::Tensor {
            name: name.to_owned(),
            reason: reason.to_string(),
        }
    }
}
