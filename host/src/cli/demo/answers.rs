//! One streamed request and what came back.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::cli::client::Client;

/// What a streamed chat request brought.
#[derive(Clone, Debug, Default)]
pub(super) struct Answer {
    /// The text, in whole.
    pub(super) text: String,
    /// `finish_reason`.
    pub(super) finish_reason: String,
    /// From the request to the first text.
    pub(super) first_token: Option<Duration>,
    /// From the request to the end.
    pub(super) total: Duration,
    /// `usage.completion_tokens`.
    pub(super) tokens: u64,
    /// Tokens that the format left no choice about, of those.
    pub(super) forced: u64,
    /// What the server reports of each field.
    pub(super) fields: Vec<Value>,
}

impl Answer {
    /// Forced tokens ÷ all tokens.
    pub(super) fn forced_share(&self) -> Option<f64> {
        (self.tokens > 0).then(|| self.forced as f64 / self.tokens as f64)
    }
}

/// Sends a chat request with `stream` and hands on each piece of text.
pub(super) fn ask(client: &Client, body: &Value, on_text: &mut dyn FnMut(&str)) -> Result<Answer> {
    let started = Instant::now();
    let mut answer = Answer::default();
    client.stream("/v1/chat/completions", body, |event| {
        let choice = &event["choices"][0];
        if let Some(text) = choice["delta"]["content"]
            .as_str()
            .filter(|text| !text.is_empty())
        {
            answer.first_token.get_or_insert_with(|| started.elapsed());
            answer.text += text;
            on_text(text);
        }
        if let Some(reason) = choice["finish_reason"].as_str() {
            answer.finish_reason = reason.to_owned();
        }
        if let Some(tokens) = event["usage"]["completion_tokens"].as_u64() {
            answer.tokens = tokens;
        }
        let own = &event["formwork"];
        if let Some(forced) = own["usage"]["forced"].as_u64() {
            answer.forced = forced;
        }
        if let Some(fields) = own["fields"].as_array() {
            answer.fields = fields.clone();
        }
        Ok(())
    })?;
    answer.total = started.elapsed();
    ensure!(
        !answer.finish_reason.is_empty(),
        "an answer ended without finish_reason"
    );
    Ok(answer)
}
