//! Checks and translates what guests answer.

use crate::bindings::exports::formwork::plugin::decoding as wit;
use crate::failure::truncate;
use crate::{
    Action, Fallback, Field, MAX_MESSAGE_BYTES, Observed, Retry, RetryPolicy, Value, Verdict,
};
use wasmtime::component::ResourceTable;

/// Bounds of one answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) actions: usize,
    pub(crate) text_bytes: usize,
    pub(crate) attempts: u32,
}

/// Longest name of a field in bytes.
const NAME_BYTES: usize = 256;

pub(crate) fn observed(observed: Observed) -> wit::Observed {
    match observed {
        Observed::Started => wit::Observed::Started,
        Observed::Sampled(token) => wit::Observed::Sampled(token),
        Observed::Completed(values) => {
            wit::Observed::Completed(values.into_iter().map(value).collect())
        }
    }
}

pub(crate) fn value(value: Value) -> wit::Value {
    wit::Value {
        field: value.field,
        bytes: value.bytes,
        attempts: value.attempts,
    }
}

/// A plan that the engine can carry out, or what is wrong with it and where. Takes the masks and
/// matchers out of the session's table.
pub(crate) fn actions(
    actions: Vec<wit::Action>,
    table: &mut ResourceTable,
    bounds: Bounds,
) -> Result<Vec<Action>, String> {
    if actions.len() > bounds.actions {
        return Err(format!(
            "the plan has {} actions, the limit (actions) is {}",
            actions.len(),
            bounds.actions
        ));
    }
    let last = actions.len().saturating_sub(1);
    let mut reader = Reader {
        table,
        bounds,
        text_bytes: 0,
    };
    let mut plan = Vec::with_capacity(actions.len());
    for (index, action) in actions.into_iter().enumerate() {
        let action = reader
            .action(action, index == last)
            .map_err(|reason| format!("action {index} of the plan: {reason}"))?;
        plan.push(action);
    }
    let moves = |action: &Action| !matches!(action, Action::Write(text) if text.is_empty());
    if !plan.iter().any(moves) {
        return Err("the plan does nothing".into());
    }
    Ok(plan)
}

struct Reader<'a> {
    table: &'a mut ResourceTable,
    bounds: Bounds,
    text_bytes: usize,
}

impl Reader<'_> {
    fn action(&mut self, action: wit::Action, last: bool) -> Result<Action, String> {
        match action {
            wit::Action::Sample(_) if !last => Err("`sample` is not the last action".into()),
            wit::Action::Finish if !last => Err("`finish` is not the last action".into()),
            wit::Action::Finish => Ok(Action::Finish),
            wit::Action::Write(text) => self.text(text).map(Action::Write),
            wit::Action::Sample(sampling) => {
                let mask = self
                    .table
                    .delete(sampling.mask)
                    .map_err(|error| error.to_string())?
                    .0;
                if mask.is_zero() {
                    return Err("the mask allows no token".into());
                }
                Ok(Action::Sample {
                    mask,
                    temperature: temperature(sampling.temperature)?,
                })
            }
            wit::Action::Field(field) => {
                let name = field.name.clone();
                let field = self.field(field);
                field
                    .map(Action::Field)
                    .map_err(|reason| format!("field {name:.40?}: {reason}"))
            }
        }
    }

    fn field(&mut self, field: wit::Field) -> Result<Field, String> {
        if field.name.is_empty() || field.name.len() > NAME_BYTES {
            return Err(format!("a name has 1 to {NAME_BYTES} bytes"));
        }
        if field.max_tokens == 0 {
            return Err("`max-tokens` is 0".into());
        }
        let matcher = self
            .table
            .delete(field.matcher)
            .map_err(|error| error.to_string())?;
        Ok(Field {
            name: field.name,
            matcher,
            max_tokens: field.max_tokens,
            temperature: temperature(field.temperature)?,
            check: field.check,
            retry: self.retry(field.retry)?,
        })
    }

    fn retry(&mut self, retry: wit::RetryPolicy) -> Result<RetryPolicy, String> {
        if retry.attempts == 0 || retry.attempts > self.bounds.attempts {
            return Err(format!(
                "`attempts` is {}, it must be 1 to {} (attempts)",
                retry.attempts, self.bounds.attempts
            ));
        }
        if let Some(hint) = &retry.hint {
            self.count(hint.len())?;
        }
        Ok(RetryPolicy {
            attempts: retry.attempts,
            heat: temperature(Some(retry.heat))
                .map_err(|_| format!("`heat` is {}, not a finite number from 0", retry.heat))?
                .unwrap_or(0.0),
            hint: retry.hint,
            exhausted: match retry.exhausted {
                wit::Fallback::Fail => Fallback::Fail,
                wit::Fallback::Accept => Fallback::Accept,
                wit::Fallback::Write(text) => Fallback::Write(self.text(text)?),
            },
        })
    }

    fn text(&mut self, text: Vec<u8>) -> Result<Vec<u8>, String> {
        self.count(text.len())?;
        Ok(text)
    }

    fn count(&mut self, bytes: usize) -> Result<(), String> {
        self.text_bytes = self.text_bytes.saturating_add(bytes);
        within(self.text_bytes, self.bounds)
    }
}

fn within(bytes: usize, bounds: Bounds) -> Result<(), String> {
    let limit = bounds.text_bytes;
    if bytes > limit {
        return Err(format!(
            "more bytes of text than the limit (text_bytes) of {limit}"
        ));
    }
    Ok(())
}

fn temperature(value: Option<f32>) -> Result<Option<f32>, String> {
    match value {
        Some(value) if !value.is_finite() || value < 0.0 => Err(format!(
            "the temperature is {value}, not a finite number from 0"
        )),
        value => Ok(value),
    }
}

/// A verdict on a value of `length` bytes that can be carried out, or what is wrong with it.
pub(crate) fn verdict(
    verdict: wit::Verdict,
    length: usize,
    bounds: Bounds,
) -> Result<Verdict, String> {
    Ok(match verdict {
        wit::Verdict::Accept => Verdict::Accept,
        wit::Verdict::Replace(text) => {
            within(text.len(), bounds)?;
            Verdict::Replace(text)
        }
        wit::Verdict::Retry(wit::Retry { mut reason, from }) => {
            let from = from as usize;
            if from > length {
                return Err(format!(
                    "`retry` keeps {from} bytes of a value that has {length}"
                ));
            }
            truncate(&mut reason, MAX_MESSAGE_BYTES);
            Verdict::Retry(Retry { reason, from })
        }
        wit::Verdict::Fail(failure) => Verdict::Fail(failure.into()),
    })
}
