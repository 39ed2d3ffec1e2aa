//! Declarative checks of one value.

use crate::spec::{CheckSpec, Exhausted};
use formwork_plugin_sdk::prelude::*;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Values as they stand so far, by field; a repeated field has several.
pub(crate) type Seen = Rc<RefCell<BTreeMap<String, Vec<String>>>>;

/// The checks of one field, and the memory of all fields' values.
pub(crate) struct Checks {
    spec: CheckSpec,
    regex: Option<Grammar>,
    seen: Seen,
    attempts: u32,
    /// What stands when no attempt is left; `None` for the last value.
    instead: Option<String>,
    /// Attempts at the value judged last, when it is to be tried again.
    retried: Cell<Option<u32>>,
}

impl Checks {
    /// `path` names the check in messages.
    pub(crate) fn new(spec: CheckSpec, seen: Seen, path: &str) -> Result<Self, Failure> {
        let regex = match &spec.regex {
            Some(pattern) => {
                let grammar = Grammar::compile(&Source::Regex(pattern.clone()));
                Some(grammar.map_err(|failure| Failure {
                    message: format!("{path}.regex: {}", failure.message),
                    ..failure
                })?)
            }
            None => None,
        };
        Ok(Self {
            spec,
            regex,
            seen,
            attempts: 1,
            instead: None,
            retried: Cell::new(None),
        })
    }

    /// Tells the checks when the field's attempts are used up.
    pub(crate) fn give_up(&mut self, attempts: u32, exhausted: Option<&Exhausted>) {
        self.attempts = attempts;
        self.instead = match exhausted {
            Some(Exhausted::Write(text)) => Some(text.clone()),
            Some(Exhausted::Fail | Exhausted::Accept) | None => None,
        };
    }

    pub(crate) fn judge(&self, value: &Value) -> Verdict {
        // What a JSON string says counts, not how it is written.
        let text = plain(&value.text());
        let result = self.verify(&text);
        let last = value.attempts >= self.attempts;
        let stands = match &self.instead {
            Some(instead) if result.is_err() && last => plain(instead),
            _ => text,
        };
        self.remember(value, stands);
        let again = result.is_err() && !last;
        self.retried.set(again.then_some(value.attempts));
        match result {
            Ok(()) => Verdict::Accept,
            Err(reason) => Verdict::retry(self.spec.reason.clone().unwrap_or(reason)),
        }
    }

    /// Keeps one text for each occurrence of a field, however many attempts it takes.
    fn remember(&self, value: &Value, text: String) {
        let mut seen = self.seen.borrow_mut();
        let values = seen.entry(value.field.clone()).or_default();
        if self
            .retried
            .get()
            .is_some_and(|attempts| value.attempts > attempts)
        {
            values.pop();
        }
        values.push(text);
    }

    fn verify(&self, text: &str) -> Result<(), String> {
        self.verify_text(text)?;
        self.verify_number(text)?;
        if self.spec.luhn == Some(true) && !luhn(text) {
            return Err(format!("{text:?} has a wrong check digit"));
        }
        if let Some(other) = &self.spec.differs_from {
            let seen = self.seen.borrow();
            if seen
                .get(other)
                .and_then(|values| values.last())
                .is_some_and(|value| value == text)
            {
                return Err(format!("{text:?} is already the value of `{other}`"));
            }
        }
        Ok(())
    }

    fn verify_text(&self, text: &str) -> Result<(), String> {
        let spec = &self.spec;
        let length = text.chars().count();
        if let Some(regex) = &self.regex
            && !regex.matches(text)
        {
            let pattern = spec.regex.as_deref().unwrap_or_default();
            return Err(format!("{text:?} does not match {pattern}"));
        }
        if let Some(min) = spec.min_length.filter(|&min| length < min) {
            return Err(format!(
                "it has {length} characters, at least {min} are needed"
            ));
        }
        if let Some(max) = spec.max_length.filter(|&max| length > max) {
            return Err(format!(
                "it has {length} characters, at most {max} are allowed"
            ));
        }
        let listed = |list: &Vec<String>| list.iter().any(|item| item == text);
        if spec.one_of.as_ref().is_some_and(|list| !listed(list)) {
            return Err(format!("{text:?} is not one of the allowed values"));
        }
        if spec.not_one_of.as_ref().is_some_and(listed) {
            return Err(format!("{text:?} is not allowed"));
        }
        Ok(())
    }

    fn verify_number(&self, text: &str) -> Result<(), String> {
        let spec = &self.spec;
        if spec.minimum.is_none() && spec.maximum.is_none() && spec.equals_sum_of.is_none() {
            return Ok(());
        }
        let number = number(text).ok_or_else(|| format!("{text:?} is not a number"))?;
        if let Some(minimum) = spec.minimum.filter(|&minimum| number < minimum) {
            return Err(format!("{number} is less than {minimum}"));
        }
        if let Some(maximum) = spec.maximum.filter(|&maximum| number > maximum) {
            return Err(format!("{number} is more than {maximum}"));
        }
        let Some(fields) = &spec.equals_sum_of else {
            return Ok(());
        };
        let seen = self.seen.borrow();
        let values = fields.iter().filter_map(|field| seen.get(field)).flatten();
        let sum: f64 = values.filter_map(|value| self::number(value)).sum();
        // Sums of decimal fractions are inexact in binary.
        if (sum - number).abs() > 1e-9 * sum.abs().max(number.abs()).max(1.0) {
            return Err(format!(
                "it is {number}, the sum of {} is {sum}",
                fields.join(" + ")
            ));
        }
        Ok(())
    }
}

fn plain(text: &str) -> String {
    serde_json::from_str(text).unwrap_or_else(|_| text.to_owned())
}

fn number(text: &str) -> Option<f64> {
    let number: f64 = text.trim().parse().ok()?;
    number.is_finite().then_some(number)
}

/// Luhn's check digit (ISO/IEC 7812-1, annex B); blanks and hyphens do not count.
fn luhn(text: &str) -> bool {
    let mut digits = Vec::new();
    for character in text.chars().filter(|character| !" -".contains(*character)) {
        match character.to_digit(10) {
            Some(digit) => digits.push(digit),
            None => return false,
        }
    }
    let weigh = |(index, digit): (usize, &u32)| match index % 2 {
        0 => *digit,
        _ => digit * 2 / 10 + digit * 2 % 10,
    };
    digits.len() > 1 && digits.iter().rev().enumerate().map(weigh).sum::<u32>() % 10 == 0
}
