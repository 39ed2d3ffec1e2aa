//! Conditions of JSON Schemas: what the mask makes of `if` and of what depends on a property.

use crate::schemas::is_written;
use crate::world::{bytes, grammars};
use formwork_sandbox::{Grammar, KeyOrder, Schema, Source};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Map, Value, json};
use std::sync::Arc;

fn compile(schema: &Value) -> Arc<Grammar> {
    let source = Source::JsonSchema(schema.to_string().into());
    grammars(bytes())
        .compile(&source)
        .unwrap_or_else(|failure| panic!("{schema}: {failure}"))
}

/// The mask alone lets these be written, and not those.
fn masked(schema: Value, fine: &[&str], refused: &[&str]) {
    let grammar = compile(&schema);
    assert!(
        grammar.unmasked().is_empty(),
        "{schema} {:?}",
        grammar.unmasked()
    );
    for text in fine {
        assert!(is_written(&grammar, text), "{schema} {text}");
    }
    for text in refused {
        assert!(!is_written(&grammar, text), "{schema} {text}");
    }
}

#[test]
fn a_property_of_few_values_decides_which_branch_holds() {
    let when =
        |value: &str| json!({"properties": {"kind": {"const": value}}, "required": ["kind"]});
    let kinds = json!({"kind": {"enum": ["a", "b", "c"]}});
    masked(
        json!({"type": "object", "properties": kinds, "if": when("a"), "then": {"required": ["x"]}}),
        &[r#"{"kind":"a","x":1}"#, r#"{"kind":"b"}"#, "{}"],
        &[r#"{"kind":"a"}"#, r#"{"kind":"d"}"#],
    );
    masked(
        json!({"type": "object", "properties": kinds, "if": {"properties": {"kind": {"enum": ["a", "b"]}}}, "then": {"required": ["x"]}, "else": {"required": ["y"]}}),
        &[
            r#"{"kind":"b","x":1}"#,
            r#"{"x":1}"#,
            r#"{"kind":"c","y":1}"#,
        ],
        &[r#"{"kind":"b","y":1}"#, "{}", r#"{"kind":"c","x":1}"#],
    );
    masked(
        json!({"type": "object", "properties": {"on": {"type": "boolean"}, "level": {"type": "integer"}}, "required": ["on"], "additionalProperties": false, "if": {"properties": {"on": {"const": true}}}, "then": {"required": ["level"]}, "else": {"properties": {"level": false}}}),
        &[r#"{"on":true,"level":3}"#, r#"{"on":false}"#],
        &[r#"{"on":true}"#, r#"{"on":false,"level":3}"#],
    );
    masked(
        json!({"type": "object", "properties": kinds, "required": ["kind"], "allOf": [
            {"if": when("a"), "then": {"properties": {"v": {"type": "integer"}}}},
            {"if": when("b"), "then": {"properties": {"v": {"type": "string"}}}},
            {"if": when("c"), "then": {"properties": {"v": false}}},
        ]}),
        &[
            r#"{"kind":"a","v":1}"#,
            r#"{"kind":"b","v":"x"}"#,
            r#"{"kind":"c"}"#,
        ],
        &[
            r#"{"kind":"a","v":"x"}"#,
            r#"{"kind":"b","v":1}"#,
            r#"{"kind":"c","v":1}"#,
        ],
    );
}

#[test]
fn what_depends_on_a_property_is_written_with_it() {
    for (keyword, draft) in [
        (
            "dependentRequired",
            "https://json-schema.org/draft/2020-12/schema",
        ),
        ("dependencies", "http://json-schema.org/draft-07/schema#"),
    ] {
        masked(
            json!({"$schema": draft, "type": "object", "properties": {"card": {}, "address": {}}, keyword: {"card": ["address", "name"], "x": []}}),
            &[
                r#"{"card":1,"address":2,"name":3}"#,
                r#"{"address":2}"#,
                "{}",
            ],
            &[r#"{"card":1}"#, r#"{"card":1,"address":2}"#],
        );
    }
    masked(
        json!({"properties": {"a": {}, "b": {}}, "dependentSchemas": {"a": {"properties": {"b": {"type": "integer"}}, "required": ["b"]}, "z": false}}),
        &[r#"{"a":1,"b":2}"#, r#"{"b":"x"}"#, "1", "[]"],
        &[r#"{"a":1}"#, r#"{"a":1,"b":"x"}"#, r#"{"z":1}"#],
    );
}

#[test]
fn one_property_at_least_is_there() {
    masked(
        json!({"properties": {"a": {}, "b": {"type": "null"}}, "minProperties": 1}),
        &[
            r#"{"a":1}"#,
            r#"{"b":null}"#,
            r#"{"a":1,"b":null,"c":2}"#,
            r#"{"c":2}"#,
            "1",
        ],
        &["{}", r#"{"b":1}"#],
    );
    let grammar = compile(&json!({"properties": {"a": {}}, "minProperties": 2}));
    assert_eq!(grammar.unmasked(), ["/minProperties"]);
}

#[test]
fn what_cannot_be_turned_round_is_validated() {
    for schema in [
        json!({"type": "object", "properties": {"kind": {"type": "string"}}, "if": {"properties": {"kind": {"const": "a"}}}, "then": {"required": ["x"]}}),
        json!({"properties": {"kind": {"enum": ["a", "b"]}}, "if": {"properties": {"kind": {"const": "a"}}}, "then": {"required": ["x"]}}),
        json!({"type": "object", "properties": {"kind": {"enum": ["a", "b"]}}, "if": {"properties": {"kind": {"const": "a"}}}, "then": {"properties": {"x": {"$ref": "#"}}}}),
        json!({"type": "object", "properties": {"kind": {"enum": [1, 1.5]}}, "if": {"properties": {"kind": {"const": 1.0}}}, "then": {"required": ["x"]}}),
    ] {
        assert_eq!(compile(&schema).unmasked(), ["/if"], "{schema}");
    }
    let wide: Map<String, Value> = (0..8)
        .map(|one| (format!("p{one}"), json!(["x"])))
        .collect();
    let grammar = compile(&json!({"type": "object", "dependentRequired": wide}));
    assert_eq!(grammar.unmasked(), ["/dependentRequired"]);
    assert!(!is_written(&grammar, r#"{"p0":1}"#) && is_written(&grammar, r#"{"p7":1}"#));
    assert!(grammar.validate(br#"{"p7":1}"#).is_err());
}

fn leaf() -> impl Strategy<Value = Value> {
    select(vec![
        json!({"type": "integer"}),
        json!({"enum": ["x", "y"]}),
        json!(true),
        json!(false),
        json!({"type": "string", "maxLength": 1}),
    ])
}

fn names(least: usize) -> impl Strategy<Value = Vec<&'static str>> {
    subsequence(vec!["k", "a", "b"], least..=2)
}

fn branch() -> impl Strategy<Value = Value> {
    prop_oneof![
        names(1).prop_map(|names| json!({"required": names})),
        leaf().prop_map(|schema| json!({"properties": {"a": schema}})),
        (leaf(), names(0))
            .prop_map(|(schema, names)| json!({"properties": {"c": schema}, "required": names})),
        Just(json!({"maxProperties": 2})),
    ]
}

fn conditional() -> impl Strategy<Value = Value> {
    let asked = select(vec![
        json!({"const": "x"}),
        json!({"enum": ["x", "z"]}),
        json!({"const": "q"}),
        json!({"const": null, "description": "none"}),
        json!({"type": "string"}),
    ]);
    let parts = (
        asked,
        any::<bool>(),
        branch(),
        prop::option::of(branch()),
        any::<bool>(),
    );
    parts.prop_map(|(asked, required, then, otherwise, has_then)| {
        let mut schema = json!({"if": {"properties": {"k": asked}}});
        if required {
            schema["if"]["required"] = json!(["k"]);
        }
        if has_then || otherwise.is_none() {
            schema["then"] = then;
        }
        if let Some(otherwise) = otherwise {
            schema["else"] = otherwise;
        }
        schema
    })
}

fn schema() -> impl Strategy<Value = Value> {
    let kinds = select(vec![
        json!({"enum": ["x", "y", "z", null]}),
        json!({"type": "boolean"}),
        json!({"type": "string"}),
    ]);
    let dependent = select(vec![
        json!({}),
        json!({"dependentRequired": {"k": ["b"], "b": ["a"]}}),
        json!({"minProperties": 1}),
        json!({"minProperties": 1, "dependentRequired": {"k": ["b"]}}),
        json!({"dependentSchemas": {"a": {"required": ["k"]}, "b": {"properties": {"k": {"const": "y"}}}}}),
    ]);
    let parts = (
        kinds,
        leaf(),
        names(0),
        any::<bool>(),
        dependent,
        conditional(),
        prop::collection::vec(conditional(), 0..3),
    );
    parts.prop_map(|(kind, a, required, closed, dependent, first, more)| {
        let mut schema = json!({"type": "object", "properties": {"k": kind, "a": a, "b": {}}, "required": required});
        if closed {
            schema["additionalProperties"] = json!(false);
        }
        let all = [dependent, first].into_iter().flat_map(|part| part.as_object().cloned().unwrap());
        schema.as_object_mut().unwrap().extend(all);
        if !more.is_empty() {
            schema["allOf"] = more.into();
        }
        schema
    })
}

fn value() -> impl Strategy<Value = Value> {
    let member = |choices: Value| prop::option::of(select(choices.as_array().unwrap().clone()));
    let parts = (
        member(json!(["x", "y", "z", null, true, false, "q"])),
        member(json!([1, "x", "xx"])),
        member(json!([0])),
        member(json!([1, "x"])),
    );
    parts.prop_map(|(k, a, b, c)| {
        let members = [("k", k), ("a", a), ("b", b), ("c", c)].into_iter();
        let members = members.filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Value::Object(members.collect())
    })
}

/// Whether one of the orders of its members can be written.
fn is_written_somehow(grammar: &Arc<Grammar>, value: &Value) -> bool {
    let members: Vec<_> = value.as_object().unwrap().iter().collect();
    let mut orders = vec![Vec::new()];
    for _ in 0..members.len() {
        let longer = orders.iter().flat_map(|order: &Vec<usize>| {
            let left = (0..members.len()).filter(|index| !order.contains(index));
            left.map(|index| [order.as_slice(), &[index]].concat())
                .collect::<Vec<_>>()
        });
        orders = longer.collect();
    }
    orders.into_iter().any(|order| {
        let ordered = order.into_iter().map(|index| members[index]);
        let ordered = ordered.map(|(name, value)| (name.clone(), value.clone()));
        is_written(grammar, &Value::Object(ordered.collect()).to_string())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

    #[test]
    fn conditions_mean_what_they_say(
        schema in schema(), values in prop::collection::vec(value(), 24), any_order in any::<bool>(),
    ) {
        let key_order = if any_order { KeyOrder::Any } else { KeyOrder::Schema };
        let source = Schema { key_order, ..schema.to_string().into() };
        let oracle = jsonschema::validator_for(&schema).unwrap();
        let grammar = match grammars(bytes()).compile(&Source::JsonSchema(source)) {
            Ok(grammar) => grammar,
            Err(failure) => {
                for value in values {
                    prop_assert!(!oracle.is_valid(&value), "{} {} {}", schema, failure, value);
                }
                return Ok(());
            }
        };
        for value in values {
            let written = is_written_somehow(&grammar, &value);
            let verdict = grammar.validate(value.to_string().as_bytes());
            let told = format!("{schema} {value} {written} {verdict:?}");
            prop_assert_eq!(written && verdict.is_ok(), oracle.is_valid(&value), "{}", told);
        }
    }
}
