//! JSON Schemas for `testing`: what llguidance masks, and what is validated instead.
//!
//! A server finds the tightest mask that it can. Here a keyword that llguidance does not know is simply
//! left out of the mask, so that a trace may allow a text that a server's mask would not; what is left to
//! validation is validated alike.

use crate::Failure;
use jsonschema::Validator;
use serde_json::{Value, json};

/// Keywords that no mask enforces.
const UNMASKABLE: [&str; 14] = [
    "not",
    "if",
    "contains",
    "uniqueItems",
    "propertyNames",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedItems",
    "unevaluatedProperties",
    "minProperties",
    "maxProperties",
    "oneOf",
    "$dynamicRef",
];

/// Formats of which the mask knows the form but not the calendar.
const CALENDAR: [&str; 3] = ["date", "date-time", "time"];

/// A schema with its options for llguidance.
pub(super) struct Schema {
    schema: Value,
}

/// What is left to validation.
pub(super) struct Rest {
    pub(super) pointers: Vec<String>,
    validator: Validator,
}

impl Schema {
    pub(super) fn parse(text: &str) -> Result<Self, Failure> {
        let schema: Value = serde_json::from_str(text).map_err(|error| {
            Failure::invalid_params(format!("the JSON Schema is no JSON: {error}"))
        })?;
        let schema = match schema {
            Value::Bool(true) => json!({}),
            Value::Bool(false) => {
                return Err(Failure::unsatisfiable(
                    "the JSON Schema `false` allows no value",
                ));
            }
            Value::Object(object) => Value::Object(object),
            _ => {
                return Err(Failure::invalid_params(
                    "a JSON Schema is an object or a boolean",
                ));
            }
        };
        Ok(Self { schema })
    }

    /// For llguidance: no white space, as the host does it. A lenient grammar leaves out what
    /// llguidance does not know.
    pub(super) fn compact(&self, lenient: Leniency) -> Value {
        let mut schema = self.schema.clone();
        schema["x-guidance"] = json!({
            "whitespace_flexible": false,
            "item_separator": ",",
            "key_separator": ":",
            "lenient": matches!(lenient, Leniency::Lenient),
        });
        schema
    }

    /// What a mask leaves to validation; `None` where that is nothing.
    ///
    /// # Errors
    /// When the schema is none by the rules of its draft.
    pub(super) fn rest(&self, lenient: Leniency) -> Result<Option<Rest>, Failure> {
        let mut pointers = Vec::new();
        find(&self.schema, &mut String::new(), lenient, &mut pointers);
        if pointers.is_empty() {
            return Ok(None);
        }
        let validator = jsonschema::options()
            .should_validate_formats(true)
            .offline()
            .build(&self.schema)
            .map_err(|error| Failure::invalid_params(format!("the JSON Schema: {error}")))?;
        Ok(Some(Rest {
            pointers,
            validator,
        }))
    }
}

/// Whether llguidance may leave out what it does not know.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Leniency {
    Strict,
    Lenient,
}

impl Rest {
    pub(super) fn validate(&self, text: &[u8]) -> Result<(), String> {
        let value: Value = serde_json::from_slice(text)
            .map_err(|error| format!("the value is not JSON: {error}"))?;
        self.validator
            .validate(&value)
            .map_err(|error| match error.instance_path().as_str() {
                "" => error.to_string(),
                pointer => format!("at {pointer}: {error}"),
            })
    }
}

fn find(value: &Value, pointer: &mut String, lenient: Leniency, found: &mut Vec<String>) {
    let length = pointer.len();
    let mut step = |key: &str, child: &Value, found: &mut Vec<String>| {
        pointer.push('/');
        pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
        let calendar = key == "format" && CALENDAR.iter().any(|name| child == name);
        let unmaskable = lenient == Leniency::Lenient && UNMASKABLE.contains(&key);
        if calendar || unmaskable {
            found.push(pointer.clone());
        }
        find(child, pointer, lenient, found);
        pointer.truncate(length);
    };
    match value {
        Value::Object(map) => {
            let schemas = |key: &str| !["const", "enum", "default", "examples"].contains(&key);
            for (key, child) in map.iter().filter(|(key, _)| schemas(key)) {
                step(key, child, found);
            }
        }
        Value::Array(items) => {
            for (index, child) in items.iter().enumerate() {
                step(&index.to_string(), child, found);
            }
        }
        _ => {}
    }
}
