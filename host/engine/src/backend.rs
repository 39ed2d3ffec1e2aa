//! The seam to the model.

use crate::{Sampling, SimpleVob, TokenId};
use std::sync::Arc;

/// Index of a block of the KV cache.
pub type BlockId = u32;

/// Computes logits over a paged KV cache, and samples.
///
/// One step is `launch`, `wait`, `finish`, in this order, one step at a time. The engine computes masks
/// between `launch` and `finish`.
pub trait Backend: Send {
    /// What the backend can hold; constant over its life.
    fn capacity(&self) -> Capacity;

    /// Makes block `to` a copy of block `from`, which may be the same one. Not while a step is under way. Positions of
    /// `from` that were never written may come out as anything: they are written before they are read.
    ///
    /// # Errors
    /// When there is no such block, or a step is under way.
    fn copy(&mut self, from: BlockId, to: BlockId) -> Result<(), BackendError>;

    /// Starts a step and returns at once: the forward pass runs on the backend's own threads or device.
    ///
    /// # Errors
    /// When the step cannot be started; no row has then changed any block.
    fn launch(&mut self, input: StepInput) -> Result<Ticket, BackendError>;

    /// Blocks until the step's logits exist, but for those that a backend leaves until masks are known.
    ///
    /// # Errors
    /// When the forward pass failed; the blocks written by it hold nothing of value.
    fn wait(&mut self, ticket: &Ticket) -> Result<(), BackendError>;

    /// Samples one token for each of `rows`, in their order, and ends the step. `rows` may leave out rows
    /// of the input whose mask was late: their logits are dropped, their KV entries stay valid. Log-probabilities
    /// need all logits, so rows that ask for them are not [`WantedLogits::Masked`].
    ///
    /// # Errors
    /// When the step failed as a whole. A row under whose mask nothing can be sampled is not an error:
    /// its [`Sampled::token`] is `None`.
    fn finish(
        &mut self,
        ticket: Ticket,
        rows: &[SampleRow<'_>],
    ) -> Result<Vec<Sampled>, BackendError>;
}

/// What a backend can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Blocks of the KV cache.
    pub blocks: usize,
    /// Token positions in a block.
    pub block_size: usize,
    /// Longest context, in tokens.
    pub max_context: usize,
    /// Entries of a row of logits.
    pub vocab_size: usize,
}

/// The work of one step.
#[derive(Clone, Debug, Default)]
pub struct StepInput {
    /// One entry per sequence that takes part. No two rows write the same block.
    pub rows: Vec<Row>,
}

/// A chunk of one sequence.
#[derive(Clone, Debug)]
pub struct Row {
    /// Tokens to run, at least one: one for a decode, several for prefill and forced text.
    pub tokens: Vec<TokenId>,
    /// Position of the first of them in the sequence; the cache holds all positions before it.
    pub start: usize,
    /// The sequence's block table: position `p` lives in `table[p / block_size]` at `p % block_size`.
    /// Covers `start + tokens.len()` positions at least.
    pub table: Vec<BlockId>,
    /// Which logits after the last token are wanted.
    pub logits: WantedLogits,
}

/// Which logits a row is to give.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WantedLogits {
    /// None: the row only fills the cache.
    #[default]
    None,
    /// Those of all tokens.
    All,
    /// Those that the mask of the row's [`SampleRow`] allows. It comes with [`Backend::finish`], and a backend
    /// may leave them until then: where a mask allows few tokens, few logits need computing.
    Masked,
}

impl Row {
    /// Whether the row may be sampled.
    #[must_use]
    pub fn samples(&self) -> bool {
        self.logits != WantedLogits::None
    }
}

/// Proof that a step is under way. Made by [`Backend::launch`], used up by [`Backend::finish`].
#[derive(Debug, PartialEq, Eq)]
pub struct Ticket(pub u64);

/// How to sample one row of the step.
#[derive(Debug)]
pub struct SampleRow<'a> {
    /// Index into [`StepInput::rows`] of a row that wanted logits.
    pub row: usize,
    /// Tokens that may be chosen; `None` allows all of them.
    pub mask: Option<Arc<SimpleVob>>,
    /// Temperature, truncation, penalties, seed. Temperature and seed already include the constraint's wish.
    pub sampling: &'a Sampling,
    /// Position that the sampled token will have in the sequence; keys the random stream.
    pub position: u64,
    /// Tokens so far, prompt first, for the penalties.
    pub history: &'a [TokenId],
    /// Length of the prompt within `history`.
    pub prompt_len: usize,
}

/// What came of one sampled row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sampled {
    /// The token; `None` when nothing could be chosen (empty mask, logits without a finite entry).
    pub token: Option<TokenId>,
    /// Natural logarithm of the token's probability under the model (before temperature and mask);
    /// 0 unless [`Sampling::logprobs`] asked for it.
    pub logprob: f32,
    /// The likeliest tokens with their log-probabilities, best first, as many as asked for.
    pub top: Vec<(TokenId, f32)>,
}

/// A failed step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackendError {
    /// The device or its threads failed.
    #[error("the backend failed: {0}")]
    Failed(String),
    /// The input breaks the contract of [`StepInput`]; a fault of the engine.
    #[error("the step's input is invalid: {0}")]
    InvalidInput(String),
}
