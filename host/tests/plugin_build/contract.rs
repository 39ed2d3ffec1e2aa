//! The functions of the contract, called through a real component.

use formwork_sandbox::{Action, FailureKind, Field, GuestError, Observed, Plugin, Value, Verdict};
use serde_json::{Value as Json, json};

use crate::world::{admitted, open};

/// The only field of a plugin's first plan.
fn field(plugin: &Plugin, params: &Json) -> Field {
    let mut session = open(plugin, params).unwrap();
    let mut plan = session.plan(Observed::Started).unwrap().into_iter();
    match (plan.next(), plan.next(), plan.next()) {
        (Some(Action::Field(field)), Some(Action::Finish), None) => field,
        other => panic!("{other:?}"),
    }
}

/// Whether a field's grammar takes this text.
fn takes(mut field: Field, text: &str) -> bool {
    let walked = text
        .bytes()
        .all(|byte| field.matcher.commit(byte.into()).is_ok());
    walked && field.matcher.accepting()
}

fn refusal(error: GuestError) -> (FailureKind, String) {
    match error {
        GuestError::Failure(failure) => (failure.kind, failure.message),
        other => panic!("{other}"),
    }
}

#[test]
fn what_masks_leave_open_is_told_to_the_guest() {
    let plugin = admitted("formwork/json-schema");
    let schema = json!({"items": {"type": "integer"}, "uniqueItems": true, "not": {"const": []}});
    assert!(field(&plugin, &json!({"schema": schema})).check);
    let masked = json!({"type": "array", "items": {"type": "integer"}});
    let masked = field(&plugin, &json!({"schema": masked}));
    assert!(!masked.check, "nothing is left to check");
    let enforced = masked.matcher.grammar().enforced().unwrap();
    assert_eq!(enforced.masked, ["/items", "/items/type", "/type"]);
    let error = open(&plugin, &json!({"schema": schema, "strict": true})).unwrap_err();
    let (kind, message) = refusal(error);
    assert_eq!(kind, FailureKind::Unsatisfiable);
    assert!(
        message.contains("/not") && message.contains("/uniqueItems"),
        "{message}"
    );
    let tool = json!({"name": "f", "parameters": schema, "strict": true});
    let tools = admitted("formwork/tools");
    let (kind, message) = refusal(open(&tools, &json!({"tools": [tool]})).unwrap_err());
    assert_eq!(kind, FailureKind::Unsatisfiable);
    assert!(
        message.contains("parameters of `f`") && message.contains("/uniqueItems"),
        "{message}"
    );
}

#[test]
fn a_value_that_fails_is_tried_again_from_the_part_at_fault_then_from_what_is_around_it() {
    let plugin = admitted("formwork/json-schema");
    let schema = json!({"properties": {"n": {"items": {"type": "integer"}, "uniqueItems": true}}});
    let mut session = open(&plugin, &json!({"schema": schema, "attempts": 9})).unwrap();
    let plan = session.plan(Observed::Started).unwrap();
    assert!(
        matches!(&plan[0], Action::Field(field) if field.retry.attempts == 9 && field.retry.hint.is_some())
    );
    let mut attempts = 0;
    let mut check = |text: &str| {
        attempts += 1;
        let value = Value {
            field: "value".into(),
            bytes: text.into(),
            attempts,
        };
        match session.check(&value).unwrap() {
            Verdict::Accept => None,
            Verdict::Retry(retry) => {
                assert!(retry.reason.starts_with("at /n: "), "{}", retry.reason);
                Some(text[retry.from..].to_owned())
            }
            other => panic!("{other:?}"),
        }
    };
    let again = |text: &str| Some(text.to_owned());
    assert_eq!(check(r#"{"n":[1,2,1,3]}"#), again("1,3]}"));
    assert_eq!(check(r#"{"n":[1,2,2,3]}"#), again("[1,2,2,3]}"));
    assert_eq!(check(r#"{"n":[4,5,5,3]}"#), again(r#"{"n":[4,5,5,3]}"#));
    // All of it was written again: another part has its own chance.
    assert_eq!(check(r#"{"n":[7,7]}"#), again("7]}"));
    assert_eq!(check(r#"{"n":[7,8]}"#), None);
}

#[test]
fn a_schema_says_how_values_are_written_and_what_references_lead_to() {
    let plugin = admitted("formwork/json-schema");
    let point = json!({
        "type": "object", "properties": {"x": {"type": "integer"}, "y": {"format": "ipv4", "type": "string"}},
        "required": ["x", "y"], "additionalProperties": false,
    });
    let takes = |extra: Json, text: &str| {
        let mut params = json!({
            "schema": {"$ref": "https://example.com/point"},
            "documents": {"https://example.com/point": point},
        });
        for (key, value) in extra.as_object().into_iter().flatten() {
            params[key] = value.clone();
        }
        takes(field(&plugin, &params), text)
    };
    let (compact, spaced) = (r#"{"x":1,"y":"1.2.3.4"}"#, r#"{"x": 1, "y": "1.2.3.4"}"#);
    assert!(takes(json!({}), compact) && !takes(json!({}), spaced));
    let wide = json!({"spacing": "spaced"});
    assert!(takes(wide.clone(), spaced) && !takes(wide, compact));
    let turned = r#"{"y":"1.2.3.4","x":1}"#;
    assert!(takes(json!({"key_order": "any"}), turned) && !takes(json!({}), turned));
    let loose = r#"{"x":1,"y":"here"}"#;
    assert!(takes(json!({"formats": "annotated"}), loose) && !takes(json!({}), loose));
    let lost = json!({"schema": {"$ref": "https://example.com/lost"}, "documents": {"https://example.com/point": point}});
    let (kind, message) = refusal(open(&plugin, &lost).unwrap_err());
    assert_eq!(kind, FailureKind::InvalidParams);
    assert!(
        message.contains("params.schema") && message.contains("https://example.com/lost"),
        "{message}"
    );
}
