//! Documents, metaschemas and formats: what a schema means beyond its own text.

use crate::schemas::is_written;
use crate::world::{bytes, grammars};
use formwork_sandbox::{
    Failure, FailureKind, Formats, Grammar, GrammarLimits, Grammars, Schema, Source,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

const META: &str = "https://json-schema.org/draft/2020-12/schema";

fn with(schema: &Value, documents: &[(&str, Value)]) -> Schema {
    let named = documents.iter();
    Schema {
        documents: named
            .map(|(uri, document)| ((*uri).to_owned(), document.to_string()))
            .collect(),
        ..schema.to_string().into()
    }
}

fn compile(schema: Schema) -> Result<Arc<Grammar>, Failure> {
    grammars(bytes()).compile(&Source::JsonSchema(schema))
}

fn fits(grammar: &Arc<Grammar>, text: &str) -> bool {
    is_written(grammar, text) && grammar.validate(text.as_bytes()).is_ok()
}

fn refusal(schema: Schema) -> String {
    let failure = compile(schema).unwrap_err();
    assert_eq!(failure.kind, FailureKind::InvalidParams, "{failure}");
    failure.message
}

#[test]
fn references_lead_to_the_documents_of_the_request() {
    let schema = json!({"type": "array", "items": {"$ref": "https://example.org/a"}});
    let a = json!({"type": "object", "properties": {"b": {"$ref": "b#/$defs/small"}}, "additionalProperties": false});
    let b = json!({"$defs": {"small": {"type": "integer", "maximum": 3}}});
    let unused = json!({"uniqueItems": true, "not": {"const": 1}});
    let documents = [
        ("https://example.org/a", a),
        ("https://example.org/b", b),
        ("https://example.org/unused#", unused),
    ];
    let grammar = compile(with(&schema, &documents)).unwrap();
    // What is not referred to is not there.
    assert!(grammar.unmasked().is_empty(), "{:?}", grammar.unmasked());
    assert!(is_written(&grammar, r#"[{"b":3},{}]"#));
    assert!(!is_written(&grammar, r#"[{"b":4}]"#) && !is_written(&grammar, r#"[{"c":4}]"#));
}

#[test]
fn assertions_of_documents_are_named_by_their_address() {
    let schema = json!({"items": {"$ref": "https://example.org/a#/$defs/x"}});
    let a = json!({"$defs": {"x": {"type": "array", "uniqueItems": true}}});
    let grammar = compile(with(&schema, &[("https://example.org/a", a)])).unwrap();
    assert_eq!(
        grammar.unmasked(),
        ["https://example.org/a#/$defs/x/uniqueItems"]
    );
    assert!(fits(&grammar, "[[1,2]]") && !fits(&grammar, "[[1,1]]"));
}

#[test]
fn the_requests_documents_come_before_the_hosts_and_stay_its_own() {
    let uri = "https://example.org/a";
    let host = BTreeMap::from([(uri.to_owned(), json!({"type": "string"}))]);
    let grammars = Grammars::with_documents(bytes(), GrammarLimits::default(), host).unwrap();
    let schema = json!({"$ref": uri});
    let compile = |documents: &[(&str, Value)]| {
        let source = Source::JsonSchema(with(&schema, documents));
        grammars.compile(&source).unwrap()
    };
    assert!(is_written(&compile(&[]), "\"x\""));
    assert!(is_written(
        &compile(&[(uri, json!({"type": "null"}))]),
        "null"
    ));
    assert!(!is_written(
        &compile(&[(uri, json!({"type": "null"}))]),
        "\"x\""
    ));
    assert!(is_written(&compile(&[]), "\"x\""));
}

#[test]
fn documents_that_are_none_are_refused_by_name() {
    let check = |documents: &[(&str, &str)], message: &str| {
        let named = documents.iter();
        let schema = Schema {
            documents: named
                .map(|(uri, text)| ((*uri).to_owned(), (*text).to_owned()))
                .collect(),
            ..r#"{"$ref":"https://example.org/a"}"#.into()
        };
        let text = refusal(schema);
        assert!(text.contains(message), "{text}");
    };
    check(&[("a.json", "{}")], "\"a.json\" is not an absolute URI");
    check(
        &[("https://example.org/a#x", "{}")],
        "is not an absolute URI without a fragment",
    );
    check(
        &[("https://example.org/a", "{")],
        "the document https://example.org/a is not JSON",
    );
    check(
        &[("https://example.org/a", "3")],
        "the document https://example.org/a is not a JSON schema",
    );
    check(
        &[("urn:a", "{}"), ("urn:a#", "{}")],
        "the document urn:a is given twice",
    );
    check(
        &[("urn:a", &"[".repeat(200))],
        "the document urn:a nests deeper than the limit (depth)",
    );
    check(
        &[("urn:a", r#"{"items":{"pattern":"("}}"#)],
        "document urn:a at /items/pattern: the regex is invalid",
    );
    check(&[("https://example.org/a", r#"{"type":3}"#)], "JSON schema");
    check(
        &[("urn:a", &"x".repeat(2 << 20))],
        "the limit (source_bytes) is",
    );
    check(
        &[("https://example.org/b", "{}")],
        "at /$ref: https://example.org/a is not among the documents given",
    );
}

#[test]
fn a_reference_that_leads_nowhere_is_refused_with_its_place() {
    let schema = json!({"properties": {"a/b": {"$ref": "https://example.org/far#/x"}}});
    let text = refusal(with(&schema, &[]));
    assert!(
        text.contains("at /properties/a~1b/$ref: https://example.org/far is not among"),
        "{text}"
    );
    let relative = json!({"$id": "https://example.org/root", "items": {"$ref": "other"}});
    let text = refusal(with(&relative, &[]));
    assert!(
        text.contains("at /items/$ref: https://example.org/other is not among"),
        "{text}"
    );
    let whole = with(
        &relative,
        &[("https://example.org/other", json!({"type": "null"}))],
    );
    assert!(is_written(&compile(whole).unwrap(), "[null]"));
}

#[test]
fn a_metaschema_without_validation_leaves_only_structure() {
    let vocabulary = |names: &[&str]| {
        let uri = |name| {
            (
                format!("https://json-schema.org/draft/2020-12/vocab/{name}"),
                true.into(),
            )
        };
        Value::Object(names.iter().map(uri).collect())
    };
    let meta = json!({"$schema": META, "$vocabulary": vocabulary(&["core", "applicator"])});
    let schema = json!({"$schema": "https://example.org/meta", "type": "integer", "properties": {"a": false, "b": {"uniqueItems": true}}});
    let grammar = compile(with(&schema, &[("https://example.org/meta", meta)])).unwrap();
    assert!(grammar.unmasked().is_empty(), "{:?}", grammar.unmasked());
    assert!(is_written(&grammar, r#"{"b":[1,1]}"#) && is_written(&grammar, "\"x\""));
    assert!(!is_written(&grammar, r#"{"a":1}"#));

    let strange =
        json!({"$schema": META, "$vocabulary": {"https://example.org/vocab/units": true}});
    let text = refusal(with(&schema, &[("https://example.org/meta", strange)]));
    assert!(
        text.contains("requires the vocabulary https://example.org/vocab/units"),
        "{text}"
    );

    let seven = json!({"$schema": "http://json-schema.org/draft-07/schema#"});
    let old =
        json!({"$schema": "https://example.org/meta#", "items": [{"const": 1}], "type": "array"});
    let grammar = compile(with(&old, &[("https://example.org/meta", seven)])).unwrap();
    assert!(is_written(&grammar, "[1]") && !is_written(&grammar, "[2]"));
}

#[test]
fn formats_can_be_annotations() {
    let schema = json!({"type": "object", "properties": {"a": {"format": "ipv4"}, "b": {"format": "date", "maxLength": 3}}, "uniqueItems": true});
    let annotated = Schema {
        formats: Formats::Annotated,
        ..schema.to_string().into()
    };
    let grammar = compile(annotated).unwrap();
    assert_eq!(grammar.unmasked(), ["/uniqueItems"]);
    let asserts = |pointer: &&String| pointer.ends_with("format");
    assert_eq!(grammar.masked().iter().find(asserts), None);
    assert!(fits(&grammar, r#"{"a":"x","b":"y"}"#) && !is_written(&grammar, r#"{"b":"long"}"#));
    let grammar = compile(schema.to_string().into()).unwrap();
    assert!(!is_written(&grammar, r#"{"a":"x"}"#));
}
