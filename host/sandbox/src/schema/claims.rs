//! What a schema claims of a value, as far as it tells two schemas apart.

use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// What must hold for a value, all of it: objects of the schema, references and `allOf` followed.
#[derive(Clone, Default)]
pub(super) struct Claims<'a> {
    pub(super) maps: Vec<&'a Map<String, Value>>,
    /// Nothing satisfies them.
    pub(super) never: bool,
}

const NULL: u8 = 1;
const BOOLEAN: u8 = 2;
const NUMBER: u8 = 4;
const STRING: u8 = 8;
pub(super) const ARRAY: u8 = 16;
pub(super) const OBJECT: u8 = 32;

impl<'a> Claims<'a> {
    pub(super) fn all(&self, key: &str) -> impl Iterator<Item = &'a Value> {
        self.maps.iter().filter_map(move |map| map.get(key))
    }

    pub(super) fn unions(&self) -> impl Iterator<Item = &'a Value> {
        let unions = self.all("anyOf").chain(self.all("oneOf"));
        unions.filter(|union| union.is_array())
    }

    pub(super) fn required(&self) -> impl Iterator<Item = &'a str> {
        let lists = self.all("required").filter_map(Value::as_array);
        lists.flatten().filter_map(Value::as_str)
    }

    /// Bits of the types that are left.
    pub(super) fn kinds(&self) -> u8 {
        let typed = self.all("type").map(|types| match types {
            Value::Array(list) => list.iter().map(kind_named).fold(0, |all, one| all | one),
            one => kind_named(one),
        });
        let listed = self
            .lists()
            .map(|values| values.iter().map(kind).fold(0, |all, one| all | one));
        typed.chain(listed).fold(u8::MAX >> 2, |all, one| all & one)
    }

    /// The lists of values of which it must be one.
    fn lists(&self) -> impl Iterator<Item = &'a [Value]> {
        let constants = self.all("const").map(std::slice::from_ref);
        let lists = self.all("enum").filter_map(Value::as_array);
        constants.chain(lists.map(Vec::as_slice))
    }

    pub(super) fn least(&self, key: &str) -> f64 {
        let bounds = self.all(key).filter_map(Value::as_f64);
        bounds.fold(0.0, f64::max)
    }

    fn most(&self, key: &str) -> f64 {
        let bounds = self.all(key).filter_map(Value::as_f64);
        bounds.fold(f64::INFINITY, f64::min)
    }

    /// The least and the greatest number, and whether they are among those that fit.
    fn range(&self) -> ((f64, bool), (f64, bool)) {
        let (mut low, mut high) = ((f64::NEG_INFINITY, true), (f64::INFINITY, true));
        for map in &self.maps {
            let number = |key| map.get(key).and_then(Value::as_f64);
            // In draft 4 they say whether the bound beside them is exclusive.
            let strict = |key| map.get(key) == Some(&Value::Bool(true));
            let lows = [
                number("minimum").map(|bound| (bound, !strict("exclusiveMinimum"))),
                number("exclusiveMinimum").map(|bound| (bound, false)),
            ];
            for bound in lows.into_iter().flatten() {
                if bound.0 > low.0 || (bound.0 == low.0 && !bound.1) {
                    low = bound;
                }
            }
            let highs = [
                number("maximum").map(|bound| (bound, !strict("exclusiveMaximum"))),
                number("exclusiveMaximum").map(|bound| (bound, false)),
            ];
            for bound in highs.into_iter().flatten() {
                if bound.0 < high.0 || (bound.0 == high.0 && !bound.1) {
                    high = bound;
                }
            }
        }
        (low, high)
    }

    /// Whether a value is plainly none of those that fit.
    fn excludes(&self, value: &Value) -> bool {
        if self.kinds() & kind(value) == 0 {
            return true;
        }
        if self
            .lists()
            .any(|list| !list.iter().any(|other| are_equal(value, other)))
        {
            return true;
        }
        match value {
            Value::Number(number) => number.as_f64().is_some_and(|number| {
                let (low, high) = self.range();
                number < low.0
                    || number > high.0
                    || (number == low.0 && !low.1)
                    || (number == high.0 && !high.1)
            }),
            Value::String(text) => {
                let length = text.chars().count() as f64;
                length < self.least("minLength") || length > self.most("maxLength")
            }
            Value::Object(members) => self.required().any(|key| !members.contains_key(key)),
            _ => false,
        }
    }

    /// Whether types, lists of values or bounds leave nothing in common.
    pub(super) fn are_plainly_apart(&self, other: &Self) -> bool {
        let one = self;
        let kinds = one.kinds() & other.kinds();
        if kinds == 0 {
            return true;
        }
        let outside = |claims: &Self, rest: &Self| {
            claims.lists().any(|list| {
                let mut values = list.iter();
                values.all(|value| claims.excludes(value) || rest.excludes(value))
            })
        };
        if outside(one, other) || outside(other, one) {
            return true;
        }
        let crossed = |low: &str, high: &str| {
            let least = one.least(low).max(other.least(low));
            least > one.most(high).min(other.most(high))
        };
        match kinds {
            NUMBER => {
                let below = |high: (f64, bool), low: (f64, bool)| {
                    high.0 < low.0 || (high.0 == low.0 && !(high.1 && low.1))
                };
                let (one, other) = (one.range(), other.range());
                below(one.1, other.0) || below(other.1, one.0)
            }
            STRING => crossed("minLength", "maxLength"),
            ARRAY => crossed("minItems", "maxItems"),
            OBJECT => crossed("minProperties", "maxProperties"),
            _ => false,
        }
    }
}

fn kind(value: &Value) -> u8 {
    match value {
        Value::Null => NULL,
        Value::Bool(_) => BOOLEAN,
        Value::Number(_) => NUMBER,
        Value::String(_) => STRING,
        Value::Array(_) => ARRAY,
        Value::Object(_) => OBJECT,
    }
}

fn kind_named(name: &Value) -> u8 {
    match name.as_str() {
        Some("null") => NULL,
        Some("boolean") => BOOLEAN,
        Some("number" | "integer") => NUMBER,
        Some("string") => STRING,
        Some("array") => ARRAY,
        Some("object") => OBJECT,
        _ => u8::MAX,
    }
}

/// Equal as JSON Schema has it: 1 and 1.0 are; numbers that 64-bit floats do not tell apart pass for it.
fn are_equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            let same = one
                .iter()
                .zip(other)
                .all(|(one, other)| are_equal(one, other));
            one.len() == other.len() && same
        }
        (Value::Object(one), Value::Object(other)) => {
            let members: BTreeMap<_, _> = other.iter().collect();
            let mut pairs = one.iter().map(|(key, value)| (value, members.get(key)));
            one.len() == members.len()
                && pairs.all(|(one, other)| other.is_some_and(|other| are_equal(one, other)))
        }
        _ => one == other,
    }
}
