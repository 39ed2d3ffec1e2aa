//! Conditions: `if`, and what depends on a property.
//!
//! The grammar engine knows no negation, but it knows alternatives: that a property is not there, or that it
//! has another one of the values that it may have.

use super::KeyOrder;
use super::lower::{Lowering, Node};
use super::weakening::Weakening;
use serde_json::{Map, Value, json};

/// Conditions on one value that become alternatives: each doubles their number.
const MOST_SPLITS: usize = 4;
/// Properties of which one at least is there.
const MOST_NAMES: usize = 6;
/// Values of a property that decides a condition.
const MOST_VALUES: usize = 500;
/// Bytes of schemas in all alternatives of one value.
const MOST_BYTES: usize = 1 << 16;

/// What else holds for the value whose schema is being lowered.
#[derive(Default)]
pub(super) struct Around<'a> {
    maps: Vec<&'a Map<String, Value>>,
    /// Conditions that became alternatives.
    splits: usize,
    /// Bytes of the outermost schema, once they are asked for.
    bytes: Option<usize>,
}

impl<'a> Lowering<'a> {
    /// Lowers subschemas of a keyword, knowing whether they are of the same value.
    pub(super) fn around<T>(
        &mut self,
        key: &str,
        from: &'a Map<String, Value>,
        act: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let same = [
            "allOf",
            "anyOf",
            "oneOf",
            "if",
            "dependentSchemas",
            "dependencies",
            "dependentRequired",
            "minProperties",
        ];
        if same.contains(&key) {
            self.around.maps.push(from);
            let result = act(self);
            self.around.maps.pop();
            return result;
        }
        let outer = std::mem::take(&mut self.around);
        let result = act(self);
        self.around = outer;
        result
    }

    /// Where the condition holds, so does the consequence; else the alternative. Where it cannot be said what
    /// else there is, only validation can tell which of the two it is; but no value is neither.
    pub(super) fn conditional(&mut self, node: &mut Node<'a>, condition: &'a Value) {
        let [then, otherwise] = ["then", "else"].map(|key| node.from.get(key));
        if then.is_none() && otherwise.is_none() {
            return;
        }
        let weak = self.is_weak(Weakening::Conditionals);
        let refers = [then, otherwise].into_iter().flatten().any(refers);
        let opposite = match weak || refers || !self.may_split() {
            true => None,
            false => self.opposite(condition),
        };
        match opposite {
            Some(_) => {
                self.assert();
                self.around.splits += 1;
            }
            None => self.unmask(),
        }
        let mut lower =
            |key: &str, value: &'a Value| self.beside(key, |lowering| lowering.value(value));
        if opposite.is_none() && otherwise.is_none() {
            return;
        }
        let mut both = vec![lower("if", condition)];
        both.extend(then.map(|then| lower("then", then)));
        let otherwise = otherwise.map(|otherwise| lower("else", otherwise));
        if !weak {
            let neither: Vec<Value> = opposite.into_iter().chain(otherwise).collect();
            let all = json!([{"allOf": both}, {"allOf": neither}]);
            node.extras.push(json!({"anyOf": all}));
        }
    }

    /// `dependentRequired`, `dependentSchemas`, and `dependencies`, which was both: the property is not
    /// there, or what depends on it holds.
    pub(super) fn dependents(&mut self, node: &mut Node<'a>, value: &'a Value) {
        let Some(members) = value.as_object() else {
            return self.unmask();
        };
        let mut conditions = Vec::new();
        let mut all = true;
        for (name, demand) in members {
            let ordered = self.key_order == KeyOrder::Schema;
            let then = match demand {
                Value::Array(names) if names.is_empty() => continue,
                Value::Array(names) => ordered.then(|| together(name, names)),
                Value::Object(_) | Value::Bool(_) => {
                    let then = self.within(name, |lowering| lowering.value(demand));
                    let first = if ordered {
                        together(name, &[])
                    } else {
                        json!({})
                    };
                    Some(json!({"allOf": [first, then]}))
                }
                _ => None,
            };
            let then = then.filter(|_| !refers(demand));
            match then.filter(|_| !self.is_weak(Weakening::Conditionals) && self.may_split()) {
                Some(then) => {
                    self.around.splits += 1;
                    conditions.push(json!({"anyOf": [
                        {"type": "object", "properties": {name: false}},
                        {"allOf": [{"type": "object"}, then]},
                        {"type": ["null", "boolean", "number", "string", "array"]},
                    ]}));
                }
                None => all = false,
            }
        }
        match all {
            true if conditions.is_empty() => {}
            true => self.assert(),
            false => self.unmask(),
        }
        node.extras.extend(conditions);
    }

    /// `minProperties` of 1 beside named properties: the first of them that is there is one of them, or there
    /// is another one.
    pub(super) fn some_property(&mut self, node: &mut Node<'a>) {
        let named = node.from.get("properties").and_then(Value::as_object);
        let names: Vec<&String> = named.into_iter().flat_map(Map::keys).collect();
        let weak = self.key_order == KeyOrder::Any || self.is_weak(Weakening::Conditionals);
        if weak || names.len() > MOST_NAMES || self.around.splits > 0 || !self.may_split() {
            return self.unmask();
        }
        self.assert();
        // As many alternatives as two or three conditions make.
        self.around.splits += 2 + names.len() / 4;
        let without = |count: usize| -> Map<String, Value> {
            let absent = names.iter().take(count);
            absent.map(|name| ((*name).clone(), false.into())).collect()
        };
        let first = |(index, name): (usize, &&String)| json!({"type": "object", "properties": without(index), "required": [name]});
        let mut all: Vec<Value> = names.iter().enumerate().map(first).collect();
        all.push(json!({"type": "object", "properties": without(names.len()), "minProperties": 1}));
        all.push(json!({"type": ["null", "boolean", "number", "string", "array"]}));
        node.extras.push(json!({"anyOf": all}));
    }

    /// What a value is for which a condition does not hold; `None` where that cannot be said. It can of a
    /// property that has one of several values.
    fn opposite(&self, condition: &Value) -> Option<Value> {
        let known = [
            "properties",
            "required",
            "type",
            "title",
            "description",
            "$comment",
        ];
        let condition = condition.as_object()?;
        if self.key_order == KeyOrder::Any
            || condition.keys().any(|key| !known.contains(&key.as_str()))
            || condition.get("type").is_some_and(|kind| kind != "object")
            || !self.holds("type").any(|kind| kind == "object")
        {
            return None;
        }
        let mut properties = condition.get("properties")?.as_object()?.iter();
        let (name, asked) = properties.next().filter(|_| properties.next().is_none())?;
        let asked = listed(asked, &["title", "description", "$comment", "type"])?;
        let required = match condition.get("required") {
            None => false,
            Some(names) if *names == json!([name]) => true,
            Some(names) if *names == json!([]) => false,
            Some(_) => return None,
        };
        let named = self.holds("properties").filter_map(|all| all.get(name));
        let values = named.filter_map(|schema| match schema.get("type") {
            Some(kind) if kind == "boolean" => Some(vec![false.into(), true.into()]),
            _ => schema.get("enum")?.as_array().cloned(),
        });
        let values = values.min_by_key(Vec::len)?;
        let plain =
            |value: &Value| matches!(value, Value::String(_) | Value::Bool(_) | Value::Null);
        let few = values.len() <= MOST_VALUES && asked.len() <= MOST_VALUES;
        if !few || !values.iter().chain(&asked).all(plain) {
            return None;
        }
        let left: Vec<Value> = values
            .into_iter()
            .filter(|one| !asked.contains(one))
            .collect();
        let mut opposite = json!({"type": "object", "properties": {name: {"enum": left}}});
        if !required {
            opposite["required"] = json!([name]);
        }
        Some(opposite)
    }

    /// What a keyword says of the value whose schema is being lowered.
    fn holds(&self, key: &str) -> impl Iterator<Item = &'a Value> {
        self.around.maps.iter().filter_map(move |map| map.get(key))
    }

    /// Whether one more condition may double the alternatives.
    fn may_split(&mut self) -> bool {
        let splits = self.around.splits + 1;
        let Some(outermost) = self.around.maps.first().filter(|_| splits <= MOST_SPLITS) else {
            return false;
        };
        let count = || serde_json::to_string(outermost).map_or(usize::MAX, |text| text.len());
        *self.around.bytes.get_or_insert_with(count) <= MOST_BYTES >> splits
    }
}

/// A property and those that come with it, in this order.
fn together(name: &str, others: &[Value]) -> Value {
    let names: Vec<&str> = [name]
        .into_iter()
        .chain(others.iter().filter_map(Value::as_str))
        .collect();
    let properties: Map<String, Value> = names
        .iter()
        .map(|name| ((*name).to_owned(), json!({})))
        .collect();
    json!({"properties": properties, "required": names})
}

/// The values that a schema of nothing else lists. `type` may narrow them only if it is a type of theirs,
/// which the values themselves say already.
fn listed(schema: &Value, beside: &[&str]) -> Option<Vec<Value>> {
    let map = schema.as_object()?;
    let (lists, rest): (Vec<_>, Vec<_>) = map
        .keys()
        .partition(|key| ["const", "enum"].contains(&key.as_str()));
    if lists.len() != 1 || rest.iter().any(|key| !beside.contains(&key.as_str())) {
        return None;
    }
    let values = match map.get("const") {
        Some(value) => vec![value.clone()],
        None => map.get("enum")?.as_array()?.clone(),
    };
    let fits = |value: &Value| super::literals::has_type(value, map.get("type"));
    Some(values.into_iter().filter(fits).collect())
}

/// Whether a schema refers to another: narrowing what it refers to may have no end.
fn refers(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => map
            .iter()
            .any(|(key, child)| key.ends_with("Ref") || key == "$ref" || refers(child)),
        Value::Array(items) => items.iter().any(refers),
        _ => false,
    }
}
