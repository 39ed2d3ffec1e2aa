//! Which sequences run in the next step, and with how many tokens.

use crate::kv::{BlockHash, BlockPool};
use crate::sequence::{Rank, Sequence};
use crate::{BlockId, Capacity, EngineConfig, SeqId};
use std::collections::{BTreeMap, HashSet};

/// The work chosen for one sequence: run `tokens` positions from `start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) rank: Rank,
    pub(crate) start: usize,
    pub(crate) tokens: usize,
}

/// All live sequences. Those in the batch hold blocks; those waiting hold none.
pub(crate) struct Scheduler {
    pub(crate) running: BTreeMap<Rank, Sequence>,
    pub(crate) waiting: BTreeMap<Rank, Sequence>,
    pub(crate) pool: BlockPool,
    pub(crate) capacity: Capacity,
    pub(crate) preemptions: u64,
    pub(crate) prefix_hit_tokens: u64,
    /// Blocks to be copied before the next step, in this order: from, to. Until a step runs no block's content
    /// changes, so a source may be given to somebody else meanwhile.
    pub(crate) copies: Vec<(BlockId, BlockId)>,
    max_rows: usize,
    token_budget: usize,
}

impl Scheduler {
    pub(crate) fn new(capacity: Capacity, config: &EngineConfig) -> Self {
        Self {
            running: BTreeMap::new(),
            waiting: BTreeMap::new(),
            pool: BlockPool::new(capacity.blocks),
            capacity,
            preemptions: 0,
            prefix_hit_tokens: 0,
            copies: Vec::new(),
            max_rows: config.max_rows.max(1),
            token_budget: config.token_budget.max(1),
        }
    }

    pub(crate) fn find(&mut self, id: SeqId) -> Option<&mut Sequence> {
        let by_id = |s: &&mut Sequence| s.id == id;
        self.running
            .values_mut()
            .find(by_id)
            .or_else(|| self.waiting.values_mut().find(by_id))
    }

    /// Takes a sequence out, its blocks given back.
    pub(crate) fn remove(&mut self, id: SeqId) -> Option<Sequence> {
        let rank = self.find(id)?.rank;
        let mut sequence = self
            .running
            .remove(&rank)
            .or_else(|| self.waiting.remove(&rank))?;
        sequence.release_blocks(&mut self.pool);
        Some(sequence)
    }

    /// Chooses the next step's work: decodes first, then chunks of running sequences, then new ones, each in
    /// order of rank, until the token budget is spent. Leases the blocks the work needs, taking them from the
    /// sequences of highest rank when short.
    pub(crate) fn plan(&mut self) -> Vec<Planned> {
        let mut plan: Vec<Planned> = Vec::new();
        let mut budget = self.token_budget;
        for decodes in [true, false] {
            let ranks: Vec<Rank> = self.running.keys().copied().collect();
            for rank in ranks {
                // An earlier row of this step may have preempted it.
                let Some(sequence) = self.running.get(&rank) else {
                    continue;
                };
                let runnable = sequence.runnable();
                if budget == 0 || runnable == 0 || (runnable == 1) != decodes {
                    continue;
                }
                if let Some(planned) = self.place(rank, runnable.min(budget), &mut plan) {
                    budget -= planned.tokens;
                    plan.push(planned);
                }
            }
        }
        self.admit(&mut plan, budget);
        plan
    }

    /// Leases blocks so that `tokens` more positions of a running sequence fit.
    fn place(&mut self, rank: Rank, tokens: usize, plan: &mut Vec<Planned>) -> Option<Planned> {
        let sequence = self.running.get(&rank)?;
        let start = sequence.computed;
        let needed = (start + tokens).div_ceil(self.capacity.block_size);
        loop {
            let sequence = self.running.get_mut(&rank)?;
            while sequence.table.len() < needed {
                let Some(block) = self.pool.lease_empty() else {
                    break;
                };
                sequence.table.push(block);
            }
            if sequence.table.len() >= needed {
                return Some(Planned {
                    rank,
                    start,
                    tokens,
                });
            }
            // Short of blocks: the last in rank gives its own, be it this one.
            let (&victim, _) = self.running.last_key_value()?;
            plan.retain(|planned| planned.rank != victim);
            self.preempt(victim);
            if victim == rank {
                return None;
            }
        }
    }

    fn preempt(&mut self, rank: Rank) {
        if let Some(mut sequence) = self.running.remove(&rank) {
            sequence.release_blocks(&mut self.pool);
            self.preemptions += 1;
            self.waiting.insert(rank, sequence);
        }
    }

    /// Lets waiting sequences into the batch while there are rows, blocks and budget for them.
    fn admit(&mut self, plan: &mut Vec<Planned>, mut budget: usize) {
        let mut under_way = self.prefills_under_way();
        let ranks: Vec<Rank> = self.waiting.keys().copied().collect();
        for rank in ranks {
            if self.running.len() >= self.max_rows || budget == 0 {
                return;
            }
            let Some(sequence) = self.waiting.get(&rank) else {
                continue;
            };
            let block_size = self.capacity.block_size;
            // At least one position has to be computed, else there are no logits.
            let shareable = (sequence.tokens.len() - 1) / block_size;
            let hashes = if sequence.generated() == 0 {
                sequence.prompt_hashes[..shareable].to_vec()
            } else {
                crate::kv::chain(&sequence.tokens[..shareable * block_size], block_size)
            };
            let known = hashes
                .iter()
                .take_while(|hash| self.pool.knows(hash))
                .count();
            if hashes
                .get(known)
                .is_some_and(|next| under_way.contains(next))
            {
                // Somebody computes the very block this one needs next: wait for it, then share it.
                continue;
            }
            let blocks = self.pool.lease_prefix(&hashes);
            let room = sequence.tokens.len().div_ceil(block_size) + 1 - blocks.len();
            if room > self.pool.available() && !self.running.is_empty() {
                // It would only push others out. Nothing behind it may overtake it.
                blocks
                    .into_iter()
                    .for_each(|block| self.pool.release(block));
                return;
            }
            let Some(mut sequence) = self.waiting.remove(&rank) else {
                continue;
            };
            let full = blocks.len();
            sequence.adopt_prefix(blocks, &hashes, block_size);
            self.copies
                .extend(sequence.adopt_beginning(&mut self.pool, block_size));
            let hit = sequence.computed;
            if !sequence.admitted {
                sequence.usage.cached = hit;
                self.prefix_hit_tokens += hit as u64;
            }
            under_way.extend(hashes.iter().skip(full));
            let runnable = sequence.runnable();
            self.running.insert(rank, sequence);
            if runnable > 0
                && let Some(planned) = self.place(rank, runnable.min(budget), plan)
            {
                budget -= planned.tokens;
                plan.push(planned);
            }
        }
    }

    /// Hashes of prompt blocks that running sequences will have computed soon.
    fn prefills_under_way(&self) -> HashSet<BlockHash> {
        let block_size = self.capacity.block_size;
        self.running
            .values()
            .flat_map(|s| {
                // The last position may have to wait for a constraint: nobody waits for its block.
                let soon = (s.prompt_len - 1) / block_size;
                s.prompt_hashes
                    .iter()
                    .take(soon)
                    .skip(s.computed / block_size)
            })
            .copied()
            .collect()
    }

    /// Checks the block books against what the sequences hold.
    ///
    /// # Errors
    /// Says what does not add up.
    pub(crate) fn audit(&self) -> Result<(), String> {
        let held = self
            .running
            .values()
            .chain(self.waiting.values())
            .flat_map(|s| &s.table);
        self.pool.audit(held.copied())
    }
}
