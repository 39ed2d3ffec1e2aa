//! What a format is, and the words it shares with the host.

use crate::{Plan, Template, vocabulary};
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::fmt;

/// A position in the model's vocabulary, counted from 0.
pub type TokenId = u32;

/// One output format: opened once per sequence, then asked what comes next.
///
/// Implement [`template`](Format::template) when the output is a template with fields, or
/// [`plan`](Format::plan) when it is decided step by step. A format has no clock, no randomness and no
/// files: what it answers depends on its params, the vocabulary and what it was told.
pub trait Format: Sized + 'static {
    /// The request's params. Use `#[serde(deny_unknown_fields)]`.
    type Params: DeserializeOwned;

    /// JSON Schema (draft 2020-12) of the params: the host checks requests against it and shows it as a form.
    const PARAMS: &'static str;

    /// What the host does with a row whose plugin missed the step deadline.
    const ON_LATE: LatePolicy = LatePolicy::Hold;

    /// Starts one sequence.
    ///
    /// # Errors
    /// When the params make no sense together; the client gets the message.
    fn open(params: Self::Params, request: &Request) -> Result<Self, Failure>;

    /// The whole output, for formats that are a template.
    fn template(&self) -> Template {
        Template::new()
    }

    /// What happens next: called at the start, after each sampled token, and when the last plan is
    /// used up. As provided, it answers with [`template`](Format::template) and ends the output.
    ///
    /// # Errors
    /// A failure ends this sequence and no other.
    fn plan(&mut self, seen: Observed) -> Result<Plan, Failure> {
        let _ = seen;
        Ok(self.template().into())
    }

    /// Judges the value of a field that was marked with [`Field::checked`](crate::Field::checked).
    fn check(&mut self, value: &Value) -> Verdict {
        let _ = value;
        Verdict::Accept
    }
}

/// What the host does with a row whose plugin missed the step deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LatePolicy {
    /// The row sits this step out; after the host's limit of misses the request fails.
    #[default]
    Hold,
    /// The request fails at the first miss.
    Fail,
}

/// The request that a sequence serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The prompt as the model sees it.
    pub prompt: Vec<TokenId>,
    /// Most tokens of the whole output.
    pub max_tokens: u32,
}

impl Request {
    /// The prompt as text, special tokens left out. One call to the host per token of the prompt.
    pub fn prompt_text(&self) -> String {
        let bytes: Vec<u8> = self
            .prompt
            .iter()
            .flat_map(|&token| vocabulary::bytes(token))
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// What happened since the last plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed {
    /// Nothing yet: the first call.
    Started,
    /// The token that a `sample` brought.
    Sampled(TokenId),
    /// The last plan is used up; these are its fields' values, in order.
    Completed(Vec<Value>),
}

/// A field's decoded bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The field's name.
    pub field: String,
    /// What was decoded (or what a check or a fallback put in its place).
    pub bytes: Vec<u8>,
    /// Attempts so far, 1 for the first.
    pub attempts: u32,
}

impl Value {
    /// The bytes as text; a character cut in half by the token limit becomes U+FFFD.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }

    /// The bytes read as JSON.
    ///
    /// # Errors
    /// When they are no JSON, or not of this type.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.bytes)
    }
}

/// The values decoded so far, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Values(pub(crate) Vec<Value>);

impl Values {
    /// The latest value of a field.
    pub fn get(&self, field: &str) -> Option<&Value> {
        self.0.iter().rev().find(|value| value.field == field)
    }

    /// The latest text of a field; empty when it has none.
    pub fn text(&self, field: &str) -> Cow<'_, str> {
        self.get(field).map_or(Cow::Borrowed(""), Value::text)
    }

    /// All values, in order of decoding.
    pub fn iter(&self) -> impl Iterator<Item = &Value> {
        self.0.iter()
    }
}

/// What a check says about a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It stands.
    Accept,
    /// These bytes take its place (a normal form, a looked-up id).
    Replace(Vec<u8>),
    /// Try again.
    Retry(Retry),
    /// The request fails.
    Fail(Failure),
}

/// Another attempt at a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Why.
    pub reason: String,
    /// The value's bytes before this offset stay and are not written again; 0 keeps nothing. At most the
    /// value's length.
    pub from: u32,
}

impl Retry {
    /// Writes all of the value again, for this reason.
    pub fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            from: 0,
        }
    }

    /// Keeps the value's bytes before this offset.
    #[must_use]
    pub fn keeping(mut self, offset: u32) -> Self {
        self.from = offset;
        self
    }
}

impl From<&str> for Retry {
    fn from(reason: &str) -> Self {
        Self::new(reason)
    }
}

impl From<String> for Retry {
    fn from(reason: String) -> Self {
        Self::new(reason)
    }
}

impl From<Cow<'_, str>> for Retry {
    fn from(reason: Cow<'_, str>) -> Self {
        Self::new(reason)
    }
}

/// From the part at fault on.
impl From<Invalid> for Retry {
    fn from(invalid: Invalid) -> Self {
        let from = invalid.places.first().copied();
        Self {
            reason: invalid.reason,
            from: from.unwrap_or(0),
        }
    }
}

/// Why a text is no value of a JSON Schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// What is wrong and where, by JSON pointers into the value.
    pub reason: String,
    /// Where the text can be begun again, as byte offsets: first the part at fault (of several, the first in
    /// the text), then the values around it from the inside out, 0 at last. Nothing before the first of them
    /// is at fault.
    pub places: Vec<u32>,
}

impl fmt::Display for Invalid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.reason)
    }
}

impl std::error::Error for Invalid {}

impl Verdict {
    /// Try again from the start, for this reason.
    pub fn retry(reason: impl Into<String>) -> Self {
        Self::Retry(Retry::new(reason))
    }

    /// Try again, but keep the value's bytes before this offset.
    pub fn retry_from(offset: u32, reason: impl Into<String>) -> Self {
        Self::Retry(Retry::new(reason).keeping(offset))
    }

    /// Put these bytes in the value's place.
    pub fn replace(bytes: impl Into<Vec<u8>>) -> Self {
        Self::Replace(bytes.into())
    }
}

/// `Ok` accepts, `Err` is the reason to try again: from the start, or from where an [`Invalid`] says.
impl<E: Into<Retry>> From<Result<(), E>> for Verdict {
    fn from(result: Result<(), E>) -> Self {
        match result {
            Ok(()) => Self::Accept,
            Err(reason) => Self::Retry(reason.into()),
        }
    }
}

/// Why a format refuses a request or gives one up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Decides the HTTP status.
    pub kind: FailureKind,
    /// For the person who sent the request: what is wrong and how to mend it. The host cuts it at 4 KiB.
    pub message: String,
}

/// Kinds of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The request's params are wrong: HTTP 400.
    InvalidParams,
    /// No output can satisfy the constraint: HTTP 422.
    Unsatisfiable,
    /// A field used up its attempts: HTTP 422.
    Exhausted,
    /// The plugin is at fault: HTTP 502.
    Internal,
}

impl Failure {
    /// The request's params are wrong.
    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(FailureKind::InvalidParams, message)
    }

    /// No output can satisfy the constraint.
    pub fn unsatisfiable(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Unsatisfiable, message)
    }

    /// A field used up its attempts.
    pub fn exhausted(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Exhausted, message)
    }

    /// The plugin is at fault.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Internal, message)
    }

    fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}
