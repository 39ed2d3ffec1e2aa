//! Stock format: the whole output is a text of a context-free grammar.

mod gbnf;

pub use gbnf::to_lark;

/// GBNF taken at its word, to compare the translation with.
#[cfg(any(test, feature = "recogniser"))]
pub use gbnf::recogniser;

use formwork_plugin_sdk::prelude::*;

/// The whole output is a text of one grammar.
pub struct Grammar {
    grammar: String,
}

/// Params of [`Grammar`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Params {
    grammar: String,
    /// Told by the text itself unless given.
    #[serde(default)]
    syntax: Option<Syntax>,
}

/// What the grammar is written in.
#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Syntax {
    /// Lark, in llguidance's dialect.
    Lark,
    /// GBNF, as llama.cpp has it.
    Gbnf,
}

impl Format for Grammar {
    type Params = Params;
    const PARAMS: &'static str = include_str!("params.json");

    fn open(params: Params, _: &Request) -> Result<Self, Failure> {
        if params.grammar.trim().is_empty() {
            return Err(Failure::invalid_params(
                "params.grammar: it is empty; the least grammar is `start: \"text\"`",
            ));
        }
        let gbnf = match params.syntax {
            Some(syntax) => syntax == Syntax::Gbnf,
            None => gbnf::is_gbnf(&params.grammar),
        };
        let grammar = match gbnf {
            true => gbnf::to_lark(&params.grammar)?,
            false => params.grammar,
        };
        Ok(Self { grammar })
    }

    fn template(&self) -> Template {
        Template::new().field(Field::lark("value", &self.grammar))
    }
}

formwork_plugin_sdk::export!(Grammar);

#[cfg(test)]
mod tests {
    use super::*;
    use formwork_plugin_sdk::FailureKind;
    use formwork_plugin_sdk::testing::{Trace, assert_described};

    const SUMS: &str = "start: sum\nsum: product (\"+\" product)*\nproduct: atom (\"*\" atom)*\n\
                        atom: /[0-9]+/ | \"(\" sum \")\"";

    #[test]
    fn params_are_described() {
        assert_described::<Grammar>();
    }

    #[test]
    fn the_output_is_a_text_of_the_grammar() {
        let run = |text: &str| {
            Trace::of::<Grammar>(json!({"grammar": SUMS, "syntax": "lark"}))
                .text(text)
                .run()
        };
        for text in ["1", "1+2*3", "((1+2))*30+4"] {
            run(text).assert_output(text);
        }
        run("1+*2").assert_rejected(2, "does not allow \"*\"");
        run("(1+2").assert_rejected(4, "the end of the text");
        run("1)").assert_rejected(1, "does not allow \")\"");
    }

    #[test]
    fn wrong_grammars_are_refused() {
        let refused = |params: Json, part: &str| {
            Trace::of::<Grammar>(params)
                .run()
                .assert_failure(FailureKind::InvalidParams, part);
        };
        refused(json!({"grammar": " "}), "params.grammar: it is empty");
        refused(json!({"grammar": "start: missing_rule"}), "missing_rule");
        refused(
            json!({"grammar": "start: \"a\"\nstart: \"b\""}),
            "field `value`",
        );
        refused(
            json!({"grammar": SUMS, "syntax": "ebnf"}),
            "params.syntax: unknown variant `ebnf`",
        );
        refused(
            json!({"grammar": SUMS, "syntax": "gbnf"}),
            "params.grammar at 1:6: expected `::=`, found ':'",
        );
        refused(json!({}), "missing field `grammar`");
    }
}
