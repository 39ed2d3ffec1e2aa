//! One sequence: its tokens, its place in the cache, what of its text was shown.

use crate::kv::{BlockHash, BlockPool};
use crate::{
    BlockId, Chunk, Constraint, Edit, EmittedToken, Event, FinishReason, Request, Sampling, SeqId,
    SequenceError, SimpleVob, Sink, TokTrie, TokenId, TokenLogprob, Usage, WantedLogits,
};
use std::sync::Arc;

/// Where a sequence stands with its constraint.
pub(crate) enum Guide {
    /// There is none.
    Free,
    /// A worker is taking in a token: the next position is not known yet.
    Advancing,
    /// The next position is known, its mask is being computed.
    MaskPending,
    /// The mask is here, and so is the constraint.
    Masked(Mask, Box<dyn Constraint>),
}

/// A mask with the position it was made for: used nowhere else.
pub(crate) struct Mask {
    pub(crate) position: usize,
    pub(crate) bits: Arc<SimpleVob>,
}

/// How one generated token came about.
#[derive(Clone, Default)]
struct Origin {
    sampled: bool,
    logprob: Option<TokenLogprob>,
    /// Bytes of visible text up to the end of this token, counted from the first generated one.
    text_end: usize,
}

/// Sequences with a lower rank go first: priority, then arrival.
pub(crate) type Rank = (i32, SeqId);

pub(crate) struct Sequence {
    pub(crate) id: SeqId,
    pub(crate) rank: Rank,
    /// Prompt, then generated.
    pub(crate) tokens: Vec<TokenId>,
    pub(crate) prompt_len: usize,
    /// Longest `tokens` may get.
    pub(crate) limit: usize,
    /// Leading positions whose keys and values are in the cache.
    pub(crate) computed: usize,
    pub(crate) table: Vec<BlockId>,
    /// Hashes of the full blocks within `computed`.
    hashes: Vec<BlockHash>,
    /// Hashes of the prompt's full blocks, computed or not.
    pub(crate) prompt_hashes: Vec<BlockHash>,
    pub(crate) sampling: Sampling,
    pub(crate) end: Vec<TokenId>,
    pub(crate) guide: Guide,
    /// Temperature and salt of the next sample, from the last edit.
    pub(crate) wish: (Option<f32>, u64),
    /// Consecutive steps sat out.
    pub(crate) misses: u32,
    /// How many of them end the sequence; `None` for the engine's own limit.
    pub(crate) late_limit: Option<u32>,
    pub(crate) usage: Usage,
    /// Whether it was admitted before: a preempted sequence no longer counts against the queue.
    pub(crate) admitted: bool,
    sink: Box<dyn Sink>,
    origins: Vec<Origin>,
    shown: usize,
}

impl Sequence {
    /// Takes a request apart; its constraint, if any, still has to be sent to a worker.
    pub(crate) fn new(
        id: SeqId,
        request: Request,
        max_context: usize,
        block_size: usize,
    ) -> (Self, Option<Box<dyn Constraint>>) {
        let prompt_len = request.prompt.len();
        let guide = if request.constraint.is_some() {
            Guide::Advancing
        } else {
            Guide::Free
        };
        let sequence = Self {
            id,
            rank: (request.priority, id),
            limit: prompt_len
                .saturating_add(request.max_tokens)
                .min(max_context),
            prompt_hashes: crate::kv::chain(&request.prompt, block_size),
            usage: Usage {
                prompt: prompt_len,
                ..Usage::default()
            },
            tokens: request.prompt,
            prompt_len,
            computed: 0,
            table: Vec::new(),
            hashes: Vec::new(),
            sampling: request.sampling,
            end: request.end,
            guide,
            wish: (None, 0),
            misses: 0,
            late_limit: request.constraint.as_ref().and_then(|c| c.late_limit()),
            admitted: false,
            sink: request.sink,
            origins: Vec::new(),
            shown: 0,
        };
        (sequence, request.constraint)
    }

    pub(crate) fn generated(&self) -> usize {
        self.tokens.len() - self.prompt_len
    }

    /// Whether the next token may be sampled once all tokens are computed. While its constraint is still
    /// taking in a token, the last position must wait: an edit may yet replace it.
    pub(crate) fn may_sample(&self) -> bool {
        !matches!(self.guide, Guide::Advancing)
    }

    /// The logits it samples from.
    pub(crate) fn wanted_logits(&self) -> WantedLogits {
        match self.guide {
            Guide::Free => WantedLogits::All,
            _ if self.sampling.logprobs.is_some() => WantedLogits::All,
            _ => WantedLogits::Masked,
        }
    }

    /// Positions that can be run now.
    pub(crate) fn runnable(&self) -> usize {
        let end = if self.may_sample() {
            self.tokens.len()
        } else {
            self.tokens.len() - 1
        };
        end.saturating_sub(self.computed)
    }

    /// Takes over the blocks of a cached prefix.
    pub(crate) fn adopt_prefix(
        &mut self,
        blocks: Vec<BlockId>,
        hashes: &[BlockHash],
        block_size: usize,
    ) {
        self.computed = blocks.len() * block_size;
        self.hashes = hashes[..blocks.len()].to_vec();
        self.table = blocks;
    }

    /// Takes a copy of a known block that goes on like this sequence: its source, and the block that it is to be
    /// copied to. `None` where there is no such block, or no room.
    pub(crate) fn adopt_beginning(
        &mut self,
        pool: &mut BlockPool,
        block_size: usize,
    ) -> Option<(BlockId, BlockId)> {
        // At least one position has to be computed, else there are no logits.
        let end = (self.computed + block_size).min(self.tokens.len() - 1);
        let tokens = self.tokens.get(self.computed..end)?;
        let (from, count) = pool.begins_like(self.hashes.last(), tokens)?;
        let to = pool.lease_empty()?;
        self.table.push(to);
        self.computed += count;
        Some((from, to))
    }

    /// Notes that the positions up to `computed` are in the cache, and publishes the blocks this filled.
    pub(crate) fn mark_computed(
        &mut self,
        computed: usize,
        pool: &mut BlockPool,
        block_size: usize,
    ) {
        self.computed = computed;
        for block in self.hashes.len()..computed / block_size {
            let tokens = &self.tokens[block * block_size..(block + 1) * block_size];
            let hash = pool.publish(self.table[block], self.hashes.last(), tokens);
            self.hashes.push(hash);
        }
    }

    /// Gives all blocks back; the tokens stay.
    pub(crate) fn release_blocks(&mut self, pool: &mut BlockPool) {
        for block in self.table.drain(..) {
            pool.release(block);
        }
        self.hashes.clear();
        self.computed = 0;
    }

    /// Appends a sampled token.
    pub(crate) fn push_sampled(
        &mut self,
        token: TokenId,
        logprob: Option<TokenLogprob>,
        trie: &TokTrie,
    ) {
        self.usage.sampled += 1;
        self.push(
            token,
            Origin {
                sampled: true,
                logprob,
                text_end: 0,
            },
            trie,
        );
    }

    fn push(&mut self, token: TokenId, mut origin: Origin, trie: &TokTrie) {
        let before = self.origins.last().map_or(0, |o| o.text_end);
        origin.text_end = before + visible(trie, token).len();
        self.tokens.push(token);
        self.origins.push(origin);
    }

    /// Carries out an edit. Cache positions past a change are forgotten.
    ///
    /// # Errors
    /// When the edit does not fit the generated tokens; nothing has changed then.
    pub(crate) fn apply(
        &mut self,
        edit: &Edit,
        pool: &mut BlockPool,
        block_size: usize,
        trie: &TokTrie,
    ) -> Result<(), String> {
        let generated = self.generated();
        if edit.keep > generated {
            return Err(format!(
                "an edit keeps {} of {generated} generated tokens",
                edit.keep
            ));
        }
        if let Some(token) = edit
            .append
            .iter()
            .find(|&&t| t as usize >= trie.vocab_size())
        {
            return Err(format!(
                "an edit appends token {token}, past the vocabulary"
            ));
        }
        if edit.released > edit.keep + edit.append.len() {
            return Err(format!(
                "an edit releases {} tokens, more than there are",
                edit.released
            ));
        }
        // Equal tokens stay where they are: a retokenised seam often changes nothing.
        let same = self.tokens[self.prompt_len + edit.keep..]
            .iter()
            .zip(&edit.append)
            .take_while(|(old, new)| old == new)
            .count();
        let keep = edit.keep + same;
        let dropped = &self.tokens[self.prompt_len + keep..];
        self.usage.retracted += dropped.iter().filter(|t| !self.end.contains(t)).count();
        self.tokens.truncate(self.prompt_len + keep);
        self.origins.truncate(keep);
        for &token in &edit.append[same..] {
            self.push(token, Origin::default(), trie);
        }
        // One position at least is left to run, since the next token needs its logits.
        let valid = (self.prompt_len + keep).min(self.tokens.len() - 1);
        self.rewind(valid, pool, block_size);
        Ok(())
    }

    /// Forgets the cache past the first `valid` positions: those are to be computed anew, in blocks that are
    /// this sequence's alone.
    fn rewind(&mut self, valid: usize, pool: &mut BlockPool, block_size: usize) {
        if valid >= self.computed {
            return;
        }
        self.computed = valid;
        let blocks = self.computed.div_ceil(block_size);
        for block in self.table.drain(blocks.min(self.table.len())..) {
            pool.release(block);
        }
        let full = self.computed / block_size;
        self.hashes.truncate(full);
        if full < self.table.len() && !pool.claim(self.table[full]) {
            for block in self.table.drain(full..) {
                pool.release(block);
            }
            self.computed = full * block_size;
        }
    }

    /// Shows the text of the first `released` generated tokens, as far as it was not shown before.
    pub(crate) fn show(&mut self, released: usize, trie: &TokTrie) {
        let until = released
            .checked_sub(1)
            .map_or(0, |last| self.origins[last].text_end);
        if until <= self.shown {
            return;
        }
        let first = self.origins.partition_point(|o| o.text_end <= self.shown);
        let mut chunk = Chunk::default();
        for index in first..released {
            let token = self.tokens[self.prompt_len + index];
            let (text, origin) = (visible(trie, token), &self.origins[index]);
            let start = origin.text_end - text.len();
            chunk
                .bytes
                .extend_from_slice(&text[self.shown.saturating_sub(start)..]);
            chunk.tokens.push(EmittedToken {
                token,
                sampled: origin.sampled,
                logprob: origin.logprob.clone(),
            });
        }
        self.shown = until;
        self.sink.emit(Event::Tokens(chunk));
    }

    /// Drops the tokens past the limit. Only before the end: the cache is not told.
    pub(crate) fn cut(&mut self) {
        self.tokens.truncate(self.limit);
        self.origins.truncate(self.limit - self.prompt_len);
    }

    pub(crate) fn finish(mut self, reason: FinishReason) {
        let usage = self.final_usage();
        self.sink.emit(Event::Finished { reason, usage });
    }

    pub(crate) fn fail(mut self, error: SequenceError) {
        let usage = self.final_usage();
        self.sink.emit(Event::Failed { error, usage });
    }

    fn final_usage(&self) -> Usage {
        let forced = self.origins.iter().filter(|o| !o.sampled).count();
        Usage {
            completion: self.generated(),
            forced,
            ..self.usage
        }
    }
}

/// The bytes a client sees of a token: none for special ones.
fn visible(trie: &TokTrie, token: TokenId) -> &[u8] {
    if trie.is_special_token(token) {
        &[]
    } else {
        trie.token(token)
    }
}
