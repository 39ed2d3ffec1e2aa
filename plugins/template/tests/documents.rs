//! Documents and what they allow, through the plugin as a host drives it.

use formwork_plugin_sdk::FailureKind::{Exhausted, InvalidParams, Unsatisfiable};
use formwork_plugin_sdk::prelude::{Json, json};
use formwork_plugin_sdk::testing::{Outcome, Trace, assert_described};
use formwork_plugin_template::Template;

fn trace(parts: Json) -> Trace {
    Trace::of::<Template>(json!({ "parts": parts }))
}

fn ticket() -> Json {
    json!([
        {"literal": "{\"category\":"},
        {"field": "category", "choice": ["card", "\"other\""], "json": true},
        {"optional": "amount", "parts": [
            {"literal": ",\"amount\":"},
            {"field": "amount", "regex": "[0-9]{1,6}", "max_tokens": 8, "temperature": 0.5},
        ]},
        {"literal": ",\"tags\":["},
        {"repeat": "tags", "max": 2, "separator": ",", "parts": [
            {"literal": "\""}, {"field": "tag", "regex": "[a-z]+"}, {"literal": "\""},
        ]},
        {"literal": "]"},
        {"either": "reply", "branches": [
            [{"literal": ",\"phone\":"}, {"field": "phone", "regex": "\\+[0-9]+", "json": true}],
            [{"literal": ",\"address\":"}, {"field": "address", "json_schema": {
                "type": "object",
                "properties": {"town": {"type": "string"}, "code": {"type": "integer"}},
                "required": ["town", "code"],
                "additionalProperties": false,
            }}],
        ]},
        {"literal": "}"},
    ])
}

#[test]
fn params_are_described() {
    assert_described::<Template>();
}

#[test]
fn what_masks_leave_open_of_a_schema_is_validated() {
    let list = json!({"type": "array", "items": {"type": "integer"}, "uniqueItems": true});
    let parts = json!([
        {"literal": "<"}, {"field": "list", "json_schema": list, "check": {"max_length": 5}}, {"literal": ">"},
    ]);
    let outcome = trace(parts)
        .attempt("list", ["[1,1]", "[1,2,3]", "[1,2]"])
        .text("<[1,2]>")
        .run();
    outcome.assert_output("<[1,2]>");
    let alone = json!([{"field": "list", "json_schema": list, "retry": {"attempts": 2, "exhausted": "accept"}}]);
    let outcome_alone = trace(alone)
        .attempt("list", ["[1,1]", "[2,2]"])
        .text("[2,2]")
        .run();
    outcome_alone.assert_output("[2,2]");
    assert!(!outcome_alone.field("list").verified);
    let reasons = &outcome.field("list").reasons;
    assert!(
        reasons[0].contains("non-unique") && !reasons[1].contains("non-unique"),
        "{reasons:?}"
    );
}

#[test]
fn every_kind_of_part() {
    let texts = [
        r#"{"category":"card","tags":[],"phone":"+49"}"#,
        r#"{"category":"\"other\"","amount":12,"tags":["a"],"phone":"+49"}"#,
        r#"{"category":"card","tags":["a","bc"],"address":{"town":"Köln","code":50667}}"#,
    ];
    for text in texts {
        trace(ticket()).text(text).run().assert_output(text);
    }
    let outcome = trace(ticket()).text(texts[1]).max_tokens(77).run();
    let amount = outcome.field("amount");
    assert_eq!((amount.max_tokens, amount.temperature), (8, Some(0.5)));
    assert_eq!(outcome.field("tag").max_tokens, 77);
    let names: Vec<_> = outcome
        .fields
        .iter()
        .map(|field| field.name.as_str())
        .collect();
    assert_eq!(names, ["category", "amount", "tag", "phone"]);
}

#[test]
fn the_guides_document_works() {
    let guide = include_str!("../../../docs/plugins.md");
    let (_, after) = guide.split_once("```json\n").expect("a document");
    let (document, _) = after.split_once("```").expect("its end");
    for text in [
        r#"{"category":"card","tags":[]}"#,
        r#"{"category":"login","amount":5000,"tags":["a","b","c"]}"#,
    ] {
        Trace::of_text::<Template>(document)
            .text(text)
            .run()
            .assert_output(text);
    }
}

#[test]
fn what_the_document_does_not_allow() {
    let rejected = |text: &str, at: usize, why: &str| {
        trace(ticket()).text(text).run().assert_rejected(at, why);
    };
    rejected(r#"{"category":"cars""#, 16, "does not allow \"s\"");
    rejected(r#"{"category":"card","amount":x"#, 28, "field `amount`");
    rejected(r#"{"category":"card","tags":["a","b","c"]"#, 33, "follows");
    rejected(
        r#"{"category":"card","tags":[],"phone":"49"}"#,
        38,
        "does not allow \"4\"",
    );
    rejected(r#"{"category":"card","tags":[]}"#, 28, "`?reply`");
}

fn checked(grammar: Json, check: Json, retry: Json) -> Trace {
    let mut field = json!({"field": "f", "check": check, "retry": retry});
    for (key, value) in grammar.as_object().into_iter().flatten() {
        field[key] = value.clone();
    }
    trace(json!([{"literal": "<"}, field, {"literal": ">"}]))
}

/// Why the check refuses the value, or "" when it holds.
fn verdict(grammar: Json, check: Json, value: &str) -> String {
    let retry = json!({"attempts": 1, "exhausted": "accept"});
    let outcome = checked(grammar, check, retry)
        .text(format!("<{value}>"))
        .run();
    outcome.assert_output(&format!("<{value}>"));
    let field = outcome.field("f");
    assert_eq!(field.verified, field.reasons.is_empty());
    field.reasons.join("; ")
}

#[test]
fn checks_hold_or_say_why_not() {
    let text = || json!({"regex": "[^<>]*"});
    let cases = [
        (json!({"regex": "[a-c]+"}), "abc", ""),
        (
            json!({"regex": "[a-c]+"}),
            "abd",
            "\"abd\" does not match [a-c]+",
        ),
        (json!({"min_length": 3}), "äöü", ""),
        (
            json!({"min_length": 4}),
            "äöü",
            "it has 3 characters, at least 4 are needed",
        ),
        (
            json!({"max_length": 2}),
            "äöü",
            "it has 3 characters, at most 2 are allowed",
        ),
        (json!({"one_of": ["a", "b"]}), "b", ""),
        (
            json!({"one_of": ["a", "b"]}),
            "c",
            "\"c\" is not one of the allowed values",
        ),
        (json!({"not_one_of": ["a"]}), "a", "\"a\" is not allowed"),
        (json!({"minimum": 0.5, "maximum": 1}), "0.5", ""),
        (json!({"minimum": 0.5}), "0.49", "0.49 is less than 0.5"),
        (json!({"maximum": -1}), "0", "0 is more than -1"),
        (json!({"minimum": 0}), "ten", "\"ten\" is not a number"),
        (json!({"minimum": 0}), "inf", "\"inf\" is not a number"),
        (json!({"luhn": true}), "4539 1488 0343 6467", ""),
        (
            json!({"luhn": true}),
            "4539 1488 0343 6468",
            "has a wrong check digit",
        ),
        (json!({"luhn": true}), "79927398713", ""),
        (json!({"luhn": true}), "x", "has a wrong check digit"),
        (json!({"luhn": false}), "1", ""),
        (
            json!({"max_length": 1, "reason": "too long"}),
            "ab",
            "too long",
        ),
        // A JSON string is looked at without quotes and escapes.
        (json!({"one_of": ["a\n"], "max_length": 2}), "\"a\\n\"", ""),
    ];
    for (check, value, reason) in cases {
        let found = verdict(text(), check.clone(), value);
        let fits = if reason.is_empty() {
            found.is_empty()
        } else {
            found.ends_with(reason)
        };
        assert!(fits, "{check} on {value:?}: {found:?}");
    }
}

#[test]
fn checks_look_at_earlier_fields() {
    let parts = json!([
        {"repeat": "items", "min": 1, "separator": " + ", "parts": [{"field": "item", "regex": "[0-9.]+"}]},
        {"literal": " = "},
        {"field": "total", "regex": "[0-9.]+", "check": {"equals_sum_of": ["item"]}},
        {"literal": " to "},
        {"field": "from", "regex": "[a-z]+"},
        {"literal": "/"},
        {"field": "to", "regex": "[a-z]+", "check": {"differs_from": "from"}, "retry": {"attempts": 1}},
    ]);
    let run = |text: &str, totals: &[&str]| -> Outcome {
        trace(parts.clone())
            .text(text)
            .attempt("total", totals)
            .run()
    };
    let text = "0.1 + 0.2 + 4 = 4.3 to a/b";
    let outcome = run(text, &["4", "4.2", "4.3"]);
    outcome.assert_output(text);
    assert_eq!(outcome.field("total").attempts, 3);
    assert_eq!(
        outcome.field("total").reasons[0],
        "it is 4, the sum of item is 4.3"
    );
    let same = run("1 = 1 to a/a", &["1"]);
    same.assert_failure(Exhausted, "\"a\" is already the value of `from`");
}

#[test]
fn retries_follow_the_policy() {
    let run = |retry: Json, attempts: &[&str], last: &str| {
        let grammar = json!({"regex": "[0-9]"});
        let trace = checked(grammar, json!({"minimum": 5}), retry);
        trace.attempt("f", attempts).text(format!("<{last}>")).run()
    };
    run(json!({}), &["1", "2", "7"], "7").assert_output("<7>");
    run(json!({}), &["1", "2", "3"], "3").assert_failure(Exhausted, "3 is less than 5");
    run(json!({"attempts": 1}), &["1"], "1").assert_failure(Exhausted, "its 1 attempts");
    let accept = json!({"attempts": 2, "exhausted": "accept", "hint": "not {value}: "});
    run(accept, &["1", "2"], "2").assert_output("<2>");
    run(
        json!({"exhausted": {"write": "none"}}),
        &["1", "2", "3"],
        "3",
    )
    .assert_output("<none>");
}

/// Each line of the fixture: a document's parts, ` => `, what the refusal contains.
#[test]
fn wrong_documents_are_refused_with_their_path() {
    let cases = include_str!("refused.txt");
    assert!(cases.lines().count() > 20);
    for line in cases.lines() {
        let (parts, message) = line.split_once(" => ").expect(line);
        trace(serde_json::from_str(parts).expect(line))
            .run()
            .assert_failure(InvalidParams, message);
    }
    let nothing = json!([{"field": "f", "json_schema": {"enum": []}}]);
    trace(nothing)
        .run()
        .assert_failure(Unsatisfiable, "field `f`");
}

#[test]
fn deep_nesting_is_refused() {
    let mut part = String::from(r#"{"literal":"x"}"#);
    for _ in 0..10_000 {
        part = format!(r#"{{"optional":"o","parts":[{part}]}}"#);
    }
    let outcome = Trace::of_text::<Template>(&format!(r#"{{"parts":[{part}]}}"#)).run();
    outcome.assert_failure(InvalidParams, "recursion limit");
}
