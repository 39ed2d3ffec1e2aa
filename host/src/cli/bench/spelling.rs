//! How an instance is written: compactly, numbers plainly, keys in the order that the schema gives.

use std::collections::HashMap;

use serde_json::{Map, Number, Value};

/// How numbers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Numbers {
    /// A whole number as one, whatever its type in the data.
    Plain,
    /// As they stand: to draft 4, 1.0 is no integer.
    Literal,
}

impl Numbers {
    pub(super) fn of(schema: &Value) -> Self {
        let draft = schema.get("$schema").and_then(Value::as_str);
        match draft.is_some_and(|uri| uri.contains("draft-04")) {
            true => Self::Literal,
            false => Self::Plain,
        }
    }
}

/// The order in which keys come in a schema's text, as far as it tells.
pub(super) struct KeyOrder {
    first: HashMap<String, usize>,
    schema: Value,
    numbers: Numbers,
}

impl KeyOrder {
    pub(super) fn of(schema: &Value) -> Self {
        let mut order = Self {
            first: HashMap::new(),
            schema: schema.clone(),
            numbers: Numbers::of(schema),
        };
        order.visit(schema);
        order
    }

    fn visit(&mut self, schema: &Value) {
        match schema {
            Value::Object(map) => {
                for (keyword, value) in map {
                    let names: Vec<&String> = match (keyword.as_str(), value) {
                        ("properties", Value::Object(members)) => members.keys().collect(),
                        _ => Vec::new(),
                    };
                    for name in names {
                        let next = self.first.len();
                        self.first.entry(name.clone()).or_insert(next);
                    }
                    self.visit(value);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.visit(item)),
            _ => {}
        }
    }

    /// The instance's text with keys in the schema's order: that of the subschema which stands for an
    /// object where one is found, else that of the schema's text as a whole.
    pub(super) fn write(&self, instance: &Value) -> String {
        let mut text = String::new();
        let schemas = self.resolve(vec![&self.schema]);
        self.value(instance, &schemas, &mut text);
        text
    }

    fn value(&self, value: &Value, schemas: &[&Value], text: &mut String) {
        match value {
            Value::Object(map) => self.object(map, schemas, text),
            Value::Array(items) => {
                text.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        text.push(',');
                    }
                    let inner = schemas
                        .iter()
                        .filter_map(|schema| item_schema(schema, index));
                    self.value(item, &self.resolve(inner.collect()), text);
                }
                text.push(']');
            }
            Value::Number(number) => text.push_str(&plain(number, self.numbers)),
            other => text.push_str(&other.to_string()),
        }
    }

    fn object(&self, map: &Map<String, Value>, schemas: &[&Value], text: &mut String) {
        // Properties in the order in which the schemas name them, then what is only required.
        let mut named: Vec<&str> = Vec::new();
        for schema in schemas {
            let properties = schema.get("properties").and_then(Value::as_object);
            named.extend(
                properties
                    .into_iter()
                    .flatten()
                    .map(|(name, _)| name.as_str()),
            );
        }
        for schema in schemas {
            let required = schema.get("required").and_then(Value::as_array);
            named.extend(required.into_iter().flatten().filter_map(Value::as_str));
        }
        let mut members: Vec<_> = map.iter().collect();
        members.sort_by_key(|(key, _)| {
            let place = named.iter().position(|name| name == key);
            let anywhere = self.first.get(*key).filter(|_| named.is_empty());
            place.or(anywhere.copied()).unwrap_or(usize::MAX)
        });
        text.push('{');
        for (index, (key, member)) in members.into_iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            text.push_str(&Value::from(key.as_str()).to_string());
            text.push(':');
            let inner = schemas
                .iter()
                .filter_map(|schema| member_schema(schema, key));
            self.value(member, &self.resolve(inner.collect()), text);
        }
        text.push('}');
    }

    /// The schemas with those that they refer to or are made of, in the order of their text.
    fn resolve<'a>(&'a self, schemas: Vec<&'a Value>) -> Vec<&'a Value> {
        let mut found: Vec<&Value> = Vec::new();
        let mut open: Vec<&Value> = schemas.into_iter().rev().collect();
        while let Some(schema) = open.pop() {
            let seen = found.iter().any(|other| std::ptr::eq(*other, schema));
            if seen || found.len() > 1_000 {
                continue;
            }
            found.push(schema);
            let Value::Object(map) = schema else { continue };
            let mut parts: Vec<&Value> = Vec::new();
            for (keyword, value) in map {
                match (keyword.as_str(), value) {
                    ("$ref", Value::String(reference)) => {
                        let pointer = reference.strip_prefix('#');
                        parts.extend(pointer.and_then(|pointer| self.schema.pointer(pointer)));
                    }
                    ("allOf" | "anyOf" | "oneOf", Value::Array(list)) => parts.extend(list),
                    ("if" | "then" | "else", other) => parts.push(other),
                    _ => {}
                }
            }
            open.extend(parts.into_iter().rev());
        }
        found
    }
}

fn member_schema<'a>(schema: &'a Value, key: &str) -> Option<&'a Value> {
    let named = schema
        .get("properties")
        .and_then(|members| members.get(key));
    named.or_else(|| schema.get("additionalProperties"))
}

fn item_schema(schema: &Value, index: usize) -> Option<&Value> {
    let positional = schema.get("prefixItems").or_else(|| schema.get("items"));
    let at = positional.and_then(|list| list.as_array()?.get(index));
    at.or_else(|| schema.get("items").filter(|items| !items.is_array()))
        .or_else(|| schema.get("additionalItems"))
}

/// A number, without an exponent where it can do without.
pub(super) fn plain(number: &Number, numbers: Numbers) -> String {
    match number.as_f64().filter(|_| number.is_f64()) {
        Some(float) if float.fract() == 0.0 && numbers == Numbers::Plain => format!("{float:.0}"),
        Some(float) if float.fract() == 0.0 && float.abs() < 1e15 => format!("{float:.1}"),
        Some(float) if (1e-9..1e15).contains(&float.abs()) => format!("{float}"),
        _ => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_follow_the_schema() {
        let schema = json!({
            "properties": {"b": {"$ref": "#/$defs/inner"}, "a": {"items": {"$ref": "#/$defs/inner"}}},
            "required": ["z"],
            "$defs": {"inner": {"properties": {"y": {}, "x": {}}}},
        });
        let order = KeyOrder::of(&schema);
        let instance =
            json!({"other": 1, "a": [{"x": 1.0, "y": 1e3}], "z": 0.25, "b": {"x": 1, "y": 2}});
        assert_eq!(
            order.write(&instance),
            r#"{"b":{"y":2,"x":1},"a":[{"y":1000,"x":1}],"z":0.25,"other":1}"#
        );
    }
}
