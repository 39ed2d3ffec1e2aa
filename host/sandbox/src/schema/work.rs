//! How much work a validator would have with a value, so that no schema makes it run for ever: schemas
//! that refer to themselves twice double the work at each level of the value.

use super::pointer::{is_resource, local_target};
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Applications of a subschema to a part of the value, about 20 ns each.
const MOST: u64 = 5_000_000;

/// Counts how often subschemas would be applied.
pub(super) struct Effort<'a> {
    root: &'a Value,
    /// Subschemas by anchor, and resources by the last step of their names.
    named: HashMap<String, Vec<(&'a Value, String)>>,
    /// The pointer of the resource that each object is in.
    resources: HashMap<*const Value, String>,
    counted: HashMap<(*const Value, *const Value), u64>,
}

impl<'a> Effort<'a> {
    pub(super) fn new(root: &'a Value) -> Self {
        let mut effort = Self {
            root,
            named: HashMap::new(),
            resources: HashMap::new(),
            counted: HashMap::new(),
        };
        effort.index(root, &mut String::new(), "");
        effort
    }

    pub(super) fn is_bearable(&mut self, value: &'a Value) -> bool {
        self.count(self.root, value) <= MOST
    }

    fn index(&mut self, schema: &'a Value, pointer: &mut String, resource: &str) {
        let length = pointer.len();
        let own = is_resource(schema).then(|| pointer.clone());
        let resource = own.as_deref().unwrap_or(resource);
        match schema {
            Value::Object(map) => {
                self.resources
                    .insert(std::ptr::from_ref(schema), resource.to_owned());
                for key in ["$id", "id", "$anchor", "$dynamicAnchor"] {
                    if let Some(name) = map.get(key).and_then(Value::as_str) {
                        let places = self.named.entry(last_step(name).to_owned()).or_default();
                        places.push((schema, pointer.clone()));
                    }
                }
                for (key, child) in map {
                    pointer.push('/');
                    pointer.push_str(&super::pointer::escape(key));
                    self.index(child, pointer, resource);
                    pointer.truncate(length);
                }
            }
            Value::Array(items) => {
                for (index, child) in items.iter().enumerate() {
                    pointer.push_str(&format!("/{index}"));
                    self.index(child, pointer, resource);
                    pointer.truncate(length);
                }
            }
            _ => {}
        }
    }

    fn count(&mut self, schema: &'a Value, value: &'a Value) -> u64 {
        let Value::Object(map) = schema else {
            return 1;
        };
        let pair = (std::ptr::from_ref(schema), std::ptr::from_ref(value));
        // A reference back to the same place at the same value is counted as nothing: validators stop.
        if let Some(&count) = self.counted.get(&pair) {
            return count;
        }
        self.counted.insert(pair, 0);
        let mut sum = 1u64;
        for (key, child) in map {
            sum = sum.saturating_add(self.keyword(schema, key, child, value));
            if sum > MOST {
                break;
            }
        }
        self.counted.insert(pair, sum);
        sum
    }

    fn keyword(&mut self, schema: &'a Value, key: &str, child: &'a Value, value: &'a Value) -> u64 {
        match key {
            "$ref" | "$dynamicRef" | "$recursiveRef" => {
                let targets = self.targets(schema, child);
                self.sum(targets.into_iter().map(|target| (target, value)))
            }
            "allOf" | "anyOf" | "oneOf" => self.sum(
                child
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map(|one| (one, value)),
            ),
            "not" | "if" | "then" | "else" => self.count(child, value),
            "dependentSchemas" | "dependencies" => {
                let members = child.as_object().into_iter().flat_map(Map::values);
                self.sum(members.map(|one| (one, value)))
            }
            "properties" => {
                let members = child.as_object().into_iter().flatten();
                self.sum(members.filter_map(|(name, one)| Some((one, value.get(name)?))))
            }
            "patternProperties" => {
                let members = child.as_object().into_iter().flat_map(Map::values);
                self.sum(members.flat_map(|one| parts(value).map(move |part| (one, part))))
            }
            "prefixItems" | "items" if child.is_array() => {
                let pairs = child.as_array().into_iter().flatten().zip(parts(value));
                self.sum(pairs)
            }
            "items"
            | "additionalItems"
            | "contains"
            | "unevaluatedItems"
            | "additionalProperties"
            | "unevaluatedProperties" => self.sum(parts(value).map(|part| (child, part))),
            _ => 0,
        }
    }

    fn sum(&mut self, pairs: impl Iterator<Item = (&'a Value, &'a Value)>) -> u64 {
        let mut sum = 0u64;
        for (schema, value) in pairs {
            sum = sum.saturating_add(self.count(schema, value));
            if sum > MOST {
                break;
            }
        }
        sum
    }

    /// Every subschema that a reference may mean.
    fn targets(&self, schema: &Value, reference: &Value) -> Vec<&'a Value> {
        let Some(reference) = reference.as_str() else {
            return Vec::new();
        };
        let resource = self.resources.get(&std::ptr::from_ref(schema));
        let resource = resource.map_or("", String::as_str);
        if let Some(pointer) = local_target(resource, reference) {
            return self.root.pointer(&pointer).into_iter().collect();
        }
        let (name, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let (name, fragment) = if fragment.starts_with('/') {
            (name, fragment)
        } else if fragment.is_empty() {
            (name, "")
        } else {
            (fragment, "")
        };
        let places = self.named.get(last_step(name)).into_iter().flatten();
        let within = |(place, pointer): &(&'a Value, String)| match fragment {
            "" => Some(*place),
            _ => self
                .root
                .pointer(&local_target(pointer, &format!("#{fragment}"))?),
        };
        places.filter_map(within).collect()
    }
}

/// The members of an array or object.
fn parts(value: &Value) -> impl Iterator<Item = &Value> {
    let items = value.as_array().into_iter().flatten();
    items.chain(value.as_object().into_iter().flat_map(Map::values))
}

/// The last step of a name's path.
fn last_step(name: &str) -> &str {
    let name = name.trim_end_matches(['#', '/']).trim_start_matches('#');
    name.rsplit(['/', ':']).next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn doubling_schemas_are_unbearable() {
        let twice = |reference: &str| json!({"allOf": [{"$ref": reference}, {"$ref": reference}]});
        let mut definitions = Map::new();
        for level in 0..60 {
            definitions.insert(level.to_string(), twice(&format!("#/$defs/{}", level + 1)));
        }
        definitions.insert("60".into(), json!({"type": "integer"}));
        let wide = json!({"$ref": "#/$defs/0", "$defs": definitions});
        assert!(!Effort::new(&wide).is_bearable(&json!(1)));
        let deep = json!({"items": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}});
        let nested = (0..60).fold(json!([]), |inner, _| json!([inner]));
        assert!(!Effort::new(&deep).is_bearable(&nested));
        assert!(Effort::new(&deep).is_bearable(&json!([[[]], []])));
    }

    #[test]
    fn recursion_that_consumes_is_bearable() {
        let tree = json!({
            "$id": "https://example.org/tree", "$anchor": "node", "type": "object",
            "properties": {"left": {"$ref": "#node"}, "right": {"$ref": "tree"}},
        });
        let full = (0..10).fold(json!({}), |inner, _| json!({"left": inner, "right": inner}));
        assert!(Effort::new(&tree).is_bearable(&full));
        assert!(Effort::new(&json!({"$ref": "#"})).is_bearable(&full));
    }
}
