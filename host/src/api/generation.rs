//! What chat and text completions have in common.

use formwork_engine::{Sampling, TokenId};
use serde_json::Value;

use super::fields::{as_integer, as_list, as_number, as_string, wrong};
use super::format::{FormatChoice, ModelChoice};
use super::{ApiLimits, Fields};
use crate::errors::ApiError;

/// A request to generate, apart from its prompt.
#[derive(Clone, Debug)]
pub struct Generation {
    /// The field that brings the prompt, for errors in it.
    pub prompt_field: &'static str,
    /// The model field as sent: answers repeat it.
    pub model: String,
    /// The output format, if there is one.
    pub format: Option<FormatChoice>,
    /// Whether the output may hold calls of tools, to be told apart from the text.
    pub calls_tools: bool,
    /// How tokens are chosen. Its seed is unset: see [`Generation::seed`].
    pub sampling: Sampling,
    /// The random stream; `None` lets the server choose.
    pub seed: Option<u64>,
    /// Answers per prompt.
    pub n: usize,
    /// Most tokens of an answer; `None` for the default.
    pub max_tokens: Option<usize>,
    /// Strings that end an answer; not part of it. None is empty.
    pub stop: Vec<String>,
    /// Whether the answer keeps going past end tokens.
    pub ignore_eos: bool,
    /// How to stream, if at all.
    pub stream: Option<StreamOptions>,
}

/// How to stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamOptions {
    /// Whether a last chunk brings the usage.
    pub include_usage: bool,
    /// Whether each field of a plugin is told of in an event of its own, as soon as it is accepted.
    pub include_fields: bool,
}

impl Generation {
    /// Takes the common fields out of a body. `logprobs` differs between the two APIs and is read by them.
    ///
    /// # Errors
    /// 400 naming the field, 404 for another model.
    pub(super) fn take(
        fields: &mut Fields,
        prompt_field: &'static str,
        limits: &ApiLimits,
    ) -> Result<Self, ApiError> {
        let model = fields.required_string("model")?;
        let choice = ModelChoice::parse(&model, limits)?;
        let format = FormatChoice::take(fields, choice)?;
        let sampling = sampling(fields, limits)?;
        let seed = fields.integer("seed", i64::MIN..=i64::MAX)?;
        let n = fields.count("n", 1, limits.max_choices)?.unwrap_or(1);
        let max_tokens = fields.count("max_tokens", 1, usize::MAX)?;
        let stop = stop(fields, limits)?;
        let ignore_eos = fields.boolean("ignore_eos")?.unwrap_or(false);
        let stream = stream(fields)?;
        accept_inert(fields);
        Ok(Self {
            prompt_field,
            model,
            format,
            calls_tools: false,
            sampling,
            seed: seed.map(i64::cast_unsigned),
            n,
            max_tokens,
            stop,
            ignore_eos,
            stream,
        })
    }
}

/// Everything about choosing tokens but the seed. OpenAI's ranges, and vLLM's for its additions.
fn sampling(fields: &mut Fields, limits: &ApiLimits) -> Result<Sampling, ApiError> {
    let default = Sampling::default();
    let or = |value: Option<f32>, default: f32| value.unwrap_or(default);
    Ok(Sampling {
        temperature: or(
            fields.number("temperature", 0.0..=2.0)?,
            default.temperature,
        ),
        // vLLM's clients send -1 for "all of them".
        top_k: fields
            .integer("top_k", -1..=i64::from(u32::MAX))?
            .map_or(default.top_k, |k| usize::try_from(k).unwrap_or(0)),
        top_p: or(fields.number("top_p", 0.0..=1.0)?, default.top_p),
        min_p: or(fields.number("min_p", 0.0..=1.0)?, default.min_p),
        repetition_penalty: or(
            fields.number("repetition_penalty", 0.01..=10.0)?,
            default.repetition_penalty,
        ),
        presence_penalty: or(
            fields.number("presence_penalty", -2.0..=2.0)?,
            default.presence_penalty,
        ),
        frequency_penalty: or(
            fields.number("frequency_penalty", -2.0..=2.0)?,
            default.frequency_penalty,
        ),
        logit_bias: logit_bias(fields, limits)?,
        ..default
    })
}

fn logit_bias(fields: &mut Fields, limits: &ApiLimits) -> Result<Vec<(TokenId, f32)>, ApiError> {
    let path = fields.path("logit_bias");
    let entries = match fields.take("logit_bias") {
        None => return Ok(Vec::new()),
        Some(Value::Object(entries)) => entries,
        Some(other) => return Err(wrong(&path, "an object of token id to bias", &other)),
    };
    if entries.len() > limits.max_logit_bias {
        let most = limits.max_logit_bias;
        let message = format!(
            "`{path}` has {} entries, the limit is {most}",
            entries.len()
        );
        return Err(ApiError::invalid(path, message).code("out_of_range"));
    }
    let mut biases = Vec::with_capacity(entries.len());
    for (key, value) in entries {
        let shown: String = key.chars().take(24).collect();
        let at = format!("{path}.{shown}");
        let token = key.parse::<TokenId>().ok();
        let Some(token) = token.filter(|&token| (token as usize) < limits.vocab_size) else {
            let message = format!(
                "`{at}`: the key must be a token id below {}",
                limits.vocab_size
            );
            return Err(ApiError::invalid(at, message).code("out_of_range"));
        };
        biases.push((token, as_number(&at, &value, -100.0..=100.0)?));
    }
    Ok(biases)
}

fn stop(fields: &mut Fields, limits: &ApiLimits) -> Result<Vec<String>, ApiError> {
    let path = fields.path("stop");
    let items = match fields.take("stop") {
        None => return Ok(Vec::new()),
        Some(value @ Value::String(_)) => vec![(path.clone(), value)],
        Some(value @ Value::Array(_)) => as_list(&path, value)?,
        Some(other) => return Err(wrong(&path, "a string or an array of strings", &other)),
    };
    if items.len() > limits.max_stops {
        let message = format!(
            "`{path}` has {} strings, the limit is {}",
            items.len(),
            limits.max_stops
        );
        return Err(ApiError::invalid(path, message).code("out_of_range"));
    }
    let mut stops = Vec::with_capacity(items.len());
    for (at, value) in items {
        let text = as_string(&at, value)?;
        if text.is_empty() || text.len() > limits.max_stop_bytes {
            let message = format!(
                "`{at}` must have 1 to {} bytes, not {}",
                limits.max_stop_bytes,
                text.len()
            );
            return Err(ApiError::invalid(at, message).code("out_of_range"));
        }
        stops.push(text);
    }
    Ok(stops)
}

fn stream(fields: &mut Fields) -> Result<Option<StreamOptions>, ApiError> {
    let streams = fields.boolean("stream")?.unwrap_or(false);
    let path = fields.path("stream_options");
    let mut options = StreamOptions::default();
    if let Some(value) = fields.take("stream_options") {
        if !streams {
            let message = format!("`{path}` is only allowed when `stream` is true");
            return Err(ApiError::invalid(path, message));
        }
        let mut inner = Fields::new(path, value)?;
        options.include_usage = inner.boolean("include_usage")?.unwrap_or(false);
        options.include_fields = inner.boolean("include_fields")?.unwrap_or(false);
        // vLLM's: the usage so far in every chunk.
        inner.refuse("continuous_usage_stats", |value| value == false)?;
        // Asks for padding against traffic analysis, or for its absence; there is none here.
        inner.refuse("include_obfuscation", |value| value == false)?;
        inner.finish()?;
    }
    Ok(streams.then_some(options))
}

/// Takes those fields of OpenAI's API that do not change an answer.
fn accept_inert(fields: &mut Fields) {
    for name in [
        "user",
        "metadata",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "service_tier",
    ] {
        fields.take(name);
    }
}

/// The number of likeliest tokens to report, within the limit.
pub(super) fn top_logprobs(
    path: &str,
    value: &Value,
    limits: &ApiLimits,
) -> Result<usize, ApiError> {
    let most = i64::try_from(limits.max_logprobs).unwrap_or(i64::MAX);
    let count = as_integer(path, value, 0..=most)?;
    Ok(usize::try_from(count).unwrap_or(0))
}
