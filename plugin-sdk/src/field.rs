//! One field of the output: what it may be, how long, how it is judged.

use crate::{Failure, Grammar, Matcher, Schema, Source, Value, Verdict};
use std::rc::Rc;

type Check = Rc<dyn Fn(&Value) -> Verdict>;

/// One field, decoded by the host under a grammar until that is complete.
#[derive(Clone)]
pub struct Field {
    pub(crate) name: String,
    pub(crate) origin: Origin,
    pub(crate) max_tokens: Option<u32>,
    pub(crate) temperature: Option<f32>,
    pub(crate) judge: Judge,
    pub(crate) retry: RetryPolicy,
}

#[derive(Clone)]
pub(crate) enum Origin {
    Source(Source),
    Matcher(Matcher),
}

/// Who looks at the value before it stands.
#[derive(Clone)]
pub(crate) enum Judge {
    Nobody,
    Format,
    Closure(Check),
}

/// What happens to a field whose check asks for another try. An attempt starts again at the field's first
/// token, or where the [verdict](Verdict::retry_from) says; what was decoded before is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct RetryPolicy {
    /// Attempts in all, the first one included; at least 1.
    pub attempts: u32,
    /// Added to the temperature at each further attempt.
    pub heat: f32,
    /// Text that only the model sees, put before the field at a further attempt; `{reason}` and `{value}`
    /// are filled in by the host.
    pub hint: Option<String>,
    /// What happens when the last attempt is refused too.
    pub exhausted: Fallback,
}

/// What happens when the last attempt is refused too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Fallback {
    /// The request fails.
    #[default]
    Fail,
    /// These bytes take the field's place.
    Write(Vec<u8>),
    /// The last value stands, marked as unverified in the response.
    Accept,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts: 1,
            heat: 0.0,
            hint: None,
            exhausted: Fallback::Fail,
        }
    }
}

impl Field {
    /// A JSON value that this JSON Schema allows; given as text, it is compact. What masks leave open is
    /// validated before any check of yours, as [`validated`](Field::validated) does it: with up to two further
    /// attempts, unless [`retry`](Field::retry) says otherwise.
    pub fn json_schema(name: impl Into<String>, schema: impl Into<Schema>) -> Self {
        Self::of(name, Source::json_schema(schema))
    }

    /// Text that matches this regex from its first to its last character (Rust's syntax, no look-around).
    pub fn regex(name: impl Into<String>, pattern: impl Into<String>) -> Self {
        Self::of(name, Source::Regex(pattern.into()))
    }

    /// Text of this grammar, in llguidance's dialect of Lark.
    pub fn lark(name: impl Into<String>, grammar: impl Into<String>) -> Self {
        Self::of(name, Source::Lark(grammar.into()))
    }

    /// One of these texts.
    pub fn choice<I>(name: impl Into<String>, choices: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        Self::of(
            name,
            Source::Choice(choices.into_iter().map(Into::into).collect()),
        )
    }

    /// The inside of a JSON string (without its quotes) of `min..=max` characters; an escape
    /// counts as one, a pair of surrogate escapes too.
    pub fn json_text(name: impl Into<String>, min: u32, max: u32) -> Self {
        let hex = "[0-9a-fA-F]";
        let unit = format!("[0-9abcefABCEF]{hex}{{3}}|[dD][0-7]{hex}{{2}}");
        let pair = format!(r"[dD][89abAB]{hex}{{2}}\\u[dD][c-fC-F]{hex}{{2}}");
        let character = format!(r#"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u(?:{unit}|{pair})))"#);
        Self::regex(name, format!("{character}{{{min},{max}}}"))
    }

    /// Whatever this grammar allows.
    pub fn of(name: impl Into<String>, source: Source) -> Self {
        Self::new(name.into(), Origin::Source(source))
    }

    /// Whatever may follow where this matcher stands.
    pub fn matcher(name: impl Into<String>, matcher: Matcher) -> Self {
        Self::new(name.into(), Origin::Matcher(matcher))
    }

    fn new(name: String, origin: Origin) -> Self {
        Self {
            name,
            origin,
            max_tokens: None,
            temperature: None,
            judge: Judge::Nobody,
            retry: RetryPolicy::default(),
        }
    }

    /// The field's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Most tokens of one attempt; the request's limit unless set.
    #[must_use]
    pub fn max_tokens(mut self, tokens: u32) -> Self {
        self.max_tokens = Some(tokens);
        self
    }

    /// Overrides the request's temperature.
    #[must_use]
    pub fn temperature(mut self, temperature: f32) -> Self {
        self.temperature = Some(temperature);
        self
    }

    /// Judges the value before the next action; `Err(reason)` asks for another attempt.
    #[must_use]
    pub fn check<V: Into<Verdict>>(mut self, check: impl Fn(&Value) -> V + 'static) -> Self {
        self.judge = Judge::Closure(Rc::new(move |value| check(value).into()));
        self
    }

    /// Has [`Format::check`](crate::Format::check) judge the value before the next action.
    #[must_use]
    pub fn checked(mut self) -> Self {
        self.judge = Judge::Format;
        self
    }

    /// Attempts in all, the first one included.
    #[must_use]
    pub fn retry(mut self, attempts: u32) -> Self {
        self.retry.attempts = attempts;
        self
    }

    /// Added to the temperature at each further attempt.
    #[must_use]
    pub fn heat(mut self, heat: f32) -> Self {
        self.retry.heat = heat;
        self
    }

    /// Text for the model alone before a further attempt; the host fills in `{reason}` and `{value}`.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.retry.hint = Some(hint.into());
        self
    }

    /// When the last attempt is refused too, these bytes take the field's place.
    #[must_use]
    pub fn or_write(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.retry.exhausted = Fallback::Write(bytes.into());
        self
    }

    /// When the last attempt is refused too, it stands, marked as unverified.
    #[must_use]
    pub fn or_accept(mut self) -> Self {
        self.retry.exhausted = Fallback::Accept;
        self
    }

    pub(crate) fn is_checked(&self) -> bool {
        !matches!(self.judge, Judge::Nobody)
    }

    /// Refuses what the host would refuse, with the field's name in the message.
    pub(crate) fn validate(&self) -> Result<(), Failure> {
        let wrong = |what: &str| {
            let name = &self.name;
            Err(Failure::internal(format!("field `{name}`: {what}")))
        };
        let finite = |number: f32| number.is_finite() && (0.0..=100.0).contains(&number);
        if self.name.is_empty() {
            return wrong("the name is empty");
        }
        if self.retry.attempts == 0 {
            return wrong("`attempts` is 0; the first attempt counts as one");
        }
        if self.max_tokens == Some(0) {
            return wrong("`max_tokens` is 0");
        }
        if !self.temperature.is_none_or(finite) || !finite(self.retry.heat) {
            return wrong("temperature and heat are numbers from 0 to 100");
        }
        Ok(())
    }

    /// A fresh walk through the field's grammar.
    pub(crate) fn start(
        &self,
        compile: impl FnOnce(&Source) -> Result<Grammar, Failure>,
    ) -> Result<Matcher, Failure> {
        match &self.origin {
            Origin::Source(source) => Ok(compile(source)
                .map_err(|failure| Failure {
                    message: format!("field `{}`: {}", self.name, failure.message),
                    ..failure
                })?
                .start()),
            Origin::Matcher(matcher) => Ok(matcher.clone()),
        }
    }
}
