//! What came of a trace.

use crate::log::Level;
use crate::{Failure, FailureKind, Format};
use std::borrow::Cow;
use std::fmt;

/// What came of a trace.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The output up to the end or the failure, with replacements and fallbacks in their places.
    pub output: Vec<u8>,
    /// The fields in order, the template's own choices (named `?…`) left out.
    pub fields: Vec<FieldOutcome>,
    /// Attempts that were refused by a check and followed by another one.
    pub retries: u32,
    /// How it ended.
    pub end: End,
    /// Lines the plugin wrote to its log.
    pub log: Vec<(Level, String)>,
}

/// One decoded field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldOutcome {
    /// The field's name.
    pub name: String,
    /// The bytes that stand in the output.
    pub value: Vec<u8>,
    /// Attempts it took, 1 when the first one stood.
    pub attempts: u32,
    /// False when the last attempt was refused and stood nevertheless.
    pub verified: bool,
    /// The reasons for which attempts were refused, in order.
    pub reasons: Vec<String>,
    /// Most tokens of one attempt, as the host is told; a trace does not enforce it.
    pub max_tokens: u32,
    /// The temperature the host is told, if any.
    pub temperature: Option<f32>,
}

/// How a trace ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The plugin finished the output at the end of the text.
    Finished,
    /// The plugin gave up.
    Failed(Failure),
    /// The format does not allow the text.
    Rejected(Rejection),
}

/// Where and why a format does not allow a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Byte offset in the text.
    pub at: usize,
    /// What was expected there.
    pub why: String,
}

impl fmt::Display for Rejection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "at byte {}: {}", self.at, self.why)
    }
}

impl FieldOutcome {
    /// The value as text.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.value)
    }
}

impl Outcome {
    /// The output as text.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.output)
    }

    /// The plugin's failure, if it gave up.
    pub fn failure(&self) -> Option<&Failure> {
        match &self.end {
            End::Failed(failure) => Some(failure),
            End::Finished | End::Rejected(_) => None,
        }
    }

    /// Why the format does not allow the text, if it does not.
    pub fn rejection(&self) -> Option<&Rejection> {
        match &self.end {
            End::Rejected(rejection) => Some(rejection),
            End::Finished | End::Failed(_) => None,
        }
    }

    /// The last field of this name.
    ///
    /// # Panics
    /// When there is none.
    #[track_caller]
    pub fn field(&self, name: &str) -> &FieldOutcome {
        let found = self.fields.iter().rev().find(|field| field.name == name);
        match found {
            Some(field) => field,
            None => panic!("no field {name:?} was decoded; {self}"),
        }
    }

    /// Asserts that the output was finished and is this text.
    ///
    /// # Panics
    /// When it is not.
    #[track_caller]
    pub fn assert_output(&self, expected: &str) {
        assert_eq!(self.end, End::Finished, "{self}");
        assert_eq!(self.text(), expected);
    }

    /// Asserts that the last field of this name has this value.
    ///
    /// # Panics
    /// When it has not.
    #[track_caller]
    pub fn assert_field(&self, name: &str, expected: &str) {
        assert_eq!(self.field(name).text(), expected, "field {name:?}");
    }

    /// Asserts that the plugin gave up with this kind of failure and a message that contains `part`.
    ///
    /// # Panics
    /// When it did not.
    #[track_caller]
    pub fn assert_failure(&self, kind: FailureKind, part: &str) {
        match self.failure() {
            Some(failure) => {
                assert_eq!(failure.kind, kind, "{self}");
                assert!(failure.message.contains(part), "{part:?} is not in: {self}");
            }
            None => panic!("expected a failure, but {self}"),
        }
    }

    /// Asserts that the format does not allow the text from this byte offset on, for a reason that
    /// contains `part`.
    ///
    /// # Panics
    /// When it does, or for another reason.
    #[track_caller]
    pub fn assert_rejected(&self, at: usize, part: &str) {
        match self.rejection() {
            Some(rejection) => {
                assert_eq!(rejection.at, at, "{self}");
                assert!(rejection.why.contains(part), "{part:?} is not in: {self}");
            }
            None => panic!("expected a rejection, but {self}"),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.end {
            End::Finished => write!(out, "the output is finished: {:?}", self.text()),
            End::Failed(failure) => {
                let kind = failure.kind;
                write!(
                    out,
                    "the plugin gave up ({kind:?}: {failure}) after {:?}",
                    self.text()
                )
            }
            End::Rejected(rejection) => {
                write!(
                    out,
                    "the text is rejected {rejection}; so far: {:?}",
                    self.text()
                )
            }
        }
    }
}

/// Asserts that a format's params are described by a JSON Schema of draft 2020-12: an object that takes
/// no other keys than the described ones.
///
/// # Panics
/// When they are not.
#[track_caller]
pub fn assert_described<T: Format>() {
    let schema: serde_json::Value = match serde_json::from_str(T::PARAMS) {
        Ok(schema) => schema,
        Err(error) => panic!("PARAMS is no JSON: {error}"),
    };
    assert_eq!(schema["type"], "object", "params are an object");
    assert_eq!(
        schema["additionalProperties"], false,
        "params refuse unknown keys"
    );
    let properties = schema["properties"].as_object().into_iter().flatten();
    for (name, property) in properties {
        assert!(
            property["description"].is_string() || property["$ref"].is_string(),
            "param {name:?} has no description"
        );
    }
}
