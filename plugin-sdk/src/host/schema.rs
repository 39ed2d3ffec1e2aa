//! JSON Schemas for `testing`: what llguidance masks, and what is validated instead.
//!
//! A server finds the tightest mask that it can. Here a keyword that llguidance does not know is simply
//! left out of the mask, so that a trace may allow a text that a server's mask would not; what is left to
//! validation is validated alike. A value that fails is begun again at a whole value, where a server may find
//! a smaller part.

use crate::{Failure, Formats, Invalid, KeyOrder, Spacing};
use jsonschema::{Retrieve, Uri, Validator};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

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

/// A schema with its options.
pub(super) struct Schema {
    schema: Value,
    spacing: Spacing,
    key_order: KeyOrder,
    formats: Formats,
    documents: BTreeMap<String, Value>,
}

/// What is left to validation.
pub(super) struct Rest {
    pub(super) pointers: Vec<String>,
    validator: Validator,
}

/// Whether llguidance may leave out what it does not know.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Leniency {
    Strict,
    Lenient,
}

/// The documents that come with a schema; no other is to be had.
struct Shelf(BTreeMap<String, Value>);

impl Retrieve for Shelf {
    fn retrieve(
        &self,
        uri: &Uri<String>,
    ) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        let known = self.0.get(uri.as_str().trim_end_matches('#'));
        known
            .cloned()
            .ok_or_else(|| format!("there is no document {uri}").into())
    }
}

impl Schema {
    pub(super) fn read(source: &crate::Schema) -> Result<Self, Failure> {
        let schema = match parse(&source.text, "JSON Schema")? {
            Value::Bool(true) => json!({}),
            Value::Bool(false) => {
                return Err(Failure::unsatisfiable(
                    "the JSON Schema `false` allows no value",
                ));
            }
            object => object,
        };
        let mut documents = BTreeMap::new();
        for (uri, text) in &source.documents {
            let document = parse(text, &format!("document {uri}"))?;
            documents.insert(uri.trim_end_matches('#').to_owned(), document);
        }
        Ok(Self {
            schema,
            spacing: source.spacing,
            key_order: source.key_order,
            formats: source.formats,
            documents,
        })
    }

    /// For llguidance, which knows one order of keys: with any order, the mask is that of any value. A
    /// lenient grammar leaves out what llguidance does not know.
    pub(super) fn lowered(&self, lenient: Leniency) -> Value {
        let mut schema = match self.is_ordered() {
            true => self.bundled(),
            false => json!({}),
        };
        if self.formats == Formats::Annotated {
            strip_formats(&mut schema);
        }
        let (item, key) = match self.spacing {
            Spacing::Compact => (",", ":"),
            Spacing::Spaced => (", ", ": "),
        };
        schema["x-guidance"] = json!({
            "whitespace_flexible": false,
            "item_separator": item,
            "key_separator": key,
            "lenient": matches!(lenient, Leniency::Lenient),
        });
        schema
    }

    fn is_ordered(&self) -> bool {
        self.key_order == KeyOrder::Schema
    }

    /// The schema with its documents among its definitions.
    fn bundled(&self) -> Value {
        let mut schema = self.schema.clone();
        if let (false, Some(map)) = (self.documents.is_empty(), schema.as_object_mut()) {
            let shelf = map.entry("$defs").or_insert_with(|| json!({}));
            for (uri, document) in &self.documents {
                let mut document = document.clone();
                if let (Some(shelf), Value::Object(members)) =
                    (shelf.as_object_mut(), &mut document)
                {
                    members.insert("$id".to_owned(), uri.as_str().into());
                    shelf.insert(uri.clone(), document);
                }
            }
        }
        schema
    }

    /// What a mask leaves to validation; `None` where that is nothing.
    ///
    /// # Errors
    /// When the schema is none by the rules of its draft.
    pub(super) fn rest(&self, lenient: Leniency) -> Result<Option<Rest>, Failure> {
        let mut pointers = Vec::new();
        let mut open = |key: &str, child: &Value| {
            let calendar = self.formats == Formats::Asserted
                && key == "format"
                && CALENDAR.iter().any(|name| child == name);
            let unmaskable = lenient == Leniency::Lenient && UNMASKABLE.contains(&key);
            let unordered = !self.is_ordered() && key == "properties" && child.is_object();
            calendar || unmaskable || unordered
        };
        find(&self.schema, &mut String::new(), &mut open, &mut pointers);
        if pointers.is_empty() && self.is_ordered() {
            return Ok(None);
        }
        let validator = jsonschema::options()
            .should_validate_formats(self.formats == Formats::Asserted)
            .with_retriever(Shelf(self.documents.clone()))
            .build(&self.schema)
            .map_err(|error| Failure::invalid_params(format!("the JSON Schema: {error}")))?;
        Ok(Some(Rest {
            pointers,
            validator,
        }))
    }
}

/// A schema's text, called `name` in messages.
fn parse(text: &str, name: &str) -> Result<Value, Failure> {
    let schema: Value = serde_json::from_str(text)
        .map_err(|error| Failure::invalid_params(format!("the {name} is no JSON: {error}")))?;
    match schema {
        Value::Object(_) | Value::Bool(_) => Ok(schema),
        _ => Err(Failure::invalid_params(
            "a JSON Schema is an object or a boolean",
        )),
    }
}

/// Takes the keyword `format` out; a property of that name has a schema and no text as its value.
fn strip_formats(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if map.get("format").is_some_and(Value::is_string) {
                map.shift_remove("format");
            }
            map.values_mut().for_each(strip_formats);
        }
        Value::Array(items) => items.iter_mut().for_each(strip_formats),
        _ => {}
    }
}

impl Rest {
    pub(super) fn validate(&self, text: &[u8]) -> Result<(), Invalid> {
        let value: Value = serde_json::from_slice(text).map_err(|error| Invalid {
            reason: format!("the value is not JSON: {error}"),
            places: vec![0],
        })?;
        let text = String::from_utf8_lossy(text);
        let errors = self.validator.iter_errors(&value);
        let first = errors
            .map(|error| (places(&text, error.instance_path().as_str()), error))
            .min_by_key(|(places, _)| places[0]);
        let Some((places, error)) = first else {
            return Ok(());
        };
        let reason = match error.instance_path().as_str() {
            "" => error.to_string(),
            pointer => format!("at {pointer}: {error}"),
        };
        Err(Invalid { reason, places })
    }
}

/// Byte offsets of the value at a pointer, then of those around it from the inside out.
fn places(text: &str, pointer: &str) -> Vec<u32> {
    let mut places = vec![0];
    let mut value: Option<&RawValue> = serde_json::from_str(text).ok();
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        let Some(raw) = value else { break };
        value = if raw.get().starts_with('[') {
            let items: Vec<&RawValue> = serde_json::from_str(raw.get()).unwrap_or_default();
            step.parse()
                .ok()
                .and_then(|index: usize| items.get(index).copied())
        } else {
            let members: BTreeMap<String, &RawValue> =
                serde_json::from_str(raw.get()).unwrap_or_default();
            members.get(&step).copied()
        };
        // A value is a slice of the text: the distance between the two is its offset.
        places
            .extend(value.map(|raw| (raw.get().as_ptr() as usize - text.as_ptr() as usize) as u32));
    }
    places.reverse();
    places.dedup();
    places
}

/// Pointers of the keywords that `open` says are not enforced.
fn find(
    value: &Value,
    pointer: &mut String,
    open: &mut impl FnMut(&str, &Value) -> bool,
    found: &mut Vec<String>,
) {
    let length = pointer.len();
    let mut step = |key: &str, child: &Value, found: &mut Vec<String>| {
        pointer.push('/');
        pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
        if open(key, child) {
            found.push(pointer.clone());
        }
        find(child, pointer, open, found);
        pointer.truncate(length);
    };
    match value {
        Value::Object(map) => members(map).for_each(|(key, child)| step(key, child, found)),
        Value::Array(items) => {
            for (index, child) in items.iter().enumerate() {
                step(&index.to_string(), child, found);
            }
        }
        _ => {}
    }
}

/// The members of a schema that are not data.
fn members(map: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    map.iter()
        .filter(|(key, _)| !["const", "enum", "default", "examples"].contains(&key.as_str()))
}
