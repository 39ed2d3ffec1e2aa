//! The loop: drain, plan, launch beside the masks, sample under them, commit, emit.

use crate::constraint::{After, Constraint, ConstraintError, Edit};
use crate::scheduler::{Planned, Scheduler};
use crate::sequence::{Guide, Mask, Sequence};
use crate::workers::{Job, Report, Workers};
use crate::{
    Backend, BackendError, EngineConfig, FinishReason, Request, SeqId, SequenceError, SimpleVob,
    Stats,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Everything that can reach the engine's thread.
pub(crate) enum Message {
    Submit(Vec<(SeqId, Request)>),
    Abort(SeqId),
    Report(Report),
    Shutdown,
}

impl From<Report> for Message {
    fn from(report: Report) -> Self {
        Self::Report(report)
    }
}

/// What the handle can see without asking the engine's thread.
pub(crate) struct Shared {
    /// Sequences submitted and not yet admitted for the first time.
    pub(crate) queued: AtomicUsize,
    pub(crate) stats: Mutex<Stats>,
}

pub(crate) struct Core {
    pub(crate) backend: Box<dyn Backend>,
    pub(crate) env: toktrie::TokEnv,
    pub(crate) config: EngineConfig,
    inbox: Receiver<Message>,
    pub(crate) workers: Workers,
    shared: Arc<Shared>,
    pub(crate) scheduler: Scheduler,
    pub(crate) stats: Stats,
    down: bool,
}

impl Core {
    pub(crate) fn new(
        backend: Box<dyn Backend>,
        env: toktrie::TokEnv,
        config: EngineConfig,
        inbox: Receiver<Message>,
        workers: Workers,
        shared: Arc<Shared>,
    ) -> Self {
        let scheduler = Scheduler::new(backend.capacity(), &config);
        let stats = Stats::default();
        Self {
            backend,
            env,
            config,
            inbox,
            workers,
            shared,
            scheduler,
            stats,
            down: false,
        }
    }

    /// Runs until shut down; whatever is left then fails with [`SequenceError::ShuttingDown`].
    pub(crate) fn run(mut self) {
        self.snapshot();
        while !self.down {
            self.drain();
            self.await_edits();
            let plan = self.scheduler.plan();
            self.count_admissions();
            if plan.is_empty() {
                self.snapshot();
                self.idle();
                continue;
            }
            self.step(&plan);
            self.snapshot();
        }
        self.drain();
        let ids: Vec<SeqId> = self.sequences().map(|s| s.id).collect();
        for id in ids {
            self.fail(id, SequenceError::ShuttingDown);
        }
        self.snapshot();
    }

    fn sequences(&self) -> impl Iterator<Item = &Sequence> {
        self.scheduler
            .running
            .values()
            .chain(self.scheduler.waiting.values())
    }

    pub(crate) fn drain(&mut self) {
        while let Ok(message) = self.inbox.try_recv() {
            self.take(message);
        }
    }

    /// Nothing can run: sleep until something happens.
    fn idle(&mut self) {
        debug_assert_eq!(self.scheduler.audit(), Ok(()));
        if self.down {
            return;
        }
        match self.inbox.recv() {
            Ok(message) => self.take(message),
            Err(_) => self.down = true,
        }
    }

    /// Handles messages until `done` or until `wait_ms` have passed.
    pub(crate) fn take_until(&mut self, wait_ms: u64, done: impl Fn(&Self) -> bool) -> Duration {
        let start = self.config.clock.now();
        let limit = Duration::from_millis(wait_ms);
        let mut waited = Duration::ZERO;
        while !done(self) && !self.down && waited < limit {
            match self.inbox.recv_timeout(limit - waited) {
                Ok(message) => self.take(message),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => self.down = true,
            }
            waited = self.config.clock.now().saturating_sub(start);
        }
        waited
    }

    /// A moment's patience for constraints that are taking in the last step's token: their rows would miss
    /// the whole next step otherwise. First calls, which may compile a grammar, are not waited for.
    fn await_edits(&mut self) {
        let waited = self.take_until(self.config.plan_wait_ms, |core| {
            !core
                .scheduler
                .running
                .values()
                .any(|s| matches!(s.guide, Guide::Advancing) && s.usage.sampled > 0)
        });
        self.stats.plan_wait_us += waited.as_micros() as u64;
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Submit(group) => group.into_iter().for_each(|(id, r)| self.enlist(id, r)),
            Message::Abort(id) => self.finish(id, FinishReason::Aborted),
            Message::Report(Report::Edited { seq, edit }) => self.edited(seq, edit),
            Message::Report(Report::Masked {
                seq,
                mask,
                committed,
                constraint,
            }) => {
                self.masked(seq, mask, committed, constraint);
            }
            Message::Shutdown => self.down = true,
        }
    }

    fn enlist(&mut self, id: SeqId, request: Request) {
        let capacity = self.scheduler.capacity;
        let longest = capacity
            .max_context
            .min(capacity.blocks * capacity.block_size);
        let (sequence, constraint) = Sequence::new(id, request, longest, capacity.block_size);
        self.scheduler.waiting.insert(sequence.rank, sequence);
        if let Some(constraint) = constraint {
            self.workers.send(Job {
                seq: id,
                constraint,
                sampled: None,
            });
        }
    }

    /// Sequences that entered the batch for the first time leave the queue's count.
    fn count_admissions(&mut self) {
        for sequence in self.scheduler.running.values_mut().filter(|s| !s.admitted) {
            sequence.admitted = true;
            self.shared.queued.fetch_sub(1, Ordering::AcqRel);
        }
    }

    fn edited(&mut self, id: SeqId, edit: Result<(Edit, usize), ConstraintError>) {
        // A sequence that is gone was aborted meanwhile; its constraint has been dropped by the worker.
        let Some(sequence) = self.scheduler.find(id) else {
            return;
        };
        let (edit, committed) = match edit {
            Ok(edit) => edit,
            Err(error) => return self.fail(id, error.into()),
        };
        let engine = edit.keep + edit.append.len();
        if committed != engine {
            return self.fail(
                id,
                SequenceError::Diverged {
                    constraint: committed,
                    engine,
                },
            );
        }
        let rank = sequence.rank;
        let Scheduler {
            running,
            waiting,
            pool,
            capacity,
            ..
        } = &mut self.scheduler;
        let Some(sequence) = running.get_mut(&rank).or_else(|| waiting.get_mut(&rank)) else {
            return;
        };
        let retracted = sequence.usage.retracted;
        let trie = self.env.tok_trie();
        if let Err(message) = sequence.apply(&edit, pool, capacity.block_size, trie) {
            return self.fail(id, ConstraintError::internal(message).into());
        }
        self.stats.tokens_retracted += (sequence.usage.retracted - retracted) as u64;
        self.stats.tokens_forced += edit.append.len() as u64;
        // Forced text may come out longer than the request allows: what is past the limit is not shown.
        let over = sequence.tokens.len() > sequence.limit;
        sequence.show(
            edit.released.min(sequence.limit - sequence.prompt_len),
            trie,
        );
        match edit.after {
            _ if over => {
                sequence.cut();
                self.finish(id, FinishReason::Length);
            }
            After::Finish => {
                sequence.show(sequence.generated(), trie);
                self.finish(id, FinishReason::Stop);
            }
            After::Sample { .. } if sequence.tokens.len() >= sequence.limit => {
                self.finish(id, FinishReason::Length);
            }
            After::Sample { temperature, salt } => {
                sequence.wish = (temperature, salt);
                sequence.guide = Guide::MaskPending;
            }
        }
    }

    fn masked(
        &mut self,
        id: SeqId,
        mask: Result<Arc<SimpleVob>, ConstraintError>,
        committed: usize,
        constraint: Box<dyn Constraint>,
    ) {
        let Some(sequence) = self.scheduler.find(id) else {
            return;
        };
        match mask {
            Ok(bits) => {
                let mask = Mask {
                    position: sequence.prompt_len + committed,
                    bits,
                };
                sequence.guide = Guide::Masked(mask, constraint);
            }
            Err(error) => self.fail(id, error.into()),
        }
    }

    pub(crate) fn since(&self, start: Duration) -> u64 {
        self.config.clock.now().saturating_sub(start).as_micros() as u64
    }

    pub(crate) fn finish(&mut self, id: SeqId, reason: FinishReason) {
        if let Some(sequence) = self.remove(id) {
            self.stats.sequences_finished += 1;
            sequence.finish(reason);
        }
    }

    pub(crate) fn fail(&mut self, id: SeqId, error: SequenceError) {
        if let Some(sequence) = self.remove(id) {
            self.stats.sequences_failed += 1;
            tracing::debug!(sequence = id.0, %error, "a sequence failed");
            sequence.fail(error);
        }
    }

    pub(crate) fn fail_all(&mut self, plan: &[Planned], error: &BackendError) {
        tracing::error!(%error, rows = plan.len(), "a step failed");
        let running = &self.scheduler.running;
        let ids: Vec<SeqId> = plan
            .iter()
            .filter_map(|p| running.get(&p.rank).map(|s| s.id))
            .collect();
        for id in ids {
            self.fail(id, error.clone().into());
        }
    }

    fn remove(&mut self, id: SeqId) -> Option<Sequence> {
        let sequence = self.scheduler.remove(id)?;
        if !sequence.admitted {
            self.shared.queued.fetch_sub(1, Ordering::AcqRel);
        }
        Some(sequence)
    }

    fn snapshot(&mut self) {
        let Scheduler {
            running,
            waiting,
            pool,
            preemptions,
            prefix_hit_tokens,
            ..
        } = &self.scheduler;
        let stats = Stats {
            running: running.len(),
            waiting: waiting.len(),
            blocks_total: pool.total(),
            blocks_free: pool.free(),
            blocks_cached: pool.cached(),
            blocks_leased: pool.leased(),
            preemptions: *preemptions,
            prefix_hit_tokens: *prefix_hit_tokens,
            ..self.stats
        };
        *self
            .shared
            .stats
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = stats;
    }
}
