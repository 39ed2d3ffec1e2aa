//! The engine: it schedules sequences onto a paged KV cache, runs them in one continuous batch, and
//! samples under masks.
//!
//! It knows tokens, blocks and masks; it does not know HTTP, JSON, Wasm, files or the wall clock.
//! The three seams are [`Backend`] (the model), [`Constraint`] (what may come next) and [`Sink`]
//! (who is told).

mod backend;
mod config;
mod constraint;
mod core;
mod handle;
mod kv;
mod request;
mod sample;
mod scheduler;
mod sequence;
mod step;
pub mod testing;
mod workers;

pub use backend::{
    Backend, BackendError, BlockId, Capacity, Row, SampleRow, Sampled, StepInput, Ticket,
    WantedLogits,
};
pub use config::{Clock, EngineConfig, Stats};
pub use constraint::{After, Constraint, ConstraintError, Edit, FailureKind};
pub use handle::Engine;
pub use request::{
    Chunk, EmittedToken, Event, FinishReason, Request, Sampling, SeqId, SequenceError, Sink,
    SubmitError, TokenLogprob, Usage,
};
pub use sample::sample;
pub use toktrie::{SimpleVob, TokTrie, TokenId};
