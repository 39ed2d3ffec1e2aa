//! Stock format: the whole output matches a regex.

use formwork_plugin_sdk::prelude::*;

/// The whole output matches one regex.
pub struct Regex {
    pattern: String,
}

/// Params of [`Regex`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Params {
    pattern: String,
}

impl Format for Regex {
    type Params = Params;
    const PARAMS: &'static str = include_str!("params.json");

    fn open(params: Params, _: &Request) -> Result<Self, Failure> {
        Ok(Self {
            pattern: params.pattern,
        })
    }

    fn template(&self) -> Template {
        Template::new().field(Field::regex("value", &self.pattern))
    }
}

formwork_plugin_sdk::export!(Regex);

#[cfg(test)]
mod tests {
    use super::*;
    use formwork_plugin_sdk::FailureKind;
    use formwork_plugin_sdk::testing::{Trace, assert_described};

    #[test]
    fn params_are_described() {
        assert_described::<Regex>();
    }

    #[test]
    fn the_whole_output_matches() {
        let run = |text: &str| {
            let params = json!({"pattern": "[0-9]{3}-[äöü]{1,2}"});
            Trace::of::<Regex>(params).text(text).run()
        };
        for text in ["123-ä", "000-üö"] {
            let outcome = run(text);
            outcome.assert_output(text);
            outcome.assert_field("value", text);
        }
        run("12-ä").assert_rejected(2, "allowed: \"0\" \"1\"");
        run("123-a").assert_rejected(4, "does not allow \"a\"");
        run("123-").assert_rejected(4, "the end of the text");
        run("123-ääx").assert_rejected(8, "does not allow \"x\"");
    }

    #[test]
    fn wrong_patterns_are_refused() {
        let refused = |params: Json, part: &str| {
            Trace::of::<Regex>(params)
                .run()
                .assert_failure(FailureKind::InvalidParams, part);
        };
        refused(json!({"pattern": "("}), "field `value`");
        refused(json!({"pattern": 1}), "params.pattern: invalid type");
        refused(json!({}), "missing field `pattern`");
        refused(
            json!({"pattern": "a", "flags": "i"}),
            "unknown field `flags`",
        );
    }
}
