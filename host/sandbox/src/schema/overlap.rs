//! Which `oneOf`s have alternatives that may take the same value. The mask takes a `oneOf` for an `anyOf`,
//! which is the same thing exactly where no two alternatives do.

use super::claims::{ARRAY, Claims, OBJECT};
use super::lower::Lowered;
use super::pointer::{escape, is_resource, local_target};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Comparisons for one `oneOf`; past them its alternatives are taken to overlap.
const MOST_STEPS: usize = 5_000;
/// How deep the members of values are compared.
const MOST_DEPTH: usize = 8;
/// References followed in a row.
const MOST_REFERENCES: usize = 32;

/// Leaves each `oneOf` whose alternatives may overlap to validation.
pub(super) fn report(lowered: &mut Lowered) {
    let mut unions = Vec::new();
    find_unions(&lowered.schema, &mut String::new(), &mut unions);
    let comparison = Comparison::new(&lowered.schema);
    let overlapping =
        |pointer: &String| lowered.is_asserted(pointer) && !comparison.is_exclusive(pointer);
    let pointers = unions.into_iter().filter(overlapping).collect();
    lowered.leave_to_validation(pointers);
}

fn find_unions(value: &Value, pointer: &mut String, found: &mut Vec<String>) {
    let length = pointer.len();
    let mut step = |key: &str, child: &Value, found: &mut Vec<String>| {
        pointer.push('/');
        pointer.push_str(&escape(key));
        if key == "oneOf" && child.is_array() {
            found.push(pointer.clone());
        }
        find_unions(child, pointer, found);
        pointer.truncate(length);
    };
    match value {
        Value::Object(map) => {
            for (key, child) in map {
                if key != "const" && key != "enum" {
                    step(key, child, found);
                }
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

struct Comparison<'a> {
    root: &'a Value,
    /// What absolute references to the root begin with.
    base: &'a str,
    /// Whether `#` means the root everywhere.
    single: bool,
}

/// The work left for one `oneOf`, and where the comparison is.
struct Bounds {
    steps: usize,
    depth: usize,
}

impl<'a> Comparison<'a> {
    fn new(root: &'a Value) -> Self {
        let name = |key| root.get(key).and_then(Value::as_str);
        let base = name("$id").or_else(|| name("id")).unwrap_or("");
        let members = root.as_object().into_iter().flat_map(Map::values);
        Self {
            root,
            base: base.trim_end_matches('#'),
            single: !members.into_iter().any(holds_resource),
        }
    }

    /// Whether no value fits two alternatives of the `oneOf` at a pointer, as far as can be told.
    fn is_exclusive(&self, pointer: &str) -> bool {
        let parent = pointer.strip_suffix("/oneOf").unwrap_or(pointer);
        let options = self.root.pointer(pointer).and_then(Value::as_array);
        let (Some(Value::Object(beside)), Some(options)) = (self.root.pointer(parent), options)
        else {
            return false;
        };
        let mut around = Claims::default();
        self.expand_map(beside, &mut around, 0);
        let alternatives: Vec<Claims> = options
            .iter()
            .map(|option| {
                let mut claims = around.clone();
                self.expand(option, &mut claims, 0);
                claims
            })
            .collect();
        let mut bounds = Bounds {
            steps: MOST_STEPS,
            depth: 0,
        };
        // What stands beside the alternatives holds for all of them: its unions tell nothing apart.
        let spent: BTreeSet<*const Value> = around.unions().map(std::ptr::from_ref).collect();
        alternatives.iter().enumerate().all(|(index, one)| {
            let mut others = alternatives[index + 1..].iter();
            others.all(|other| self.are_apart(one, other, &spent, &mut bounds))
        })
    }

    fn expand(&self, schema: &'a Value, claims: &mut Claims<'a>, references: usize) {
        match schema {
            Value::Bool(false) => claims.never = true,
            Value::Object(map) => self.expand_map(map, claims, references),
            _ => {}
        }
    }

    fn expand_map(&self, map: &'a Map<String, Value>, claims: &mut Claims<'a>, references: usize) {
        if claims.maps.iter().any(|other| std::ptr::eq(*other, map)) {
            return;
        }
        claims.maps.push(map);
        let target = map.get("$ref").and_then(Value::as_str);
        if let Some(target) = target.filter(|_| references < MOST_REFERENCES)
            && let Some(schema) = self.resolve(target)
        {
            self.expand(schema, claims, references + 1);
        }
        for part in map
            .get("allOf")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            self.expand(part, claims, references + 1);
        }
    }

    fn resolve(&self, reference: &str) -> Option<&'a Value> {
        let fragment = match reference.strip_prefix(self.base) {
            Some(rest) if !self.base.is_empty() => rest,
            _ if self.single => reference,
            _ => return None,
        };
        self.root.pointer(&local_target("", fragment)?)
    }

    /// Whether no value satisfies both. `spent` are the unions that need not be looked into.
    fn are_apart(
        &self,
        one: &Claims<'a>,
        other: &Claims<'a>,
        spent: &BTreeSet<*const Value>,
        bounds: &mut Bounds,
    ) -> bool {
        let Some(left) = bounds.steps.checked_sub(1) else {
            return false;
        };
        bounds.steps = left;
        one.never
            || other.never
            || one.are_plainly_apart(other)
            || self.members_are_apart(one, other, bounds)
            || self.options_are_apart(one, other, spent, bounds)
    }

    /// Whether a property that one of them requires, or an item that both have, cannot be the same.
    fn members_are_apart(&self, one: &Claims<'a>, other: &Claims<'a>, bounds: &mut Bounds) -> bool {
        if bounds.depth >= MOST_DEPTH {
            return false;
        }
        bounds.depth += 1;
        let mut compare = |make: &dyn Fn(&Claims<'a>) -> Claims<'a>| {
            self.are_apart(&make(one), &make(other), &BTreeSet::new(), bounds)
        };
        let apart = match one.kinds() & other.kinds() {
            OBJECT => {
                let required: BTreeSet<&str> = one.required().chain(other.required()).collect();
                let mut required = required.into_iter();
                required.any(|key| compare(&|claims: &Claims<'a>| self.property(claims, key)))
            }
            ARRAY => {
                let least = one.least("minItems").max(other.least("minItems"));
                let most = (least as usize).min(MOST_DEPTH);
                (0..most).any(|index| compare(&|claims: &Claims<'a>| self.item(claims, index)))
            }
            _ => false,
        };
        bounds.depth -= 1;
        apart
    }

    /// What holds for a property's value.
    fn property(&self, claims: &Claims<'a>, key: &str) -> Claims<'a> {
        let mut found = Claims::default();
        for map in &claims.maps {
            let named = map.get("properties").and_then(|members| members.get(key));
            let additional = map
                .get("additionalProperties")
                .filter(|_| !map.contains_key("patternProperties"));
            if let Some(schema) = named.or(additional) {
                self.expand(schema, &mut found, 0);
            }
        }
        found
    }

    /// What holds for an item.
    fn item(&self, claims: &Claims<'a>, index: usize) -> Claims<'a> {
        let mut found = Claims::default();
        for map in &claims.maps {
            let items = map.get("items");
            let list = map
                .get("prefixItems")
                .or(items.filter(|items| items.is_array()));
            let placed = list.and_then(|list| list.as_array()?.get(index));
            let rest = match items {
                Some(Value::Array(_)) => map.get("additionalItems"),
                other => other,
            };
            if let Some(schema) = placed.or(rest) {
                self.expand(schema, &mut found, 0);
            }
        }
        found
    }

    /// Whether every alternative of a union of one of them is apart from the other.
    fn options_are_apart(
        &self,
        one: &Claims<'a>,
        other: &Claims<'a>,
        spent: &BTreeSet<*const Value>,
        bounds: &mut Bounds,
    ) -> bool {
        if spent.len() > MOST_DEPTH {
            return false;
        }
        let mut split = |claims: &Claims<'a>, rest: &Claims<'a>| {
            let fresh = |union: &&Value| !spent.contains(&std::ptr::from_ref(*union));
            let mut unions = claims.unions().filter(fresh);
            unions.any(|union| {
                let mut spent = spent.clone();
                spent.insert(std::ptr::from_ref(union));
                let mut options = union.as_array().into_iter().flatten();
                options.all(|option| {
                    let mut narrowed = claims.clone();
                    self.expand(option, &mut narrowed, 0);
                    self.are_apart(&narrowed, rest, &spent, bounds)
                })
            })
        };
        split(one, other) || split(other, one)
    }
}

fn holds_resource(value: &Value) -> bool {
    is_resource(value)
        || match value {
            Value::Object(map) => map.values().any(holds_resource),
            Value::Array(items) => items.iter().any(holds_resource),
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn exclusive(schema: &Value) -> bool {
        Comparison::new(schema).is_exclusive("/oneOf")
    }

    #[test]
    fn what_tells_alternatives_apart() {
        let kinds = json!([{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}, {"type": "null"}]);
        let animal = |kind: &str| json!({"type": "object", "properties": {"kind": {"const": kind}}, "required": ["kind"]});
        let cases = [
            json!([{"type": "string"}, {"type": ["integer", "null"]}]),
            json!([{"const": 1}, {"enum": [2, 3, "1"]}]),
            json!([{"type": "number", "maximum": 3}, {"type": "number", "exclusiveMinimum": 3}]),
            json!([{"type": "string", "maxLength": 3}, {"type": "string", "minLength": 4}]),
            json!([{"enum": ["a", "ab"]}, {"type": "string", "minLength": 3}]),
            json!([{"type": "array", "maxItems": 1}, {"type": "array", "minItems": 2}]),
            json!([
                {"type": "array", "minItems": 2, "prefixItems": [{}, {"const": 1}]},
                {"type": "array", "items": {"type": "string"}}
            ]),
            json!([
                {"type": "object", "required": ["a"]},
                {"type": "object", "properties": {"b": {}}, "additionalProperties": false}
            ]),
            json!([{"anyOf": [{"const": 1}, {"const": 2}]}, {"allOf": [{"minimum": 3}, {"type": "number"}]}]),
            json!([false, {}]),
            kinds,
        ];
        for one_of in cases {
            let mut schema =
                json!({"oneOf": one_of, "$defs": {"cat": animal("cat"), "dog": animal("dog")}});
            assert!(exclusive(&schema), "{schema}");
            // The root's own name does not change what its references mean.
            schema["$id"] = json!("https://example.org/root");
            assert!(exclusive(&schema), "{schema}");
        }
    }

    #[test]
    fn what_stands_beside_counts() {
        let alternatives =
            json!([{"required": ["a"], "properties": {"b": false}}, {"required": ["b"]}]);
        assert!(exclusive(&json!({"type": "object", "oneOf": alternatives})));
        assert!(!exclusive(&json!({"oneOf": alternatives})));
        assert!(!exclusive(
            &json!({"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]})
        ));
    }

    #[test]
    fn alternatives_that_overlap_are_not_told_apart() {
        let cases = [
            json!([{"type": "number"}, {"type": "integer"}]),
            json!([{"const": 1}, {"const": 1.0}]),
            json!([{"type": "string", "maxLength": 3}, {"type": "string", "minLength": 3}]),
            json!([{"minimum": 3}, {"maximum": 2}]),
            json!([{"type": "array", "items": {"const": 1}}, {"type": "array", "items": {"const": 2}}]),
            json!([{"type": "object", "properties": {"a": {"const": 1}}}, {"type": "object", "properties": {"a": {"const": 2}}}]),
            json!([
                {"type": "object", "required": ["ab"]},
                {"type": "object", "patternProperties": {"a": {}}, "additionalProperties": false}
            ]),
            json!([{"anyOf": [{"const": 1}, {"const": 4}]}, {"type": "number", "minimum": 3}]),
            json!([{"$ref": "other"}, {"type": "null"}]),
            json!([{"$ref": "#"}, {"$ref": "#"}]),
        ];
        for one_of in cases {
            let schema = json!({"oneOf": one_of});
            assert!(!exclusive(&schema), "{schema}");
        }
    }

    #[test]
    fn references_in_another_resource_are_not_followed() {
        let one_of = json!([{"$ref": "#/$defs/a"}, {"type": "null"}]);
        let definitions = json!({"a": {"type": "string"}, "b": {"$id": "https://example.org/b"}});
        assert!(exclusive(
            &json!({"oneOf": one_of, "$defs": {"a": {"type": "string"}}})
        ));
        assert!(!exclusive(&json!({"oneOf": one_of, "$defs": definitions})));
    }

    #[test]
    fn branching_references_end() {
        let twice = json!({"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}], "type": "object",
            "required": ["x"], "properties": {"x": {"$ref": "#/$defs/a"}}});
        let schema =
            json!({"oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}], "$defs": {"a": twice}});
        assert!(!exclusive(&schema));
    }
}
