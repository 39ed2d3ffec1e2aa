//! One step: launch beside the masks, sample under them, commit.

use crate::constraint::Constraint;
use crate::core::Core;
use crate::scheduler::{Planned, Scheduler};
use crate::sequence::{Guide, Rank};
use crate::workers::Job;
use crate::{
    BackendError, FinishReason, Row, SampleRow, Sampled, Sampling, SequenceError, SimpleVob,
    StepInput, Ticket, TokenLogprob, WantedLogits,
};
use std::sync::Arc;

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
    pub(crate) fn step(&mut self, plan: &[Planned]) {
        let input = self.input(plan);
        let wanted: Vec<(usize, Planned)> = plan
            .iter()
            .copied()
            .enumerate()
            .filter(|&(row, _)| input.rows.get(row).is_some_and(Row::samples))
            .collect();
        self.stats.steps += 1;
        self.stats.tokens_computed += plan.iter().map(|p| p.tokens as u64).sum::<u64>();
        let start = self.config.clock.now();
        let launched = self.copy_blocks().and_then(|()| self.backend.launch(input));
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

    fn copy_blocks(&mut self) -> Result<(), BackendError> {
        let mut copies = self.scheduler.copies.drain(..);
        copies.try_for_each(|(from, to)| self.backend.copy(from, to))
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
                logits: match end == sequence.tokens.len() && sequence.may_sample() {
                    true => sequence.wanted_logits(),
                    false => WantedLogits::None,
                },
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
        if misses > sequence.late_limit.unwrap_or(self.config.late_limit) {
            self.fail(id, SequenceError::Late { position, misses });
        }
    }

    fn sample(
        &mut self,
        ticket: Ticket,
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
}
