//! The loop: drain, plan, launch beside the masks, sample under them, commit, emit.

use crate::constraint::{After, Constraint, ConstraintError, Edit};
use crate::scheduler::{Planned, Scheduler};
use crate::sequence::{Guide, Mask, Rank, Sequence};
use crate::workers::{Job, Report, Workers};
use crate::{
    Backend, BackendError, EngineConfig, FinishReason, Request, Row, SampleRow, Sampled, Sampling,
    SeqId, SequenceError, SimpleVob, Stats, StepInput, TokenLogprob,
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
    backend: Box<dyn Backend>,
    env: toktrie::TokEnv,
    config: EngineConfig,
    inbox: Receiver<Message>,
    workers: Workers,
    shared: Arc<Shared>,
    scheduler: Scheduler,
    stats: Stats,
    down: bool,
}

/// A row of the step under way that will sample.
struct Sampler {
    row: usize,
    rank: Rank,
    /// Length of the sequence when the step was planned: the position its mask must name.
    position: usize,
    mask: Option<Arc<SimpleVob>>,
    constraint: Option<Box<dyn Constraint>>,
    sampling: Sampling,
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

    fn drain(&mut self) {
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
    fn take_until(&mut self, wait_ms: u64, done: impl Fn(&Self) -> bool) -> Duration {
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
        sequence.show(edit.released, trie);
        match edit.after {
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

    fn step(&mut self, plan: &[Planned]) {
        let input = self.input(plan);
        let wanted: Vec<(usize, Planned)> = plan
            .iter()
            .copied()
            .enumerate()
            .filter(|&(row, _)| input.rows.get(row).is_some_and(|r| r.wants_logits))
            .collect();
        self.stats.steps += 1;
        self.stats.tokens_computed += plan.iter().map(|p| p.tokens as u64).sum::<u64>();
        let start = self.config.clock.now();
        let launched = self.backend.launch(input);
        let launched = launched.and_then(|t| self.backend.wait(&t).map(|()| t));
        self.stats.forward_us += self.since(start);
        let ticket = match launched {
            Ok(ticket) => ticket,
            Err(error) => return self.fail_all(plan, &error),
        };
        // Before any message is handled: an edit may change the very tokens that were just run.
        self.mark_computed(plan);
        self.drain();
        let waited = self.take_until(self.config.mask_wait_ms, |core| {
            !wanted.iter().any(|(_, p)| {
                let guide = core.scheduler.running.get(&p.rank).map(|s| &s.guide);
                matches!(guide, Some(Guide::MaskPending))
            })
        });
        self.stats.mask_wait_us += waited.as_micros() as u64;
        let samplers = self.collect(&wanted);
        let start = self.config.clock.now();
        let sampled = self.sample(ticket, &samplers);
        self.stats.sample_us += self.since(start);
        match sampled {
            Ok(sampled) => {
                for (sampler, sampled) in samplers.into_iter().zip(sampled) {
                    self.commit(sampler, sampled);
                }
            }
            Err(error) => self.fail_all(plan, &error),
        }
        debug_assert_eq!(self.scheduler.audit(), Ok(()));
    }

    fn since(&self, start: Duration) -> u64 {
        self.config.clock.now().saturating_sub(start).as_micros() as u64
    }

    fn input(&mut self, plan: &[Planned]) -> StepInput {
        let rows = plan.iter().filter_map(|planned| {
            let sequence = self.scheduler.running.get_mut(&planned.rank)?;
            let end = planned.start + planned.tokens;
            sequence.usage.computed += planned.tokens;
            Some(Row {
                tokens: sequence.tokens[planned.start..end].to_vec(),
                start: planned.start,
                table: sequence.table.clone(),
                wants_logits: end == sequence.tokens.len() && sequence.may_sample(),
            })
        });
        StepInput {
            rows: rows.collect(),
        }
    }

    /// The last position counts as computed only when its token has been sampled from: a row that sits the
    /// step out runs it again.
    fn mark_computed(&mut self, plan: &[Planned]) {
        let Scheduler {
            running,
            pool,
            capacity,
            ..
        } = &mut self.scheduler;
        for planned in plan {
            let Some(sequence) = running.get_mut(&planned.rank) else {
                continue;
            };
            let end = (planned.start + planned.tokens).min(sequence.tokens.len() - 1);
            sequence.mark_computed(end, pool, capacity.block_size);
        }
    }

    /// Takes the masks of the rows that sample; rows whose mask is late are left out.
    fn collect(&mut self, wanted: &[(usize, Planned)]) -> Vec<Sampler> {
        let mut samplers = Vec::with_capacity(wanted.len());
        for (row, planned) in wanted {
            let Some(sequence) = self.scheduler.running.get_mut(&planned.rank) else {
                continue;
            };
            let position = sequence.tokens.len();
            let mut sampling = sequence.sampling.clone();
            let (mask, constraint) = match std::mem::replace(&mut sequence.guide, Guide::Advancing)
            {
                Guide::Free => {
                    sequence.guide = Guide::Free;
                    (None, None)
                }
                Guide::Masked(mask, constraint) if mask.position == position => {
                    let (temperature, salt) = sequence.wish;
                    sampling.temperature = temperature.unwrap_or(sampling.temperature);
                    sampling.seed ^= salt;
                    (Some(mask.bits), Some(constraint))
                }
                // A mask for another position is never used; it is made anew by no one, so the row
                // would hang: treat it as the divergence it is.
                Guide::Masked(mask, _) => {
                    let error = SequenceError::Diverged {
                        constraint: mask.position,
                        engine: position,
                    };
                    let id = sequence.id;
                    self.fail(id, error);
                    continue;
                }
                late @ (Guide::MaskPending | Guide::Advancing) => {
                    sequence.guide = late;
                    self.sit_out(planned.rank);
                    continue;
                }
            };
            sequence.misses = 0;
            samplers.push(Sampler {
                row: *row,
                rank: planned.rank,
                position,
                mask,
                constraint,
                sampling,
            });
        }
        samplers
    }

    fn sit_out(&mut self, rank: Rank) {
        self.stats.late_masks += 1;
        let Some(sequence) = self.scheduler.running.get_mut(&rank) else {
            return;
        };
        sequence.misses += 1;
        let (id, misses, position) = (sequence.id, sequence.misses, sequence.tokens.len());
        if misses > self.config.late_limit {
            self.fail(id, SequenceError::Late { position, misses });
        }
    }

    fn sample(
        &mut self,
        ticket: crate::Ticket,
        samplers: &[Sampler],
    ) -> Result<Vec<Sampled>, BackendError> {
        let running = &self.scheduler.running;
        let rows: Vec<SampleRow<'_>> = samplers
            .iter()
            .filter_map(|sampler| {
                let sequence = running.get(&sampler.rank)?;
                Some(SampleRow {
                    row: sampler.row,
                    mask: sampler.mask.clone(),
                    sampling: &sampler.sampling,
                    position: sampler.position as u64,
                    history: &sequence.tokens,
                    prompt_len: sequence.prompt_len,
                })
            })
            .collect();
        let sampled = self.backend.finish(ticket, &rows)?;
        if sampled.len() != samplers.len() {
            let message = format!(
                "{} rows sampled, {} answered",
                samplers.len(),
                sampled.len()
            );
            return Err(BackendError::Failed(message));
        }
        Ok(sampled)
    }

    fn commit(&mut self, sampler: Sampler, sampled: Sampled) {
        let Sampler {
            rank,
            position,
            mask,
            constraint,
            sampling,
            ..
        } = sampler;
        let Scheduler {
            running,
            pool,
            capacity,
            ..
        } = &mut self.scheduler;
        let Some(sequence) = running.get_mut(&rank) else {
            return;
        };
        let id = sequence.id;
        let Some(token) = sampled.token else {
            return self.fail(id, SequenceError::EmptyMask { position });
        };
        let allowed = mask.is_none_or(|m| (token as usize) < m.len() && m.is_allowed(token));
        if !allowed || token as usize >= capacity.vocab_size {
            self.stats.unmasked_tokens += 1;
            return self.fail(id, SequenceError::Unmasked { token, position });
        }
        self.stats.tokens_sampled += 1;
        sequence.mark_computed(position, pool, capacity.block_size);
        let logprob = sampling.logprobs.map(|_| TokenLogprob {
            logprob: sampled.logprob,
            top: sampled.top,
        });
        let trie = self.env.tok_trie();
        if let Some(constraint) = constraint {
            sequence.push_sampled(token, logprob, trie);
            sequence.guide = Guide::Advancing;
            self.workers.send(Job {
                seq: id,
                constraint,
                sampled: Some(token),
            });
            return;
        }
        if sequence.end.contains(&token) {
            sequence.usage.sampled += 1;
            return self.finish(id, FinishReason::Stop);
        }
        sequence.push_sampled(token, logprob, trie);
        sequence.show(sequence.generated(), trie);
        if sequence.tokens.len() >= sequence.limit {
            self.finish(id, FinishReason::Length);
        }
    }

    fn finish(&mut self, id: SeqId, reason: FinishReason) {
        if let Some(sequence) = self.remove(id) {
            self.stats.sequences_finished += 1;
            sequence.finish(reason);
        }
    }

    fn fail(&mut self, id: SeqId, error: SequenceError) {
        if let Some(sequence) = self.remove(id) {
            self.stats.sequences_failed += 1;
            tracing::debug!(sequence = id.0, %error, "a sequence failed");
            sequence.fail(error);
        }
    }

    fn fail_all(&mut self, plan: &[Planned], error: &BackendError) {
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
