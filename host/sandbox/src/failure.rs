//! Why a plugin or a grammar refuses a request or gives one up.

use std::fmt;

/// Longest [`Failure::message`] in bytes.
pub const MAX_MESSAGE_BYTES: usize = 4096;

/// A refusal for the person who sent the request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {message}")]
pub struct Failure {
    /// What went wrong, as a class; the host maps it to an HTTP status.
    pub kind: FailureKind,
    /// What is wrong and how to mend it; at most [`MAX_MESSAGE_BYTES`].
    pub message: String,
}

/// Kinds of failure, as `failure-kind` of the plugin contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The request's parameters for the format are wrong.
    InvalidParams,
    /// No output can satisfy the constraint.
    Unsatisfiable,
    /// A field used up its attempts.
    Exhausted,
    /// The plugin is at fault.
    Internal,
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InvalidParams => "invalid parameters",
            Self::Unsatisfiable => "unsatisfiable",
            Self::Exhausted => "attempts exhausted",
            Self::Internal => "internal error",
        })
    }
}

impl Failure {
    /// A failure whose message is cut to [`MAX_MESSAGE_BYTES`] at a character boundary.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        let mut message = message.into();
        truncate(&mut message, MAX_MESSAGE_BYTES);
        Self { kind, message }
    }

    pub(crate) fn params(message: impl Into<String>) -> Self {
        Self::new(FailureKind::InvalidParams, message)
    }

    pub(crate) fn unsatisfiable(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Unsatisfiable, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Internal, message)
    }
}

/// Cuts `text` to at most `limit` bytes without splitting a character.
pub(crate) fn truncate(text: &mut String, limit: usize) {
    if text.len() > limit {
        text.truncate(text.floor_char_boundary(limit));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_are_cut_between_characters() {
        let failure = Failure::internal("é".repeat(MAX_MESSAGE_BYTES));
        assert_eq!(failure.message.len(), MAX_MESSAGE_BYTES);
        let odd = Failure::internal(format!("x{}", "é".repeat(MAX_MESSAGE_BYTES)));
        assert_eq!(odd.message.len(), MAX_MESSAGE_BYTES - 1);
    }
}
