//! `POST /v1/completions`.

use formwork_engine::TokenId;
use serde_json::Value;

use super::fields::{as_integer, as_list, as_string, wrong};
use super::generation::{Generation, top_logprobs};
use super::{ApiLimits, Fields};
use crate::errors::ApiError;

/// OpenAI's default of `max_tokens` for this endpoint.
const DEFAULT_MAX_TOKENS: usize = 16;

/// A prompt as sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// Text; special tokens in it are meant as such.
    Text(String),
    /// Token ids, all of them below the vocabulary's size.
    Tokens(Vec<TokenId>),
}

/// A request to continue text.
#[derive(Clone, Debug)]
pub struct CompletionRequest {
    /// The texts to continue; at least one.
    pub prompts: Vec<Prompt>,
    /// The rest.
    pub generation: Generation,
}

impl CompletionRequest {
    /// Reads a body.
    ///
    /// # Errors
    /// 400 naming the field, 404 for another model.
    pub fn read(body: Value, limits: &ApiLimits) -> Result<Self, ApiError> {
        let mut fields = Fields::new("", body)?;
        let mut generation = Generation::take(&mut fields, "prompt", limits)?;
        let prompts = prompts(fields.required("prompt")?, limits)?;
        if prompts.len().saturating_mul(generation.n) > limits.max_choices {
            let message = format!(
                "{} prompts with `n` = {} make more answers than the limit of {}",
                prompts.len(),
                generation.n,
                limits.max_choices
            );
            return Err(ApiError::invalid("n", message).code("out_of_range"));
        }
        if generation.max_tokens.is_none() && generation.format.is_none() {
            generation.max_tokens = Some(DEFAULT_MAX_TOKENS);
        }
        generation.sampling.logprobs = match fields.take("logprobs") {
            None => None,
            Some(value) => Some(top_logprobs("logprobs", &value, limits)?),
        };
        fields.refuse("echo", |value| value == false)?;
        fields.refuse("suffix", |value| value == "")?;
        let n = generation.n as u64;
        fields.refuse("best_of", |value| value.as_u64() == Some(n))?;
        fields.finish()?;
        Ok(Self {
            prompts,
            generation,
        })
    }
}

/// A string, several strings, token ids, or several lists of token ids.
fn prompts(value: Value, limits: &ApiLimits) -> Result<Vec<Prompt>, ApiError> {
    let items = match value {
        Value::String(text) => return Ok(vec![Prompt::Text(text)]),
        Value::Array(items) => items,
        other => {
            return Err(wrong(
                "prompt",
                "a string, token ids or an array of them",
                &other,
            ));
        }
    };
    let Some(first) = items.first() else {
        let message = "`prompt` must not be an empty array";
        return Err(ApiError::invalid("prompt", message));
    };
    if first.is_number() {
        return Ok(vec![Prompt::Tokens(token_ids(
            "prompt",
            Value::Array(items),
            limits,
        )?)]);
    }
    let strings = first.is_string();
    let mut prompts = Vec::with_capacity(items.len());
    for (path, item) in as_list("prompt", Value::Array(items))? {
        prompts.push(match strings {
            true => Prompt::Text(as_string(&path, item)?),
            false => Prompt::Tokens(token_ids(&path, item, limits)?),
        });
    }
    Ok(prompts)
}

/// Token ids within the vocabulary.
pub(super) fn token_ids(
    path: &str,
    value: Value,
    limits: &ApiLimits,
) -> Result<Vec<TokenId>, ApiError> {
    let last = i64::try_from(limits.vocab_size).unwrap_or(i64::MAX) - 1;
    let mut tokens = Vec::new();
    for (path, item) in as_list(path, value)? {
        let token = as_integer(&path, &item, 0..=last)?;
        tokens.push(TokenId::try_from(token).unwrap_or(TokenId::MAX));
    }
    Ok(tokens)
}
