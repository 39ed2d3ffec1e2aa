//! Untrusted WebAssembly plugins: admission, sessions, masks and grammars.
//!
//! [`Sandbox::admit`] takes a component's bytes and makes a [`Plugin`], whose [`Session`]s answer what
//! comes next in one output each. [`Grammars`] compiles what plugins constrain their fields by, natively
//! and shared between requests. No type of the Wasm runtime leaves this crate.

mod answer;
mod artifacts;
#[allow(missing_docs, unreachable_pub, clippy::all)]
mod bindings;
mod cache;
mod error;
mod failure;
mod grammar;
mod grammars;
mod guest;
mod index;
mod lark_scan;
mod limits;
mod mask;
mod matcher;
mod parsers;
mod plan;
mod plugin;
mod pool;
mod probe;
mod sandbox;
mod scan;
mod schema;
mod session;
mod source;
mod spelling;
mod vocabulary;

pub use cache::CacheStats;
pub use error::{AdmissionError, GuestError, SandboxError};
pub use failure::{Failure, FailureKind, MAX_MESSAGE_BYTES};
pub use grammar::{Enforced, Grammar};
pub use grammars::{GrammarLimits, Grammars, GrammarsError};
pub use limits::SandboxLimits;
pub use mask::along;
pub use matcher::Matcher;
pub use plan::{
    Action, Fallback, Field, LogLevel, LogLine, Observed, Retry, RetryPolicy, Value, Verdict,
};
pub use plugin::{Description, LatePolicy, OpenRequest, Plugin};
pub use sandbox::Sandbox;
pub use schema::{Formats, Invalid, KeyOrder, Schema, Spacing};
pub use session::Session;
pub use source::Source;
pub use toktrie::{SimpleVob, TokenId};
pub use vocabulary::{Vocabulary, VocabularyError};
