//! The seam to whatever decides which tokens may come next.

use crate::{SimpleVob, TokenId};
use std::sync::Arc;

/// One sequence's walk through an output format.
///
/// The engine calls [`advance`](Constraint::advance) once when the sequence starts and once after each
/// sampled token, then [`mask`](Constraint::mask) for the position that comes next; both on a worker
/// thread, `mask` while the model computes the logits. An implementor never sees two calls at once.
///
/// *Generated* means every token after the prompt, in the order of the context. The constraint is the
/// authority over them: an [`Edit`] may take tokens away and put others in their place, which is how
/// template text, retokenised seams, hints and retries of a field are all expressed.
pub trait Constraint: Send {
    /// Takes in what was sampled since the last call (`None` at the start) and says how the generated
    /// tokens go on. The sampled token has already been appended when this is called.
    ///
    /// # Errors
    /// An error ends this sequence and no other.
    fn advance(&mut self, sampled: Option<TokenId>) -> Result<Edit, ConstraintError>;

    /// The tokens allowed at the position after the last edit, one bit per token of the vocabulary.
    /// Called only when the last edit said [`After::Sample`].
    ///
    /// # Errors
    /// An error ends this sequence and no other.
    fn mask(&mut self) -> Result<Arc<SimpleVob>, ConstraintError>;

    /// How many generated tokens the constraint believes the sequence has: equal to the engine's own
    /// count after every edit, or the sequence is failed.
    fn committed(&self) -> usize;

    /// Consecutive steps the row may sit out because its mask is late; then it fails. `None` for the
    /// engine's own limit. Asked once, when the sequence is submitted.
    fn late_limit(&self) -> Option<u32> {
        None
    }
}

/// How the generated tokens change: `generated = generated[..keep] + append`.
#[derive(Clone, Debug, PartialEq)]
pub struct Edit {
    /// Generated tokens that stay, counted from the first one after the prompt.
    pub keep: usize,
    /// Tokens put after those, without sampling. Fed to the model as one chunk.
    pub append: Vec<TokenId>,
    /// Generated tokens (of the new list) that will never be taken away *as bytes*: their text may be
    /// shown. The text of the released tokens only ever grows, though an edit may express the same bytes
    /// by other tokens.
    pub released: usize,
    /// What comes next.
    pub after: After,
}

/// What follows an edit.
#[derive(Clone, Debug, PartialEq)]
pub enum After {
    /// One token is sampled under [`Constraint::mask`], at this temperature if there is one, else at the
    /// request's. `salt` is mixed into the seed so that a retried position draws anew; 0 normally.
    Sample {
        /// Overrides the request's temperature.
        temperature: Option<f32>,
        /// Mixed into the random stream; differs between attempts at one field.
        salt: u64,
    },
    /// The output is complete; everything is released.
    Finish,
}

/// Why a constraint gave up: ends its own sequence with a typed error.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ConstraintError {
    /// The kind, which the host maps to an HTTP status.
    pub kind: FailureKind,
    /// For the person who sent the request.
    pub message: String,
}

impl ConstraintError {
    /// A fault of the format's code or of the host, not of the request.
    pub fn internal(message: impl Into<String>) -> Self {
        Self {
            kind: FailureKind::Internal,
            message: message.into(),
        }
    }
}

/// Kinds of constraint failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The request's parameters for the format are wrong.
    InvalidParams,
    /// No output can satisfy the constraint.
    Unsatisfiable,
    /// A field used up its attempts.
    Exhausted,
    /// The format's code is at fault: a trap, a missed deadline, a bad answer.
    Internal,
}
