//! How values of a JSON Schema are written: white space, the order of properties, the spelling of characters.

use crate::schemas::{is_written, schemas, values};
use crate::walks::{text, walk};
use crate::world::{bytes, grammars, greedy, pieces};
use formwork_sandbox::{Grammar, KeyOrder, Schema, Source, Spacing};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;

fn compile(schema: Schema) -> Arc<Grammar> {
    let text = schema.text.clone();
    grammars(bytes())
        .compile(&Source::JsonSchema(schema))
        .unwrap_or_else(|failure| panic!("{text}: {failure}"))
}

fn any_order(schema: &Value) -> Schema {
    Schema {
        key_order: KeyOrder::Any,
        ..schema.to_string().into()
    }
}

fn fits(grammar: &Arc<Grammar>, text: &str) -> bool {
    is_written(grammar, text) && grammar.validate(text.as_bytes()).is_ok()
}

/// A JSON text as Python's `json.dumps` writes it by default, but for characters beyond ASCII.
fn spaced(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(spaced).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(map) => {
            let member =
                |(key, value)| format!("{}: {}", Value::from(String::clone(key)), spaced(value));
            let members: Vec<String> = map.iter().map(member).collect();
            format!("{{{}}}", members.join(", "))
        }
        other => other.to_string(),
    }
}

/// The value with the members of its objects in another order.
fn shuffled(value: &Value, seed: &mut u64) -> Value {
    match value {
        Value::Array(items) => items.iter().map(|item| shuffled(item, seed)).collect(),
        Value::Object(map) => {
            let mut members: Vec<_> = map.iter().collect();
            for end in (1..members.len()).rev() {
                *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                members.swap(end, (*seed >> 33) as usize % (end + 1));
            }
            let members = members.into_iter();
            let members = members.map(|(key, value)| (key.clone(), shuffled(value, seed)));
            Value::Object(members.collect())
        }
        other => other.clone(),
    }
}

#[test]
fn spaced_values_are_as_python_writes_them() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}, "b": {"type": "object"}}, "required": ["a"], "additionalProperties": false});
    let spaced = compile(Schema {
        spacing: Spacing::Spaced,
        ..schema.to_string().into()
    });
    let compact = compile(schema.to_string().into());
    for text in [
        "{\"a\": [1, 2], \"b\": {\"x\": null, \"y\": [{}, []]}}",
        "{\"a\": []}",
    ] {
        assert!(is_written(&spaced, text), "{text}");
        assert!(!is_written(&compact, text), "{text}");
        assert!(is_written(
            &compact,
            &text.replace(": ", ":").replace(", ", ",")
        ));
    }
    for text in [
        "{\"a\":[1, 2]}",
        "{\"a\": [1,2]}",
        "{ \"a\": []}",
        "{\"a\":  []}",
        "{\"a\": [] }",
        "{\"a\": [\n]}",
    ] {
        assert!(!is_written(&spaced, text), "{text}");
    }
}

#[test]
fn small_closed_objects_come_in_every_order_and_in_no_other_way() {
    let inner = json!({"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "null"}}, "required": ["x", "y"], "additionalProperties": false});
    let schema = json!({"type": "object", "properties": {"a": inner, "b": {"type": "boolean"}, "c": {"const": 1}}, "required": ["a", "c"], "additionalProperties": false});
    let grammar = compile(any_order(&schema));
    assert!(grammar.unmasked().is_empty(), "{:?}", grammar.unmasked());
    for text in [
        r#"{"a":{"x":1,"y":null},"c":1}"#,
        r#"{"c":1,"b":true,"a":{"y":null,"x":1}}"#,
        r#"{"b":true,"c":1,"a":{"x":1,"y":null}}"#,
    ] {
        assert!(is_written(&grammar, text), "{text}");
    }
    for text in [
        r#"{"c":1,"b":true}"#,
        r#"{"c":1,"c":1,"a":{"x":1,"y":null}}"#,
        r#"{"c":1,"a":{"x":1}}"#,
        r#"{"c":1,"a":{"x":1,"y":null,"x":1}}"#,
        r#"{"c":2,"a":{"x":1,"y":null}}"#,
        r#"{"c":1,"a":{"x":1,"y":null},"d":1}"#,
    ] {
        assert!(!is_written(&grammar, text), "{text}");
    }
}

#[test]
fn larger_objects_come_in_any_order_and_validation_counts() {
    let names = ["a", "b", "c", "d", "e", "f.g"];
    let properties: serde_json::Map<_, _> = (names.iter().enumerate())
        .map(|(index, name)| ((*name).to_owned(), json!({"const": index})))
        .collect();
    let closed = json!({"type": "object", "properties": properties, "required": ["e", "a"], "additionalProperties": false});
    let grammar = compile(any_order(&closed));
    assert_eq!(grammar.unmasked(), ["/properties", "/required"]);
    for (text, written, fine) in [
        (r#"{"f.g":5,"e":4,"c":2,"a":0}"#, true, true),
        (r#"{"e":4,"a":0}"#, true, true),
        (r#"{"e":4,"b":1}"#, true, false),
        (r#"{"e":4,"a":0,"e":4}"#, true, false),
        (r#"{"e":4}"#, false, false),
        (r#"{"e":4,"a":1}"#, false, false),
        (r#"{"e":4,"a":0,"fxg":5}"#, false, false),
    ] {
        assert_eq!(is_written(&grammar, text), written, "{text}");
        assert_eq!(grammar.validate(text.as_bytes()).is_ok(), fine, "{text}");
    }
    let open =
        json!({"properties": {"a": {"type": "integer"}, "a b": {"$ref": "#"}}, "required": ["a"]});
    let grammar = compile(any_order(&open));
    assert_eq!(grammar.unmasked(), ["/properties", "/required"]);
    assert!(fits(&grammar, r#"{"z":1,"a b":{"a":2,"b":3},"a":1}"#));
    assert!(!is_written(&grammar, r#"{"z":1,"a":"x"}"#));
    assert!(!fits(&grammar, r#"{"z":1,"a b":{"b":3},"a":1}"#));
    let reason = grammar.validate(br#"{"a":1,"a":1}"#).unwrap_err().reason;
    assert!(reason.contains("\"a\" is there twice"), "{reason}");
}

#[test]
fn references_and_drafts_hold_in_any_order() {
    for (draft, shelf) in [
        ("https://json-schema.org/draft/2020-12/schema", "$defs"),
        ("http://json-schema.org/draft-07/schema#", "definitions"),
    ] {
        let tree = json!({"type": "object", "properties": {"value": {"type": "string", "pattern": "^[a-z]{1,20}$", "description": "a text that is long enough not to be copied into each order of the object"}, "left": {"$ref": format!("#/{shelf}/tree")}}, "required": ["value"], "additionalProperties": false});
        let schema =
            json!({"$schema": draft, "$ref": format!("#/{shelf}/tree"), shelf: {"tree": tree}});
        let grammar = compile(any_order(&schema));
        assert!(fits(
            &grammar,
            r#"{"left":{"value":"x","left":{"value":"y"}},"value":"z"}"#
        ));
        assert!(!fits(&grammar, r#"{"left":{"value":"X"},"value":"z"}"#));
        assert!(!fits(&grammar, r#"{"left":{},"value":"z"}"#));
        // What other keywords point at is somewhere else now.
        let pointed = json!({"$schema": draft, "type": "object", "properties": {"a": {"type": "integer"}, "b": {"$ref": "#/properties/a"}}, "required": ["a"], "additionalProperties": false});
        let grammar = compile(any_order(&pointed));
        assert!(fits(&grammar, r#"{"b":1,"a":2}"#) && !fits(&grammar, r#"{"b":"x","a":2}"#));
    }
}

/// The mask alone lets these be written, and not those.
fn masked(schema: Value, fine: &[&str], refused: &[&str]) {
    let grammar = compile(schema.to_string().into());
    assert!(grammar.unmasked().is_empty(), "{schema}");
    for text in fine {
        assert!(is_written(&grammar, text), "{schema} {text}");
    }
    for text in refused {
        assert!(!is_written(&grammar, text), "{schema} {text}");
    }
}

#[test]
fn large_schemas_are_lowered_in_reasonable_time() {
    let names: Vec<String> = (0..4_000).map(|one| format!("name {one}")).collect();
    let properties: serde_json::Map<_, _> = (names.iter())
        .map(|name| (name.clone(), json!({"const": name})))
        .collect();
    let list: Vec<Value> = (0..400).map(|one| json!([one, {"a": 1, "b": 2}])).collect();
    for schema in [
        json!({"properties": properties, "required": names, "additionalProperties": false}),
        json!({"const": list}),
        json!({"enum": list}),
        json!({"type": "object", "properties": {"k": {"enum": names}}, "allOf": (0..1_000).map(|_| json!({"if": {"properties": {"k": {"enum": names[..20]}}}, "then": {"required": ["x"]}})).collect::<Vec<_>>()}),
    ] {
        for key_order in [KeyOrder::Schema, KeyOrder::Any] {
            let source = Schema {
                key_order,
                ..schema.to_string().into()
            };
            let begun = std::time::Instant::now();
            // Whether it compiles is a matter of the limits.
            let _ = grammars(bytes()).compile(&Source::JsonSchema(source));
            assert!(begun.elapsed().as_secs() < 8, "{:?}", begun.elapsed());
        }
    }
}

#[test]
fn control_characters_are_written_where_they_are_allowed_and_nowhere_else() {
    masked(
        json!({"type": "string"}),
        &[
            r#""\u0000\u001f\u007f\n""#,
            r#""\\u000a""#,
            r#""\\\\\u0001""#,
        ],
        &[
            r#""\u000a""#,
            r#""\u001F""#,
            r#""\u0061""#,
            r#""\u0022""#,
            r#""\ud83d\ude00""#,
            r#""\ud800""#,
            "\"\t\"",
            "\"\u{1}\"",
            "\"\u{7f}\"",
            r#""\/""#,
        ],
    );
    masked(
        json!({"type": "string", "pattern": "^[\\n\\u0001x]{1,2}$"}),
        &[r#""\n\u0001""#, r#""x""#],
        &[r#""\u0002""#, r#""\u000a""#, r#""\u0001\u0001x""#],
    );
    masked(
        json!({"type": "string", "maxLength": 2}),
        &[
            r#""\u0001\u0002""#,
            r#""é\u0002""#,
            "\"\u{1f600}\u{1f600}\"",
        ],
        &[r#""\u0001\u0002\u0003""#],
    );
    masked(
        json!({"enum": ["a\u{1}b", "\u{1f}", "\n", "\u{7f}"]}),
        &[r#""a\u0001b""#, r#""\u001f""#, r#""\n""#, r#""\u007f""#],
        &[r#""a\u0002b""#, r#""\u001F""#, r#""\u000a""#],
    );
}

#[test]
fn halves_of_surrogate_pairs_pass_validation_and_are_never_written() {
    let schema = json!({"type": "string", "maxLength": 1, "not": {"const": "x"}});
    let grammar = compile(schema.to_string().into());
    for (text, fine) in [
        (r#""\ud800""#, true),
        (r#""\ud83d\ude00""#, true),
        (r#""\ud800\ud800""#, false),
        (r#""\u0078""#, false),
    ] {
        assert_eq!(grammar.validate(text.as_bytes()).is_ok(), fine, "{text}");
        assert!(!is_written(&grammar, text), "{text}");
    }
    assert!(is_written(&grammar, "\"\u{1f600}\""));
}

#[test]
fn names_of_properties_are_matched_by_their_characters() {
    masked(
        json!({"type": "object", "patternProperties": {"^\\u0001+$": {"type": "integer"}}, "properties": {"\u{1}x": {"type": "null"}, "y": {"type": "boolean"}}, "additionalProperties": {"type": "string"}}),
        &[
            r#"{"\u0001x":null}"#,
            r#"{"\u0001\u0001":1}"#,
            r#"{"\u0002":"z"}"#,
            r#"{"y":true}"#,
        ],
        &[
            r#"{"\u0001x":"z"}"#,
            r#"{"\u0001":"z"}"#,
            r#"{"\u0079":"z"}"#,
            r#"{"y":"z"}"#,
        ],
    );
}

#[test]
fn an_escape_is_offered_only_where_it_can_be_ended() {
    let walk = |pattern: &str, begun: &str| {
        let schema = json!({"type": "string", "pattern": pattern});
        let mut matcher = compile(schema.to_string().into()).start();
        for byte in begun.bytes() {
            matcher.commit(byte.into()).unwrap();
        }
        let mask = matcher.mask().unwrap();
        let allowed = mask.to_list().into_iter();
        allowed.map(|token| token as u8 as char).collect::<String>()
    };
    assert_eq!(walk("^[\\n\\r]$", "\"\\"), "nr");
    assert_eq!(walk("^[\\n\\u000b]$", "\"\\"), "nu");
    assert_eq!(walk("^[\\n\\u001f]$", "\"\\u00"), "1");
    assert_eq!(walk("^[\\n\\u0001]$", "\"\\u000"), "1");
    assert_eq!(walk("^[\\u000a-\\u000f]$", "\"\\u000"), "bef");
}

/// The only spelling of a string.
fn spelled(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_order_means_any_order(
        schema in schemas(), values in prop::collection::vec(values(), 12), mut seed in any::<u64>(),
    ) {
        let Ok(grammar) = grammars(bytes()).compile(&Source::JsonSchema(any_order(&schema))) else {
            return Ok(());
        };
        let oracle = jsonschema::options().should_validate_formats(true).build(&schema).unwrap();
        for value in values {
            let text = shuffled(&value, &mut seed).to_string();
            prop_assert_eq!(fits(&grammar, &text), oracle.is_valid(&value), "{} {}", schema, text);
        }
    }

    #[test]
    fn spaced_values_are_the_same_values(
        schema in schemas(), values in prop::collection::vec(values(), 12),
    ) {
        let source = Schema { spacing: Spacing::Spaced, ..schema.to_string().into() };
        let Ok(grammar) = grammars(bytes()).compile(&Source::JsonSchema(source)) else {
            return Ok(());
        };
        let oracle = jsonschema::options().should_validate_formats(true).build(&schema).unwrap();
        for value in values {
            let text = spaced(&value);
            prop_assert_eq!(fits(&grammar, &text), oracle.is_valid(&value), "{} {}", schema, text);
        }
    }

    #[test]
    fn every_string_has_its_spelling(
        text in prop::collection::vec(prop_oneof![
            prop::char::range('\0', '\u{7f}'), prop::char::any(),
        ], 0..6).prop_map(String::from_iter),
        length in 0..6_usize,
    ) {
        let schema = json!({"type": "string", "maxLength": length});
        let grammar = compile(schema.to_string().into());
        prop_assert_eq!(is_written(&grammar, &spelled(&text)), text.chars().count() <= length);
    }

    #[test]
    fn walks_spell_each_character_in_its_way(
        class in prop::sample::select(vec!["[\\n\\r]", "[\\u0000-\\u0003x]", "\\s", "[^a-z]", "[\\u000a-\\u0010]", "[\\u007f\\\\]"]),
        choices in prop::collection::vec(any::<u16>(), 40), whole in any::<bool>(),
    ) {
        let schema = json!({"type": "object", "additionalProperties": {"type": "string", "pattern": format!("^{class}{{1,3}}$")}});
        let vocabulary = if whole { greedy() } else { pieces() };
        let grammar = grammars(vocabulary).compile(&Source::JsonSchema(schema.to_string().into())).unwrap();
        let oracle = jsonschema::validator_for(&schema).unwrap();
        let (tokens, complete) = walk(&mut grammar.start(), &choices);
        if complete {
            let text = text(grammar.vocabulary(), &tokens);
            let value: Value = serde_json::from_slice(&text).unwrap();
            prop_assert!(oracle.is_valid(&value), "{}", value);
            let names = value.as_object().unwrap();
            let members: Vec<_> = names.iter().map(|(key, value)| format!("{}:{}", spelled(key), spelled(value.as_str().unwrap()))).collect();
            let again = format!("{{{}}}", members.join(","));
            // A name that comes twice counts once.
            prop_assert!(again.len() < text.len() || again.as_bytes() == text, "{}", again);
        }
    }
}
