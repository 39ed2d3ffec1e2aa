//! Causal attention over a paged cache.
//!
//! A context is cut into spans of [`SPAN`] positions at fixed places. Within a span the softmax is
//! taken plainly; spans are then merged in order by their maxima (Milakov and Gimelshein 2018). Whether
//! one thread walks all spans of a query or several share them, the arithmetic is the same. Query heads
//! that share a cache head, and neighbouring rows of a sequence, share one reading of keys and values.

mod span;
mod tile;

use crate::kv::RUN;
use crate::{Cpu, Isa, KvCache, shared::Shared};
use span::{Scratch, State};
use std::cell::RefCell;

/// Query rows that share one reading of the cache.
const CHUNK: usize = 16;
/// Positions whose softmax is taken at once; a multiple of [`RUN`].
const SPAN: usize = 128;
/// Below this many pieces of work per thread, contexts are split among threads.
const ITEMS_PER_THREAD: usize = 6;

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
    for segment in segments {
        assert!(segment.table.len() * kv.block_size >= segment.start + segment.rows);
    }
    PLAN.with_borrow_mut(|plan| {
        plan.make(segments, kv.kv_heads, cpu.threads() * ITEMS_PER_THREAD);
        let job = Job {
            isa: cpu.isa(),
            shape,
            cache,
            segments,
            queries,
            group: shape.heads / kv.kv_heads,
            dim: kv.head_dim,
        };
        let part_len = CHUNK * job.group * (kv.head_dim + State::LEN);
        plan.partial.resize(plan.parts * part_len, 0.0);
        let out = Shared::new(out);
        let partial = Shared::new(&mut plan.partial);
        let items = &plan.items;
        cpu.for_each(items.len(), |index| {
            let item = &items[index];
            SCRATCH.with_borrow_mut(|scratch| {
                job.load_queries(item, scratch);
                match item.part {
                    None => {
                        job.walk(item, scratch);
                        job.store(item, scratch, &out);
                    }
                    Some(part) => {
                        // SAFETY: each part belongs to one item.
                        let part = unsafe { partial.part(part * part_len..(part + 1) * part_len) };
                        job.save_span(item, scratch, part);
                    }
                }
            });
        });
        if plan.parts == 0 {
            return;
        }
        let (merges, partial) = (&plan.merges, &plan.partial[..]);
        cpu.for_each(merges.len(), |index| {
            let merge = &merges[index];
            let first = merge.part.unwrap_or_default();
            let parts = &partial[first * part_len..(first + merge.spans.len()) * part_len];
            SCRATCH.with_borrow_mut(|scratch| {
                job.load_queries(merge, scratch);
                job.merge_spans(merge, scratch, parts.chunks_exact(part_len));
                job.store(merge, scratch, &out);
            });
        });
    });
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
    static PLAN: RefCell<Plan> = RefCell::default();
}

/// Some spans of a few rows of one sequence, for the query heads that share one cache head.
struct Item {
    segment: usize,
    /// First row, counted within the segment.
    first: usize,
    rows: usize,
    kv_head: usize,
    /// Position of the last row.
    last: usize,
    spans: std::ops::Range<usize>,
    /// Where the spans' results go, or come from, when several items share a context.
    part: Option<usize>,
}

/// The work of a call; kept, so that its memory is used again.
#[derive(Default)]
struct Plan {
    items: Vec<Item>,
    /// What to merge after all items.
    merges: Vec<Item>,
    parts: usize,
    partial: Vec<f32>,
}

impl Plan {
    /// Plans at least `wanted` items where contexts are long enough for that.
    fn make(&mut self, segments: &[Segment<'_>], kv_heads: usize, wanted: usize) {
        self.items.clear();
        self.merges.clear();
        self.parts = 0;
        let whole: usize = segments
            .iter()
            .map(|segment| segment.rows.div_ceil(CHUNK) * kv_heads)
            .sum();
        for (index, segment) in segments.iter().enumerate() {
            for first in (0..segment.rows).step_by(CHUNK) {
                let rows = CHUNK.min(segment.rows - first);
                let last = segment.start + first + rows - 1;
                let spans = last / SPAN + 1;
                let item = |kv_head, spans, part| Item {
                    segment: index,
                    first,
                    rows,
                    kv_head,
                    last,
                    spans,
                    part,
                };
                for kv_head in 0..kv_heads {
                    if whole >= wanted || spans == 1 {
                        self.items.push(item(kv_head, 0..spans, None));
                        continue;
                    }
                    let part = self.parts;
                    self.parts += spans;
                    self.merges.push(item(kv_head, 0..spans, Some(part)));
                    let split = (0..spans).map(|at| item(kv_head, at..at + 1, Some(part + at)));
                    self.items.extend(split);
                }
            }
        }
        // The longest first, so that no thread is left alone with one at the end.
        let length = |item: &Item| std::cmp::Reverse((item.spans.len(), item.last));
        self.items.sort_unstable_by_key(length);
    }
}

struct Job<'a> {
    isa: Isa,
    shape: AttentionShape,
    cache: &'a KvCache,
    segments: &'a [Segment<'a>],
    queries: &'a [f32],
    /// Query heads per cache head.
    group: usize,
    dim: usize,
}

impl Job<'_> {
    fn load_queries(&self, item: &Item, scratch: &mut Scratch) {
        let width = self.group * self.dim;
        scratch.reset(item.rows * self.group, self.dim);
        let first = self.segments[item.segment].first_row + item.first;
        for (row, out) in scratch.queries.chunks_exact_mut(width).enumerate() {
            let at = (first + row) * self.shape.stride + item.kv_head * width;
            for (out, query) in out.iter_mut().zip(&self.queries[at..at + width]) {
                *out = query * self.shape.scale;
            }
        }
    }

    /// Takes all spans of an item into its states.
    fn walk(&self, item: &Item, scratch: &mut Scratch) {
        for span in item.spans.clone() {
            self.span(item, span, scratch);
            scratch.merge_span(self.isa, self.dim);
        }
    }

    /// Computes the one span of an item and keeps its result for [`Self::merge_spans`].
    fn save_span(&self, item: &Item, scratch: &mut Scratch, part: &mut [f32]) {
        self.span(item, item.spans.start, scratch);
        scratch.save(part);
    }

    fn merge_spans<'a>(
        &self,
        item: &Item,
        scratch: &mut Scratch,
        parts: impl Iterator<Item = &'a [f32]>,
    ) {
        for (span, part) in item.spans.clone().zip(parts) {
            scratch.restore(part, |query| self.visible(item, query, span));
            scratch.merge_span(self.isa, self.dim);
        }
    }

    /// How many positions of a span a query sees.
    fn visible(&self, item: &Item, query: usize, span: usize) -> usize {
        // A row attends to its own position and those before it.
        let row = item.last + 1 - item.rows + query / self.group;
        (row + 1).saturating_sub(span * SPAN).min(SPAN)
    }

    /// Computes a span's softmax and weighted values for each query that sees any of it.
    fn span(&self, item: &Item, span: usize, scratch: &mut Scratch) {
        let kv = self.cache.shape();
        let table = self.segments[item.segment].table;
        let runs_per_block = kv.block_size / RUN;
        let first = span * SPAN / RUN;
        let last = (item.last / RUN).min(first + SPAN / RUN - 1);
        let place = |run: usize| {
            let block = table[run / runs_per_block] as usize;
            [block, item.kv_head, run % runs_per_block]
        };
        for (index, visible) in scratch.visible.iter_mut().enumerate() {
            *visible = self.visible(item, index, span);
        }
        for run in first..=last {
            let keys = self.cache.keys(place(run));
            scratch.score(self.isa, keys, (run - first) * RUN);
        }
        scratch.softmax(self.isa);
        for run in first..=last {
            let values = self.cache.values(place(run));
            scratch.add_values(self.isa, values, (run - first) * RUN);
        }
    }

    fn store(&self, item: &Item, scratch: &Scratch, out: &Shared<'_, f32>) {
        let width = self.group * self.dim;
        let first = self.segments[item.segment].first_row + item.first;
        for (row, sums) in scratch.sums.chunks_exact(width).enumerate() {
            let at = (first + row) * self.shape.heads * self.dim + item.kv_head * width;
            // SAFETY: a row and a cache head are stored by one item only.
            let out = unsafe { out.part(at..at + width) };
            let states = &scratch.states[row * self.group..(row + 1) * self.group];
            for ((out, sums), state) in out
                .chunks_exact_mut(self.dim)
                .zip(sums.chunks_exact(self.dim))
                .zip(states)
            {
                for (out, sum) in out.iter_mut().zip(sums) {
                    *out = sum / state.total;
                }
            }
        }
    }
}
