//! JSON Schemas: what the mask enforces, what validation does, and that nothing is lost between them.

use crate::walks::{text, walk};
use crate::world::{bytes, grammars, pieces};
use formwork_sandbox::{FailureKind, Grammar, Source};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;

fn compile(schema: &Value) -> Arc<Grammar> {
    let source = Source::JsonSchema(schema.to_string().into());
    grammars(bytes())
        .compile(&source)
        .unwrap_or_else(|failure| panic!("{schema}: {failure}"))
}

pub(crate) fn is_written(grammar: &Arc<Grammar>, text: &str) -> bool {
    let mut matcher = grammar.start();
    text.bytes().all(|byte| matcher.commit(byte.into()).is_ok()) && matcher.accepting()
}

/// Texts that the mask refuses, texts that only validation refuses, and texts that pass both.
fn check(schema: Value, unmasked: &[&str], [masked, validated, fine]: [&[&str]; 3]) {
    let grammar = compile(&schema);
    assert_eq!(grammar.unmasked(), unmasked, "{schema}");
    for text in masked {
        assert!(
            !is_written(&grammar, text),
            "{schema} lets {text} be written"
        );
    }
    for text in validated {
        assert!(
            is_written(&grammar, text),
            "{schema} does not let {text} be written"
        );
        assert!(
            grammar.validate(text.as_bytes()).is_err(),
            "{schema} passes {text}"
        );
    }
    for text in fine {
        assert!(
            is_written(&grammar, text),
            "{schema} does not let {text} be written"
        );
        assert_eq!(grammar.validate(text.as_bytes()), Ok(()), "{schema}");
    }
}

#[test]
fn what_can_be_masked_is() {
    let all = |schema, refused: &[&str], fine: &[&str]| check(schema, &[], [refused, &[], fine]);
    all(
        json!({"not": {"type": ["object", "array"]}}),
        &["{}", "[]"],
        &["1", "\"a\"", "null"],
    );
    all(
        json!({"type": "object", "not": {"required": ["a"]}}),
        &["{\"a\":1}", "1"],
        &["{\"b\":1}"],
    );
    all(
        json!({"type": "object", "propertyNames": {"pattern": "^x"}, "additionalProperties": {"type": "null"}}),
        &["{\"y\":null}", "{\"x\":1}"],
        &["{\"x\":null}", "{}"],
    );
    all(
        json!({"properties": {"a": {"const": 1}}, "unevaluatedProperties": false}),
        &["{\"b\":1}", "{\"a\":2}"],
        &["{\"a\":1}"],
    );
    all(
        json!({"oneOf": [{"type": "string"}, {"type": "integer"}]}),
        &["1.5"],
        &["1", "\"1\""],
    );
    all(
        json!({"type": "string", "format": "ipv6"}),
        &["\"1:2\""],
        &["\"::ffff:1.2.3.4\"", "\"::\""],
    );
    all(
        json!({"type": ["integer", "null"], "enum": [1.0, 2.5, "a", null]}),
        &["2.5", "\"a\""],
        &["1", "null"],
    );
}

#[test]
fn what_cannot_be_masked_is_validated() {
    check(
        json!({"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": true}),
        &["/uniqueItems"],
        [&["[1,2,1]", "[3]"], &["[1,1]"], &["[2,1]", "[]"]],
    );
    check(
        json!({"if": {"properties": {"k": {"const": "a"}}, "required": ["k"]}, "then": {"required": ["x"]}, "else": {"required": ["y"]}, "type": "object"}),
        &["/if"],
        [
            &["{\"k\":\"b\"}"],
            &["{\"y\":1,\"k\":\"a\"}"],
            &["{\"k\":\"a\",\"x\":1}", "{\"y\":1}"],
        ],
    );
    check(
        json!({"type": "array", "contains": {"const": 1}, "minContains": 2}),
        &["/contains"],
        [&["[]", "[1]"], &["[1,2]"], &["[1,2,1]"]],
    );
    check(
        json!({"type": "string", "format": "date"}),
        &["/format"],
        [
            &["\"2023-13-01\"", "\"2023-04-31\""],
            &["\"2023-02-29\""],
            &["\"2024-02-29\""],
        ],
    );
    check(
        json!({"type": "string", "pattern": "^(?!a).b$"}),
        &["/pattern"],
        [&["1"], &["\"ab\""], &["\"bb\""]],
    );
    check(
        json!({"oneOf": [{"multipleOf": 2}, {"multipleOf": 3}], "type": "integer"}),
        &["/oneOf"],
        [&["5"], &["6"], &["4", "9"]],
    );
}

#[test]
fn what_floats_and_automata_cannot_tell_is_validated() {
    check(
        json!({"const": 9_007_199_254_740_993_i64}),
        &["/const"],
        [&["1"], &["9007199254740992"], &["9007199254740993"]],
    );
    check(
        json!({"type": "object", "patternProperties": {"^a": {"type": "integer"}, "b$": {"minimum": 5}}, "additionalProperties": false}),
        &["/patternProperties"],
        [
            &["{\"c\":1}"],
            &["{\"ab\":1}"],
            &["{\"ab\":5}", "{\"a\":1}"],
        ],
    );
    check(
        json!({"type": "number", "exclusiveMinimum": 0, "maximum": 0.5}),
        &["/exclusiveMinimum"],
        [&["-1", "0.6"], &["0"], &["0.1", "0.5"]],
    );
    check(
        json!({"type": "integer", "minimum": -1e30, "maximum": 3}),
        &["/minimum"],
        [&["4"], &[], &["-5", "3"]],
    );
}

#[test]
fn drafts_mean_what_they_meant() {
    let seven = "http://json-schema.org/draft-07/schema#";
    check(
        json!({"$schema": seven, "$ref": "#/definitions/a", "minimum": 5, "definitions": {"a": {"type": "integer"}}}),
        &[],
        [&["\"a\""], &[], &["1"]],
    );
    check(
        json!({"$schema": seven, "dependencies": {"a": ["b"]}, "type": "object"}),
        &[],
        [&["1", "{\"a\":1}"], &[], &["{\"a\":1,\"b\":1}"]],
    );
    // No draft is named: the newest in whose terms it is well formed.
    let pair = json!({"type": "array", "items": [{"const": 1}], "additionalItems": false});
    check(pair, &[], [&["[2]", "[1,1]"], &[], &["[1]", "[]"]]);
    check(
        json!({"type": "integer", "minimum": 1, "exclusiveMinimum": true}),
        &[],
        [&["1"], &[], &["2"]],
    );
}

#[test]
fn keywords_hold_wherever_they_stand_in_the_schema() {
    let names = json!({"additionalProperties": false, "oneOf": [{"required": ["a"]}], "patternProperties": {"^a$": {}}});
    check(names, &[], [&["{\"b\":1}", "{}"], &[], &["{\"a\":1}"]]);
    let bound = json!({"minimum": 1, "allOf": [{"type": "integer"}], "exclusiveMinimum": true});
    check(bound, &[], [&["1"], &[], &["2"]]);
}

#[test]
fn a_property_cannot_hide_under_another_spelling() {
    let schema = json!({"properties": {"a": {"type": "string"}}});
    check(
        schema,
        &[],
        [
            &["{\"\\u0061\":1}", "{\"a\":1}"],
            &[],
            &["{\"a\":\"x\",\"b\":1}"],
        ],
    );
}

#[test]
fn reasons_name_the_place_in_the_value() {
    let grammar = compile(&json!({"properties": {"a/b": {"items": {"not": {"const": 1}}}}}));
    assert_eq!(grammar.unmasked(), ["/properties/a~1b/items/not"]);
    assert!(
        grammar
            .masked()
            .contains(&"/properties/a~1b/items".to_owned())
    );
    let reason = grammar.validate(br#"{"a/b":[2,1]}"#).unwrap_err().reason;
    assert!(reason.starts_with("at /a~1b/1: "), "{reason}");
    let reason = grammar.validate(b"{").unwrap_err().reason;
    assert!(reason.starts_with("the value is not JSON"), "{reason}");
    let deep = "[".repeat(100_000);
    assert!(grammar.validate(deep.as_bytes()).is_err());
    assert_eq!(
        compile(&json!({"type": "null"})).validate(b"nonsense"),
        Ok(())
    );
}

#[test]
fn malformed_and_hopeless_schemas_are_refused() {
    let check = |schema: Value, kind: FailureKind, message: &str| {
        let failure = grammars(bytes())
            .compile(&Source::JsonSchema(schema.to_string().into()))
            .unwrap_err();
        assert_eq!(failure.kind, kind, "{failure}");
        assert!(failure.message.contains(message), "{failure}");
    };
    use FailureKind::{InvalidParams, Unsatisfiable};
    let malformed = json!({"properties": {"a": {"minLength": "3"}}});
    check(
        malformed,
        InvalidParams,
        "malformed at /properties/a/minLength",
    );
    check(json!({"not": {}}), Unsatisfiable, "no value satisfies");
    check(
        json!({"type": "string", "enum": [1]}),
        Unsatisfiable,
        "no value satisfies",
    );
    check(
        json!({"not": {"pattern": "("}}),
        InvalidParams,
        "at /not/pattern: the regex is invalid at byte 0",
    );
    let far = json!({"not": {"$ref": "https://example.org/far"}});
    check(
        far,
        InvalidParams,
        "https://example.org/far is not among the documents given",
    );
}

#[test]
fn schemas_that_branch_without_end_are_not_validated_for_ever() {
    let schema = json!({"type": ["array", "integer"], "uniqueItems": true, "items": {"anyOf": [{"$ref": "#"}, {"allOf": [{"$ref": "#"}]}]}});
    let grammar = compile(&schema);
    let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
    let reason = grammar.validate(deep.as_bytes()).unwrap_err().reason;
    assert!(reason.contains("branches too often"), "{reason}");
    assert_eq!(grammar.validate(b"[[1,2],[3]]"), Ok(()));
}

/// Schemas of keywords on both sides of the line.
pub(crate) fn schemas() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({"type": "integer", "minimum": -3, "maximum": 20})),
        Just(json!({"enum": ["a", "bc", 1, null]})),
        Just(json!({"type": "string", "maxLength": 3})),
        Just(json!({"type": "string", "format": "date"})),
        Just(json!({"type": "string", "pattern": "^(?!x)[a-y]{1,3}$"})),
        Just(json!({"not": {"const": 0}})),
        Just(json!({"type": "number", "multipleOf": 0.5})),
        Just(json!(true)),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        let one = inner.clone();
        prop_oneof![
            inner.clone().prop_map(|items| json!({"type": "array", "items": items, "uniqueItems": true, "maxItems": 4})),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| json!({"type": "object", "properties": {"a": a, "b": b}, "required": ["b"], "additionalProperties": false})),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| json!({"oneOf": [a, b]})),
            (inner.clone(), inner.clone(), one).prop_map(|(a, b, c)| json!({"if": a, "then": b, "else": c})),
            (inner.clone(), inner).prop_map(|(a, b)| json!({"type": "object", "patternProperties": {"^a": a, "b$": b}, "minProperties": 1})),
        ]
    })
}

pub(crate) fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        (-5..25_i64).prop_map(Value::from),
        prop::sample::select(vec!["a", "bc", "xyz", "", "2023-02-29", "2024-02-29"])
            .prop_map(Value::from),
        Just(Value::Null),
        Just(json!(0.5)),
        Just(json!(true)),
    ];
    leaf.prop_recursive(3, 10, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| json!({"a": a, "b": b})),
            inner.prop_map(|b| json!({"b": b})),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..Default::default() })]

    #[test]
    fn the_mask_is_never_narrower_and_with_validation_never_wider(
        schema in schemas(), values in prop::collection::vec(values(), 12),
    ) {
        let Ok(grammar) = grammars(bytes()).compile(&Source::JsonSchema(schema.to_string().into())) else {
            return Ok(());
        };
        let oracle = jsonschema::options().should_validate_formats(true).build(&schema).unwrap();
        for value in values {
            let text = value.to_string();
            let written = is_written(&grammar, &text);
            let fits = written && grammar.validate(text.as_bytes()).is_ok();
            prop_assert_eq!(fits, oracle.is_valid(&value), "{} {}", schema, text);
        }
    }

    #[test]
    fn whatever_is_written_under_the_mask_of_a_format_has_it(
        format in prop::sample::select(vec![
            "email", "ipv4", "ipv6", "uuid", "uri", "duration", "json-pointer", "relative-json-pointer",
        ]),
        choices in prop::collection::vec(any::<u16>(), 80),
    ) {
        let schema = json!({"type": "string", "format": format, "maxLength": 60});
        let grammar = grammars(pieces()).compile(&Source::JsonSchema(schema.to_string().into())).unwrap();
        prop_assert!(grammar.unmasked().is_empty());
        let oracle = jsonschema::options().should_validate_formats(true).build(&schema).unwrap();
        let (tokens, complete) = walk(&mut grammar.start(), &choices);
        if complete {
            let text = text(grammar.vocabulary(), &tokens);
            let value: Value = serde_json::from_slice(&text).unwrap();
            prop_assert!(oracle.is_valid(&value), "{format}: {value}");
        }
    }
}
