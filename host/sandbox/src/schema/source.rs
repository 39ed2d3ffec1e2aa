//! A JSON Schema as it is given: its text, how its values are written, and what it may refer to.

use super::pointer::escape;
use crate::source::check_regex;
use crate::{Failure, GrammarLimits};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// A JSON Schema as JSON text, with how its values are written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Schema {
    /// The schema.
    pub text: String,
    /// White space within values.
    pub spacing: Spacing,
    /// The order of an object's properties.
    pub key_order: KeyOrder,
    /// What formats assert.
    pub formats: Formats,
    /// Documents that the schema may refer to: absolute URI and JSON text of each. Nothing is ever fetched.
    pub documents: Vec<(String, String)>,
}

/// White space within the values of a schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Spacing {
    /// None.
    #[default]
    Compact,
    /// One space after each comma and each colon, as Python's `json.dumps` writes by default.
    Spaced,
}

/// The order in which an object's properties are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KeyOrder {
    /// As the schema names them, then those that are only required, then additional ones.
    #[default]
    Schema,
    /// Any.
    Any,
}

/// What `format` does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Formats {
    /// Values have the format.
    #[default]
    Asserted,
    /// A format only describes.
    Annotated,
}

impl From<String> for Schema {
    fn from(text: String) -> Self {
        Self {
            text,
            ..Self::default()
        }
    }
}

impl From<&str> for Schema {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl Schema {
    /// Bytes of source text, the documents' included.
    pub(crate) fn len(&self) -> usize {
        let documents = self.documents.iter();
        self.text.len()
            + documents
                .map(|(uri, text)| uri.len() + text.len())
                .sum::<usize>()
    }

    /// Hands over all that tells this schema from another.
    pub(crate) fn fields(&self, mut field: impl FnMut(&[u8])) {
        let options = [self.spacing as u8, self.key_order as u8, self.formats as u8];
        field(self.text.as_bytes());
        field(&options);
        for (uri, text) in &self.documents {
            field(uri.as_bytes());
            field(text.as_bytes());
        }
    }
}

/// A schema that is safe to recurse into.
pub(crate) struct Prepared {
    pub(crate) schema: Value,
    pub(crate) spacing: Spacing,
    pub(crate) key_order: KeyOrder,
    pub(crate) formats: Formats,
    /// By absolute URI, without an empty fragment.
    pub(crate) documents: BTreeMap<String, Value>,
}

impl Schema {
    /// Checks depth without recursion, and every pattern by itself.
    pub(crate) fn prepare(&self, limits: &GrammarLimits) -> Result<Prepared, Failure> {
        let schema = read(&self.text, "JSON schema", limits)?;
        if schema == Value::Bool(false) {
            let message = "the JSON schema `false` allows no value";
            return Err(Failure::unsatisfiable(message));
        }
        let mut documents = BTreeMap::new();
        for (uri, text) in &self.documents {
            let name = uri.trim_end_matches('#');
            let absolute = jsonschema::uri::from_str(name)
                .is_ok_and(|uri| uri.as_str() == name && !name.contains('#'));
            if !absolute {
                return Err(Failure::params(format!(
                    "the name of the document {uri:?} is not an absolute URI without a fragment"
                )));
            }
            let document = read(text, &format!("document {name}"), limits)?;
            if documents.insert(name.to_owned(), document).is_some() {
                let message = format!("the document {name} is given twice");
                return Err(Failure::params(message));
            }
        }
        Ok(Prepared {
            schema,
            spacing: self.spacing,
            key_order: self.key_order,
            formats: self.formats,
            documents,
        })
    }

    /// Where in the schema the reason for "unsatisfiable" lies, as far as it is plain to see.
    pub(crate) fn unsatisfiable_at(&self) -> Option<String> {
        let schema: Value = serde_json::from_str(&self.text).ok()?;
        let mut found = None;
        walk(&schema, &mut String::new(), &mut |value, pointer| {
            let empty = |key| {
                let list = value.get(key).and_then(Value::as_array);
                list.is_some_and(Vec::is_empty)
            };
            for key in ["enum", "anyOf", "oneOf"] {
                if found.is_none() && empty(key) {
                    found = Some(format!("{pointer}/{key}"));
                }
            }
        });
        found
    }
}

/// Parses what is called `name` in messages.
fn read(text: &str, name: &str, limits: &GrammarLimits) -> Result<Value, Failure> {
    if let Some(offset) = deeper_than(text, limits.depth) {
        return Err(Failure::params(format!(
            "the {name} nests deeper than the limit (depth) of {} at byte {offset}",
            limits.depth
        )));
    }
    let schema: Value = serde_json::from_str(text)
        .map_err(|error| Failure::params(format!("the {name} is not JSON: {error}")))?;
    if !matches!(schema, Value::Object(_) | Value::Bool(_)) {
        return Err(Failure::params(format!(
            "the {name} is not a JSON schema: a schema is an object or a boolean, not {}",
            type_name(&schema)
        )));
    }
    check_patterns(&schema, name, limits)?;
    Ok(schema)
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// Checks every `pattern` and every key of `patternProperties` by itself, so that an error can name
/// the place and no hostile pattern reaches the compiler.
fn check_patterns(schema: &Value, name: &str, limits: &GrammarLimits) -> Result<(), Failure> {
    let mut error = None;
    walk(schema, &mut String::new(), &mut |value, pointer| {
        let pattern = value.get("pattern").and_then(Value::as_str);
        let keys = value.get("patternProperties").and_then(Value::as_object);
        let keys = keys.into_iter().flat_map(Map::keys).map(String::as_str);
        let patterns = pattern.map(|text| (text, "pattern")).into_iter();
        for (text, key) in patterns.chain(keys.map(|text| (text, "patternProperties"))) {
            if let Err(message) = check_pattern(text, limits) {
                error.get_or_insert_with(|| {
                    Failure::params(format!("{name} at {pointer}/{key}: {message}"))
                });
            }
        }
    });
    error.map_or(Ok(()), Err)
}

/// Checks a pattern in JavaScript's dialect. One that Rust's parser does not take may still be for the
/// validator, unless its nesting is hostile.
fn check_pattern(text: &str, limits: &GrammarLimits) -> Result<(), String> {
    // These classes are ASCII in JavaScript.
    let Err(message) = check_regex(&llguidance::regex_to_lark(text, "dw"), limits) else {
        return Ok(());
    };
    let open = text.bytes().filter(|&byte| byte == b'(').count();
    let valid = || {
        jsonschema::options()
            .build(&json!({"pattern": text}))
            .is_ok()
    };
    if open <= limits.depth && !text.contains("<stop>") && valid() {
        return Ok(());
    }
    Err(message)
}

/// Visits every object of the schema with its JSON pointer, but not the values in it that are data.
/// The depth is bounded by the check before.
fn walk(value: &Value, pointer: &mut String, visit: &mut impl FnMut(&Value, &str)) {
    let length = pointer.len();
    match value {
        Value::Object(map) => {
            visit(value, pointer);
            for (key, child) in map {
                let data = ["const", "enum", "default", "examples", "x-guidance"];
                if data.contains(&key.as_str()) {
                    continue;
                }
                pointer.push('/');
                pointer.push_str(&escape(key));
                walk(child, pointer, visit);
                pointer.truncate(length);
            }
        }
        Value::Array(items) => {
            for (index, child) in items.iter().enumerate() {
                pointer.push_str(&format!("/{index}"));
                walk(child, pointer, visit);
                pointer.truncate(length);
            }
        }
        _ => {}
    }
}

/// Byte offset of the first bracket of JSON text that opens a level deeper than `limit`.
fn deeper_than(text: &str, limit: usize) -> Option<usize> {
    let (mut depth, mut quoted, mut escaped) = (0usize, false, false);
    for (offset, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'{' | b'[' => {
                depth += 1;
                if depth > limit {
                    return Some(offset);
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Source;

    #[test]
    fn brackets_in_strings_do_not_nest() {
        let text = format!("{{\"const\":\"{}\\\"[[\"}}", "[".repeat(200));
        assert_eq!(deeper_than(&text, 1), None);
        let source = Source::JsonSchema(text.into());
        assert!(source.prepare(&GrammarLimits::default()).is_ok());
    }

    #[test]
    fn the_pointer_of_an_empty_enum_is_found() {
        let text = r#"{"properties":{"x":{"items":[{"enum":[]}]}},"default":{"enum":[]}}"#;
        assert_eq!(
            Schema::from(text).unsatisfiable_at().unwrap(),
            "/properties/x/items/0/enum"
        );
    }
}
