//! Stock format: the whole output is one of some texts.

use formwork_plugin_sdk::prelude::*;

/// The whole output is one of some texts.
pub struct Choice {
    choices: Vec<String>,
}

/// Params of [`Choice`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Params {
    choices: Vec<String>,
}

impl Format for Choice {
    type Params = Params;
    const PARAMS: &'static str = include_str!("params.json");

    fn open(params: Params, _: &Request) -> Result<Self, Failure> {
        if params.choices.is_empty() {
            return Err(Failure::unsatisfiable(
                "params.choices: there is nothing to choose from",
            ));
        }
        if let Some(index) = params.choices.iter().position(String::is_empty) {
            return Err(Failure::invalid_params(format!(
                "params.choices[{index}]: an empty text cannot be chosen"
            )));
        }
        Ok(Self {
            choices: params.choices,
        })
    }

    fn template(&self) -> Template {
        Template::new().field(Field::choice("value", &self.choices))
    }
}

formwork_plugin_sdk::export!(Choice);

#[cfg(test)]
mod tests {
    use super::*;
    use formwork_plugin_sdk::FailureKind;
    use formwork_plugin_sdk::testing::{Trace, assert_described};

    #[test]
    fn params_are_described() {
        assert_described::<Choice>();
    }

    #[test]
    fn the_output_is_one_of_the_texts() {
        let choices = ["yes", "no", "no way", "a.b*", "日本", "😀\n\"quoted\""];
        let run = |text: &str| {
            Trace::of::<Choice>(json!({"choices": choices}))
                .text(text)
                .run()
        };
        for text in choices {
            let outcome = run(text);
            outcome.assert_output(text);
            outcome.assert_field("value", text);
        }
        run("maybe").assert_rejected(0, "does not allow \"m\"");
        run("axb").assert_rejected(1, "allowed: \".\"");
        run("no w").assert_rejected(4, "the end of the text");
        run("yes!").assert_rejected(3, "does not allow \"!\"; allowed: the end");
    }

    #[test]
    fn nothing_to_choose_from_is_refused() {
        use FailureKind::{InvalidParams, Unsatisfiable};
        let cases = [
            (json!({"choices": []}), Unsatisfiable, "params.choices"),
            (
                json!({"choices": ["a", ""]}),
                InvalidParams,
                "params.choices[1]",
            ),
            (
                json!({"choices": ["a", 1]}),
                InvalidParams,
                "params.choices[1]: invalid type",
            ),
            (
                json!({"choice": ["a"]}),
                InvalidParams,
                "unknown field `choice`",
            ),
        ];
        for (params, kind, part) in cases {
            Trace::of::<Choice>(params).run().assert_failure(kind, part);
        }
    }
}
