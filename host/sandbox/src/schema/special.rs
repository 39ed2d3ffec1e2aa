//! Keywords that the grammar engine does not know: what can be said of them in keywords that it knows.

use super::lower::{Lowering, Node};
use super::weakening::Weakening;
use super::{formats, literals, patterns};
use jsonschema::Draft;
use serde_json::{Map, Value, json};

/// The types of JSON, but for `integer`, which is a kind of number.
const TYPES: [&str; 6] = ["null", "boolean", "number", "string", "array", "object"];

impl<'a> Lowering<'a> {
    /// A keyword whose value and neighbours decide what becomes of it.
    pub(super) fn special(&mut self, node: &mut Node<'a>, key: &'a str, value: &'a Value) {
        match key {
            "const" => self.constant(node, value),
            "enum" => self.enumeration(node, value),
            "pattern" => self.pattern(node, value),
            "format" => self.format(node, value),
            "not" => self.negation(node, value),
            "if" => self.conditional(node, value),
            "dependentRequired" | "dependentSchemas" | "dependencies" => {
                self.dependents(node, value);
            }
            "contains" => self.contains(node, value),
            "uniqueItems" => self.unique_items(node, value),
            "propertyNames" => self.property_names(node, value),
            "minProperties" | "maxProperties" => self.property_count(node, key, value),
            "unevaluatedProperties" => self.unevaluated(node, key, "additionalProperties", value),
            "unevaluatedItems" => self.unevaluated(node, key, "items", value),
            "$dynamicRef" => self.dynamic_reference(node, value),
            _ => self.bound(node, key, value),
        }
    }

    fn constant(&mut self, node: &mut Node<'a>, value: &'a Value) {
        self.assert();
        if literals::is_exact(value) {
            match self.orders_of(value) {
                orders if orders.len() > 1 => node.out.insert("enum".into(), orders.into()),
                _ => node.out.insert("const".into(), value.clone()),
            };
        } else {
            self.unmask();
            node.extras.push(literals::around(value));
        }
    }

    fn enumeration(&mut self, node: &mut Node<'a>, value: &'a Value) {
        self.assert();
        let types = node.from.get("type");
        let values = value.as_array().into_iter().flatten();
        let mut exact = Vec::new();
        let mut around = Vec::new();
        for value in values.filter(|value| literals::has_type(value, types)) {
            match literals::is_exact(value) {
                true => exact.extend(self.orders_of(value)),
                false => around.push(literals::around(value)),
            }
        }
        if around.is_empty() {
            node.out.insert("enum".into(), Value::Array(exact));
            return;
        }
        self.unmask();
        if !exact.is_empty() {
            around.push(json!({"enum": exact}));
        }
        node.extras.push(json!({"anyOf": around}));
    }

    fn pattern(&mut self, node: &mut Node<'a>, value: &'a Value) {
        let Some(pattern) = value.as_str() else {
            return self.unmask();
        };
        match patterns::translate(pattern) {
            Some(rust) if !self.is_weak(Weakening::HardPatterns) || patterns::is_easy(&rust) => {
                self.assert();
                node.out.insert("pattern".into(), rust.into());
            }
            _ => self.unmask(),
        }
    }

    /// `patternProperties` with its patterns translated, and merged where they clash.
    pub(super) fn pattern_properties(&mut self, node: &mut Node<'a>) {
        let Some(Value::Object(members)) = node.out.remove("patternProperties") else {
            return;
        };
        let mut translated = Map::new();
        let mut lost = false;
        for (pattern, schema) in members {
            let rust = patterns::translate(&pattern);
            let hard = self.is_weak(Weakening::HardPatterns);
            match rust.filter(|rust| !hard || patterns::is_easy(rust)) {
                Some(rust) => {
                    translated.insert(rust, schema);
                }
                None => lost = true,
            }
        }
        let clash = translated.len() > 1 && self.is_weak(Weakening::MergedPatternProperties);
        if lost {
            // Whatever a lost pattern matches is no additional property.
            self.unmask();
            if node.from.contains_key("additionalProperties") {
                self.beside("additionalProperties", Self::unmask);
            }
            node.open = true;
            return;
        }
        if clash {
            self.unmask();
            let patterns: Vec<_> = translated.keys().map(|key| format!("(?:{key})")).collect();
            let schemas: Vec<_> = translated.values().cloned().collect();
            translated = Map::new();
            translated.insert(patterns.join("|"), json!({"anyOf": schemas}));
        }
        if !translated.is_empty() {
            node.out
                .insert("patternProperties".into(), translated.into());
        }
    }

    fn format(&mut self, node: &mut Node<'a>, value: &'a Value) {
        let Some(rule) = value
            .as_str()
            .and_then(|name| formats::rule(name, self.draft))
        else {
            return;
        };
        self.assert();
        if !rule.exact {
            self.unmask();
        }
        if rule.native {
            node.out.insert("format".into(), value.clone());
        }
        for pattern in rule.patterns {
            node.extras.push(json!({"pattern": pattern}));
        }
    }

    fn negation(&mut self, node: &mut Node<'a>, value: &'a Value) {
        let asserted = |map: &Map<String, Value>| {
            let mut keys = map.keys().filter(|key| {
                !["title", "description", "$comment", "examples", "default"].contains(&key.as_str())
            });
            (keys.next().cloned(), keys.next().is_none())
        };
        let exact = match value {
            Value::Bool(true) => Some(json!(false)),
            Value::Bool(false) => Some(json!(true)),
            Value::Object(map) => match asserted(map) {
                (None, _) => Some(json!(false)),
                (Some(key), true) => negated(&key, &map[&key]),
                _ => None,
            },
            _ => None,
        };
        match exact {
            Some(schema) => {
                self.assert();
                node.extras.push(schema);
            }
            None => self.unmask(),
        }
    }

    fn contains(&mut self, node: &mut Node<'a>, value: &'a Value) {
        let counts = self.draft >= Draft::Draft201909;
        let count = |key| {
            node.from
                .get(key)
                .filter(|_| counts)
                .and_then(Value::as_u64)
        };
        let least = count("minContains").unwrap_or(1);
        if least == 0 && count("maxContains").is_none() {
            return;
        }
        if *value == Value::Bool(false) && least > 0 {
            self.assert();
            let types: Vec<_> = TYPES.iter().filter(|name| **name != "array").collect();
            return node.extras.push(json!({"type": types}));
        }
        self.unmask();
        if least > 0 && !self.is_weak(Weakening::ItemCounts) {
            node.extras.push(json!({"minItems": least}));
        }
    }

    /// An array of different values is no longer than there are values.
    fn unique_items(&mut self, node: &mut Node<'a>, value: &'a Value) {
        let most = node.from.get("maxItems").and_then(Value::as_u64);
        if *value != Value::Bool(true) || most.is_some_and(|most| most <= 1) {
            return;
        }
        self.unmask();
        let items = node.from.get("items");
        let values = items.and_then(|items| items.get("enum")?.as_array());
        let alone = !node.from.contains_key("prefixItems");
        if let Some(values) = values
            && alone
            && !self.is_weak(Weakening::ItemCounts)
        {
            node.extras.push(json!({"maxItems": values.len()}));
        }
    }

    /// Names are patterns of properties, where no other keyword speaks of properties.
    fn property_names(&mut self, node: &mut Node<'a>, value: &'a Value) {
        let pattern = match value {
            Value::Bool(true) => return,
            Value::Bool(false) => Some("[^\\s\\S]".to_owned()),
            Value::Object(map) => patterns::of_names(map),
            _ => None,
        };
        let first = !node.from.contains_key("patternProperties");
        let hard = self.is_weak(Weakening::HardPatterns);
        match pattern.filter(|pattern| !hard || patterns::is_easy(pattern)) {
            _ if *value == Value::Bool(false) => {
                self.assert();
                node.extras.push(json!({"maxProperties": 0}));
            }
            Some(pattern) if first => {
                self.assert();
                // A condition of its own: properties that have a name meet it in addition to theirs.
                node.extras.push(
                    json!({"patternProperties": {pattern: true}, "additionalProperties": false}),
                );
            }
            _ => self.unmask(),
        }
    }

    /// Keys may come twice, and then count twice in the text but once in the value.
    fn property_count(&mut self, node: &mut Node<'a>, key: &str, value: &'a Value) {
        let required = node.from.get("required").and_then(Value::as_array);
        let required = required.map_or(0, Vec::len) as u64;
        let optional = node.from.get("properties").and_then(Value::as_object);
        let optional = optional.is_some_and(|properties| {
            let named = |name: &str| {
                let names = node.from.get("required").and_then(Value::as_array);
                names.is_some_and(|names| names.iter().any(|one| one == name))
            };
            properties.keys().any(|name| !named(name))
        });
        let count = value.as_u64();
        if key == "minProperties" && count.is_some_and(|count| count <= required) {
            return self.assert();
        }
        let closed = node.from.get("additionalProperties") == Some(&Value::Bool(false));
        let patterns = node.from.contains_key("patternProperties");
        let one = count == Some(1) && closed && !patterns && required == 0;
        if key == "minProperties" && count == Some(1) && optional && !one {
            return self.some_property(node);
        }
        if count.is_none() || (optional && !one) {
            return self.unmask();
        }
        self.assert();
        if key == "minProperties" && count > Some(1) {
            self.unmask();
        }
        node.out.insert(key.to_owned(), value.clone());
    }

    /// Where nothing else evaluates, what is not evaluated is what is additional.
    fn unevaluated(&mut self, node: &mut Node<'a>, key: &str, other: &str, value: &'a Value) {
        let evaluators = [
            "allOf",
            "anyOf",
            "oneOf",
            "not",
            "if",
            "then",
            "else",
            "$ref",
            "$dynamicRef",
            "$recursiveRef",
            "dependentSchemas",
            "contains",
            other,
        ];
        let old_items = key == "unevaluatedItems" && self.draft < Draft::Draft202012;
        if *value == Value::Bool(true) {
            return;
        }
        if old_items || evaluators.iter().any(|key| node.from.contains_key(*key)) {
            return self.unmask();
        }
        self.assert();
        let lowered = self.value(value);
        node.out.insert(other.to_owned(), lowered);
    }

    /// Without another anchor of its name it is a plain reference.
    fn dynamic_reference(&mut self, node: &mut Node<'a>, value: &'a Value) {
        let name = value.as_str().and_then(|text| text.strip_prefix('#'));
        let plain = name.is_some_and(|name| self.is_only_anchor(name));
        if plain && !node.from.contains_key("$ref") && !self.is_weak(Weakening::ForeignReferences) {
            self.assert();
            node.out.insert("$ref".into(), self.full_name(value));
        } else {
            self.unmask();
        }
    }

    fn bound(&mut self, node: &mut Node<'a>, key: &str, value: &'a Value) {
        let low = matches!(key, "minimum" | "exclusiveMinimum");
        self.assert();
        match literals::bound(value, low) {
            literals::Bound::Exact => {
                if literals::lets_slip(node.from, key) {
                    self.unmask();
                }
                node.out.insert(key.to_owned(), value.clone());
            }
            literals::Bound::Wider(value) => {
                self.unmask();
                node.out.insert(key.to_owned(), value);
            }
            literals::Bound::None => self.unmask(),
        }
    }
}

/// What a schema of one keyword leaves, where that can be said.
fn negated(key: &str, value: &Value) -> Option<Value> {
    match key {
        "type" => {
            let named: Vec<&str> = match value {
                Value::String(name) => vec![name],
                Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
                _ => return None,
            };
            if named.contains(&"integer") && !named.contains(&"number") {
                return None;
            }
            let left: Vec<_> = TYPES.iter().filter(|name| !named.contains(name)).collect();
            match left.is_empty() {
                true => Some(json!(false)),
                false => Some(json!({"type": left})),
            }
        }
        "required" => match value.as_array()?.as_slice() {
            [] => Some(json!(false)),
            [name] => Some(json!({"type": "object", "properties": {name.as_str()?: false}})),
            _ => None,
        },
        _ => None,
    }
}
