//! One request and what the model writes for it.

use super::outcome::{End, FieldOutcome, Outcome, Rejection};
use super::walk::{self, Cursor, Follow};
use crate::driver::{Action, Driver, Walk};
use crate::host::{END, log_lines};
use crate::{Failure, Fallback, Format, Mask, Observed, Request, Retry, TokenId, Value, Verdict};
use std::collections::VecDeque;

/// Plans a trace takes before it is given up as endless.
const MAX_PLANS: usize = 100_000;

/// One request and the text that the model writes for it; see the module's page.
pub struct Trace {
    open: Box<Open>,
    text: Vec<u8>,
    attempts: VecDeque<(String, VecDeque<Vec<u8>>)>,
    request: Request,
}

type Open = dyn FnOnce(&Request) -> Result<Box<dyn Drive>, Failure>;

/// A driver whose format is forgotten.
trait Drive {
    fn plan(&mut self, seen: Observed) -> Result<Vec<Action>, Failure>;
    fn check(&mut self, value: &Value) -> Verdict;
}

impl<T: Format> Drive for Driver<T> {
    fn plan(&mut self, seen: Observed) -> Result<Vec<Action>, Failure> {
        self.plan(seen)
    }

    fn check(&mut self, value: &Value) -> Verdict {
        self.check(value)
    }
}

impl Trace {
    /// A request for this format with these params.
    pub fn of<T: Format>(params: serde_json::Value) -> Self {
        Self::of_text::<T>(&params.to_string())
    }

    /// Like [`of`](Trace::of), with the params as JSON text, however wrong.
    pub fn of_text<T: Format>(params: &str) -> Self {
        let params = params.to_owned();
        Self {
            open: Box::new(move |request| Ok(Box::new(Driver::<T>::open(&params, request)?))),
            text: Vec::new(),
            attempts: VecDeque::new(),
            request: Request {
                prompt: Vec::new(),
                max_tokens: 1024,
            },
        }
    }

    /// All that the model writes, literals included.
    #[must_use]
    pub fn text(mut self, text: impl AsRef<[u8]>) -> Self {
        self.text = text.as_ref().to_vec();
        self
    }

    /// What the model writes for the next occurrence of a field, attempt by attempt, each as a whole. Where a
    /// check keeps the beginning of one, the next has to begin with it. The text then has the last attempt
    /// that is made in the field's place.
    #[must_use]
    pub fn attempt<I>(mut self, field: &str, values: I) -> Self
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        let values = values.into_iter().map(|value| value.as_ref().to_vec());
        self.attempts
            .push_back((field.to_owned(), values.collect()));
        self
    }

    /// The prompt, as bytes; empty unless set.
    #[must_use]
    pub fn prompt(mut self, text: impl AsRef<[u8]>) -> Self {
        self.request.prompt = text
            .as_ref()
            .iter()
            .map(|&byte| TokenId::from(byte))
            .collect();
        self
    }

    /// The request's limit; 1024 unless set.
    #[must_use]
    pub fn max_tokens(mut self, tokens: u32) -> Self {
        self.request.max_tokens = tokens;
        self
    }

    /// Runs the plugin to the end of the output, or to where it fails.
    pub fn run(self) -> Outcome {
        let _ = log_lines();
        let mut run = Run {
            cursor: Cursor::new(self.text),
            attempts: self.attempts,
            outcome: Outcome {
                output: Vec::new(),
                fields: Vec::new(),
                retries: 0,
                end: End::Finished,
                log: Vec::new(),
            },
        };
        let driven = (self.open)(&self.request).map_err(End::Failed);
        if let Err(end) = driven.and_then(|mut plugin| run.drive(plugin.as_mut())) {
            run.outcome.end = end;
        }
        run.outcome.log = log_lines();
        run.outcome
    }
}

struct Run {
    cursor: Cursor,
    attempts: VecDeque<(String, VecDeque<Vec<u8>>)>,
    outcome: Outcome,
}

impl Run {
    fn drive(&mut self, plugin: &mut dyn Drive) -> Result<(), End> {
        let mut seen = Observed::Started;
        for _ in 0..MAX_PLANS {
            let mut actions = VecDeque::from(plugin.plan(seen).map_err(End::Failed)?);
            let mut values = Vec::new();
            let mut sampled = None;
            while let Some(action) = actions.pop_front() {
                match action {
                    Action::Write(bytes) => self.write(&bytes)?,
                    Action::Field(walk) => {
                        let follow = Follow::of(actions.front());
                        values.push(self.field(plugin, &walk, &follow)?);
                    }
                    Action::Sample {
                        mask,
                        temperature: _,
                    } => sampled = Some(self.sample(&mask)?),
                    Action::Finish => return self.cursor.expect_end().map_err(End::Rejected),
                }
            }
            seen = sampled.map_or(Observed::Completed(values), Observed::Sampled);
        }
        Err(End::Failed(Failure::internal(format!(
            "the plugin does not come to an end: {MAX_PLANS} plans"
        ))))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), End> {
        self.outcome.output.extend_from_slice(bytes);
        self.cursor.take_literal(bytes).map_err(End::Rejected)
    }

    fn sample(&mut self, mask: &Mask) -> Result<TokenId, End> {
        match self.cursor.next() {
            Some(byte) if mask.allows(byte.into()) => {
                self.cursor.at += 1;
                self.outcome.output.push(byte);
                Ok(byte.into())
            }
            None if mask.allows(END) => Ok(END),
            next => Err(End::Rejected(Rejection {
                at: self.cursor.at,
                why: walk::not_allowed("the mask", next, mask),
            })),
        }
    }

    /// Decodes one field: attempts, checks, fallback.
    fn field(
        &mut self,
        plugin: &mut dyn Drive,
        walk: &Walk,
        follow: &Follow,
    ) -> Result<Value, End> {
        let mut scripted = self.scripted(&walk.name);
        let mut reasons = Vec::new();
        let mut kept = Vec::new();
        for attempt in 1.. {
            let bytes = match scripted.as_mut().map(VecDeque::pop_front) {
                Some(Some(bytes)) => {
                    walk::accepts(walk, &bytes, self.cursor.at).map_err(End::Rejected)?;
                    if !bytes.starts_with(&kept) {
                        return Err(End::Rejected(self.not_kept(walk, attempt, &kept)));
                    }
                    bytes
                }
                Some(None) => return Err(End::Rejected(self.no_more_attempts(walk, attempt))),
                None => self.cursor.scan(walk, follow).map_err(End::Rejected)?,
            };
            let value = Value {
                field: walk.name.clone(),
                bytes: bytes.clone(),
                attempts: attempt,
            };
            let verdict = match walk.check {
                true => plugin.check(&value),
                false => Verdict::Accept,
            };
            let (stands, verified) = match verdict {
                Verdict::Accept => (bytes.clone(), true),
                Verdict::Replace(other) => (other, true),
                Verdict::Fail(failure) => return Err(End::Failed(failure)),
                Verdict::Retry(Retry { reason, from }) => {
                    let Some(start) = bytes.get(..from as usize) else {
                        return Err(End::Failed(out_of_range(walk, from, bytes.len())));
                    };
                    kept = start.to_vec();
                    reasons.push(reason);
                    if attempt < walk.retry.attempts {
                        self.outcome.retries += 1;
                        // Without a script the model would write the same again: the text has one value.
                        scripted.get_or_insert_default();
                        continue;
                    }
                    (exhausted(walk, &bytes, &reasons)?, false)
                }
            };
            // The text has the last attempt in the field's place.
            self.cursor.take_literal(&bytes).map_err(End::Rejected)?;
            return Ok(self.record(
                walk,
                FieldOutcome {
                    name: walk.name.clone(),
                    value: stands,
                    attempts: attempt,
                    verified,
                    reasons,
                    max_tokens: walk.max_tokens,
                    temperature: walk.temperature,
                },
            ));
        }
        unreachable!("a policy's attempts are counted by a u32")
    }

    fn record(&mut self, walk: &Walk, field: FieldOutcome) -> Value {
        self.outcome.output.extend_from_slice(&field.value);
        let value = Value {
            field: walk.name.clone(),
            bytes: field.value.clone(),
            attempts: field.attempts,
        };
        if !walk.name.starts_with('?') {
            self.outcome.fields.push(field);
        }
        value
    }

    fn scripted(&mut self, field: &str) -> Option<VecDeque<Vec<u8>>> {
        let index = self.attempts.iter().position(|(name, _)| name == field)?;
        self.attempts.remove(index).map(|(_, values)| values)
    }

    fn no_more_attempts(&self, walk: &Walk, attempt: u32) -> Rejection {
        Rejection {
            at: self.cursor.at,
            why: format!(
                "field `{}` wants attempt {attempt}, and the trace has none; give it with `.attempt`",
                walk.name
            ),
        }
    }

    fn not_kept(&self, walk: &Walk, attempt: u32, kept: &[u8]) -> Rejection {
        Rejection {
            at: self.cursor.at,
            why: format!(
                "attempt {attempt} at field `{}` begins with what is kept of the one before: {:?}",
                walk.name,
                String::from_utf8_lossy(kept)
            ),
        }
    }
}

/// A check kept more of a value than there is.
fn out_of_range(walk: &Walk, from: u32, length: usize) -> Failure {
    Failure::internal(format!(
        "field `{}`: the check keeps {from} bytes of a value that has {length}",
        walk.name
    ))
}

/// The bytes that take the field's place once its attempts are used up.
fn exhausted(walk: &Walk, last: &[u8], reasons: &[String]) -> Result<Vec<u8>, End> {
    match &walk.retry.exhausted {
        Fallback::Write(bytes) => Ok(bytes.clone()),
        Fallback::Accept => Ok(last.to_vec()),
        Fallback::Fail => Err(End::Failed(Failure::exhausted(format!(
            "field `{}` used up its {} attempts; the last value {:?} was refused: {}",
            walk.name,
            walk.retry.attempts,
            String::from_utf8_lossy(last),
            reasons.last().map_or("", String::as_str),
        )))),
    }
}
