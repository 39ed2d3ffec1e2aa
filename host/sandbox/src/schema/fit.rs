//! Finds the tightest lowering that the grammar engine takes.

use super::lower::{Lowered, lower};
use super::weakening::Weakenings;
use jsonschema::Draft;
use llguidance::api::ParserLimits;
use llguidance::{GrammarBuilder, JsonCompileOptions};
use serde_json::{Map, Value, json};
use std::panic::AssertUnwindSafe;

/// Looks for each `oneOf` that overlaps by itself; with more of them, all are taken to overlap.
const MOST_UNIONS: usize = 48;

/// Why a lowered schema did not become a grammar.
#[derive(Debug)]
pub(crate) enum Complaint {
    /// No value satisfies it; nor, then, the schema that it was made from.
    Unsatisfiable(String),
    /// The engine does not take it, or not at this cost.
    Refused(String),
}

/// The lowered schema with what the grammar engine made of it.
///
/// # Errors
/// When no value satisfies the schema, or nothing at all is left of it that the engine takes.
pub(super) fn fit<G>(
    root: &Value,
    draft: Draft,
    limits: &ParserLimits,
    mut attempt: impl FnMut(Value) -> Result<G, Complaint>,
) -> Result<(Lowered, G), Complaint> {
    let mut weak = Weakenings::default();
    let mut attempt = |weak: &Weakenings| {
        let lowered = lower(root, draft, weak);
        let made = attempt(decorated(lowered.schema.clone(), root))?;
        Ok((lowered, made))
    };
    let mut found = loop {
        match attempt(&weak) {
            Ok(found) => break found,
            Err(Complaint::Refused(message)) if weak.give_way(&message) => {}
            Err(complaint) => return Err(complaint),
        }
    };
    // What gave way on the way there may not have been at fault.
    let kinds = weak.kinds();
    for kind in kinds.iter().rev().skip(1) {
        let mut fewer = weak.clone();
        fewer.remove(*kind);
        if let Ok(better) = attempt(&fewer) {
            (weak, found) = (fewer, better);
        }
    }
    let (mut lowered, made) = found;
    report_overlaps(&mut lowered, root, limits);
    if needs_escapes(root) {
        // The name of a property has other spellings then, which the mask takes for other properties.
        let named = |pointer: &str| pointer.ends_with("roperties");
        let hidden: Vec<_> = lowered
            .masked
            .iter()
            .filter(|one| named(one))
            .cloned()
            .collect();
        lowered.leave_to_validation(hidden);
    }
    Ok((lowered, made))
}

/// The options that are ours, whatever the client wrote: compact separators, no free white space, and
/// one spelling per character, so that a property cannot come under another spelling of its name.
fn decorated(mut schema: Value, root: &Value) -> Value {
    let escapes = if needs_escapes(root) {
        "nrbtf\\\"u"
    } else {
        "nrbtf\\\""
    };
    if let Value::Object(map) = &mut schema {
        map.insert(
            "x-guidance".into(),
            json!({
                "whitespace_flexible": false,
                "item_separator": ",",
                "key_separator": ":",
                "coerce_one_of": true,
                "json_allowed_escapes": escapes,
            }),
        );
    }
    schema
}

/// Whether the schema itself names characters that JSON writes only by their number.
fn needs_escapes(schema: &Value) -> bool {
    let numbered = |text: &str| {
        let control = |c: char| (c < ' ' && !"\n\r\t\u{8}\u{c}".contains(c)) || c == '\u{7f}';
        text.contains(control)
            || ["\\x", "\\u00", "\\c"]
                .iter()
                .any(|mark| text.contains(mark))
    };
    match schema {
        Value::String(text) => numbered(text),
        Value::Array(items) => items.iter().any(needs_escapes),
        Value::Object(map) => map
            .iter()
            .any(|(key, value)| numbered(key) || needs_escapes(value)),
        _ => false,
    }
}

/// Marks each `oneOf` whose alternatives may overlap: the mask takes it for an `anyOf`.
fn report_overlaps(lowered: &mut Lowered, root: &Value, limits: &ParserLimits) {
    let mut unions = Vec::new();
    find_unions(&lowered.schema, &mut String::new(), &mut unions);
    if unions.is_empty() || is_disjoint(lowered.schema.clone(), limits) {
        return;
    }
    let overlapping: Vec<&String> = if unions.len() > MOST_UNIONS {
        unions.iter().collect()
    } else {
        let alone = |union: &&String| {
            let mut schema = lowered.schema.clone();
            for other in unions.iter().filter(|other| *other != *union) {
                loosen(&mut schema, other);
            }
            !is_disjoint(schema, limits)
        };
        let some: Vec<_> = unions.iter().filter(alone).collect();
        if some.is_empty() {
            unions.iter().collect()
        } else {
            some
        }
    };
    let known = overlapping
        .into_iter()
        .filter(|pointer| root.pointer(pointer).is_some());
    let known = known.cloned().collect();
    lowered.leave_to_validation(known);
}

fn find_unions(value: &Value, pointer: &mut String, found: &mut Vec<String>) {
    let length = pointer.len();
    let mut step = |key: &str, child: &Value, found: &mut Vec<String>| {
        pointer.push('/');
        pointer.push_str(&super::pointer::escape(key));
        if key == "oneOf" && child.is_array() {
            found.push(pointer.clone());
        }
        find_unions(child, pointer, found);
        pointer.truncate(length);
    };
    match value {
        Value::Object(map) => {
            for (key, child) in map
                .iter()
                .filter(|(key, _)| *key != "const" && *key != "enum")
            {
                step(key, child, found);
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

/// Makes an `anyOf` of the `oneOf` at a pointer.
fn loosen(schema: &mut Value, pointer: &str) {
    let parent = pointer.strip_suffix("/oneOf").unwrap_or(pointer);
    let Some(Value::Object(map)) = schema.pointer_mut(parent) else {
        return;
    };
    // In place: other pointers lead through here. The name `oneOf` stays behind as a definition.
    if let Some(list) = map.get("oneOf").cloned() {
        let wider: Map<String, Value> = [("anyOf".to_owned(), list)].into_iter().collect();
        let all = map.entry("allOf").or_insert_with(|| json!([]));
        if let Value::Array(all) = all {
            all.push(Value::Object(wider));
        }
        map.insert("oneOf".into(), json!([true]));
    }
}

/// Whether the engine proves for every `oneOf` that no two alternatives overlap.
fn is_disjoint(schema: Value, limits: &ParserLimits) -> bool {
    let options = JsonCompileOptions::default();
    let builder = GrammarBuilder::new(None, limits.clone());
    let built = llguidance::panic_utils::catch_unwind(AssertUnwindSafe(|| {
        options.json_to_llg(builder, schema)
    }));
    built.is_ok()
}
