//! Where a value that failed its validation is begun again.

use crate::world::{bytes, grammars};
use formwork_sandbox::{Invalid, Source};
use serde_json::{Value, json};

fn check(schema: &Value, text: &str) -> Result<(), Invalid> {
    let source = Source::JsonSchema(schema.to_string().into());
    let grammar = grammars(bytes()).compile(&source).unwrap();
    grammar.validate(text.as_bytes())
}

/// Asserts where the text is begun again: from each `^` under it, the rightmost first.
#[track_caller]
fn begins(schema: Value, text: &str, marks: &str) -> String {
    let invalid = check(&schema, text).unwrap_err();
    let shown: String = (0..text.len())
        .map(|at| {
            if invalid.places.contains(&at) {
                '^'
            } else {
                ' '
            }
        })
        .collect();
    assert_eq!(shown.trim_end(), marks, "\n{text}\n{invalid}");
    assert!(
        invalid.places.is_sorted_by(|a, b| a > b),
        "{:?}",
        invalid.places
    );
    assert_eq!(invalid.places.last(), Some(&0));
    invalid.reason
}

#[test]
fn a_value_at_fault_is_begun_again_then_those_around_it() {
    let schema =
        json!({"properties": {"a": {"items": {"properties": {"b": {"not": {"const": 1}}}}}}});
    let reason = begins(
        schema.clone(),
        r#"{"x":0,"a":[{"b":2},{"c":1,"b":1}],"z":0}"#,
        r#"^          ^        ^          ^"#,
    );
    assert_eq!(reason, "at /a/1/b: {\"const\":1} is not allowed for 1");
    // Of several the first in the text, whatever the order of the keywords.
    let reason = begins(
        schema,
        r#"{"a":[{"b":1},{"b":1},{"b":1},{"b":1},{"b":1}]}"#,
        r#"^    ^^    ^"#,
    );
    assert!(
        reason.starts_with("at /a/0/b: ") && reason.ends_with("; and 2 more"),
        "{reason}"
    );
    // What is wrong with the whole leads, even if something within is wrong too.
    let whole = json!({"not": {"required": ["b"]}, "properties": {"a": {"not": {"const": 1}}}});
    begins(whole, r#"{"a":1,"b":2}"#, "^");
}

#[test]
fn a_part_in_the_way_is_left_with_what_is_before_it() {
    let odd = json!({"propertyNames": {"not": {"const": "bad"}}});
    begins(odd.clone(), r#"{"bad":1}"#, "^^");
    begins(odd.clone(), r#"{"a":1,"bad":2}"#, "^      ^");
    // Where the value before has an end of its own the object may end there.
    begins(odd, r#"{"a":"","bad":2}"#, "^      ^");
    let unique = json!({"uniqueItems": true});
    begins(unique.clone(), "[1,2,1,2]", "^    ^");
    begins(unique.clone(), r#"["a","b","a"]"#, r#"^       ^"#);
    begins(
        unique,
        r#"[{"a":1,"b":1.0},{"b":1,"a":1}]"#,
        "^               ^",
    );
    let unless = json!({"if": {"required": ["a"]}, "then": {"properties": {"b": false}}});
    begins(unless, r#"{"a":null,"b":2}"#, "^        ^");
    let closed = json!({"allOf": [{"properties": {"a": true}}], "unevaluatedProperties": false, "not": {"const": {}}});
    begins(closed, r#"{"a":"1","b":2,"c":3}"#, "^       ^");
}

#[test]
fn a_missing_part_is_the_fault_of_its_object() {
    let schema =
        json!({"properties": {"o": {"dependentRequired": {"a": ["b"]}, "not": {"const": 1}}}});
    let reason = begins(schema, r#"{"n":1,"o":{"a":1,"c":2}}"#, "^          ^");
    assert_eq!(reason, "at /o: \"b\" is a required property");
}

#[test]
fn a_name_that_is_there_twice_is_a_fault() {
    let schema = json!({"additionalProperties": {"properties": {"x": {"not": {"const": 1}}}}});
    let reason = begins(
        schema,
        r#"{"a":{"x":2,"y":"","x":3}}"#,
        "^    ^            ^",
    );
    assert_eq!(reason, "at /a: the property \"x\" is there twice");
}

#[test]
fn what_cannot_be_placed_is_begun_from_the_start() {
    let schema = json!({"items": {"not": {"const": 1}}});
    for text in [
        "[1",
        "",
        &format!("[{}1]", "1,".repeat(2_000)),
        &"[".repeat(10_000),
    ] {
        let invalid = check(&schema, text).unwrap_err();
        assert_eq!(invalid.places, [0], "{:.40}", text);
    }
    let long = format!("[{}1]", "1,".repeat(900));
    assert_eq!(check(&schema, &long).unwrap_err().places, [1, 0]);
}
