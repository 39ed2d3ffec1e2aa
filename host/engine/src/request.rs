//! What goes into the engine and what comes out of it.

use crate::{Constraint, ConstraintError, TokenId};

/// Names a sequence within one engine; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeqId(pub u64);

/// One sequence to decode.
pub struct Request {
    /// Tokens of the prompt; at least one.
    pub prompt: Vec<TokenId>,
    /// Most tokens to generate.
    pub max_tokens: usize,
    /// How to choose tokens.
    pub sampling: Sampling,
    /// Tokens that end an unconstrained sequence; they are not part of its text. Empty: it runs to
    /// `max_tokens`. A constrained sequence ends when its constraint says so.
    pub end: Vec<TokenId>,
    /// What the output must look like; `None` for free text.
    pub constraint: Option<Box<dyn Constraint>>,
    /// Who is told. Dropped when the sequence is over.
    pub sink: Box<dyn Sink>,
    /// Lower runs first; equal priorities run in order of arrival.
    pub priority: i32,
}

/// How to choose a token from logits. The defaults are greedy-free plain sampling: temperature 1, nothing cut.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// 0 is greedy.
    pub temperature: f32,
    /// Keep the k likeliest; 0 keeps all.
    pub top_k: usize,
    /// Keep the smallest set whose probability reaches this; 1 keeps all.
    pub top_p: f32,
    /// Drop tokens less likely than this times the likeliest; 0 keeps all.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of every token seen; 1 is off (CTRL, Keskar 2019).
    pub repetition_penalty: f32,
    /// Subtracted once from the logits of tokens generated before.
    pub presence_penalty: f32,
    /// Subtracted per occurrence from the logits of tokens generated before.
    pub frequency_penalty: f32,
    /// Added to the logits.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// Key of the random stream: the same seed, position and logits give the same token.
    pub seed: u64,
    /// `Some(n)`: report the log-probability of the chosen token and of the n likeliest.
    pub logprobs: Option<usize>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: 0,
            logprobs: None,
        }
    }
}

/// Told what happens to one sequence, on the engine's thread.
pub trait Sink: Send {
    /// Must not block. After [`Event::Finished`] or [`Event::Failed`] nothing more comes.
    fn emit(&mut self, event: Event);
}

/// What happened to a sequence.
#[derive(Clone, Debug)]
pub enum Event {
    /// More text.
    Tokens(Chunk),
    /// The end, the last event.
    Finished {
        /// Why it ended.
        reason: FinishReason,
        /// What it took.
        usage: Usage,
    },
    /// The sequence failed; the last event.
    Failed {
        /// Why.
        error: SequenceError,
        /// What it took up to then.
        usage: Usage,
    },
}

/// Text that became final since the last chunk.
#[derive(Clone, Debug, Default)]
pub struct Chunk {
    /// The bytes; may end inside a character.
    pub bytes: Vec<u8>,
    /// The tokens that end within `bytes`, in order.
    pub tokens: Vec<EmittedToken>,
}

/// One token of the output.
#[derive(Clone, Debug)]
pub struct EmittedToken {
    /// The token.
    pub token: TokenId,
    /// Whether it was sampled; `false` for forced text.
    pub sampled: bool,
    /// Present when log-probabilities were asked for and the token was sampled.
    pub logprob: Option<TokenLogprob>,
}

/// Log-probabilities at one position.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprob {
    /// Of the chosen token, natural logarithm.
    pub logprob: f32,
    /// The likeliest tokens, best first.
    pub top: Vec<(TokenId, f32)>,
}

/// Why a sequence ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// An end token, or the constraint was completed.
    Stop,
    /// `max_tokens` or the context's end came first. A constraint was then not completed.
    Length,
    /// Somebody called `abort`.
    Aborted,
}

/// What a sequence took, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Of those, how many the prefix cache already held.
    pub cached: usize,
    /// Tokens of the output.
    pub completion: usize,
    /// Tokens sampled, retracted ones included.
    pub sampled: usize,
    /// Tokens of the output that were forced and not sampled.
    pub forced: usize,
    /// Tokens that an edit took away (hints, failed attempts, retokenised seams).
    pub retracted: usize,
    /// Positions run through the model, prefill included.
    pub computed: usize,
}

/// Why a sequence failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SequenceError {
    /// Its constraint gave up.
    #[error(transparent)]
    Constraint(#[from] ConstraintError),
    /// Its mask came too late too often.
    #[error("the mask at position {position} missed the step deadline {misses} times in a row")]
    Late {
        /// Position in the sequence.
        position: usize,
        /// Consecutive misses.
        misses: u32,
    },
    /// The mask allowed no token, or none with a finite logit.
    #[error(
        "no token can be sampled at position {position}: the mask allows none of the vocabulary"
    )]
    EmptyMask {
        /// Position in the sequence.
        position: usize,
    },
    /// A sampled token was outside its mask; a fault of the backend.
    #[error("token {token} at position {position} is outside its mask")]
    Unmasked {
        /// The token.
        token: TokenId,
        /// Position in the sequence.
        position: usize,
    },
    /// The constraint and the engine disagree on the number of committed tokens.
    #[error("the constraint counts {constraint} generated tokens, the engine {engine}")]
    Diverged {
        /// The constraint's count.
        constraint: usize,
        /// The engine's count.
        engine: usize,
    },
    /// The model's step failed.
    #[error(transparent)]
    Backend(#[from] crate::BackendError),
    /// The engine is going down.
    #[error("the engine is shutting down")]
    ShuttingDown,
}

/// Why a request was not taken in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The queue is full; nothing of the group was taken in.
    #[error("the queue is full: {waiting} sequences wait, the limit is {limit}")]
    QueueFull {
        /// Sequences waiting now.
        waiting: usize,
        /// The configured limit.
        limit: usize,
    },
    /// The prompt leaves no room for a single token.
    #[error("the prompt has {prompt} tokens, the limit is {limit}")]
    PromptTooLong {
        /// Tokens of the prompt.
        prompt: usize,
        /// Longest prompt that can be served.
        limit: usize,
    },
    /// The prompt has no token.
    #[error("the prompt has no token")]
    EmptyPrompt,
    /// The engine is going down or gone.
    #[error("the engine is shutting down")]
    ShuttingDown,
}
