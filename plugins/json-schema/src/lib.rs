//! Stock format: the whole output is one JSON value under a JSON Schema.

use formwork_plugin_sdk::prelude::*;
use serde_json::value::RawValue;

/// The whole output is one JSON value, in compact form, with the schema's order of keys.
pub struct JsonSchema {
    schema: String,
}

/// Params of [`JsonSchema`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// Kept as text: the order of its keys is the order of the output's keys.
    #[serde(default)]
    schema: Option<Box<RawValue>>,
    /// For clients that send it beside a schema; every keyword is enforced or refused either way.
    #[serde(default, rename = "strict")]
    _strict: bool,
}

impl Format for JsonSchema {
    type Params = Params;
    const PARAMS: &'static str = include_str!("params.json");

    fn open(params: Params, _: &Request) -> Result<Self, Failure> {
        let text = params.schema.map_or_else(
            || r#"{"type":"object"}"#.to_owned(),
            |schema| schema.get().to_owned(),
        );
        match text.as_bytes().first() {
            _ if text == "false" => Err(Failure::unsatisfiable(
                "params.schema: `false` allows no value",
            )),
            Some(b'{' | b't') => Ok(Self { schema: text }),
            _ => Err(Failure::invalid_params(
                "params.schema: a JSON Schema is an object or a boolean",
            )),
        }
    }

    fn template(&self) -> Template {
        Template::new().field(Field::json_schema("value", &self.schema))
    }
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
    fn wrong_schemas_are_refused() {
        use FailureKind::{InvalidParams, Unsatisfiable};
        let cases = [
            (json!({"schema": false}), Unsatisfiable, "params.schema"),
            (json!({"schema": 7}), InvalidParams, "params.schema"),
            (json!({"schema": {"type": "strin"}}), InvalidParams, "strin"),
            (
                json!({"schema": {"enum": []}}),
                Unsatisfiable,
                "field `value`",
            ),
            (json!({"shema": {}}), InvalidParams, "unknown field `shema`"),
            (
                json!({"schema": {}, "strict": 1}),
                InvalidParams,
                "params.strict: invalid type",
            ),
        ];
        for (params, kind, part) in cases {
            Trace::of::<JsonSchema>(params)
                .run()
                .assert_failure(kind, part);
        }
    }
}
