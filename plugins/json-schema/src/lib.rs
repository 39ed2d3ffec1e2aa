//! Stock format: the whole output is one JSON value under a JSON Schema.

use formwork_plugin_sdk::prelude::*;
use formwork_plugin_sdk::{Formats, KeyOrder, Spacing};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// Attempts at a value that is validated, unless the request says otherwise.
const ATTEMPTS: u32 = 3;
/// Pointers that a refusal names; the message counts the rest.
const NAMED: usize = 20;

/// The whole output is one JSON value: compact and in the schema's order of keys, unless the params say
/// otherwise.
///
/// What the mask does not enforce is validated when the value is complete.
pub struct JsonSchema {
    grammar: Grammar,
    attempts: u32,
}

/// Params of [`JsonSchema`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// Kept as text: the order of its keys is the order of the output's keys.
    #[serde(default)]
    schema: Option<Box<RawValue>>,
    /// Whether to refuse a schema that the mask alone does not guarantee.
    #[serde(default)]
    strict: bool,
    #[serde(default = "attempts")]
    attempts: u32,
    #[serde(default, with = "Spaces")]
    spacing: Spacing,
    #[serde(default, with = "Order")]
    key_order: KeyOrder,
    #[serde(default, with = "Assertion")]
    formats: Formats,
    /// What references to other documents lead to, by URI.
    #[serde(default)]
    documents: BTreeMap<String, Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(remote = "Spacing", rename_all = "lowercase")]
enum Spaces {
    Compact,
    Spaced,
}

#[derive(Deserialize)]
#[serde(remote = "KeyOrder", rename_all = "lowercase")]
enum Order {
    Schema,
    Any,
}

#[derive(Deserialize)]
#[serde(remote = "Formats", rename_all = "lowercase")]
enum Assertion {
    Asserted,
    Annotated,
}

fn attempts() -> u32 {
    ATTEMPTS
}

impl Format for JsonSchema {
    type Params = Params;
    const PARAMS: &'static str = include_str!("params.json");

    fn open(params: Params, _: &Request) -> Result<Self, Failure> {
        let (strict, attempts) = (params.strict, params.attempts);
        let source = Source::json_schema(params.schema()?);
        let grammar = Grammar::compile(&source).map_err(|failure| Failure {
            message: format!("params.schema: {}", failure.message),
            ..failure
        })?;
        if strict {
            refuse_unmasked(&grammar.unmasked())?;
        }
        Ok(Self { grammar, attempts })
    }

    fn template(&self) -> Template {
        let field = Field::validated("value", &self.grammar);
        Template::new().field(match self.grammar.unmasked().is_empty() {
            true => field,
            false => field.retry(self.attempts),
        })
    }
}

impl Params {
    /// The schema with all that is said about it.
    fn schema(self) -> Result<Schema, Failure> {
        let text = self.schema.as_deref();
        let text = text.map_or(r#"{"type":"object"}"#, RawValue::get);
        match text.as_bytes().first() {
            _ if text == "false" => {
                return Err(Failure::unsatisfiable(
                    "params.schema: `false` allows no value",
                ));
            }
            Some(b'{' | b't') => {}
            _ => {
                return Err(Failure::invalid_params(
                    "params.schema: a JSON Schema is an object or a boolean",
                ));
            }
        }
        let schema = Schema::new(text)
            .spacing(self.spacing)
            .key_order(self.key_order)
            .formats(self.formats);
        let documents = self.documents.iter();
        Ok(documents.fold(schema, |schema, (uri, text)| {
            schema.document(uri, text.get())
        }))
    }
}

/// Strict requests get what the mask guarantees, or nothing.
fn refuse_unmasked(pointers: &[String]) -> Result<(), Failure> {
    if pointers.is_empty() {
        return Ok(());
    }
    let named: Vec<_> = pointers.iter().take(NAMED).map(String::as_str).collect();
    let more = match pointers.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Err(Failure::unsatisfiable(format!(
        "params.schema: with `strict`, every keyword must be guaranteed while the value is written; these can \
         only be validated afterwards: {}{more}. Leave `strict` out to have them validated and retried.",
        named.join(", ")
    )))
}

formwork_plugin_sdk::export!(JsonSchema);

#[cfg(test)]
mod tests {
    use super::*;
    use formwork_plugin_sdk::FailureKind;
    use formwork_plugin_sdk::testing::{Trace, assert_described};

    #[test]
    fn params_are_described() {
        assert_described::<JsonSchema>();
    }

    #[test]
    fn keys_come_in_the_schemas_order_and_compact() {
        let params = json!({"schema": {
            "type": "object",
            "properties": {"z": {"type": "integer"}, "a": {"enum": ["日本", "é\"", null]}},
            "required": ["z", "a"],
            "additionalProperties": false,
        }});
        let run = |text: &str| Trace::of::<JsonSchema>(params.clone()).text(text).run();
        for text in [
            r#"{"z":12,"a":"日本"}"#,
            r#"{"z":-1,"a":"é\""}"#,
            r#"{"z":0,"a":null}"#,
        ] {
            let outcome = run(text);
            outcome.assert_output(text);
            outcome.assert_field("value", text);
        }
        run(r#"{"a":null,"z":1}"#).assert_rejected(2, "field `value` does not allow \"a\"");
        run(r#"{"z": 1,"a":null}"#).assert_rejected(5, "does not allow \" \"");
        run(r#"{"z":1,"a":"other"}"#).assert_rejected(12, "does not allow \"o\"");
        run(r#"{"z":1,"a":null"#).assert_rejected(15, "the end of the text");
    }

    #[test]
    fn without_a_schema_any_object() {
        let text = r#"{"a":[1,{"b":"\n"}],"c":null}"#;
        Trace::of::<JsonSchema>(json!({}))
            .text(text)
            .run()
            .assert_output(text);
        Trace::of::<JsonSchema>(json!({"strict": false}))
            .text("{}")
            .run()
            .assert_output("{}");
        Trace::of::<JsonSchema>(json!({}))
            .text("[1]")
            .run()
            .assert_rejected(0, "allowed: \"{\"");
        let any = json!({"schema": true});
        Trace::of::<JsonSchema>(any)
            .text("[1]")
            .run()
            .assert_output("[1]");
    }

    #[test]
    fn what_the_mask_leaves_open_is_validated_and_retried() {
        let schema = json!({"type": "array", "items": {"type": "integer"}, "uniqueItems": true});
        let run = |params: Json, attempts: &[&str]| {
            let trace = Trace::of::<JsonSchema>(params).attempt("value", attempts);
            trace.text(attempts[attempts.len() - 1]).run()
        };
        let outcome = run(json!({"schema": schema}), &["[1,1]", "[2,2]", "[1,2]"]);
        outcome.assert_output("[1,2]");
        assert_eq!((outcome.field("value").attempts, outcome.retries), (3, 2));
        assert!(outcome.field("value").reasons[0].contains("[1,1] has non-unique elements"));
        run(json!({"schema": schema}), &["[1,1]", "[1,1]", "[3,3]"])
            .assert_failure(FailureKind::Exhausted, "[3,3] has non-unique elements");
        run(json!({"schema": schema, "attempts": 1}), &["[1,1]"])
            .assert_failure(FailureKind::Exhausted, "[1,1] has non-unique elements");
    }

    #[test]
    fn a_value_is_written_again_from_the_part_at_fault() {
        let odd = json!({"type": "integer", "not": {"enum": [0, 2, 4, 6, 8]}});
        let schema = json!({
            "type": "object", "properties": {"a": odd, "b": {"type": "array", "items": odd}},
            "required": ["a", "b"], "additionalProperties": false,
        });
        let run = |attempts: &[&str]| {
            let params = json!({"schema": schema, "attempts": attempts.len()});
            let trace = Trace::of::<JsonSchema>(params).attempt("value", attempts);
            trace.text(attempts[attempts.len() - 1]).run()
        };
        let first = r#"{"a":1,"b":[3,4,6]}"#;
        run(&[first, r#"{"a":1,"b":[3,5]}"#]).assert_output(r#"{"a":1,"b":[3,5]}"#);
        // The 3 before the fault stays.
        let why = r#"begins with what is kept of the one before: "{\"a\":1,\"b\":[3,""#;
        run(&[first, r#"{"a":1,"b":[5]}"#]).assert_rejected(0, why);
        // At fault twice, the 4 gives way to the list, and that to the object.
        let again = r#"{"a":1,"b":[3,8]}"#;
        for last in [r#"{"a":1,"b":[5]}"#, r#"{"a":1,"b":[]}"#] {
            run(&[first, again, last]).assert_output(last);
        }
        let last = r#"{"a":3,"b":[]}"#;
        run(&[first, again, last]).assert_rejected(0, "begins with what is kept");
        run(&[first, again, again, last]).assert_output(last);
        run(&[first, again, again]).assert_failure(FailureKind::Exhausted, "at /b/1: ");
    }

    #[test]
    fn params_say_how_values_are_written_and_what_references_lead_to() {
        let point = json!({"properties": {"x": {"type": "integer"}, "y": {"format": "date"}}, "required": ["x", "y"]});
        let run = |extra: Json, text: &str| {
            let mut params = json!({
                "schema": {"$ref": "https://example.com/point"},
                "documents": {"https://example.com/point": point},
            });
            for (key, value) in extra.as_object().into_iter().flatten() {
                params[key] = value.clone();
            }
            Trace::of::<JsonSchema>(params).text(text).run()
        };
        let plain = r#"{"x":1,"y":"2020-01-01"}"#;
        run(json!({}), plain).assert_output(plain);
        let spaced = r#"{"x": 1, "y": "2020-01-01"}"#;
        run(json!({"spacing": "spaced"}), spaced).assert_output(spaced);
        run(json!({"spacing": "spaced"}), plain).assert_rejected(5, "does not allow");
        let turned = r#"{"y":"2020-01-01","x":1}"#;
        run(json!({"key_order": "any"}), turned).assert_output(turned);
        run(json!({"key_order": "schema"}), turned).assert_rejected(2, "does not allow");
        let odd = r#"{"x":1,"y":"soon"}"#;
        run(json!({"formats": "annotated"}), odd).assert_output(odd);
        run(json!({"formats": "asserted"}), odd).assert_rejected(12, "does not allow");
    }

    #[test]
    fn strict_takes_only_what_the_mask_guarantees() {
        let run = |schema: Json, text: &str| {
            let params = json!({"schema": schema, "strict": true});
            Trace::of::<JsonSchema>(params).text(text).run()
        };
        let whole = json!({"type": "array", "items": {"type": "integer"}});
        run(whole, "[1,1]").assert_output("[1,1]");
        let open = json!({"properties": {"a/b": {"not": {"enum": [1]}}, "c": {"format": "date"}}});
        run(open, "{}").assert_failure(
            FailureKind::Unsatisfiable,
            "/properties/a~1b/not, /properties/c/format",
        );
    }

    #[test]
    fn wrong_schemas_are_refused() {
        use FailureKind::{InvalidParams, Unsatisfiable};
        let cases = [
            (json!({"schema": false}), Unsatisfiable, "params.schema"),
            (json!({"schema": 7}), InvalidParams, "params.schema"),
            (json!({"schema": {"type": "strin"}}), InvalidParams, "strin"),
            (
                json!({"schema": {"enum": []}}),
                Unsatisfiable,
                "params.schema: ",
            ),
            (json!({"shema": {}}), InvalidParams, "unknown field `shema`"),
            (
                json!({"schema": {}, "strict": 1}),
                InvalidParams,
                "params.strict: invalid type",
            ),
            (
                json!({"schema": {}, "spacing": "wide"}),
                InvalidParams,
                "params.spacing: unknown variant `wide`",
            ),
            (
                json!({"schema": {"$ref": "https://example.com/y"}, "documents": {"https://example.com/x": {}}}),
                InvalidParams,
                "https://example.com/y",
            ),
        ];
        for (params, kind, part) in cases {
            Trace::of::<JsonSchema>(params)
                .run()
                .assert_failure(kind, part);
        }
    }
}
