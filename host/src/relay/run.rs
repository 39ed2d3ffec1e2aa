//! One request's sequences while they run.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use formwork_engine::{Engine, SeqId, Usage};
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;

use super::answer::{AnswerState, Progress, Reading};
use super::{Piece, Tagged};
use crate::admission::{Admitted, PinnedFormat};
use crate::api::Generation;
use crate::app::{App, InFlight};
use crate::errors::{self, ApiError, PluginRef};

/// Something new about one answer.
#[derive(Debug)]
pub struct Update {
    /// Its number.
    pub answer: usize,
    /// Text, perhaps empty.
    pub piece: Piece,
    /// `stop`, `tool_calls` or `length` with the last one.
    pub finish: Option<&'static str>,
    /// Fields of the plugin that were accepted, if the client wants to be told.
    pub fields: Vec<Value>,
}

/// The sequences of one request. Dropping it aborts those that still run.
pub struct Run {
    app: Arc<App>,
    sequences: Sequences,
    events: UnboundedReceiver<Tagged>,
    answers: Vec<AnswerState>,
    format: Option<PinnedFormat>,
    /// Updates that were looked at before they were wanted.
    ahead: VecDeque<Result<Update, ApiError>>,
    /// Whether updates bring the plugin's fields.
    tells_fields: bool,
    failed: bool,
    started: Instant,
    last_token: Option<Instant>,
    _in_flight: InFlight,
}

/// Ids of sequences; those still running are aborted on drop.
struct Sequences {
    engine: Engine,
    ids: Vec<Option<SeqId>>,
}

impl Sequences {
    fn over(&mut self, answer: usize) {
        self.ids[answer] = None;
    }

    fn abort(&self, answer: usize) {
        if let Some(id) = self.ids[answer] {
            self.engine.abort(id);
        }
    }
}

impl Drop for Sequences {
    fn drop(&mut self) {
        for id in self.ids.iter().flatten() {
            self.engine.abort(*id);
        }
    }
}

impl Run {
    /// Submits what was admitted, all of it or nothing.
    ///
    /// # Errors
    /// 429 when the queue is full, 503 when the engine goes down.
    pub fn submit(
        app: &Arc<App>,
        admitted: Admitted,
        generation: &Generation,
        in_flight: InFlight,
    ) -> Result<Self, ApiError> {
        let wants_tokens = generation.sampling.logprobs.is_some();
        let reading = Reading {
            stops: generation.stop.clone().into(),
            tokens_of: wants_tokens.then(|| Arc::clone(&app.vocabulary)),
            calls: generation.calls_tools,
        };
        let answers = admitted.answers.into_iter();
        let answers = answers.map(|answer| AnswerState::new(answer, &reading));
        let answers = answers.collect();
        let ids = app.engine.submit(admitted.requests)?;
        Ok(Self {
            sequences: Sequences {
                engine: app.engine.clone(),
                ids: ids.into_iter().map(Some).collect(),
            },
            app: Arc::clone(app),
            events: admitted.events,
            answers,
            format: admitted.format,
            ahead: VecDeque::new(),
            tells_fields: generation
                .stream
                .is_some_and(|stream| stream.include_fields),
            failed: false,
            started: in_flight.since(),
            last_token: None,
            _in_flight: in_flight,
        })
    }

    /// How many answers there are.
    pub fn answers(&self) -> usize {
        self.answers.len()
    }

    /// Whether every answer has ended.
    pub fn is_complete(&self) -> bool {
        self.answers.iter().all(|answer| answer.reason().is_some())
    }

    /// Waits for the first news, so that a request that fails at once gets an HTTP status of its own.
    ///
    /// # Errors
    /// What it failed with.
    pub async fn look_ahead(&mut self) -> Result<(), ApiError> {
        match self.next().await {
            Some(Ok(update)) => {
                self.ahead.push_back(Ok(update));
                Ok(())
            }
            Some(Err(error)) => Err(error),
            None => Err(ApiError::internal("a request without an answer")),
        }
    }

    /// The next news; `None` after all answers have ended or one has failed.
    pub async fn next(&mut self) -> Option<Result<Update, ApiError>> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// See [`Run::next`].
    pub fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Update, ApiError>>> {
        if let Some(update) = self.ahead.pop_front() {
            return Poll::Ready(Some(update));
        }
        while !self.failed && !self.is_complete() {
            let Some((answer, event)) = std::task::ready!(self.events.poll_recv(context)) else {
                return Poll::Ready(Some(Err(self.fail(answer_lost()))));
            };
            if self.answers[answer].reason().is_some() {
                continue;
            }
            let progress = self.answers[answer].take(event);
            if let Some(update) = self.progress(answer, progress) {
                return Poll::Ready(Some(update));
            }
        }
        Poll::Ready(None)
    }

    fn progress(&mut self, answer: usize, progress: Progress) -> Option<Result<Update, ApiError>> {
        match progress {
            Progress::Text(piece) => {
                self.measure();
                if self.answers[answer].stopped() {
                    self.sequences.abort(answer);
                }
                let fields = self.fields(answer);
                let empty = piece.text.is_empty() && piece.tokens.is_empty();
                let empty = empty && piece.reasoning.is_empty() && piece.calls.is_empty();
                let empty = empty && fields.is_empty();
                let update = Update {
                    answer,
                    piece,
                    finish: None,
                    fields,
                };
                (!empty).then_some(Ok(update))
            }
            Progress::End(piece, reason) => {
                self.sequences.over(answer);
                self.app.metrics.answer_finished(reason);
                Some(Ok(Update {
                    answer,
                    piece,
                    finish: Some(reason),
                    fields: self.fields(answer),
                }))
            }
            Progress::Failed(error) => {
                self.sequences.over(answer);
                let error = errors::sequence(&error, self.plugin(answer));
                Some(Err(self.fail(error)))
            }
            Progress::Lost => {
                self.sequences.over(answer);
                Some(Err(self.fail(answer_lost())))
            }
        }
    }

    fn fields(&mut self, answer: usize) -> Vec<Value> {
        match self.tells_fields {
            true => self.answers[answer].fresh_fields(answer),
            false => Vec::new(),
        }
    }

    fn fail(&mut self, error: ApiError) -> ApiError {
        self.failed = true;
        self.app.metrics.answer_failed(error.code_name());
        error
    }

    fn measure(&mut self) {
        let now = Instant::now();
        match self.last_token.replace(now) {
            None => self.app.metrics.first_token(now - self.started),
            Some(last) => self.app.metrics.inter_token(now - last),
        }
    }

    /// The plugin at the step where an answer stands.
    fn plugin(&self, answer: usize) -> Option<PluginRef> {
        let format = self.format.as_ref()?;
        let reports = self.answers[answer].reports.as_ref()?;
        Some(format.reference.at(reports.step()))
    }

    /// OpenAI's `usage`. A prompt with several answers counts once.
    pub fn usage(&self) -> Value {
        let (mut prompt, mut cached, mut completion) = (0, 0, 0);
        let mut last = None;
        for answer in &self.answers {
            let usage = answer.usage();
            completion += usage.completion;
            if last.replace(answer.prompt) != Some(answer.prompt) {
                prompt += usage.prompt;
                cached += usage.cached;
            }
        }
        json!({
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": cached},
        })
    }

    /// What Formwork adds to an answer: the plugin, its fields, and what the tokens cost.
    pub fn formwork(&self) -> Value {
        let usage = self.answers.iter().map(AnswerState::usage);
        let total = usage.fold(Usage::default(), |total, one| Usage {
            sampled: total.sampled + one.sampled,
            forced: total.forced + one.forced,
            retracted: total.retracted + one.retracted,
            computed: total.computed + one.computed,
            ..total
        });
        let mut report = json!({"usage": {
            "sampled": total.sampled,
            "forced": total.forced,
            "retracted": total.retracted,
            "computed": total.computed,
        }});
        if let Some(format) = &self.format {
            let fields = self.answers.iter().enumerate();
            let fields = fields.flat_map(|(index, answer)| answer.fields(index));
            report["plugin"] = json!(format.reference);
            report["completed"] = json!(self.answers.iter().all(AnswerState::completed));
            report["fields"] = fields.collect();
        }
        report
    }
}

fn answer_lost() -> ApiError {
    ApiError::internal("the engine dropped a sequence without saying why")
}
