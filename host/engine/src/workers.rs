//! Threads that run constraints, so that neither a guest nor a mask ever runs on the engine's thread.

use crate::constraint::{After, Constraint, ConstraintError, Edit, FailureKind};
use crate::{SeqId, SimpleVob, TokenId};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Take in a token, answer with the edit, then compute the mask that follows it.
pub(crate) struct Job {
    pub(crate) seq: SeqId,
    pub(crate) constraint: Box<dyn Constraint>,
    /// `None` at the start of a sequence.
    pub(crate) sampled: Option<TokenId>,
}

/// What a worker reports.
pub(crate) enum Report {
    /// The edit after a token, sent as soon as it is known. The mask is still being computed when the
    /// edit says [`After::Sample`].
    /// Carries the constraint's own count of generated tokens too.
    Edited {
        seq: SeqId,
        edit: Result<(Edit, usize), ConstraintError>,
    },
    /// The mask, and the constraint comes home.
    Masked {
        seq: SeqId,
        mask: Result<Arc<SimpleVob>, ConstraintError>,
        /// Generated tokens when the mask was made: names its position.
        committed: usize,
        constraint: Box<dyn Constraint>,
    },
}

/// Two lanes: first calls, which may compile a grammar, and the calls of every step.
pub(crate) struct Workers {
    first: Sender<Job>,
    step: Sender<Job>,
}

impl Workers {
    /// Starts `threads` threads for each lane; they end when the `Workers` is dropped.
    pub(crate) fn start<M>(threads: usize, inbox: &Sender<M>) -> Self
    where
        M: From<Report> + Send + 'static,
    {
        Self {
            first: lane("first", threads, inbox),
            step: lane("step", threads, inbox),
        }
    }

    pub(crate) fn send(&self, job: Job) {
        let lane = if job.sampled.is_some() {
            &self.step
        } else {
            &self.first
        };
        // The threads outlive `self`, and catch panics: the channel is open.
        let _ = lane.send(job);
    }
}

fn lane<M>(name: &str, threads: usize, inbox: &Sender<M>) -> Sender<Job>
where
    M: From<Report> + Send + 'static,
{
    let (sender, receiver) = channel::<Job>();
    let receiver = Arc::new(Mutex::new(receiver));
    for i in 0..threads.max(1) {
        let (receiver, inbox) = (Arc::clone(&receiver), inbox.clone());
        let spawned = thread::Builder::new()
            .name(format!("formwork-{name}-{i}"))
            .spawn(move || work(&receiver, &inbox));
        if let Err(error) = spawned {
            tracing::error!(%error, lane = name, "a constraint worker could not be started");
        }
    }
    sender
}

fn work<M: From<Report>>(jobs: &Mutex<Receiver<Job>>, inbox: &Sender<M>) {
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        if run(job, inbox).is_none() {
            return;
        }
    }
}

/// Runs one job; `None` when the engine is gone.
fn run<M: From<Report>>(job: Job, inbox: &Sender<M>) -> Option<()> {
    let Job {
        seq,
        mut constraint,
        sampled,
    } = job;
    let edit = guard(|| Ok((constraint.advance(sampled)?, constraint.committed())));
    let wants_mask = matches!(
        &edit,
        Ok((
            Edit {
                after: After::Sample { .. },
                ..
            },
            _
        ))
    );
    inbox.send(Report::Edited { seq, edit }.into()).ok()?;
    if wants_mask {
        let mask = guard(|| constraint.mask());
        let committed = constraint.committed();
        inbox
            .send(
                Report::Masked {
                    seq,
                    mask,
                    committed,
                    constraint,
                }
                .into(),
            )
            .ok()?;
    }
    Some(())
}

/// A panic in a constraint is its own failure, not the worker's.
fn guard<T>(call: impl FnOnce() -> Result<T, ConstraintError>) -> Result<T, ConstraintError> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|payload| {
        let what = payload
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| payload.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        Err(ConstraintError {
            kind: FailureKind::Internal,
            message: format!("the constraint panicked: {what}"),
        })
    })
}
