//! How values are written: what the grammar engine is told beside the schema.

use super::Spacing;
use serde_json::{Value, json};

/// The options that are ours, whatever the client wrote. White space is between tokens of JSON or nowhere,
/// so that it is bounded. Escapes are the grammar's to allow and [`crate::spelling`]'s to make the only ones.
pub(super) fn decorated(mut schema: Value, spacing: Spacing) -> Value {
    let (item, key) = match spacing {
        Spacing::Compact => (",", ":"),
        Spacing::Spaced => (", ", ": "),
    };
    if let Value::Object(map) = &mut schema {
        map.insert(
            "x-guidance".into(),
            json!({
                "whitespace_flexible": false,
                "item_separator": item,
                "key_separator": key,
                "coerce_one_of": true,
                "json_allowed_escapes": "nrbtf\\\"u",
            }),
        );
    }
    schema
}

/// Whether a schema names the character DEL, which JSON may write as itself. The grammar engine writes it so
/// in names of properties, and by its number elsewhere.
pub(super) fn has_delete(schema: &Value) -> bool {
    match schema {
        Value::String(text) => text.contains('\u{7f}'),
        Value::Array(items) => items.iter().any(has_delete),
        Value::Object(map) => map
            .iter()
            .any(|(key, value)| key.contains('\u{7f}') || has_delete(value)),
        _ => false,
    }
}
