//! What a walk tells the host beside its tokens.

use formwork_sandbox::{Enforced, LogLine};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Notes of one sequence, written by its constraint and read by whoever answers the client.
#[derive(Debug, Default)]
pub struct Reports(Mutex<Notes>);

#[derive(Debug, Default)]
struct Notes {
    fields: Vec<FieldReport>,
    log: Vec<LogLine>,
    step: u64,
}

/// A field that is done.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldReport {
    /// The field's name.
    pub name: String,
    /// Offset of its first byte in the output.
    pub start: usize,
    /// Offset past its last byte.
    pub end: usize,
    /// Attempts that it took.
    pub attempts: u32,
    /// Tokens of the last attempt.
    pub tokens: usize,
    /// Of those, tokens that the grammar left no choice about.
    pub forced: usize,
    /// Time from the field's begin to its acceptance.
    pub elapsed: Duration,
    /// Whether the value passed its grammar and, where there is one, its check. A fallback did not.
    pub verified: bool,
    /// Whether the plugin judged the value.
    pub checked: bool,
    /// What enforces the assertions of its JSON Schema; `None` where its grammar is of another kind.
    pub enforced: Option<Arc<Enforced>>,
}

impl Reports {
    /// Empty notes.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Fields done so far, in order.
    pub fn fields(&self) -> Vec<FieldReport> {
        self.notes(|notes| notes.fields.clone())
    }

    /// The plugin's log so far.
    pub fn log(&self) -> Vec<LogLine> {
        self.notes(|notes| notes.log.clone())
    }

    /// Calls into the plugin so far: the step that an error is tagged with.
    pub fn step(&self) -> u64 {
        self.notes(|notes| notes.step)
    }

    pub(super) fn field(&self, report: FieldReport) {
        self.notes(|notes| notes.fields.push(report));
    }

    pub(super) fn call(&self, lines: Vec<LogLine>) {
        self.notes(|notes| {
            notes.step += 1;
            notes.log.extend(lines);
        });
    }

    fn notes<T>(&self, act: impl FnOnce(&mut Notes) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
