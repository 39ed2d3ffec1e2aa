//! Causal attention over a paged cache, with a running maximum (Milakov and Gimelshein 2018).

use crate::cpu::on_isa;
use crate::exp::exp;
use crate::kv::RUN;
use crate::norm::tree_sum;
use crate::{Cpu, Isa, KvCache, shared::Shared};
use std::cell::RefCell;

/// Query rows that share one reading of the cache.
const CHUNK: usize = 8;

/// Shape of the queries.
#[derive(Clone, Copy, Debug)]
pub struct AttentionShape {
    /// Query heads; a multiple of the cache's heads. Neighbouring query heads share a cache head.
    pub heads: usize,
    /// Distance between the first elements of neighbouring query rows.
    pub stride: usize,
    /// Multiplies the dot products; usually `1 / sqrt(head_dim)`.
    pub scale: f32,
}

/// Neighbouring query rows that belong to one sequence.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// Index of the first row among all query rows.
    pub first_row: usize,
    /// Rows.
    pub rows: usize,
    /// Position of the first row in its sequence. The cache holds all positions up to the last row's.
    pub start: usize,
    /// The sequence's block table.
    pub table: &'a [u32],
}

/// Attention of each query row over its own sequence, up to and including its own position. Row `r`
/// has its `heads * head_dim` numbers at `queries[r * stride..]`; `out` gets rows of
/// `heads * head_dim`.
///
/// # Panics
/// When shapes do not fit or a table is too short.
pub fn attention(
    cpu: &Cpu,
    shape: AttentionShape,
    cache: &KvCache,
    segments: &[Segment<'_>],
    queries: &[f32],
    out: &mut [f32],
) {
    let kv = cache.shape();
    assert!(shape.heads > 0 && shape.heads.is_multiple_of(kv.kv_heads));
    assert!(shape.stride >= shape.heads * kv.head_dim);
    let mut items = Vec::new();
    for segment in segments {
        assert!(segment.table.len() * kv.block_size >= segment.start + segment.rows);
        for first in (0..segment.rows).step_by(CHUNK) {
            items.extend((0..kv.kv_heads).map(|kv_head| Item {
                segment,
                first,
                rows: CHUNK.min(segment.rows - first),
                kv_head,
            }));
        }
    }
    // The longest contexts first, so that no thread is left alone with one at the end.
    items.sort_by_key(|item| std::cmp::Reverse(item.segment.start + item.first));
    let job = Job {
        isa: cpu.isa(),
        shape,
        cache,
        queries,
        out: Shared::new(out),
    };
    cpu.for_each(items.len(), |index| {
        SCRATCH.with_borrow_mut(|scratch| job.run(&items[index], scratch));
    });
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = const { RefCell::new(Scratch::new()) };
}

/// A few rows of one sequence, for the query heads that share one cache head.
struct Item<'a> {
    segment: &'a Segment<'a>,
    /// First row, counted within the segment.
    first: usize,
    rows: usize,
    kv_head: usize,
}

struct Job<'a> {
    isa: Isa,
    shape: AttentionShape,
    cache: &'a KvCache,
    queries: &'a [f32],
    out: Shared<'a, f32>,
}

/// Memory of one thread.
struct Scratch {
    keys: Vec<f32>,
    values: Vec<f32>,
    /// Scaled queries, by row and head of the group.
    queries: Vec<f32>,
    /// One per row and head of the group.
    states: Vec<State>,
    /// Weighted values so far, in the order of `states`.
    sums: Vec<f32>,
}

/// How far a softmax has come.
#[derive(Clone, Copy)]
struct State {
    largest: f32,
    total: f32,
}

impl Scratch {
    const fn new() -> Self {
        Self {
            keys: Vec::new(),
            values: Vec::new(),
            queries: Vec::new(),
            states: Vec::new(),
            sums: Vec::new(),
        }
    }
}

impl Job<'_> {
    fn run(&self, item: &Item<'_>, scratch: &mut Scratch) {
        let kv = self.cache.shape();
        let group = self.shape.heads / kv.kv_heads;
        let dim = kv.head_dim;
        scratch.keys.resize(dim * RUN, 0.0);
        scratch.values.resize(dim * RUN, 0.0);
        self.load_queries(item, scratch);
        let first_position = item.segment.start + item.first;
        let last_position = first_position + item.rows - 1;
        let runs_per_block = kv.block_size / RUN;
        for run in 0..=last_position / RUN {
            let block = item.segment.table[run / runs_per_block] as usize;
            let place = [block, item.kv_head, run % runs_per_block];
            self.cache
                .read(place, &mut scratch.keys, &mut scratch.values);
            for row in 0..item.rows {
                // A row attends to its own position and those before it.
                let visible = (first_position + row + 1)
                    .saturating_sub(run * RUN)
                    .min(RUN);
                if visible == 0 {
                    continue;
                }
                for index in row * group..(row + 1) * group {
                    let query = &scratch.queries[index * dim..][..dim];
                    let sums = &mut scratch.sums[index * dim..][..dim];
                    let run = Run {
                        keys: &scratch.keys,
                        values: &scratch.values,
                        visible,
                    };
                    let state = &mut scratch.states[index];
                    on_isa!(
                        self.isa,
                        absorb(run, query, state, sums),
                        absorb_avx2(run, query, state, sums)
                    );
                }
            }
        }
        self.store(item, scratch);
    }

    fn load_queries(&self, item: &Item<'_>, scratch: &mut Scratch) {
        let kv = self.cache.shape();
        let width = self.shape.heads / kv.kv_heads * kv.head_dim;
        scratch.queries.clear();
        for row in 0..item.rows {
            let row = item.segment.first_row + item.first + row;
            let at = row * self.shape.stride + item.kv_head * width;
            let query = &self.queries[at..at + width];
            scratch
                .queries
                .extend(query.iter().map(|value| value * self.shape.scale));
        }
        scratch.sums.clear();
        scratch.sums.resize(item.rows * width, 0.0);
        scratch.states.clear();
        scratch.states.resize(
            item.rows * width / kv.head_dim,
            State {
                largest: f32::NEG_INFINITY,
                total: 0.0,
            },
        );
    }

    fn store(&self, item: &Item<'_>, scratch: &Scratch) {
        let kv = self.cache.shape();
        let group = self.shape.heads / kv.kv_heads;
        let states = scratch.states.chunks_exact(group);
        let sums = scratch.sums.chunks_exact(group * kv.head_dim);
        for (row, (states, sums)) in states.zip(sums).enumerate() {
            let row = item.segment.first_row + item.first + row;
            let at = (row * self.shape.heads + item.kv_head * group) * kv.head_dim;
            // SAFETY: a row and a cache head belong to one item only.
            let out = unsafe { self.out.part(at..at + group * kv.head_dim) };
            for ((out, sums), state) in out
                .chunks_exact_mut(kv.head_dim)
                .zip(sums.chunks_exact(kv.head_dim))
                .zip(states)
            {
                for (out, sum) in out.iter_mut().zip(sums) {
                    *out = sum / state.total;
                }
            }
        }
    }
}

/// Sixteen positions of the cache, in single precision.
#[derive(Clone, Copy)]
struct Run<'a> {
    keys: &'a [f32],
    values: &'a [f32],
    /// How many of them the query may see; at least one.
    visible: usize,
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn absorb_avx2(run: Run<'_>, query: &[f32], state: &mut State, sums: &mut [f32]) {
    absorb(run, query, state, sums);
}

/// Takes sixteen more positions into a query's softmax.
#[inline(always)]
fn absorb(run: Run<'_>, query: &[f32], state: &mut State, sums: &mut [f32]) {
    let mut scores = score(run.keys, query);
    for score in &mut scores[run.visible..] {
        *score = f32::NEG_INFINITY;
    }
    let largest = scores.iter().fold(state.largest, |a, &b| a.max(b));
    let shrink = exp(state.largest - largest);
    for score in &mut scores {
        *score = exp(*score - largest);
    }
    state.largest = largest;
    state.total = state.total.mul_add(shrink, tree_sum(scores));
    let dim = sums.len();
    let (sums, _) = sums.as_chunks_mut::<RUN>();
    for (chunk, sums) in sums.iter_mut().enumerate() {
        let mut lanes = *sums;
        for lane in &mut lanes {
            *lane *= shrink;
        }
        for (weight, values) in scores
            .iter()
            .zip(run.values.chunks_exact(dim))
            .take(run.visible)
        {
            let values = &values[chunk * RUN..][..RUN];
            for (lane, value) in lanes.iter_mut().zip(values) {
                *lane = weight.mul_add(*value, *lane);
            }
        }
        *sums = lanes;
    }
}

/// Dot products of one query with sixteen keys, in four interleaved partial sums.
#[inline(always)]
fn score(keys: &[f32], query: &[f32]) -> [f32; RUN] {
    let mut partial = [[0f32; RUN]; 4];
    let (keys, _) = keys.as_chunks::<RUN>();
    let (keys, _) = keys.as_chunks::<4>();
    let (query, _) = query.as_chunks::<4>();
    for (keys, query) in keys.iter().zip(query) {
        for part in 0..4 {
            for lane in 0..RUN {
                partial[part][lane] = query[part].mul_add(keys[part][lane], partial[part][lane]);
            }
        }
    }
    let mut total = [0f32; RUN];
    for lane in 0..RUN {
        total[lane] = (partial[0][lane] + partial[1][lane]) + (partial[2][lane] + partial[3][lane]);
    }
    total
}
