//! The JSON of answers, whole and in chunks.

use std::sync::Arc;

use formwork_engine::{TokenId, TokenLogprob};
use formwork_sandbox::Vocabulary;
use serde_json::{Map, Value, json};

use super::{CallDelta, Run, ShownToken, Update};
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

    /// The chunks of an update. The one that ends an answer is the last.
    pub(super) fn update(&self, update: &Update) -> Vec<Value> {
        let logprobs = self.logprobs(&update.piece.tokens);
        let text = &update.piece.text;
        match self.api {
            Api::Chat => {
                let mut deltas = Vec::new();
                if !update.piece.reasoning.is_empty() {
                    deltas.push(json!({"reasoning_content": update.piece.reasoning}));
                }
                if !text.is_empty() || !update.piece.tokens.is_empty() {
                    deltas.push(json!({"content": text}));
                }
                let calls = update.piece.calls.iter();
                deltas.extend(calls.filter_map(|call| self.call_delta(update.answer, call)));
                if update.finish.is_some() && deltas.is_empty() {
                    deltas.push(json!({}));
                }
                self.chat_chunks(update, deltas, logprobs)
            }
            Api::Completion => vec![self.chunk(vec![json!({
                "index": update.answer, "text": text,
                "logprobs": logprobs, "finish_reason": update.finish,
            })])],
        }
    }

    /// One chunk per delta: the first brings the log-probabilities, the last the reason to finish.
    fn chat_chunks(&self, update: &Update, deltas: Vec<Value>, mut logprobs: Value) -> Vec<Value> {
        let last = deltas.len().saturating_sub(1);
        let chunks = deltas.into_iter().enumerate().map(|(index, delta)| {
            self.chunk(vec![json!({
                "index": update.answer, "delta": delta, "logprobs": logprobs.take(),
                "finish_reason": update.finish.filter(|_| index == last),
            })])
        });
        chunks.collect()
    }

    /// A delta with a call: the name first, then pieces of the arguments.
    fn call_delta(&self, answer: usize, call: &CallDelta) -> Option<Value> {
        let entry = match call {
            CallDelta::Begin { index, name } => json!({
                "index": index, "id": self.call_id(answer, *index), "type": "function",
                "function": {"name": name, "arguments": ""},
            }),
            CallDelta::Arguments { index, text } => json!({
                "index": index, "function": {"arguments": text},
            }),
            CallDelta::End { .. } => return None,
        };
        Some(json!({"tool_calls": [entry]}))
    }

    /// Unique, since the request's own id is.
    fn call_id(&self, answer: usize, call: usize) -> String {
        let request = self.id.rsplit('-').next().unwrap_or_default();
        format!("call_{request}_{answer}_{call}")
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
    let mut whole: Vec<Whole> = Vec::new();
    whole.resize_with(run.answers(), Whole::default);
    while let Some(update) = run.next().await {
        let update = update?;
        whole[update.answer].add(update);
    }
    let choices = whole.into_iter().enumerate();
    let choices = choices.map(|(index, answer)| answer.choice(wire, index));
    let choices = choices.collect();
    let kind = match wire.api {
        Api::Chat => "chat.completion",
        Api::Completion => "text_completion",
    };
    let mut answer = wire.object(kind, choices);
    answer["usage"] = run.usage();
    answer["formwork"] = run.formwork();
    Ok(answer)
}

/// One answer put together.
#[derive(Default)]
struct Whole {
    reasoning: String,
    text: String,
    tokens: Vec<ShownToken>,
    /// Name, arguments, and whether these are complete.
    calls: Vec<(String, String, bool)>,
    finish: Option<&'static str>,
}

impl Whole {
    fn add(&mut self, update: Update) {
        self.reasoning += &update.piece.reasoning;
        self.text += &update.piece.text;
        self.tokens.extend(update.piece.tokens);
        self.finish = self.finish.or(update.finish);
        for delta in update.piece.calls {
            match delta {
                CallDelta::Begin { name, .. } => self.calls.push((name, String::new(), false)),
                CallDelta::Arguments { index, text } => self.calls[index].1 += &text,
                CallDelta::End { index } => self.calls[index].2 = true,
            }
        }
    }

    fn choice(self, wire: &Wire, index: usize) -> Value {
        let logprobs = wire.logprobs(&self.tokens);
        if wire.api == Api::Completion {
            return json!({
                "index": index, "text": self.text, "logprobs": logprobs, "finish_reason": self.finish,
            });
        }
        let mut message = json!({"role": "assistant", "content": self.text, "refusal": null});
        if !self.reasoning.is_empty() {
            message["reasoning_content"] = json!(self.reasoning);
        }
        // A call that `max_tokens` cut in half is not shown as one.
        let complete = self.calls.into_iter().filter(|(_, _, complete)| *complete);
        let calls = complete.enumerate().map(|(number, (name, arguments, _))| {
            json!({
                "id": wire.call_id(index, number), "type": "function",
                "function": {"name": name, "arguments": arguments},
            })
        });
        let calls: Vec<Value> = calls.collect();
        if !calls.is_empty() {
            if self.text.is_empty() {
                message["content"] = Value::Null;
            }
            message["tool_calls"] = Value::Array(calls);
        }
        json!({
            "index": index, "message": message, "logprobs": logprobs, "finish_reason": self.finish,
        })
    }
}
