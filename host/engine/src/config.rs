//! What an operator may set, and what the engine tells about itself.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Limits and waits of one engine.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Most sequences in the batch. More rows share each read of the weights but need more cache.
    pub max_rows: usize,
    /// Most tokens run in one step; bounds how long a prefill can hold up the decodes beside it.
    pub token_budget: usize,
    /// Most sequences waiting for a place in the batch; past it `submit` refuses.
    pub queue_limit: usize,
    /// Threads that advance constraints and compute masks. First calls have threads of their own, since
    /// they may compile a grammar.
    pub workers: usize,
    /// How long a step waits, after its logits exist, for masks that are late; then their rows sit out.
    pub mask_wait_ms: u64,
    /// How long planning waits for constraints that are still taking in the last step's token.
    pub plan_wait_ms: u64,
    /// Consecutive steps a row may sit out because its mask is late; then it fails.
    pub late_limit: u32,
    /// Where monotonic time comes from.
    pub clock: Clock,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            max_rows: 64,
            token_budget: 512,
            queue_limit: 256,
            workers: 2,
            mask_wait_ms: 20,
            plan_wait_ms: 5,
            late_limit: 100,
            clock: Clock::default(),
        }
    }
}

/// A monotonic clock: time since some fixed origin.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Duration + Send + Sync>);

impl Clock {
    /// A clock that asks `now`, which must never go back.
    pub fn new(now: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    pub(crate) fn now(&self) -> Duration {
        (self.0)()
    }
}

impl Default for Clock {
    fn default() -> Self {
        let origin = Instant::now();
        Self::new(move || origin.elapsed())
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

/// A snapshot taken after each step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Sequences in the batch.
    pub running: usize,
    /// Sequences waiting, preempted ones included.
    pub waiting: usize,
    /// Blocks of the pool.
    pub blocks_total: usize,
    /// Blocks that hold nothing.
    pub blocks_free: usize,
    /// Blocks that no sequence leases and whose content may be hit again.
    pub blocks_cached: usize,
    /// Blocks leased by sequences.
    pub blocks_leased: usize,
    /// Steps launched.
    pub steps: u64,
    /// Positions run through the model.
    pub tokens_computed: u64,
    /// Tokens sampled.
    pub tokens_sampled: u64,
    /// Tokens put in by constraints without sampling.
    pub tokens_forced: u64,
    /// Tokens taken away by constraints.
    pub tokens_retracted: u64,
    /// Prompt tokens whose keys and values came from the prefix cache.
    pub prefix_hit_tokens: u64,
    /// Sequences that lost their blocks to another.
    pub preemptions: u64,
    /// Sampled tokens found outside their mask; must be 0.
    pub unmasked_tokens: u64,
    /// Rows that sat a step out because their mask was late.
    pub late_masks: u64,
    /// Sequences that ended well or were aborted.
    pub sequences_finished: u64,
    /// Sequences that failed.
    pub sequences_failed: u64,
    /// Time spent waiting for the forward pass, microseconds.
    pub forward_us: u64,
    /// Time spent waiting for masks after the logits were there, microseconds.
    pub mask_wait_us: u64,
    /// Time spent waiting for constraints before planning, microseconds.
    pub plan_wait_us: u64,
    /// Time spent on logits that had to wait for masks and on sampling, microseconds.
    pub sample_us: u64,
}
