//! Validation of finished values, for what the mask does not enforce.

use super::documents::{Documents, Shelf};
use super::work::Effort;
use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::Value;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Stack of a validating thread: validators recurse along schema and value.
const STACK_BYTES: usize = 256 << 20;
/// How long a caller waits for a verdict.
const PATIENCE: Duration = Duration::from_millis(1_000);
/// Steps of one pattern that needs backtracking.
const BACKTRACKS: usize = 200_000;
/// Errors that a reason names.
const MOST_ERRORS: usize = 3;
/// Bytes of one error in a reason.
const ERROR_BYTES: usize = 300;

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
    pub(super) fn new(schema: &Value, draft: Draft, documents: &Documents) -> Result<Self, String> {
        let validator = jsonschema::options()
            .with_draft(draft)
            .should_validate_formats(true)
            .with_pattern_options(PatternOptions::fancy_regex().backtrack_limit(BACKTRACKS))
            .with_retriever(Shelf(documents.clone()))
            .build(schema)
            .map_err(|error| {
                let mut message = error.to_string();
                crate::failure::truncate(&mut message, ERROR_BYTES);
                match error.instance_path().as_str() {
                    "" => message,
                    pointer => format!("at {pointer}: {message}"),
                }
            })?;
        let schema = schema.clone();
        Ok(Self {
            inner: Arc::new(Inner { schema, validator }),
        })
    }

    /// # Errors
    /// Why the text is not a value that the schema allows, with the places in the value.
    pub(crate) fn check(&self, text: &[u8]) -> Result<(), String> {
        let (inner, text) = (self.inner.clone(), text.to_vec());
        let (done, verdict) = channel();
        let thread = std::thread::Builder::new()
            .name("schema-check".into())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                // A caller that gave up no longer listens.
                let _ = done.send(inner.check(&text));
            });
        if let Err(error) = thread {
            return Err(format!("no thread to validate the value: {error}"));
        }
        verdict.recv_timeout(PATIENCE).unwrap_or_else(|_| {
            Err(format!(
                "validating the value takes longer than {PATIENCE:?}"
            ))
        })
    }
}

impl Inner {
    fn check(&self, text: &[u8]) -> Result<(), String> {
        let value: Value = serde_json::from_slice(text)
            .map_err(|error| format!("the value is not JSON: {error}"))?;
        if !Effort::new(&self.schema).is_bearable(&value) {
            return Err("the schema branches too often to validate this value".into());
        }
        let mut reasons = Vec::new();
        for error in self.validator.iter_errors(&value).take(MOST_ERRORS) {
            let mut message = error.to_string();
            crate::failure::truncate(&mut message, ERROR_BYTES);
            reasons.push(match error.instance_path().as_str() {
                "" => message,
                pointer => format!("at {pointer}: {message}"),
            });
        }
        match reasons.is_empty() {
            true => Ok(()),
            false => Err(reasons.join("; ")),
        }
    }
}
