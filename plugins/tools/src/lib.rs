//! Stock format: calls of functions, alone or after free text.
//!
//! A call is written as `<tool_call>\n{"name": "f", "arguments": {…}}\n</tool_call>`. All of it but the
//! function's name and its arguments is template; the arguments are a field of the function's name under
//! its own JSON Schema.

use formwork_plugin_sdk::prelude::*;
use serde_json::value::RawValue;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Begins a call.
const BEGIN: &str = "<tool_call>";
/// From there to the name.
const BEFORE_NAME: &str = "\n{\"name\": \"";
/// From the name to the arguments.
const BEFORE_ARGUMENTS: &str = "\", \"arguments\": ";
/// From the arguments to the end.
const AFTER_ARGUMENTS: &str = "}\n</tool_call>";
/// What a function takes that does not say.
const NO_ARGUMENTS: &str = r#"{"type":"object","properties":{},"additionalProperties":false}"#;
/// Names that begin with `?` stay out of reports.
const CHOSEN: &str = "?tool";
/// Calls of one answer.
const MOST_CALLS: u32 = 128;

/// Calls of functions, alone or after free text.
pub struct Tools {
    functions: Rc<[Function]>,
    choice: Choice,
    parallel: bool,
}

/// Params of [`Tools`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Params {
    tools: Vec<Tool>,
    #[serde(default)]
    choice: Choice,
    #[serde(default = "yes")]
    parallel: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tool {
    name: String,
    /// Kept as text: the order of its keys is the order of the output's keys.
    #[serde(default)]
    parameters: Option<Box<RawValue>>,
    /// Whether to refuse a schema that masks alone do not guarantee.
    #[serde(default)]
    strict: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Choice {
    #[default]
    Auto,
    Required,
}

fn yes() -> bool {
    true
}

/// A function that is ready to be called.
struct Function {
    name: String,
    arguments: Grammar,
}

impl Function {
    fn of(tool: Tool) -> Result<Self, Failure> {
        let schema = tool
            .parameters
            .as_deref()
            .map_or(NO_ARGUMENTS, RawValue::get);
        let name = tool.name;
        let source = Source::json_schema(schema);
        let arguments = Grammar::compile(&source).map_err(|failure| Failure {
            message: format!("params.tools, parameters of `{name}`: {}", failure.message),
            ..failure
        })?;
        let unmasked = arguments.unmasked();
        if tool.strict && !unmasked.is_empty() {
            return Err(Failure::unsatisfiable(format!(
                "params.tools, parameters of `{name}`: with `strict`, every keyword must be guaranteed while \
                 the arguments are written; {} can only be validated afterwards",
                unmasked.join(", ")
            )));
        }
        Ok(Self { name, arguments })
    }

    fn field(&self) -> Field {
        Field::validated(&self.name, &self.arguments)
    }
}

impl Format for Tools {
    type Params = Params;
    const PARAMS: &'static str = include_str!("params.json");

    fn open(params: Params, _: &Request) -> Result<Self, Failure> {
        let mut names = BTreeSet::new();
        for tool in &params.tools {
            if !names.insert(tool.name.as_str()) {
                let message = format!("params.tools: there are two tools named `{}`", tool.name);
                return Err(Failure::invalid_params(message));
            }
        }
        if params.tools.is_empty() {
            return Err(Failure::invalid_params("params.tools: there is none"));
        }
        let functions = params.tools.into_iter().map(Function::of);
        let functions: Vec<Function> = functions.collect::<Result<_, _>>()?;
        Ok(Self {
            functions: functions.into(),
            choice: params.choice,
            parallel: params.parallel,
        })
    }

    fn template(&self) -> Template {
        let parts = Parts {
            functions: Rc::clone(&self.functions),
            parallel: self.parallel,
        };
        match self.choice {
            Choice::Required => Template::new()
                .literal(BEGIN)
                .append(parts.call())
                .append(parts.more()),
            Choice::Auto => Template::new()
                .field(Field::text_until("?text", [BEGIN]))
                .then(move |values| match values.text("?text").ends_with(BEGIN) {
                    true => parts.call().append(parts.more()),
                    false => Template::new(),
                }),
        }
    }
}

/// The parts of an output.
struct Parts {
    functions: Rc<[Function]>,
    parallel: bool,
}

impl Parts {
    /// One call, from behind its `<tool_call>`.
    fn call(&self) -> Template {
        let begun = Template::new().literal(BEFORE_NAME);
        if let [only] = &*self.functions {
            return begun
                .literal(&only.name)
                .literal(BEFORE_ARGUMENTS)
                .field(only.field())
                .literal(AFTER_ARGUMENTS);
        }
        let functions = Rc::clone(&self.functions);
        let names = self.functions.iter().map(|function| function.name.as_str());
        begun
            .field(Field::choice(CHOSEN, names))
            .literal(BEFORE_ARGUMENTS)
            .then(move |values| {
                let name = values.text(CHOSEN);
                let chosen = functions.iter().find(|function| function.name == name);
                chosen.map_or_else(Template::new, |function| {
                    Template::new().field(function.field())
                })
            })
            .literal(AFTER_ARGUMENTS)
    }

    /// Further calls, where there may be several.
    fn more(&self) -> Template {
        if !self.parallel {
            return Template::new();
        }
        let item = Template::new()
            .literal("\n")
            .literal(BEGIN)
            .append(self.call());
        Template::new().repeat("more", 0..MOST_CALLS, "", item)
    }
}

formwork_plugin_sdk::export!(Tools);

#[cfg(test)]
mod tests {
    use super::*;
    use formwork_plugin_sdk::FailureKind;
    use formwork_plugin_sdk::testing::{Outcome, Trace, assert_described};

    fn run(choice: &str, parallel: bool, text: &str) -> Outcome {
        let city = json!({
            "type": "object", "properties": {"city": {"type": "string"}},
            "required": ["city"], "additionalProperties": false,
        });
        let params = json!({
            "tools": [
                {"name": "get", "parameters": city, "strict": true},
                {"name": "get_all"},
            ],
            "choice": choice, "parallel": parallel,
        });
        Trace::of::<Tools>(params).text(text).run()
    }

    const PARIS: &str =
        "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"city\":\"Paris\"}}\n</tool_call>";
    const ALL: &str = "<tool_call>\n{\"name\": \"get_all\", \"arguments\": {}}\n</tool_call>";

    #[test]
    fn params_are_described() {
        assert_described::<Tools>();
    }

    #[test]
    fn required_calls_are_all_there_is() {
        let outcome = run("required", false, PARIS);
        outcome.assert_output(PARIS);
        outcome.assert_field("get", r#"{"city":"Paris"}"#);
        run("required", false, ALL).assert_output(ALL);
        for text in [format!("{PARIS}\n{ALL}"), format!("{ALL}\n{ALL}\n{PARIS}")] {
            run("required", true, &text).assert_output(&text);
        }
        run("required", false, &format!("{PARIS}\n{ALL}")).assert_rejected(PARIS.len(), "complete");
        run("required", true, &format!("{PARIS} and")).assert_rejected(PARIS.len(), "complete");
        run("required", false, "I would").assert_rejected(0, "the format writes");
        run("required", true, &PARIS.replace("city", "town")).assert_rejected(43, "does not allow");
        run("required", true, &PARIS.replace("get", "go")).assert_rejected(23, "?tool");
    }

    #[test]
    fn auto_is_free_until_a_call_begins() {
        for text in [
            "",
            "No call: 1 < 2 <tool_cal >",
            "Ünïcode 😀\n\n<tool_",
            PARIS,
            ALL,
        ] {
            run("auto", true, text).assert_output(text);
        }
        let text = format!("I will look.\n{PARIS}\n{ALL}");
        run("auto", true, &text).assert_output(&text);
        run("auto", true, &format!("{PARIS}\nSo")).assert_rejected(PARIS.len(), "complete");
        run("auto", false, &format!("{PARIS}\n")).assert_rejected(PARIS.len(), "complete");
        run("auto", true, "so <tool_call> is").assert_rejected(14, "the format writes");
    }

    #[test]
    fn wrong_tools_are_refused() {
        let refused = |tools: Json, part: &str| {
            Trace::of::<Tools>(json!({"tools": tools}))
                .run()
                .assert_failure(FailureKind::InvalidParams, part);
        };
        refused(json!([]), "there is none");
        refused(json!([{"name": "f"}, {"name": "f"}]), "two tools named `f`");
        let bad = json!([{"name": "f"}, {"name": "g", "parameters": {"type": "strin"}}]);
        refused(bad, "parameters of `g`");
        refused(json!([{"nam": "f"}]), "unknown field `nam`");
    }

    #[test]
    fn arguments_are_validated_where_masks_do_not_suffice() {
        let list = json!({"type": "array", "items": {"type": "integer"}, "uniqueItems": true});
        let schema = json!({"type": "object", "properties": {"n": list}, "required": ["n"], "additionalProperties": false});
        let params = |strict: bool| {
            let tool = json!({"name": "f", "parameters": schema, "strict": strict});
            json!({"tools": [tool], "choice": "required", "parallel": false})
        };
        let text = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\":[1,2]}}\n</tool_call>";
        let outcome = Trace::of::<Tools>(params(false))
            .text(text)
            .attempt("f", [r#"{"n":[1,1]}"#, r#"{"n":[1,2]}"#])
            .run();
        outcome.assert_output(text);
        assert_eq!(outcome.field("f").attempts, 2);
        Trace::of::<Tools>(params(true))
            .run()
            .assert_failure(FailureKind::Unsatisfiable, "/properties/n/uniqueItems");
    }
}
