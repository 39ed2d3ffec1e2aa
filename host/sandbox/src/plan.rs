//! What a session is told and what it answers.

use crate::{Failure, Matcher};
use std::sync::Arc;
use toktrie::{SimpleVob, TokenId};

/// What happened since the last plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed {
    /// Nothing yet: the first plan.
    Started,
    /// The token that a [`Action::Sample`] brought.
    Sampled(TokenId),
    /// Every action of the last plan is done; the fields' values in order.
    Completed(Vec<Value>),
}

/// A decoded field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The field's name.
    pub field: String,
    /// Its text.
    pub bytes: Vec<u8>,
    /// Attempts that it took, the last one included.
    pub attempts: u32,
}

/// What happens next; carried out in order.
#[derive(Debug)]
pub enum Action {
    /// One token is sampled. Last in a plan.
    Sample {
        /// The tokens allowed, one bit per row of the vocabulary, at least one of them set.
        mask: Arc<SimpleVob>,
        /// Finite and not negative; `None` for the request's own.
        temperature: Option<f32>,
    },
    /// Template text, forced into the output.
    Write(Vec<u8>),
    /// A field, decoded until its grammar is complete.
    Field(Field),
    /// The output is complete. Last in a plan.
    Finish,
}

/// A field to decode.
#[derive(Debug)]
pub struct Field {
    /// Not empty.
    pub name: String,
    /// The walk that its text follows.
    pub matcher: Matcher,
    /// Most tokens of its text; at least one.
    pub max_tokens: u32,
    /// Finite and not negative; `None` for the request's own.
    pub temperature: Option<f32>,
    /// Whether [`crate::Session::check`] is asked about the value.
    pub check: bool,
    /// What to do when the value is turned down.
    pub retry: RetryPolicy,
}

/// How a field that failed its check is decoded again.
#[derive(Clone, Debug, PartialEq)]
pub struct RetryPolicy {
    /// Attempts in all; at least one.
    pub attempts: u32,
    /// Added to the temperature at each further attempt; finite and not negative.
    pub heat: f32,
    /// Text put before the field for the model to see, and taken out again, with `{reason}` and
    /// `{value}` to be filled in.
    pub hint: Option<String>,
    /// What happens when no attempt is left.
    pub exhausted: Fallback,
}

/// What takes the place of a field whose attempts are used up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// The request fails.
    Fail,
    /// These bytes.
    Write(Vec<u8>),
    /// The last value, marked as unverified.
    Accept,
}

/// A session's opinion of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It stands.
    Accept,
    /// These bytes take its place.
    Replace(Vec<u8>),
    /// Decode it again.
    Retry(Retry),
    /// The request fails.
    Fail(Failure),
}

/// Another attempt at a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Why.
    pub reason: String,
    /// How many of the value's bytes stay: at most all of them.
    pub from: usize,
}

/// All of the value is decoded again.
impl<T: Into<String>> From<T> for Retry {
    fn from(reason: T) -> Self {
        Self {
            reason: reason.into(),
            from: 0,
        }
    }
}

/// A line that a plugin wrote to its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// How grave.
    pub level: LogLevel,
    /// What it says.
    pub message: String,
    /// Calls into the session before the one that wrote it: `open` is 0.
    pub call: u64,
}

/// Levels of the plugin log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// For the plugin's author while at work.
    Debug,
    /// Worth noting.
    Info,
    /// Odd, but handled.
    Warn,
    /// Wrong.
    Error,
}
