//! One answer while it comes in.

use std::sync::Arc;

use formwork_engine::{Chunk, Event, FinishReason, SequenceError, Usage};
use formwork_sandbox::Vocabulary;
use serde_json::{Value, json};

use super::{Piece, TextStream};
use crate::admission::Answer;
use crate::constrain::{FieldReport, Reports};

/// What an event brought.
pub(super) enum Progress {
    /// Text, perhaps empty. Once a stop string is met, the sequence is to be aborted.
    Text(Piece),
    /// The last text and why it is the last.
    End(Piece, &'static str),
    /// The answer failed.
    Failed(SequenceError),
    /// It went away without a word; a fault of the engine.
    Lost,
}

/// The state of one answer.
pub(super) struct AnswerState {
    pub(super) prompt: usize,
    pub(super) reports: Option<Arc<Reports>>,
    text: TextStream,
    /// The output in bytes, for the values of a plugin's fields.
    bytes: Vec<u8>,
    /// Counted up to a stop string.
    seen: Seen,
    usage: Usage,
    reason: Option<&'static str>,
}

#[derive(Clone, Copy, Default)]
struct Seen {
    tokens: usize,
    forced: usize,
}

impl AnswerState {
    pub(super) fn new(
        answer: Answer,
        stops: Arc<[String]>,
        tokens_of: Option<Arc<Vocabulary>>,
    ) -> Self {
        Self {
            prompt: answer.prompt,
            reports: answer.reports,
            text: TextStream::new(stops, tokens_of),
            bytes: Vec::new(),
            seen: Seen::default(),
            usage: Usage::default(),
            reason: None,
        }
    }

    /// Why it ended, once it has.
    pub(super) fn reason(&self) -> Option<&'static str> {
        self.reason
    }

    /// Whether a stop string was met.
    pub(super) fn stopped(&self) -> bool {
        self.text.stopped()
    }

    /// What it took. Tokens past a stop string were the engine running ahead: they are not counted as output.
    pub(super) fn usage(&self) -> Usage {
        match self.stopped() {
            true => Usage {
                completion: self.seen.tokens,
                forced: self.seen.forced,
                ..self.usage
            },
            false => self.usage,
        }
    }

    pub(super) fn take(&mut self, event: Option<Event>) -> Progress {
        match event {
            Some(Event::Tokens(chunk)) => Progress::Text(self.chunk(chunk)),
            Some(Event::Finished { reason, usage }) => {
                self.usage = usage;
                self.end(reason)
            }
            Some(Event::Failed { usage, .. }) if self.stopped() => {
                self.usage = usage;
                self.end(FinishReason::Aborted)
            }
            Some(Event::Failed { error, usage }) => {
                self.usage = usage;
                Progress::Failed(error)
            }
            None if self.stopped() => self.end(FinishReason::Aborted),
            None => Progress::Lost,
        }
    }

    fn chunk(&mut self, chunk: Chunk) -> Piece {
        if self.stopped() {
            return Piece::default();
        }
        self.seen.tokens += chunk.tokens.len();
        self.seen.forced += chunk.tokens.iter().filter(|token| !token.sampled).count();
        if self.reports.is_some() {
            self.bytes.extend_from_slice(&chunk.bytes);
        }
        self.text.push(chunk)
    }

    fn end(&mut self, reason: FinishReason) -> Progress {
        let piece = self.text.finish();
        let reason = match reason {
            _ if self.stopped() => "stop",
            FinishReason::Stop => "stop",
            FinishReason::Length => "length",
            // Only this relay aborts, and then a stop string was met.
            FinishReason::Aborted => return Progress::Lost,
        };
        self.reason = Some(reason);
        Progress::End(piece, reason)
    }

    /// Whether the plugin's output is whole: neither cut at `max_tokens` nor by a stop string.
    pub(super) fn completed(&self) -> bool {
        self.reason == Some("stop") && !self.stopped()
    }

    /// The plugin's fields, with their values.
    pub(super) fn fields(&self, answer: usize) -> Vec<Value> {
        let Some(reports) = &self.reports else {
            return Vec::new();
        };
        let describe = |field: FieldReport| {
            let value = self.bytes.get(field.start..field.end)?;
            Some(json!({
                "choice": answer,
                "name": field.name,
                "value": String::from_utf8_lossy(value),
                "attempts": field.attempts,
                "tokens": field.tokens,
                "forced": field.forced,
                "verified": field.verified,
            }))
        };
        // A field that was decoded but never shown, past a stop string, has no bytes here.
        reports.fields().into_iter().filter_map(describe).collect()
    }
}
