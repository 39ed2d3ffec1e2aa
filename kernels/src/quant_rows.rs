//! Activations, quantised row by row to signed bytes.

use crate::cpu::on_isa;
use crate::{Cpu, shared::Shared};

/// Columns that share a scale.
pub(crate) const BLOCK: usize = 32;

/// Rows of activations as `scale * code`, with one scale per 32 columns. A row's codes depend on that
/// row alone.
#[derive(Default)]
pub struct QuantRows {
    rows: usize,
    columns: usize,
    codes: Vec<i8>,
    /// Per row and block of 32: the scale, and the scale times the sum of the codes.
    pairs: Vec<[f32; 2]>,
    /// The same per half block.
    half_pairs: Vec<[f32; 2]>,
}

/// One row, as kernels see it.
#[derive(Clone, Copy)]
pub(crate) struct QuantRow<'a> {
    pub(crate) codes: &'a [i8],
    /// Per group of columns: the scale, and the scale times the sum of the codes.
    pub(crate) pairs: &'a [[f32; 2]],
}

impl QuantRows {
    /// Quantises `values`, rows of `columns` numbers, in place of what was there before.
    ///
    /// # Panics
    /// When `columns` is no multiple of 32 or `values` no whole number of rows.
    pub fn set(&mut self, cpu: &Cpu, columns: usize, values: &[f32]) {
        assert!(
            columns > 0 && columns.is_multiple_of(BLOCK),
            "{columns} columns"
        );
        assert!(
            values.len().is_multiple_of(columns),
            "{} values",
            values.len()
        );
        let rows = values.len() / columns;
        let blocks = columns / BLOCK;
        self.rows = rows;
        self.columns = columns;
        self.codes.resize(rows * columns, 0);
        self.pairs.resize(rows * blocks, [0.0; 2]);
        self.half_pairs.resize(rows * blocks * 2, [0.0; 2]);
        let codes = Shared::new(&mut self.codes);
        let pairs = Shared::new(&mut self.pairs);
        let half_pairs = Shared::new(&mut self.half_pairs);
        let isa = cpu.isa();
        cpu.for_ranges(rows, 16, |range| {
            let (start, end) = (range.start, range.end);
            // SAFETY: ranges of rows are disjoint, and so are the parts that belong to them.
            let part = unsafe {
                Part {
                    values: &values[start * columns..end * columns],
                    codes: codes.part(start * columns..end * columns),
                    pairs: pairs.part(start * blocks..end * blocks),
                    half_pairs: half_pairs.part(start * blocks * 2..end * blocks * 2),
                }
            };
            on_isa!(isa, quantize(part), quantize_avx2(part));
        });
    }

    /// Rows held.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns of each row.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// A row whose scales are repeated for each group of `group` columns, 32 or 16.
    pub(crate) fn row(&self, row: usize, group: usize) -> QuantRow<'_> {
        let pairs = if group == BLOCK {
            &self.pairs
        } else {
            &self.half_pairs
        };
        let groups = self.columns / group;
        QuantRow {
            codes: &self.codes[row * self.columns..][..self.columns],
            pairs: &pairs[row * groups..][..groups],
        }
    }
}

struct Part<'a> {
    values: &'a [f32],
    codes: &'a mut [i8],
    pairs: &'a mut [[f32; 2]],
    half_pairs: &'a mut [[f32; 2]],
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn quantize_avx2(part: Part<'_>) {
    quantize(part);
}

#[inline(always)]
fn quantize(part: Part<'_>) {
    let (values, _) = part.values.as_chunks::<BLOCK>();
    let (codes, _) = part.codes.as_chunks_mut::<BLOCK>();
    let (half_pairs, _) = part.half_pairs.as_chunks_mut::<2>();
    for (((values, codes), pair), halves) in
        values.iter().zip(codes).zip(part.pairs).zip(half_pairs)
    {
        let mut largest = [0f32; 8];
        for (index, value) in values.iter().enumerate() {
            largest[index % 8] = largest[index % 8].max(value.abs());
        }
        let largest = largest.iter().fold(0f32, |a, &b| a.max(b));
        let scale = largest / 127.0;
        let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
        let mut totals = [0i32; 2];
        for (half, (values, codes)) in values
            .chunks_exact(BLOCK / 2)
            .zip(codes.chunks_exact_mut(BLOCK / 2))
            .enumerate()
        {
            for (value, code) in values.iter().zip(codes) {
                // In -127..=127. Adding 1.5 * 2^23 rounds to the nearest integer, ties to even, and
                // leaves it in the low bits; of a NaN some byte is left.
                *code = (value * inverse + 12_582_912.0).to_bits() as i8;
                totals[half] += i32::from(*code);
            }
        }
        halves[0] = [scale, scale * totals[0] as f32];
        halves[1] = [scale, scale * totals[1] as f32];
        *pair = [scale, scale * (totals[0] + totals[1]) as f32];
    }
}
