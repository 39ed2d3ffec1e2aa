//! The JSON of answers, whole and in chunks.

use std::sync::Arc;

use formwork_engine::{TokenId, TokenLogprob};
use formwork_sandbox::Vocabulary;
use serde_json::{Map, Value, json};

use super::{Run, ShownToken, Update};
use crate::errors::ApiError;

/// Which of the two APIs an answer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completion,
}

/// What every object of one answer repeats.
#[derive(Clone)]
pub struct Wire {
    /// Which API.
    pub api: Api,
    /// `chatcmpl-…` or `cmpl-…`.
    pub id: String,
    /// Unix time in seconds.
    pub created: u64,
    /// The model as the request named it.
    pub model: String,
    /// Tells models and versions of the server apart.
    pub fingerprint: String,
    /// Whether log-probabilities were asked for.
    pub logprobs: bool,
    /// For the text of tokens.
    pub vocabulary: Arc<Vocabulary>,
}

impl Wire {
    fn object(&self, kind: &str, choices: Vec<Value>) -> Value {
        json!({
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": choices,
        })
    }

    fn chunk(&self, choices: Vec<Value>) -> Value {
        let kind = match self.api {
            Api::Chat => "chat.completion.chunk",
            Api::Completion => "text_completion",
        };
        self.object(kind, choices)
    }

    /// The chunk that opens an answer of a chat; completions have none.
    pub(super) fn opening(&self, answer: usize) -> Option<Value> {
        let delta = json!({"role": "assistant", "content": ""});
        let choice = json!({
            "index": answer, "delta": delta, "logprobs": null, "finish_reason": null,
        });
        (self.api == Api::Chat).then(|| self.chunk(vec![choice]))
    }

    /// The chunk of an update.
    pub(super) fn update(&self, update: &Update) -> Value {
        let logprobs = self.logprobs(&update.piece.tokens);
        let text = &update.piece.text;
        let choice = match self.api {
            Api::Chat => {
                let delta = match text.is_empty() && update.finish.is_some() {
                    true => json!({}),
                    false => json!({"content": text}),
                };
                json!({
                    "index": update.answer, "delta": delta,
                    "logprobs": logprobs, "finish_reason": update.finish,
                })
            }
            Api::Completion => json!({
                "index": update.answer, "text": text,
                "logprobs": logprobs, "finish_reason": update.finish,
            }),
        };
        self.chunk(vec![choice])
    }

    /// The chunk that brings only the usage.
    pub(super) fn usage(&self, run: &Run) -> Value {
        let mut chunk = self.chunk(Vec::new());
        chunk["usage"] = run.usage();
        chunk
    }

    fn logprobs(&self, tokens: &[ShownToken]) -> Value {
        match self.api {
            _ if !self.logprobs => Value::Null,
            Api::Chat => {
                let content: Vec<Value> =
                    tokens.iter().map(|token| self.chat_token(token)).collect();
                json!({"content": content, "refusal": null})
            }
            Api::Completion => self.completion_tokens(tokens),
        }
    }

    fn spelled(&self, token: TokenId) -> (String, &[u8]) {
        let bytes = self.vocabulary.bytes(token);
        (String::from_utf8_lossy(bytes).into_owned(), bytes)
    }

    /// A forced token was not drawn: its probability under the format is 1.
    fn chat_token(&self, shown: &ShownToken) -> Value {
        let entry = |token, logprob: f32| {
            let (text, bytes) = self.spelled(token);
            json!({"token": text, "logprob": finite(logprob), "bytes": bytes})
        };
        let logprob = shown.token.logprob.as_ref();
        let mut value = entry(
            shown.token.token,
            logprob.map_or(0.0, |known| known.logprob),
        );
        let top = logprob.map_or(&[][..], |known| &known.top);
        value["top_logprobs"] = top
            .iter()
            .map(|&(token, logprob)| entry(token, logprob))
            .collect();
        if !shown.token.sampled {
            value["forced"] = json!(true);
        }
        value
    }

    fn completion_tokens(&self, tokens: &[ShownToken]) -> Value {
        let known = |shown: &ShownToken| shown.token.logprob.clone();
        let top = |logprob: TokenLogprob| {
            let entries = logprob.top.iter();
            let entries = entries.map(|&(token, logprob)| (self.spelled(token).0, finite(logprob)));
            Value::Object(entries.collect::<Map<_, _>>())
        };
        let of = |describe: &dyn Fn(&ShownToken) -> Value| -> Vec<Value> {
            tokens.iter().map(describe).collect()
        };
        json!({
            "tokens": of(&|shown| json!(self.spelled(shown.token.token).0)),
            "token_logprobs": of(&|shown| known(shown).map_or(Value::Null, |k| finite(k.logprob))),
            "top_logprobs": of(&|shown| known(shown).map_or(Value::Null, top)),
            "text_offset": of(&|shown| json!(shown.offset)),
        })
    }
}

/// JSON has no infinity; OpenAI's API writes this number for a probability of 0.
fn finite(logprob: f32) -> Value {
    json!(logprob.max(-9999.0))
}

/// Runs to the end and makes the whole answer.
///
/// # Errors
/// What the first answer that failed failed with.
pub async fn complete(wire: &Wire, mut run: Run) -> Result<Value, ApiError> {
    let mut texts = vec![String::new(); run.answers()];
    let mut tokens = vec![Vec::new(); run.answers()];
    let mut reasons = vec![None; run.answers()];
    while let Some(update) = run.next().await {
        let update = update?;
        texts[update.answer] += &update.piece.text;
        tokens[update.answer].extend(update.piece.tokens);
        reasons[update.answer] = reasons[update.answer].or(update.finish);
    }
    let mut choices = Vec::with_capacity(texts.len());
    for (index, text) in texts.into_iter().enumerate() {
        let logprobs = wire.logprobs(&tokens[index]);
        let finish = reasons[index];
        choices.push(match wire.api {
            Api::Chat => json!({
                "index": index,
                "message": {"role": "assistant", "content": text, "refusal": null},
                "logprobs": logprobs, "finish_reason": finish,
            }),
            Api::Completion => json!({
                "index": index, "text": text, "logprobs": logprobs, "finish_reason": finish,
            }),
        });
    }
    let kind = match wire.api {
        Api::Chat => "chat.completion",
        Api::Completion => "text_completion",
    };
    let mut answer = wire.object(kind, choices);
    answer["usage"] = run.usage();
    answer["formwork"] = run.formwork();
    Ok(answer)
}
