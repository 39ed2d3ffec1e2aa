//! Properties in any order.
//!
//! The grammar engine writes named properties in the order in which it is told of them, and what matches a
//! pattern in any order. A small closed object becomes an alternative for each order, which is exact. In any
//! other, names become patterns: each property has its own schema still, but that the required ones are
//! there, and that none comes twice, is left to validation.

use super::KeyOrder;
use super::lower::{Lowering, Node};
use super::weakening::Weakening;
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// Names of an object that is written in each of their orders.
const MOST_NAMES: usize = 4;
/// Alternatives in all of a schema.
const MOST_ORDERS: usize = 240;
/// Patterns of one object; the grammar engine compares each with each.
const MOST_PATTERNS: usize = 32;
/// Ways to write one constant.
const MOST_WAYS: usize = 24;
/// Bytes of a constant that is written in more than one way.
const MOST_SPELLED: usize = 2_000;
/// Bytes of a property's schema that is written out in each order, rather than referred to.
const MOST_COPIED: usize = 80;

/// Keywords that put conditions together. What they join may not be one order each.
const JOINTS: [&str; 9] = [
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "$ref",
    "$dynamicRef",
    "dependentSchemas",
    "dependencies",
];

/// What is shared between the orders of a schema's objects.
#[derive(Default)]
pub(super) struct Orders {
    /// Alternatives so far.
    count: usize,
    /// Schemas of properties, for the root's definitions.
    pub(super) shared: Map<String, Value>,
}

impl Lowering<'_> {
    /// Lets the properties of an object come in any order, if that is wanted.
    pub(super) fn reorder(&mut self, node: &mut Node<'_>) {
        if self.key_order == KeyOrder::Schema {
            return;
        }
        let required: Vec<String> = strings(node.out.get("required"));
        let named = node.out.get("properties").and_then(Value::as_object);
        let mut names: Vec<String> = named.iter().flat_map(|all| all.keys()).cloned().collect();
        let is_named = |name: &&String| named.is_some_and(|all| all.contains_key(*name));
        let extra = required.iter().filter(|name| !is_named(name));
        let stray: Vec<String> = extra.cloned().collect();
        let closed = node.out.get("additionalProperties") == Some(&Value::Bool(false))
            && !node.out.contains_key("patternProperties");
        names.extend(stray.iter().cloned());
        if names.is_empty() || (closed && (names.len() == 1 || !stray.is_empty())) {
            return;
        }
        if closed && self.has_few_orders(node, names.len()) {
            self.each_order(node, &names);
        } else {
            self.as_patterns(node, &required, closed.then_some(names.len()));
        }
    }

    /// The ways to write a constant: each order of its objects' members, where there are few.
    pub(super) fn orders_of(&self, value: &Value) -> Vec<Value> {
        match self.key_order {
            KeyOrder::Schema => vec![value.clone()],
            KeyOrder::Any if value.to_string().len() > MOST_SPELLED => vec![value.clone()],
            KeyOrder::Any => orders_of(value).unwrap_or_else(|| vec![value.clone()]),
        }
    }

    /// Whether an object may be written out in each order of so many names.
    fn has_few_orders(&self, node: &Node<'_>, names: usize) -> bool {
        let orders: usize = (1..=names.min(MOST_NAMES)).product();
        let weak = [Weakening::Unions, Weakening::References];
        names <= MOST_NAMES
            && self.orders.count + orders <= MOST_ORDERS
            && self.resource.is_empty()
            && self.base.is_none()
            && node.out.get("type") == Some(&json!("object"))
            && node.extras.is_empty()
            && !["minProperties", "maxProperties"]
                .iter()
                .any(|key| node.out.contains_key(*key))
            && !weak.iter().any(|weakening| self.is_weak(*weakening))
            && !self.joins
    }

    /// Puts what orders share among the root's definitions. The grammar engine finds it there whatever the
    /// draft calls them.
    pub(super) fn share(&mut self, schema: &mut Value) {
        let shared = std::mem::take(&mut self.orders.shared);
        if let Value::Object(map) = schema
            && !shared.is_empty()
        {
            let definitions = map.entry("$defs").or_insert_with(|| json!({}));
            if let Value::Object(definitions) = definitions {
                definitions.extend(shared);
            }
        }
    }

    fn each_order(&mut self, node: &mut Node<'_>, names: &[String]) {
        let Some(Value::Object(mut properties)) = node.out.shift_remove("properties") else {
            return;
        };
        for (_, schema) in properties.iter_mut() {
            if schema.to_string().len() > MOST_COPIED {
                let name = format!("property {} in any order", self.orders.shared.len());
                let reference = format!("#/$defs/{}", name.replace(' ', "%20"));
                let whole = std::mem::replace(schema, json!({"$ref": reference}));
                self.orders.shared.insert(name, whole);
            }
        }
        let required = node.out.shift_remove("required");
        let one = |order: Vec<&String>| {
            let ordered = order
                .into_iter()
                .map(|name| (name.clone(), properties[name].clone()));
            let mut object = Map::new();
            object.insert("type".into(), "object".into());
            object.insert("properties".into(), ordered.collect::<Map<_, _>>().into());
            object.insert("additionalProperties".into(), false.into());
            object.extend(required.clone().map(|names| ("required".to_owned(), names)));
            Value::Object(object)
        };
        let orders: Vec<Value> = permutations(names).into_iter().map(one).collect();
        self.orders.count += orders.len();
        node.out.shift_remove("additionalProperties");
        node.out.insert("anyOf".into(), orders.into());
    }

    /// `most` names there are in all, where that is known.
    fn as_patterns(&mut self, node: &mut Node<'_>, required: &[String], most: Option<usize>) {
        let properties = match node.out.shift_remove("properties") {
            Some(Value::Object(properties)) => properties,
            _ => Map::new(),
        };
        if !properties.is_empty() {
            self.within("properties", Self::unmask);
        }
        if node.out.shift_remove("required").is_some() && !required.is_empty() {
            self.within("required", Self::unmask);
        }
        let mut groups = grouped(properties);
        if let Some(Value::Object(patterns)) = node.out.shift_remove("patternProperties") {
            groups.extend(patterns);
        }
        let clash = self.is_weak(Weakening::MergedPatternProperties);
        let kept = if clash { 1 } else { MOST_PATTERNS };
        if groups.len() > kept {
            let rest = groups.split_off(kept - 1);
            let patterns: Vec<String> = rest.iter().map(|(key, _)| format!("(?:{key})")).collect();
            let schemas: Vec<Value> = rest.into_iter().map(|(_, schema)| schema).collect();
            groups.push((patterns.join("|"), json!({"anyOf": schemas})));
        }
        if self.is_weak(Weakening::PatternProperties) {
            node.out.shift_remove("additionalProperties");
        } else if !groups.is_empty() {
            let groups: Map<String, Value> = groups.into_iter().collect();
            node.out.insert("patternProperties".into(), groups.into());
        }
        if self.is_weak(Weakening::PropertyCounts) {
            return;
        }
        let count = |key: &str| node.out.get(key).and_then(Value::as_u64);
        let mut distinct = required.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        let least = count("minProperties")
            .unwrap_or(0)
            .max(distinct.len() as u64);
        let most =
            most.map(|most| count("maxProperties").map_or(most as u64, |own| own.min(most as u64)));
        if least > 0 {
            node.out.insert("minProperties".into(), least.into());
        }
        if let Some(most) = most {
            node.out.insert("maxProperties".into(), most.into());
        }
    }
}

/// Whether keywords join conditions anywhere in a schema.
pub(super) fn joins(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => map
            .iter()
            .any(|(key, child)| JOINTS.contains(&key.as_str()) || joins(child)),
        Value::Array(items) => items.iter().any(joins),
        _ => false,
    }
}

fn strings(list: Option<&Value>) -> Vec<String> {
    let items = list.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Patterns of names, one for all names with the same schema.
fn grouped(properties: Map<String, Value>) -> Vec<(String, Value)> {
    let mut groups: Vec<(Vec<String>, Value)> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    for (name, schema) in properties {
        let next = groups.len();
        let index = *known.entry(schema.to_string()).or_insert(next);
        if index == next {
            groups.push((Vec::new(), schema));
        }
        groups[index].0.push(regex_syntax::escape(&name));
    }
    let pattern = |names: Vec<String>| format!("^(?:{})$", names.join("|"));
    let groups = groups.into_iter();
    groups
        .map(|(names, schema)| (pattern(names), schema))
        .collect()
}

/// `None` where there are too many.
fn orders_of(value: &Value) -> Option<Vec<Value>> {
    let join = |begun: Vec<Vec<Value>>, next: Vec<Value>| {
        let longer = begun.iter().flat_map(|begun| {
            let choice = |last: &Value| begun.iter().chain([last]).cloned().collect();
            next.iter().map(choice)
        });
        let longer: Vec<Vec<Value>> = longer.collect();
        (longer.len() <= MOST_WAYS).then_some(longer)
    };
    let all = |parts: Vec<&Value>| {
        let mut orders = parts.into_iter().map(orders_of);
        orders.try_fold(vec![Vec::new()], |begun, next| join(begun, next?))
    };
    match value {
        Value::Array(items) => {
            let ways = all(items.iter().collect())?;
            Some(ways.into_iter().map(Value::Array).collect())
        }
        Value::Object(map) if map.len() > MOST_NAMES => None,
        Value::Object(map) => {
            let names: Vec<String> = map.keys().cloned().collect();
            let mut found = Vec::new();
            for order in permutations(&names) {
                for members in all(order.iter().map(|name| &map[*name]).collect())? {
                    let names = order.iter().copied().cloned();
                    found.push(Value::Object(names.zip(members).collect()));
                }
            }
            (found.len() <= MOST_WAYS).then_some(found)
        }
        other => Some(vec![other.clone()]),
    }
}

/// Every order of some things, their own one first.
fn permutations(things: &[String]) -> Vec<Vec<&String>> {
    let mut orders = vec![Vec::new()];
    for _ in things {
        let longer = orders.iter().flat_map(|order: &Vec<&String>| {
            let left = things.iter().filter(|thing| !order.contains(thing));
            left.map(|thing| order.iter().copied().chain([thing]).collect())
        });
        orders = longer.collect();
    }
    orders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_is_there_once() {
        let names = ["a", "b", "c", "d"].map(str::to_owned);
        let mut orders = permutations(&names);
        assert_eq!(orders[0], names.iter().collect::<Vec<_>>());
        orders.sort();
        orders.dedup();
        assert_eq!(orders.len(), 24);
    }

    #[test]
    fn names_with_one_schema_share_a_pattern() {
        let properties = json!({"a": {}, "b.c": true, "d": {}});
        let found = grouped(properties.as_object().unwrap().clone());
        let expected = [("^(?:a|d)$", json!({})), (r"^(?:b\.c)$", json!(true))];
        assert_eq!(
            found,
            expected.map(|(pattern, schema)| (pattern.to_owned(), schema))
        );
    }
}
