//! Grammar sources, and the checks that keep hostile ones away from recursive parsers.

use crate::lark_scan::{self, LarkLimits};
use crate::schema::pointer::escape;
use crate::{Failure, GrammarLimits};
use llguidance::api::TopLevelGrammar;
use serde_json::{Map, Value, json};

/// What a grammar is compiled from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// A JSON Schema as JSON text. Values are written compactly, keys in the schema's order.
    JsonSchema(String),
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
    /// A JSON Schema, an object or `true`, to be lowered first.
    Schema(Value),
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
            Self::JsonSchema(text) | Self::Regex(text) | Self::Lark(text) => text.len(),
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
            Self::JsonSchema(text) => prepare_schema(text, limits),
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
        let Self::JsonSchema(text) = self else {
            return None;
        };
        let schema: Value = serde_json::from_str(text).ok()?;
        let mut found = None;
        walk(&schema, &mut String::new(), &mut |value, pointer| {
            let empty = |key| {
                value
                    .get(key)
                    .and_then(Value::as_array)
                    .is_some_and(Vec::is_empty)
            };
            for key in ["enum", "anyOf", "oneOf"] {
                if found.is_none() && empty(key) {
                    found = Some(format!("{pointer}/{key}"));
                }
            }
        });
        found
    }
}

fn prepare_schema(text: &str, limits: &GrammarLimits) -> Result<Prepared, Refusal> {
    if let Some(offset) = deeper_than(text, limits.depth) {
        return Err(Failure::params(format!(
            "the JSON schema nests deeper than the limit (depth) of {} at byte {offset}",
            limits.depth
        )));
    }
    let schema: Value = serde_json::from_str(text)
        .map_err(|error| Failure::params(format!("the JSON schema is not JSON: {error}")))?;
    match &schema {
        Value::Object(_) | Value::Bool(true) => {}
        Value::Bool(false) => {
            return Err(Failure::unsatisfiable(
                "the JSON schema `false` allows no value",
            ));
        }
        other => {
            return Err(Failure::params(format!(
                "a JSON schema is an object or a boolean, not {}",
                type_name(other)
            )));
        }
    }
    check_patterns(&schema, limits)?;
    Ok(Prepared::Schema(schema))
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// Checks every `pattern` and every key of `patternProperties` by itself, so that an error can name
/// the place and no hostile pattern reaches the compiler.
fn check_patterns(schema: &Value, limits: &GrammarLimits) -> Result<(), Refusal> {
    let mut error = None;
    walk(schema, &mut String::new(), &mut |value, pointer| {
        let pattern = value.get("pattern").and_then(Value::as_str);
        let keys = value.get("patternProperties").and_then(Value::as_object);
        let keys = keys.into_iter().flat_map(Map::keys).map(String::as_str);
        let patterns = pattern.map(|text| (text, "pattern")).into_iter();
        for (text, key) in patterns.chain(keys.map(|text| (text, "patternProperties"))) {
            if let Err(message) = check_pattern(text, limits) {
                error.get_or_insert_with(|| {
                    Failure::params(format!("JSON schema at {pointer}/{key}: {message}"))
                });
            }
        }
    });
    error.map_or(Ok(()), Err)
}

/// Checks a pattern in JavaScript's dialect. One that Rust's parser does not take may still be for the
/// validator, unless its nesting is hostile.
fn check_pattern(text: &str, limits: &GrammarLimits) -> Result<(), String> {
    // These classes are ASCII in JavaScript.
    let Err(message) = check_regex(&llguidance::regex_to_lark(text, "dw"), limits) else {
        return Ok(());
    };
    let open = text.bytes().filter(|&byte| byte == b'(').count();
    let valid = || {
        jsonschema::options()
            .build(&json!({"pattern": text}))
            .is_ok()
    };
    if open <= limits.depth && !text.contains("<stop>") && valid() {
        return Ok(());
    }
    Err(message)
}

/// Visits every object of the schema with its JSON pointer, but not the values in it that are data.
/// The depth is bounded by the check before.
fn walk(value: &Value, pointer: &mut String, visit: &mut impl FnMut(&Value, &str)) {
    let length = pointer.len();
    match value {
        Value::Object(map) => {
            visit(value, pointer);
            for (key, child) in map {
                let data = ["const", "enum", "default", "examples", "x-guidance"];
                if data.contains(&key.as_str()) {
                    continue;
                }
                pointer.push('/');
                pointer.push_str(&escape(key));
                walk(child, pointer, visit);
                pointer.truncate(length);
            }
        }
        Value::Array(items) => {
            for (index, child) in items.iter().enumerate() {
                pointer.push_str(&format!("/{index}"));
                walk(child, pointer, visit);
                pointer.truncate(length);
            }
        }
        _ => {}
    }
}

/// Byte offset of the first bracket of JSON text that opens a level deeper than `limit`.
fn deeper_than(text: &str, limit: usize) -> Option<usize> {
    let (mut depth, mut quoted, mut escaped) = (0usize, false, false);
    for (offset, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'{' | b'[' => {
                depth += 1;
                if depth > limit {
                    return Some(offset);
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
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
        let deep = |open: &str, n| Source::JsonSchema(open.repeat(n));
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

    #[test]
    fn brackets_in_strings_do_not_nest() {
        let text = format!("{{\"const\":\"{}\\\"[[\"}}", "[".repeat(200));
        assert_eq!(deeper_than(&text, 1), None);
        let source = Source::JsonSchema(text);
        assert!(source.prepare(&GrammarLimits::default()).is_ok());
    }

    #[test]
    fn the_pointer_of_an_empty_enum_is_found() {
        let text = r#"{"properties":{"x":{"items":[{"enum":[]}]}},"default":{"enum":[]}}"#;
        assert_eq!(
            Source::JsonSchema(text.into()).unsatisfiable_at().unwrap(),
            "/properties/x/items/0/enum"
        );
    }
}
