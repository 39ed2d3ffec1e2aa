//! One thread's memory, and what is done to all queries of an item within one span.

use super::SPAN;
use super::tile::{self, Numbers};
use crate::Isa;
use crate::cpu::on_isa;
use crate::exp::exp;
use crate::kv::{RUN, Run, widen, widen_bytes};
use crate::norm::tree_sum;

/// How far a softmax has come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State {
    /// Largest score so far.
    pub(super) largest: f32,
    /// Sum of the weights so far, relative to the largest.
    pub(super) total: f32,
}

impl State {
    /// Numbers in a state.
    pub(super) const LEN: usize = 2;

    const START: Self = Self {
        largest: f32::NEG_INFINITY,
        total: 0.0,
    };
}

/// Memory of one thread. A query is one head of one row.
#[derive(Default)]
pub(super) struct Scratch {
    /// Scaled queries.
    pub(super) queries: Vec<f32>,
    /// Over the spans merged so far, one per query.
    pub(super) states: Vec<State>,
    /// Weighted values of the spans merged so far.
    pub(super) sums: Vec<f32>,
    /// Per query: how many positions of the current span it sees.
    pub(super) visible: Vec<usize>,
    /// Per query: [`SPAN`] scores, then weights, of the current span.
    scores: Vec<f32>,
    span_states: Vec<State>,
    span_sums: Vec<f32>,
    /// A run of keys or values in single precision.
    run: Vec<f32>,
}

impl Scratch {
    /// Forgets everything and makes room for `count` queries of `dim` numbers.
    pub(super) fn reset(&mut self, count: usize, dim: usize) {
        self.queries.resize(count * dim, 0.0);
        self.states.clear();
        self.states.resize(count, State::START);
        self.sums.clear();
        self.sums.resize(count * dim, 0.0);
        self.visible.resize(count, 0);
        self.scores.resize(count * SPAN, 0.0);
        self.span_states.resize(count, State::START);
        self.span_sums.resize(count * dim, 0.0);
        self.run.resize(dim * RUN, 0.0);
    }

    fn dim(&self) -> usize {
        self.run.len() / RUN
    }

    /// The queries from `first` on that are best done together: up to [`tile::MOST`], all of which see
    /// the same number of the sixteen positions from `offset` on. Their number, and that.
    fn together(visible: &[usize], first: usize, offset: usize) -> (usize, usize) {
        let seen = |visible: usize| visible.saturating_sub(offset).min(RUN);
        let want = seen(visible[first]);
        let same = visible[first..].iter().take(tile::MOST);
        (same.take_while(|&&v| seen(v) == want).count(), want)
    }

    /// Scores of the sixteen positions from `offset` within the span on.
    pub(super) fn score(&mut self, isa: Isa, stored: Run<'_>, offset: usize) {
        let (dim, mut first) = (self.dim(), 0);
        let keys = numbers(isa, stored, &mut self.run, self.visible.len());
        while first < self.visible.len() {
            let (count, seen) = Self::together(&self.visible, first, offset);
            if seen > 0 {
                let tile = tile::Scores {
                    keys,
                    queries: &self.queries[first * dim..(first + count) * dim],
                    scores: &mut self.scores[first * SPAN..(first + count) * SPAN],
                    offset,
                };
                on_isa!(isa, tile::scores(tile), tile::scores_avx2(tile));
            }
            first += count;
        }
        // A key's scale is that of its score.
        self.rescale(isa, stored, offset);
    }

    /// Multiplies each query's numbers for sixteen positions with the scales of what is stored there, if it
    /// has any.
    fn rescale(&mut self, isa: Isa, stored: Run<'_>, offset: usize) {
        let Run::Byte(_, scales) = stored else {
            return;
        };
        let mut wide = [0f32; RUN];
        widen(isa, scales, &mut wide);
        for scores in self.scores.chunks_exact_mut(SPAN) {
            for (score, scale) in scores[offset..offset + RUN].iter_mut().zip(&wide) {
                *score *= scale;
            }
        }
    }

    /// Turns scores into weights relative to the span's largest.
    pub(super) fn softmax(&mut self, isa: Isa) {
        self.span_sums.fill(0.0);
        for ((scores, state), &visible) in self
            .scores
            .chunks_exact_mut(SPAN)
            .zip(&mut self.span_states)
            .zip(&self.visible)
        {
            *state = on_isa!(isa, softmax(scores, visible), softmax_avx2(scores, visible));
        }
    }

    /// Adds the weighted values of the sixteen positions from `offset` within the span on.
    pub(super) fn add_values(&mut self, isa: Isa, stored: Run<'_>, offset: usize) {
        let (dim, mut first) = (self.dim(), 0);
        // A value's scale goes into its weight, which nobody needs afterwards.
        self.rescale(isa, stored, offset);
        let values = numbers(isa, stored, &mut self.run, self.visible.len());
        while first < self.visible.len() {
            let (count, seen) = Self::together(&self.visible, first, offset);
            if seen > 0 {
                let tile = tile::Values {
                    values: values.up_to(seen * dim),
                    weights: &self.scores[first * SPAN..(first + count) * SPAN],
                    sums: &mut self.span_sums[first * dim..(first + count) * dim],
                    offset,
                };
                on_isa!(isa, tile::values(tile), tile::values_avx2(tile));
            }
            first += count;
        }
    }

    /// Takes the current span into the states and sums of those queries that see any of it.
    pub(super) fn merge_span(&mut self, isa: Isa, dim: usize) {
        let spans = self
            .span_states
            .iter()
            .zip(self.span_sums.chunks_exact(dim));
        let totals = self.states.iter_mut().zip(self.sums.chunks_exact_mut(dim));
        for (((state, sums), (span, span_sums)), &visible) in totals.zip(spans).zip(&self.visible) {
            if visible > 0 {
                on_isa!(
                    isa,
                    merge((state, sums), (span, span_sums)),
                    merge_avx2((state, sums), (span, span_sums))
                );
            }
        }
    }

    /// Writes the current span's states and sums to `part`.
    pub(super) fn save(&self, part: &mut [f32]) {
        let (states, sums) = part.split_at_mut(self.span_states.len() * State::LEN);
        for (out, state) in states.chunks_exact_mut(State::LEN).zip(&self.span_states) {
            out.copy_from_slice(&[state.largest, state.total]);
        }
        sums[..self.span_sums.len()].copy_from_slice(&self.span_sums);
    }

    /// Reads what [`Self::save`] wrote.
    pub(super) fn restore(&mut self, part: &[f32], visible: impl Fn(usize) -> usize) {
        let (states, sums) = part.split_at(self.span_states.len() * State::LEN);
        for (state, saved) in self
            .span_states
            .iter_mut()
            .zip(states.chunks_exact(State::LEN))
        {
            (state.largest, state.total) = (saved[0], saved[1]);
        }
        let len = self.span_sums.len();
        self.span_sums.copy_from_slice(&sums[..len]);
        for (index, seen) in self.visible.iter_mut().enumerate() {
            *seen = visible(index);
        }
    }
}

/// A run as tiles read it: where one tile does all queries, as it lies in the cache.
fn numbers<'a>(isa: Isa, stored: Run<'a>, run: &'a mut [f32], queries: usize) -> Numbers<'a> {
    let direct = isa != Isa::Portable && queries <= tile::MOST;
    match stored {
        Run::Half(halves) if direct => Numbers::Half(halves),
        Run::Byte(codes, _) if direct => Numbers::Byte(codes),
        Run::Half(halves) => {
            widen(isa, halves, run);
            Numbers::Full(run)
        }
        Run::Byte(codes, _) => {
            widen_bytes(isa, codes, run);
            Numbers::Full(run)
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn softmax_avx2(scores: &mut [f32], visible: usize) -> State {
    softmax(scores, visible)
}

#[inline(always)]
fn softmax(scores: &mut [f32], visible: usize) -> State {
    scores[visible..].fill(f32::NEG_INFINITY);
    let (runs, _) = scores.as_chunks_mut::<RUN>();
    let runs = &mut runs[..visible.div_ceil(RUN)];
    let mut largest = [f32::NEG_INFINITY; RUN];
    for run in runs.iter() {
        for (largest, &score) in largest.iter_mut().zip(run) {
            *largest = if score > *largest { score } else { *largest };
        }
    }
    let largest = largest.iter().fold(f32::NEG_INFINITY, |a, &b| a.max(b));
    let mut totals = [0f32; RUN];
    for run in runs {
        for (score, total) in run.iter_mut().zip(&mut totals) {
            *score = exp(*score - largest);
            *total += *score;
        }
    }
    State {
        largest,
        total: tree_sum(totals),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn merge_avx2(into: (&mut State, &mut [f32]), span: (&State, &[f32])) {
    merge(into, span);
}

#[inline(always)]
fn merge((state, sums): (&mut State, &mut [f32]), (span, span_sums): (&State, &[f32])) {
    let largest = state.largest.max(span.largest);
    let (old, new) = (exp(state.largest - largest), exp(span.largest - largest));
    state.largest = largest;
    state.total = state.total.mul_add(old, span.total * new);
    for (sum, span) in sums.iter_mut().zip(span_sums) {
        *sum = sum.mul_add(old, span * new);
    }
}
