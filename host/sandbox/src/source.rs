//! Grammar sources, and the checks that keep hostile ones away from recursive parsers.

use crate::lark_scan::{self, LarkLimits};
use crate::schema::{Prepared as PreparedSchema, Schema};
use crate::{Failure, GrammarLimits};
use llguidance::api::TopLevelGrammar;
use serde_json::Value;

/// What a grammar is compiled from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// A JSON Schema.
    JsonSchema(Schema),
    /// A regular expression in the `regex` crate's syntax, matched as a whole.
    Regex(String),
    /// A Lark grammar in llguidance's dialect. Special tokens cannot be named.
    Lark(String),
    /// One of these strings.
    Choice(Vec<String>),
}

/// A source that is safe to hand on.
pub(crate) enum Prepared {
    /// In llguidance's form.
    Grammar(TopLevelGrammar),
    /// A JSON Schema, to be lowered first.
    Schema(PreparedSchema),
}

impl Prepared {
    fn lark(text: String) -> Self {
        Self::Grammar(TopLevelGrammar::from_lark(text))
    }
}

/// Why a source was turned down, and the part of it that is at fault.
type Refusal = Failure;

impl Source {
    /// Bytes of source text.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::JsonSchema(schema) => schema.len(),
            Self::Regex(text) | Self::Lark(text) => text.len(),
            Self::Choice(options) => options.iter().map(|option| option.len() + 1).sum(),
        }
    }

    /// The kind's name in messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::JsonSchema(_) => "JSON schema",
            Self::Regex(_) => "regex",
            Self::Lark(_) => "Lark grammar",
            Self::Choice(_) => "choice",
        }
    }

    /// Checks size and depth without recursion, then hands the source over in llguidance's form.
    pub(crate) fn prepare(&self, limits: &GrammarLimits) -> Result<Prepared, Refusal> {
        if self.len() > limits.source_bytes {
            return Err(Failure::params(format!(
                "the {} has {} bytes, the limit (source_bytes) is {}",
                self.kind(),
                self.len(),
                limits.source_bytes
            )));
        }
        match self {
            Self::JsonSchema(schema) => schema.prepare(limits).map(Prepared::Schema),
            Self::Regex(text) => {
                check_regex(text, limits).map_err(Failure::params)?;
                Ok(Prepared::lark(lark_of_regex(text)))
            }
            Self::Lark(text) => {
                lark_scan::check(
                    text,
                    LarkLimits {
                        depth: limits.depth,
                        rules: limits.rules,
                    },
                )
                .map_err(Failure::params)?;
                Ok(Prepared::lark(text.clone()))
            }
            Self::Choice(options) => prepare_choice(options),
        }
    }

    /// Where in the source the reason for "unsatisfiable" lies, as far as it is plain to see.
    pub(crate) fn unsatisfiable_at(&self) -> Option<String> {
        match self {
            Self::JsonSchema(schema) => schema.unsatisfiable_at(),
            _ => None,
        }
    }
}

/// Parses the regex (on the heap, so any depth is safe) under a nesting limit.
pub(crate) fn check_regex(text: &str, limits: &GrammarLimits) -> Result<(), String> {
    let depth = limits.depth as u32;
    let mut parser = regex_syntax::ParserBuilder::new().nest_limit(depth).build();
    let (message, span) = match parser.parse(text) {
        Ok(_) if text.contains("<stop>") => {
            return Err("a group must not be named `stop`".into());
        }
        Ok(_) => return Ok(()),
        Err(regex_syntax::Error::Parse(error)) => (
            match error.kind() {
                regex_syntax::ast::ErrorKind::NestLimitExceeded(_) => {
                    format!("groups nest deeper than the limit (depth) of {depth}")
                }
                kind => kind.to_string(),
            },
            *error.span(),
        ),
        Err(regex_syntax::Error::Translate(error)) => (error.kind().to_string(), *error.span()),
        Err(error) => return Err(error.to_string()),
    };
    Err(format!(
        "the regex is invalid at byte {}: {message}",
        span.start.offset
    ))
}

fn lark_of_regex(text: &str) -> String {
    if text.is_empty() {
        return "start: \"\"".into();
    }
    format!("start: /{}/", llguidance::regex_to_lark(text, ""))
}

fn prepare_choice(options: &[String]) -> Result<Prepared, Refusal> {
    if options.is_empty() {
        return Err(Failure::unsatisfiable("the choice has no options"));
    }
    // Lark strings are JSON strings that must not hold DEL either. A terminal, hence one automaton
    // for all options, however they share beginnings.
    let quoted: Vec<String> = options
        .iter()
        .map(|option| {
            Value::from(option.as_str())
                .to_string()
                .replace('\u{7f}', "\\u007f")
        })
        .collect();
    Ok(Prepared::lark(format!(
        "start: OPTION\nOPTION: {}\n",
        quoted.join(" | ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(source: Source) -> String {
        let error = source.prepare(&GrammarLimits::default()).map(|_| ());
        error.unwrap_err().to_string()
    }

    #[test]
    fn refusals_name_limit_and_place() {
        let check = |source: Source, message: &str| {
            let text = refusal(source);
            assert!(text.contains(message), "{text}");
        };
        let deep = |open: &str, n| Source::JsonSchema(open.repeat(n).into());
        check(
            deep("[", 10_000),
            "deeper than the limit (depth) of 100 at byte 100",
        );
        check(
            deep("{\"a\":", 10_000),
            "the limit (depth) of 100 at byte 500",
        );
        check(Source::Regex("(".repeat(60_000)), "invalid at byte");
        let nested = format!("{}a{}", "(".repeat(60_000), ")".repeat(60_000));
        check(
            Source::Regex(nested),
            "deeper than the limit (depth) of 100",
        );
        check(
            Source::Regex("a(b".into()),
            "invalid at byte 1: unclosed group",
        );
        check(
            Source::Regex("x".repeat(2 << 20)),
            "the limit (source_bytes) is 1048576",
        );
        check(Source::JsonSchema("{\"a\" 1}".into()), "line 1 column 6");
        check(Source::JsonSchema("3".into()), "not a number");
        check(Source::JsonSchema("false".into()), "unsatisfiable");
        check(Source::Choice(vec![]), "no options");
        let pattern = r#"{"properties":{"a/b":{"pattern":"x["}}}"#;
        check(
            Source::JsonSchema(pattern.into()),
            "at /properties/a~1b/pattern: the regex is invalid at byte 1",
        );
    }
}
