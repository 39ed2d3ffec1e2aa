//! How a value may be written: compactly, numbers in their plainest form, keys in any order.

use serde_json::{Map, Value};

/// Spellings that are tried; a value with more orders of keys is tried in the first ones.
const MOST: usize = 720;

/// The spellings of a value, the one in its own order first.
pub(crate) fn spellings(value: &Value) -> Vec<String> {
    match value {
        Value::Array(items) => {
            let inner = product(items.iter().map(spellings));
            let join = |parts: Vec<String>| format!("[{}]", parts.join(","));
            inner.into_iter().map(join).collect()
        }
        Value::Object(map) => orders(map.len())
            .into_iter()
            .flat_map(|order| ordered(map, &order))
            .take(MOST)
            .collect(),
        Value::Number(number) => vec![plain(number)],
        other => vec![other.to_string()],
    }
}

fn ordered(map: &Map<String, Value>, order: &[usize]) -> Vec<String> {
    let members: Vec<_> = map.iter().collect();
    let member = |&index: &usize| {
        let (key, value) = members[index];
        let key = Value::from(key.as_str());
        let write = |value: String| format!("{key}:{value}");
        spellings(value).into_iter().map(write).collect()
    };
    let join = |parts: Vec<String>| format!("{{{}}}", parts.join(","));
    product(order.iter().map(member))
        .into_iter()
        .map(join)
        .collect()
}

/// A whole number is written as one.
fn plain(number: &serde_json::Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 => {
            format!("{float:.0}")
        }
        _ => number.to_string(),
    }
}

fn product(parts: impl Iterator<Item = Vec<String>>) -> Vec<Vec<String>> {
    let mut all = vec![Vec::new()];
    for choices in parts {
        let longer = all.iter().flat_map(|begun: &Vec<String>| {
            choices.iter().map(move |choice| {
                let mut longer = begun.clone();
                longer.push(choice.clone());
                longer
            })
        });
        all = longer.take(MOST).collect();
    }
    all
}

/// The orders of so many things, the natural one first.
fn orders(count: usize) -> Vec<Vec<usize>> {
    let mut orders = vec![Vec::new()];
    for next in 0..count {
        let grown = orders.iter().flat_map(|order: &Vec<usize>| {
            (0..=order.len()).rev().map(move |place| {
                let mut grown = order.clone();
                grown.insert(place, next);
                grown
            })
        });
        orders = grown.take(MOST).collect();
    }
    orders
}
