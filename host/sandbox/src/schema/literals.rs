//! Numbers and constants, as far as a grammar that counts in 64-bit floats writes them exactly.

use serde_json::{Map, Number, Value, json};

/// Up to here no two integers are the same float.
const EXACT: f64 = 9_007_199_254_740_991.0;
/// Bounds beyond are more than the grammar engine's integers hold.
const HUGE: f64 = 9.0e18;

/// What becomes of a bound.
#[derive(Debug, PartialEq)]
pub(super) enum Bound {
    Exact,
    /// The nearest one that lets through at least as much.
    Wider(Value),
    None,
}

/// A bound of numbers from below (`low`) or above.
pub(super) fn bound(value: &Value, low: bool) -> Bound {
    let Value::Number(number) = value else {
        return Bound::Exact;
    };
    let Some(float) = number.as_f64() else {
        return Bound::None;
    };
    if float.abs() >= HUGE {
        return Bound::None;
    }
    if float.abs() <= EXACT {
        return Bound::Exact;
    }
    let wider = if low {
        float.next_down()
    } else {
        float.next_up()
    };
    Bound::Wider(json!(wider))
}

/// Whether the grammar engine lets a whole number through that an exclusive bound excludes: it does where
/// the other bound is less than one away.
pub(super) fn lets_slip(schema: &Map<String, Value>, key: &str) -> bool {
    let (own, other) = match key {
        "exclusiveMinimum" => ("minimum", ["maximum", "exclusiveMaximum"]),
        "exclusiveMaximum" => ("maximum", ["minimum", "exclusiveMinimum"]),
        _ => return false,
    };
    let number = |key: &str| schema.get(key).and_then(Value::as_f64);
    // Draft 4 says with a boolean whether the other keyword excludes its bound.
    let excluded = match schema.get(key) {
        Some(Value::Bool(true)) => number(own),
        _ => number(key),
    };
    let whole = excluded.filter(|bound| bound.fract() == 0.0);
    let near = |bound: f64| {
        let others = other.iter().filter_map(|key| number(key));
        others
            .map(|other| (other - bound).abs())
            .any(|distance| distance < 1.0)
    };
    whole.is_some_and(near) && schema.get("type").is_none_or(|kind| kind != "integer")
}

/// Whether the grammar engine writes exactly this value.
pub(super) fn is_exact(value: &Value) -> bool {
    match value {
        Value::Number(number) => is_exact_number(number),
        Value::Array(items) => items.iter().all(is_exact),
        Value::Object(map) => map.values().all(is_exact),
        _ => true,
    }
}

fn is_exact_number(number: &Number) -> bool {
    let float = number.as_f64().unwrap_or(f64::INFINITY).abs();
    float == 0.0 || (1e-6..=EXACT).contains(&float)
}

/// A schema of keywords that the grammar engine writes exactly, which allows at least this value.
pub(super) fn around(value: &Value) -> Value {
    match value {
        Value::Number(number) => {
            let float = number.as_f64().unwrap_or(f64::INFINITY);
            let kind = if number.is_f64() { "number" } else { "integer" };
            if float.abs() >= HUGE || float.abs() < 1.0 {
                return json!({"type": kind});
            }
            json!({"type": kind, "minimum": float.next_down(), "maximum": float.next_up()})
        }
        Value::Array(items) => {
            json!({"type": "array", "minItems": items.len(), "maxItems": items.len()})
        }
        Value::Object(map) => json!({"type": "object", "required": map.keys().collect::<Vec<_>>()}),
        other => json!({"const": other}),
    }
}

/// Whether a value is of a type that `type` names; any is where there is no `type`.
pub(super) fn has_type(value: &Value, types: Option<&Value>) -> bool {
    let is = |name: &Value| match (name.as_str(), value) {
        (Some("null"), Value::Null)
        | (Some("boolean"), Value::Bool(_))
        | (Some("number"), Value::Number(_))
        | (Some("string"), Value::String(_))
        | (Some("array"), Value::Array(_))
        | (Some("object"), Value::Object(_)) => true,
        (Some("integer"), Value::Number(number)) => {
            !number.is_f64() || number.as_f64().is_some_and(|float| float.fract() == 0.0)
        }
        _ => false,
    };
    match types {
        None => true,
        Some(Value::Array(names)) => names.iter().any(is),
        Some(name) => is(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_widen_where_floats_are_coarse() {
        assert_eq!(bound(&json!(5), true), Bound::Exact);
        assert_eq!(bound(&json!(true), true), Bound::Exact);
        assert_eq!(bound(&json!(1e30), false), Bound::None);
        let wider = bound(&json!(9_007_199_254_740_993_i64), true);
        assert_eq!(wider, Bound::Wider(json!(9_007_199_254_740_991.0)));
    }

    #[test]
    fn constants_that_are_exact() {
        for (value, exact) in [
            (json!(1), true),
            (json!(0.1), true),
            (json!(9_007_199_254_740_993_i64), false),
            (json!({"a": [18_446_744_073_709_551_615_u64]}), false),
            (json!({"a": ["x", null]}), true),
        ] {
            assert_eq!(is_exact(&value), exact, "{value}");
        }
    }

    #[test]
    fn types_of_values() {
        assert!(has_type(&json!(1.0), Some(&json!("integer"))));
        assert!(!has_type(&json!(1.5), Some(&json!(["integer", "null"]))));
        assert!(has_type(&json!(1.5), None));
    }
}
