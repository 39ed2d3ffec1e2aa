//! The engine: it schedules sequences onto a paged KV cache, runs them in one continuous batch, and
//! samples under masks.
//!
//! It knows tokens, blocks and masks; it does not know HTTP, JSON, Wasm, files or the wall clock.
//! The three seams are [`Backend`] (the model), [`Constraint`] (what may come next) and [`Sink`]
//! (who is told).

mod backend;
mod constraint;
mod request;

pub use backend::{
    Backend, BackendError, BlockId, Capacity, Row, SampleRow, Sampled, StepInput, Ticket,
};
pub use constraint::{After, Constraint, ConstraintError, Edit, FailureKind};
pub use request::{
    Chunk, EmittedToken, Event, FinishReason, Request, SeqId, SequenceError, Sampling, Sink,
    SubmitError, TokenLogprob, Usage,
};
pub use toktrie::{SimpleVob, TokTrie, TokenId};
