//! Where a step's time goes.

use formwork_kernels::{Matrix, Segment};
use std::time::{Duration, Instant};

/// A part of the forward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// Rows of the embedding.
    Embedding,
    /// Residual sums, norms and quantising of activations.
    Norm,
    /// The product for queries, keys and values.
    QueryKeyValue,
    /// Rotary embedding, and storing keys and values.
    RotateAndStore,
    /// Attention over the cache.
    Attention,
    /// The product after attention.
    Output,
    /// The first product of the feed-forward half, and its activation.
    GateUp,
    /// The second product of the feed-forward half.
    Down,
    /// Logits.
    Head,
}

impl Operation {
    /// All of them, in the order of a layer.
    pub(super) const ALL: [Self; 9] = [
        Self::Embedding,
        Self::Norm,
        Self::QueryKeyValue,
        Self::RotateAndStore,
        Self::Attention,
        Self::Output,
        Self::GateUp,
        Self::Down,
        Self::Head,
    ];

    /// A short name for tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Embedding => "embedding",
            Self::Norm => "add, norm, quantise",
            Self::QueryKeyValue => "query, key, value",
            Self::RotateAndStore => "rotate, store",
            Self::Attention => "attention",
            Self::Output => "output",
            Self::GateUp => "gate x up, quantise",
            Self::Down => "down",
            Self::Head => "head",
        }
    }
}

/// What an operation must do at least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Work {
    /// Bytes of weights and cache, or of activations where there are neither.
    pub(super) bytes: usize,
    /// Multiplications and additions.
    pub(super) operations: usize,
}

impl Work {
    pub(super) fn of_rows(rows: usize, row_bytes: usize) -> Self {
        Self {
            bytes: rows * row_bytes,
            operations: 0,
        }
    }

    pub(super) fn of_product(matrices: &[&Matrix], rows: usize) -> Self {
        let cells: usize = matrices
            .iter()
            .map(|matrix| matrix.rows() * matrix.columns())
            .sum();
        Self {
            bytes: matrices.iter().map(|matrix| matrix.bytes()).sum(),
            operations: 2 * rows * cells,
        }
    }

    /// Keys and values are counted once per segment, `position_bytes` for each position.
    pub(super) fn of_attention(
        segments: &[Segment<'_>],
        query_width: usize,
        position_bytes: usize,
    ) -> Self {
        let mut work = Self::default();
        for segment in segments {
            let context = segment.start + segment.rows;
            let seen: usize = (segment.start + 1..=context).sum();
            work.bytes += context * position_bytes;
            work.operations += seen * query_width * 2 * 2;
        }
        work
    }
}

/// Told about each operation. The implementor for everyday use is empty and leaves no code behind.
pub(super) trait Probe {
    fn start(&self) -> Option<Instant>;
    fn stop(&mut self, start: Option<Instant>, operation: Operation, work: impl FnOnce() -> Work);
}

/// Measures nothing.
pub(super) struct Off;

impl Probe for Off {
    #[inline(always)]
    fn start(&self) -> Option<Instant> {
        None
    }

    #[inline(always)]
    fn stop(&mut self, _: Option<Instant>, _: Operation, _: impl FnOnce() -> Work) {}
}

/// Adds up time and work per operation.
#[derive(Default)]
pub(super) struct Recorder {
    pub(super) totals: [Total; Operation::ALL.len()],
}

#[derive(Clone, Copy, Default)]
pub(super) struct Total {
    pub(super) calls: usize,
    pub(super) time: Duration,
    pub(super) work: Work,
}

impl Probe for Recorder {
    fn start(&self) -> Option<Instant> {
        Some(Instant::now())
    }

    fn stop(&mut self, start: Option<Instant>, operation: Operation, work: impl FnOnce() -> Work) {
        let time = start.map_or(Duration::ZERO, |start| start.elapsed());
        let work = work();
        let total = &mut self.totals[operation as usize];
        total.calls += 1;
        total.time += time;
        total.work.bytes += work.bytes;
        total.work.operations += work.operations;
    }
}
