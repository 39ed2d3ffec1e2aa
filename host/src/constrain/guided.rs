//! The walk through a plan.

use super::closing::{Limits, tokens_to_the_end};
use super::field::{ActiveField, Step};
use super::hint::fill;
use super::openers::openers;
use super::output::Output;
use super::planner::{Planner, failure, guest_error};
use super::{FieldReport, Reports, Setting};
use formwork_engine::{After, Constraint, ConstraintError, Edit, FailureKind, SimpleVob, TokenId};
use formwork_sandbox::{Action, Fallback, Field, LatePolicy, Observed, Retry, Value, Verdict};
use std::collections::VecDeque;
use std::sync::Arc;

/// Plans in a row that may bring neither text nor a question: a plugin that never gets anywhere is stopped.
const IDLE_PLANS: usize = 16;

/// A constraint that carries out a plugin's plans.
pub struct Guided {
    planner: Box<dyn Planner>,
    setting: Setting,
    output: Output,
    actions: VecDeque<Action>,
    values: Vec<Value>,
    state: State,
    /// Tokens before the template text that was written last: what lies after may be healed into a field.
    written: usize,
    /// Fields begun so far; tells their random streams apart.
    fields: u64,
}

enum State {
    Start,
    /// The plugin asked for one token.
    Sampling {
        mask: Arc<SimpleVob>,
        temperature: Option<f32>,
    },
    Field(Box<ActiveField>),
    Finished,
}

impl Guided {
    /// A walk from the start.
    pub fn new(planner: Box<dyn Planner>, setting: Setting) -> Self {
        Self {
            planner,
            output: Output::new(setting.vocabulary.clone()),
            setting,
            actions: VecDeque::new(),
            values: Vec::new(),
            state: State::Start,
            written: 0,
            fields: 0,
        }
    }

    fn reports(&self) -> &Reports {
        &self.setting.reports
    }

    fn ask(&mut self, observed: Observed) -> Result<(), ConstraintError> {
        let answer = self.planner.plan(observed);
        self.setting.reports.call(self.planner.take_log());
        self.actions = answer.map_err(guest_error)?.into();
        Ok(())
    }

    /// Carries out actions until a token has to be sampled or the output is complete.
    fn proceed(&mut self) -> Result<(), ConstraintError> {
        let (mut idle, mut before) = (0, self.output.bytes());
        loop {
            if self.output.len() >= self.setting.max_tokens {
                // The engine ends the sequence here; no plan can write past it.
                return Ok(());
            }
            let Some(action) = self.actions.pop_front() else {
                idle = if self.output.bytes() > before {
                    0
                } else {
                    idle + 1
                };
                before = self.output.bytes();
                if idle > IDLE_PLANS {
                    let message =
                        format!("{IDLE_PLANS} plans in a row brought no text and no question");
                    return Err(ConstraintError::internal(message));
                }
                let values = std::mem::take(&mut self.values);
                self.ask(Observed::Completed(values))?;
                continue;
            };
            match action {
                Action::Write(text) => self.write(text)?,
                Action::Field(field) => {
                    if self.begin(field)? {
                        return Ok(());
                    }
                }
                Action::Sample { mask, temperature } => {
                    self.state = State::Sampling { mask, temperature };
                    return Ok(());
                }
                Action::Finish => {
                    self.state = State::Finished;
                    return Ok(());
                }
            }
        }
    }

    /// Writes template text, neighbouring writes as one.
    fn write(&mut self, mut text: Vec<u8>) -> Result<(), ConstraintError> {
        while let Some(Action::Write(more)) = self.actions.front_mut() {
            text.append(more);
            self.actions.pop_front();
        }
        let before = self.output.bytes();
        self.output.write(&text).map_err(failure)?;
        self.written = self.output.tokens_before(before);
        Ok(())
    }

    /// Begins a field; `true` when it needs a token sampled.
    fn begin(&mut self, field: Field) -> Result<bool, ConstraintError> {
        self.fields += 1;
        let (mut field, step) =
            ActiveField::begin(field, &mut self.output, self.written).map_err(failure)?;
        // What a field decoded is not healed into the next one.
        let more = self.settle(&mut field, step)?;
        if more {
            self.state = State::Field(Box::new(field));
        }
        Ok(more)
    }

    /// Sees to a field after a step: checks, retries and replaces until it is done (`false`) or needs another
    /// token (`true`).
    fn settle(&mut self, field: &mut ActiveField, mut step: Step) -> Result<bool, ConstraintError> {
        loop {
            let complete = match step {
                Step::Complete => true,
                Step::More if self.close(field) => true,
                Step::More => return Ok(true),
                // The request's own limit: the engine ends the sequence there, by `length`.
                Step::Overrun if self.output.len() >= self.setting.max_tokens => return Ok(true),
                Step::Overrun => false,
            };
            let value = field.value(&self.output);
            let verdict = match complete {
                true if field.plan.check => self.check(field, &value)?,
                true => Verdict::Accept,
                false => Verdict::Retry(Retry::from(format!(
                    "the field `{}` was not complete after max_tokens = {} tokens",
                    field.plan.name, field.plan.max_tokens
                ))),
            };
            let Retry { reason, from } = match verdict {
                Verdict::Accept => {
                    self.accept(field, Text::Decoded(value), Quality::Verified)?;
                    return Ok(false);
                }
                Verdict::Replace(bytes) => {
                    self.accept(field, Text::Given(bytes), Quality::Verified)?;
                    return Ok(false);
                }
                Verdict::Fail(error) => return Err(failure(error)),
                Verdict::Retry(retry) => retry,
            };
            if field.attempt >= field.plan.retry.attempts {
                self.exhaust(field, value, &reason)?;
                return Ok(false);
            }
            let hint = field.plan.retry.hint.as_deref();
            let hint = hint
                .map(|hint| fill(hint, &reason, &value))
                .filter(|hint| self.has_room(field, hint));
            step = field
                .again(&mut self.output, hint.as_deref(), from)
                .map_err(failure)?;
        }
    }

    /// Short before a limit, ends the field where its grammar lets it end early: whether it did.
    fn close(&mut self, field: &ActiveField) -> bool {
        if !field.is_whole() {
            return false;
        }
        let vocabulary = &self.setting.vocabulary;
        let limits = Limits {
            field: (field.plan.max_tokens as usize).saturating_sub(field.tokens(&self.output)),
            request: self.setting.max_tokens.saturating_sub(self.output.len()),
            after: tokens_to_the_end(self.actions.iter(), vocabulary),
        };
        match limits.way_out(&field.plan.matcher, || field.value(&self.output)) {
            Some(end) => self.output.write(&end).is_ok(),
            None => false,
        }
    }

    /// Whether the request's limit leaves room for a hint and a value behind it, a quarter longer than the last.
    /// Better a further attempt without a hint than one that is cut.
    fn has_room(&self, field: &ActiveField, hint: &[u8]) -> bool {
        let vocabulary = &self.setting.vocabulary;
        let tokens = field.tokens(&self.output);
        let after = tokens_to_the_end(self.actions.iter(), vocabulary).unwrap_or(0);
        let hint = vocabulary.tokenize(hint).len();
        field.before() + hint + tokens + tokens / 4 + after <= self.setting.max_tokens
    }

    fn check(&mut self, field: &ActiveField, value: &[u8]) -> Result<Verdict, ConstraintError> {
        let value = Value {
            field: field.plan.name.clone(),
            bytes: value.to_vec(),
            attempts: field.attempt,
        };
        let verdict = self.planner.check(&value);
        self.setting.reports.call(self.planner.take_log());
        verdict.map_err(guest_error)
    }

    fn exhaust(
        &mut self,
        field: &mut ActiveField,
        value: Vec<u8>,
        reason: &str,
    ) -> Result<(), ConstraintError> {
        match field.plan.retry.exhausted.clone() {
            Fallback::Fail => {
                return Err(ConstraintError {
                    kind: FailureKind::Exhausted,
                    message: format!(
                        "the field `{}` failed {} of {} attempts; the last value was {:?}: {reason}",
                        field.plan.name,
                        field.attempt,
                        field.plan.retry.attempts,
                        String::from_utf8_lossy(&value),
                    ),
                });
            }
            Fallback::Write(bytes) => {
                self.accept(field, Text::Given(bytes), Quality::Fallback)?;
            }
            Fallback::Accept => self.accept(field, Text::Decoded(value), Quality::Fallback)?,
        }
        Ok(())
    }

    /// The field is done: its value stands where the template left off, and no hint is left.
    fn accept(
        &mut self,
        field: &mut ActiveField,
        text: Text,
        quality: Quality,
    ) -> Result<(), ConstraintError> {
        let (tokens, forced) = (field.tokens(&self.output), field.forced(&self.output));
        let in_place = matches!(text, Text::Decoded(_)) && field.in_place(&self.output);
        let (Text::Decoded(value) | Text::Given(value)) = text;
        if !in_place {
            field.restore(&mut self.output);
            self.output.write(&value).map_err(failure)?;
        }
        self.written = self.output.len();
        // By the contract, names with `?` are a template's own choices between branches.
        if !field.plan.name.starts_with('?') {
            self.reports().field(FieldReport {
                name: field.plan.name.clone(),
                start: field.start,
                end: self.output.bytes(),
                attempts: field.attempt,
                tokens,
                forced,
                elapsed: field.begun.elapsed(),
                verified: matches!(quality, Quality::Verified),
                checked: field.plan.check,
                enforced: field.plan.matcher.grammar().enforced().cloned(),
            });
        }
        self.values.push(Value {
            field: field.plan.name.clone(),
            bytes: value,
            attempts: field.attempt,
        });
        Ok(())
    }

    fn take(&mut self, sampled: Option<TokenId>) -> Result<(), ConstraintError> {
        match (std::mem::replace(&mut self.state, State::Start), sampled) {
            (State::Start, None) => {
                self.ask(Observed::Started)?;
                self.proceed()
            }
            (State::Sampling { .. }, Some(token)) => {
                self.output.push_sampled(token);
                if self.setting.vocabulary.is_end(token) {
                    self.output.truncate(self.output.len() - 1);
                }
                self.written = self.output.len();
                // Values are told at the end of their own plan; this one ends with the token.
                self.values.clear();
                self.ask(Observed::Sampled(token))?;
                self.proceed()
            }
            (State::Field(mut field), Some(token)) => {
                self.output.push_sampled(token);
                let step = field.commit(token, &mut self.output).map_err(failure)?;
                if self.settle(&mut field, step)? {
                    self.state = State::Field(field);
                    return Ok(());
                }
                self.proceed()
            }
            (_, sampled) => Err(ConstraintError::internal(format!(
                "token {sampled:?} was not asked for"
            ))),
        }
    }

    /// Generated tokens whose text is final.
    fn released(&self) -> usize {
        match &self.state {
            State::Field(field) if field.held() => self.output.tokens_before(field.start),
            _ => self.output.len(),
        }
    }
}

/// A field's value: as it was decoded, or given by the plugin in its place.
enum Text {
    Decoded(Vec<u8>),
    Given(Vec<u8>),
}

/// Whether a field's value is what its grammar and check wanted.
enum Quality {
    Verified,
    Fallback,
}

impl Constraint for Guided {
    fn advance(&mut self, sampled: Option<TokenId>) -> Result<Edit, ConstraintError> {
        self.take(sampled)?;
        let after = match &self.state {
            State::Finished => After::Finish,
            State::Sampling { temperature, .. } => After::Sample {
                temperature: *temperature,
                salt: 0,
            },
            State::Field(field) => After::Sample {
                temperature: Some(field.temperature(self.setting.temperature)),
                salt: salt(self.fields, field.attempt),
            },
            State::Start => After::Sample {
                temperature: None,
                salt: 0,
            },
        };
        let released = self.released();
        Ok(self.output.edit(released, after))
    }

    fn mask(&mut self) -> Result<Arc<SimpleVob>, ConstraintError> {
        let (next, vocabulary) = (self.actions.front(), &self.setting.vocabulary);
        match &mut self.state {
            State::Sampling { mask, .. } => Ok(Arc::clone(mask)),
            State::Field(field) => field
                .mask(|| openers(next, vocabulary))
                .map(Arc::new)
                .map_err(failure),
            // Only when `max_tokens` was reached amid a plan: the engine ends the sequence first.
            State::Start | State::Finished => Err(ConstraintError::internal(
                "a mask was asked for where nothing is sampled",
            )),
        }
    }

    fn committed(&self) -> usize {
        self.output.len()
    }

    fn late_limit(&self) -> Option<u32> {
        match self.setting.on_late {
            LatePolicy::Hold => None,
            LatePolicy::Fail => Some(0),
        }
    }
}

/// Keeps the random streams of attempts apart; 0 for first attempts, which draw from the request's own.
fn salt(field: u64, attempt: u32) -> u64 {
    if attempt == 1 {
        return 0;
    }
    (field << 32 | u64::from(attempt)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
