//! Stock format: structural tags. Free text in which certain texts begin a part with a grammar of its own.

mod compose;
mod spec;

use formwork_plugin_sdk::prelude::*;

pub use spec::Params;

/// Free text with constrained parts in it.
pub struct StructuralTag {
    template: Template,
}

impl Format for StructuralTag {
    type Params = Params;
    const PARAMS: &'static str = include_str!("params.json");

    fn open(params: Params, _: &Request) -> Result<Self, Failure> {
        let template = compose::compose(params.node()?)?;
        Ok(Self { template })
    }

    fn template(&self) -> Template {
        self.template.clone()
    }
}

formwork_plugin_sdk::export!(StructuralTag);

#[cfg(test)]
mod tests {
    use super::*;
    use formwork_plugin_sdk::FailureKind;
    use formwork_plugin_sdk::testing::{Outcome, Trace, assert_described};

    fn run(params: &Json, text: &str) -> Outcome {
        Trace::of::<StructuralTag>(params.clone()).text(text).run()
    }

    fn functions() -> Json {
        let city = json!({"type": "object", "properties": {"city": {"enum": ["Paris"]}}, "required": ["city"], "additionalProperties": false});
        json!({
            "triggers": ["<function="],
            "structures": [
                {"begin": "<function=get>", "schema": city, "end": "</function>"},
                {"begin": "<function=none>", "schema": {"type": "null"}, "end": "</function>"},
            ],
        })
    }

    #[test]
    fn params_are_described() {
        assert_described::<StructuralTag>();
    }

    #[test]
    fn text_is_free_until_a_trigger() {
        let call = r#"<function=get>{"city":"Paris"}</function>"#;
        for text in [
            "",
            "no <function here",
            call,
            &format!("a{call} b <function=none>null</function> c"),
        ] {
            run(&functions(), text).assert_output(text);
        }
        let outcome = run(&functions(), &format!("a{call}"));
        outcome.assert_field("<function=get>", r#"{"city":"Paris"}"#);
        run(&functions(), "a<function=set>").assert_rejected(11, "?tag");
        run(&functions(), "a<function=none>1").assert_rejected(16, "does not allow \"1\"");
        run(&functions(), &call.replace("Paris", "Rome")).assert_rejected(23, "\"R\"");
    }

    #[test]
    fn formats_nest() {
        let tag = |begin: &str, content: Json| json!({"type": "tag", "begin": begin, "content": content, "end": "</>"});
        let digits = json!({"type": "regex", "pattern": "[0-9]+"});
        let think = tag("<think>", json!({"type": "any_text"}));
        let either = json!({"type": "or", "elements": [tag("<n>", digits.clone()), {"type": "const_string", "value": "none"}]});
        let whole = json!({"format": {"type": "sequence", "elements": [think, either]}});
        for text in ["<think>1 < 2 </</><n>12</>", "<think></>none"] {
            run(&whole, text).assert_output(text);
        }
        run(&whole, "<think>so").assert_rejected(9, "the end of the text");
        run(&whole, "<think></>12").assert_rejected(10, "does not allow \"1\"");
        let tags = |at_least_one: bool, stop_after_first: bool| {
            json!({"format": {
                "type": "tags_with_separator", "separator": ",",
                "tags": [tag("<a>", digits.clone()), {"begin": "<b>", "content": digits, "end": "</>"}],
                "at_least_one": at_least_one, "stop_after_first": stop_after_first,
            }})
        };
        for text in ["", "<a>1</>", "<b>1</>,<a>2</>,<a>3</>"] {
            run(&tags(false, false), text).assert_output(text);
        }
        run(&tags(true, false), "").assert_rejected(0, "the end");
        run(&tags(false, true), "<b>1</>,").assert_rejected(7, "complete");
    }

    #[test]
    fn triggered_tags_may_be_wanted() {
        let tag = json!({"type": "tag", "begin": "<n>", "content": {"type": "json_schema", "json_schema": {"type": "integer"}}, "end": "!"});
        let params = |at_least_one: bool, stop_after_first: bool| {
            json!({"format": {"type": "triggered_tags", "triggers": ["<n"], "tags": [tag],
                "at_least_one": at_least_one, "stop_after_first": stop_after_first}})
        };
        run(&params(true, false), "a<n>1!b").assert_output("a<n>1!b");
        run(&params(true, false), "abc").assert_rejected(3, "the end of the text");
        run(&params(true, true), "a<n>1!").assert_output("a<n>1!");
        run(&params(true, true), "a<n>1!b").assert_rejected(6, "complete");
        run(&params(false, true), "abc").assert_output("abc");
    }

    #[test]
    fn wrong_params_are_refused() {
        let refused = |params: Json, part: &str| {
            run(&params, "").assert_failure(FailureKind::InvalidParams, part);
        };
        let structure = |begin: &str| json!({"begin": begin, "schema": {}, "end": ""});
        refused(json!({}), "either `format`");
        refused(
            json!({"triggers": ["a"], "structures": [structure("b")]}),
            "has no trigger",
        );
        refused(
            json!({"triggers": ["a", "c"], "structures": [structure("ab")]}),
            "no tag begins",
        );
        refused(
            json!({"triggers": ["a"], "structures": [structure("ab"), structure("abc")]}),
            "cannot be told apart",
        );
        let bad = json!({"begin": "ab", "schema": {"type": "strin"}, "end": ""});
        refused(
            json!({"triggers": ["a"], "structures": [bad]}),
            "the format in `ab`",
        );
        refused(json!({"format": {"type": "xml"}}), "unknown variant `xml`");
        let any = json!({"type": "any_text"});
        refused(
            json!({"format": {"type": "sequence", "elements": [any, any]}}),
            "any_text must be",
        );
    }
}
