//! The params as they are written.

use serde::Deserialize;
use serde_json::value::RawValue;

/// Params of [`Template`](crate::Template).
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Params {
    pub(crate) parts: Vec<PartSpec>,
}

/// One part. Which of the first five keys it has says what kind it is.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PartSpec {
    pub(crate) literal: Option<String>,
    pub(crate) field: Option<String>,
    pub(crate) optional: Option<String>,
    pub(crate) repeat: Option<String>,
    pub(crate) either: Option<String>,

    pub(crate) choice: Option<Vec<String>>,
    pub(crate) regex: Option<String>,
    pub(crate) json_schema: Option<Box<RawValue>>,
    pub(crate) lark: Option<String>,
    pub(crate) json: Option<bool>,
    pub(crate) max_tokens: Option<u32>,
    pub(crate) temperature: Option<f32>,
    pub(crate) check: Option<CheckSpec>,
    pub(crate) retry: Option<RetrySpec>,

    pub(crate) parts: Option<Vec<PartSpec>>,
    pub(crate) branches: Option<Vec<Vec<PartSpec>>>,
    pub(crate) min: Option<u32>,
    pub(crate) max: Option<u32>,
    pub(crate) separator: Option<String>,
}

/// What must hold for a value; all that is given.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckSpec {
    pub(crate) regex: Option<String>,
    pub(crate) min_length: Option<usize>,
    pub(crate) max_length: Option<usize>,
    pub(crate) one_of: Option<Vec<String>>,
    pub(crate) not_one_of: Option<Vec<String>>,
    pub(crate) minimum: Option<f64>,
    pub(crate) maximum: Option<f64>,
    pub(crate) luhn: Option<bool>,
    pub(crate) equals_sum_of: Option<Vec<String>>,
    pub(crate) differs_from: Option<String>,
    pub(crate) reason: Option<String>,
}

/// What happens when a check does not hold.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RetrySpec {
    pub(crate) attempts: Option<u32>,
    pub(crate) heat: Option<f32>,
    pub(crate) hint: Option<String>,
    pub(crate) exhausted: Option<Exhausted>,
}

/// What happens when no attempt is left.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Exhausted {
    Fail,
    Accept,
    Write(String),
}

impl PartSpec {
    /// The keys that are there, in the order of the params' schema.
    pub(crate) fn keys(&self) -> Vec<&'static str> {
        let keys = [
            ("literal", self.literal.is_some()),
            ("field", self.field.is_some()),
            ("optional", self.optional.is_some()),
            ("repeat", self.repeat.is_some()),
            ("either", self.either.is_some()),
            ("choice", self.choice.is_some()),
            ("regex", self.regex.is_some()),
            ("json_schema", self.json_schema.is_some()),
            ("lark", self.lark.is_some()),
            ("json", self.json.is_some()),
            ("max_tokens", self.max_tokens.is_some()),
            ("temperature", self.temperature.is_some()),
            ("check", self.check.is_some()),
            ("retry", self.retry.is_some()),
            ("parts", self.parts.is_some()),
            ("branches", self.branches.is_some()),
            ("min", self.min.is_some()),
            ("max", self.max.is_some()),
            ("separator", self.separator.is_some()),
        ];
        let there = keys.into_iter().filter(|&(_, there)| there);
        there.map(|(key, _)| key).collect()
    }
}
