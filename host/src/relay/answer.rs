//! One answer while it comes in.

use std::sync::Arc;

use formwork_engine::{Chunk, Event, FinishReason, SequenceError, Usage};
use formwork_sandbox::{Enforced, Vocabulary};
use serde_json::{Value, json};

use super::calls::{self, CallScanner};
use super::reasoning::ReasoningScanner;
use super::{Piece, TextStream};
use crate::admission::{Answer, Thinking};
use crate::constrain::{FieldReport, Reports};

/// Pointers of each kind that a field's report names.
const SHOWN_POINTERS: usize = 64;

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
    /// For answers that may begin with reasoning.
    reasoning: Option<ReasoningScanner>,
    /// For answers that may call tools.
    calls: Option<CallScanner>,
    /// The output in bytes, for the values of a plugin's fields.
    bytes: Vec<u8>,
    /// Counted up to a stop string.
    seen: Seen,
    usage: Usage,
    reason: Option<&'static str>,
    /// Fields that the client was told of.
    told: usize,
}

/// What the relay does with an answer's text.
#[derive(Clone)]
pub(super) struct Reading {
    /// Strings that end it.
    pub(super) stops: Arc<[String]>,
    /// For answers whose tokens are reported.
    pub(super) tokens_of: Option<Arc<Vocabulary>>,
    /// Whether it may hold calls of tools.
    pub(super) calls: bool,
}

#[derive(Clone, Copy, Default)]
struct Seen {
    tokens: usize,
    forced: usize,
}

impl AnswerState {
    pub(super) fn new(answer: Answer, reading: &Reading) -> Self {
        let stops = Arc::clone(&reading.stops);
        let reasoning = match answer.thinking {
            Thinking::No => None,
            Thinking::Begun => Some(ReasoningScanner::new(true)),
            Thinking::Ahead => Some(ReasoningScanner::new(false)),
        };
        let text = TextStream::new(stops, reading.tokens_of.clone());
        Self {
            prompt: answer.prompt,
            reports: answer.reports,
            // A stop string could cut a call in half, and after a call there is no text.
            text: match reading.calls {
                true => text.until(calls::BEGIN),
                false => text,
            },
            reasoning,
            calls: reading.calls.then(CallScanner::default),
            bytes: Vec::new(),
            seen: Seen::default(),
            usage: Usage::default(),
            reason: None,
            told: 0,
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
        let mut piece = self.text.push(chunk);
        if let Some(reasoning) = &mut self.reasoning {
            piece.reasoning = reasoning.push(&mut piece.text);
        }
        if let Some(calls) = &mut self.calls {
            piece.calls = calls.push(&mut piece.text);
        }
        piece
    }

    fn end(&mut self, reason: FinishReason) -> Progress {
        let mut piece = self.text.finish();
        let mut called = false;
        if let Some(reasoning) = &mut self.reasoning {
            piece.reasoning = reasoning.push(&mut piece.text);
            piece.reasoning += &reasoning.finish(&mut piece.text);
        }
        if let Some(calls) = &mut self.calls {
            piece.calls = calls.push(&mut piece.text);
            calls.finish(&mut piece.text);
            called = calls.complete() > 0;
        }
        let reason = match reason {
            _ if self.stopped() => "stop",
            FinishReason::Stop if called => "tool_calls",
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
        matches!(self.reason, Some("stop" | "tool_calls")) && !self.stopped()
    }

    /// The plugin's fields, with their values.
    pub(super) fn fields(&self, answer: usize) -> Vec<Value> {
        let reports = self.reports.iter().flat_map(|reports| reports.fields());
        // A field that was decoded but never shown, past a stop string, has no bytes here.
        reports
            .filter_map(|field| self.describe(answer, &field))
            .collect()
    }

    /// Fields that were accepted and whose text has been passed on since the last call.
    pub(super) fn fresh_fields(&mut self, answer: usize) -> Vec<Value> {
        let Some(reports) = &self.reports else {
            return Vec::new();
        };
        let fields = reports.fields();
        let fresh = fields.iter().skip(self.told);
        let fresh = fresh.map_while(|field| self.describe(answer, field));
        let fresh: Vec<Value> = fresh.collect();
        self.told += fresh.len();
        fresh
    }

    fn describe(&self, answer: usize, field: &FieldReport) -> Option<Value> {
        let value = self.bytes.get(field.start..field.end)?;
        let mut described = json!({
            "choice": answer,
            "name": field.name,
            "value": String::from_utf8_lossy(value),
            "attempts": field.attempts,
            "tokens": field.tokens,
            "forced": field.forced,
            "verified": field.verified,
            "ms": (field.elapsed.as_secs_f64() * 1e6).round() / 1e3,
        });
        if let Some(enforced) = &field.enforced {
            described["enforced"] = self::enforced(enforced, field.checked);
        }
        Some(described)
    }
}

/// What enforced a field's schema: some keywords of each kind, by JSON pointer, and how many more there are.
/// What masks leave open is nobody's concern where the plugin did not judge the value.
fn enforced(enforced: &Enforced, checked: bool) -> Value {
    let (mask, rest) = (&enforced.masked, &enforced.unmasked);
    let (validation, nothing) = match checked {
        true => (rest.as_slice(), &[][..]),
        false => (&[][..], rest.as_slice()),
    };
    let mut described = json!({});
    let mut more = json!({});
    for (name, pointers) in [
        ("mask", mask.as_slice()),
        ("validation", validation),
        ("nothing", nothing),
    ] {
        let shown = pointers.len().min(SHOWN_POINTERS);
        if name != "nothing" || shown > 0 {
            described[name] = json!(pointers[..shown]);
        }
        if pointers.len() > shown {
            more[name] = json!(pointers.len() - shown);
        }
    }
    if more != json!({}) {
        described["more"] = more;
    }
    described
}
