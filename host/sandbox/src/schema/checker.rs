//! Validation of finished values, for what the mask does not enforce.

use super::Formats;
use super::documents::{Documents, Shelf};
use super::places::Node;
use super::work::Effort;
use crate::failure::truncate;
use jsonschema::error::ValidationErrorKind as Kind;
use jsonschema::{Draft, PatternOptions, ValidationError, Validator};
use serde_json::Value;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Stack of a validating thread: validators recurse along schema and value.
const STACK_BYTES: usize = 256 << 20;
/// How long a caller waits for a verdict.
const PATIENCE: Duration = Duration::from_secs(3);
/// Steps of one pattern that needs backtracking.
const BACKTRACKS: usize = 200_000;
/// Bytes of one compiled pattern. Schemas do hold `{0,5000}` around a class of Unicode.
const PATTERN_BYTES: usize = 64 << 20;
/// Errors that a reason names.
const MOST_ERRORS: usize = 3;
/// Errors that are put in order. Of more it is not known which comes first in the text.
const MOST_ORDERED: usize = 1_000;
/// Bytes of one error in a reason.
const ERROR_BYTES: usize = 300;

/// Why a text is no value of a schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Invalid {
    /// What is wrong and where in the value, by JSON pointers; bounded.
    pub reason: String,
    /// Where the text can be begun again, as byte offsets: first the part at fault (of several, the first in
    /// the text), then the values around it from the inside out, 0 at last. Nothing before the first of them
    /// is at fault.
    pub places: Vec<usize>,
}

impl Invalid {
    /// All of it has to be written again.
    fn whole(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            places: vec![0],
        }
    }
}

/// Validates values against a schema.
pub(crate) struct Checker {
    inner: Arc<Inner>,
}

struct Inner {
    schema: Value,
    validator: Validator,
}

impl Checker {
    /// # Errors
    /// What keeps the schema from being one: a reference that leads nowhere, a pattern that is none.
    pub(super) fn new(
        schema: &Value,
        draft: Draft,
        formats: Formats,
        documents: &Documents,
    ) -> Result<Self, String> {
        let patterns = PatternOptions::fancy_regex()
            .backtrack_limit(BACKTRACKS)
            .size_limit(PATTERN_BYTES);
        let validator = jsonschema::options()
            .with_draft(draft)
            .should_validate_formats(formats == Formats::Asserted)
            .with_pattern_options(patterns)
            .with_retriever(Shelf(documents.clone()))
            .build(schema)
            .map_err(|error| unusable(&error))?;
        let schema = schema.clone();
        Ok(Self {
            inner: Arc::new(Inner { schema, validator }),
        })
    }

    /// # Errors
    /// Why the text is not a value that the schema allows, and where it can be begun again.
    pub(crate) fn check(&self, text: &[u8]) -> Result<(), Invalid> {
        let (inner, text) = (self.inner.clone(), crate::spelling::paired(text));
        let (done, verdict) = channel();
        let thread = std::thread::Builder::new()
            .name("schema-check".into())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                // A caller that gave up no longer listens.
                let _ = done.send(inner.check(&text));
            });
        if let Err(error) = thread {
            let message = format!("no thread to validate the value: {error}");
            return Err(Invalid::whole(message));
        }
        verdict.recv_timeout(PATIENCE).unwrap_or_else(|_| {
            let message = format!("validating the value takes longer than {PATIENCE:?}");
            Err(Invalid::whole(message))
        })
    }
}

/// Why there is no validator for a schema.
fn unusable(error: &ValidationError<'_>) -> String {
    let mut message = match error.kind() {
        // That it parses was made sure of before: what is left is what the automaton's limits are for.
        Kind::Format { format } if format == "regex" => format!(
            "the pattern cannot be validated: it takes more than {} MiB when compiled, or holds what no engine \
             here knows",
            PATTERN_BYTES >> 20
        ),
        _ => error.to_string(),
    };
    truncate(&mut message, ERROR_BYTES);
    match error.instance_path().as_str() {
        "" => message,
        pointer => format!("at {pointer}: {message}"),
    }
}

impl Inner {
    fn check(&self, text: &[u8]) -> Result<(), Invalid> {
        let no_json = |error| Invalid::whole(format!("the value is not JSON: {error}"));
        let value: Value = serde_json::from_slice(text).map_err(no_json)?;
        if !Effort::new(&self.schema).is_bearable(&value) {
            let message = "the schema branches too often to validate this value";
            return Err(Invalid::whole(message));
        }
        let root = Node::read(&String::from_utf8_lossy(text)).map_err(no_json)?;
        let mut faults = Vec::new();
        if let Some((pointer, name, index)) = root.first_duplicate() {
            faults.push(Fault {
                places: root.places(text, &pointer, |_| Some(index)),
                pointer,
                cause: Cause::Duplicate(name),
            });
        }
        let errors = self.validator.iter_errors(&value).take(MOST_ORDERED + 1);
        faults.extend(errors.map(|error| Fault::of(error, &root, text)));
        if faults.is_empty() {
            return Ok(());
        }
        let is_ordered = faults.len() <= MOST_ORDERED;
        // Of those that begin at the same place the one that lies deeper: it may be mended by less.
        faults.sort_by_key(|fault| (fault.places[0], std::cmp::Reverse(fault.places.len())));
        let named: Vec<String> = faults.iter().take(MOST_ERRORS).map(Fault::reason).collect();
        let mut reason = named.join("; ");
        if is_ordered && faults.len() > named.len() {
            reason += &format!("; and {} more", faults.len() - named.len());
        }
        let places = match is_ordered {
            true => faults.swap_remove(0).places,
            false => vec![0],
        };
        Err(Invalid { reason, places })
    }
}

/// Something that is wrong with a value.
struct Fault<'a> {
    /// See [`Invalid::places`].
    places: Vec<usize>,
    pointer: String,
    cause: Cause<'a>,
}

enum Cause<'a> {
    Error(ValidationError<'a>),
    /// A property's name is there twice, which no keyword speaks of: the validator sees the last one only.
    Duplicate(String),
}

impl<'a> Fault<'a> {
    fn of(error: ValidationError<'a>, root: &Node, text: &[u8]) -> Self {
        let pointer = error.instance_path().as_str().to_owned();
        let places = match (error.kind(), pointer.rsplit_once('/')) {
            // `false` for one property or item: it is the part that is in the way.
            (Kind::FalseSchema, Some((around, step))) => {
                root.places(text, around, |node| node.at(step))
            }
            _ => root.places(text, &pointer, |node| in_the_way(&error, node)),
        };
        Self {
            places,
            pointer,
            cause: Cause::Error(error),
        }
    }

    fn reason(&self) -> String {
        let mut message = match &self.cause {
            Cause::Error(error) => error.to_string(),
            Cause::Duplicate(name) => format!("the property {name:?} is there twice"),
        };
        truncate(&mut message, ERROR_BYTES);
        match self.pointer.as_str() {
            "" => message,
            pointer => {
                let mut place = pointer.to_owned();
                truncate(&mut place, ERROR_BYTES);
                format!("at {place}: {message}")
            }
        }
    }
}

/// The first item or member that a value would be better off without, as far as the error is about one.
fn in_the_way(error: &ValidationError<'_>, node: &Node) -> Option<usize> {
    match error.kind() {
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            node.named(unexpected)
        }
        Kind::PropertyNames { error } => {
            let name = error.instance().as_str()?.to_owned();
            node.named(&[name])
        }
        Kind::AdditionalItems { limit } => Some(*limit),
        Kind::MaxItems { limit } | Kind::MaxProperties { limit } => usize::try_from(*limit).ok(),
        Kind::UniqueItems => first_repeated(error.instance().as_array()?),
        _ => None,
    }
}

/// The first item that equals one before it, as JSON Schema has it: `1` and `1.0` are the same.
fn first_repeated(items: &[Value]) -> Option<usize> {
    let mut seen = HashSet::new();
    items.iter().position(|item| !seen.insert(canonical(item)))
}

/// Equal for equal values: names in order, numbers in one form.
fn canonical(value: &Value) -> String {
    match value {
        Value::Number(number) if number.is_f64() => match number.as_f64() {
            Some(float) if float.fract() == 0.0 && float.abs() < 9e15 => (float as i64).to_string(),
            _ => number.to_string(),
        },
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(canonical).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(map) => {
            let member =
                |(key, value)| format!("{}:{}", Value::from(String::clone(key)), canonical(value));
            let mut members: Vec<String> = map.iter().map(member).collect();
            members.sort_unstable();
            format!("{{{}}}", members.join(","))
        }
        other => other.to_string(),
    }
}
