//! Activations, quantised row by row to signed bytes.

use crate::cpu::on_isa;
use crate::{Cpu, Isa, shared::Shared};
use std::ops::Range;

/// Columns that share a scale.
pub(crate) const BLOCK: usize = 32;

/// Rows of activations as `scale * code`, with one scale per 32 columns. A row's codes depend on that
/// row alone.
#[derive(Clone, Debug, Default, PartialEq)]
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
            columns > 0 && values.len().is_multiple_of(columns),
            "{} values",
            values.len()
        );
        let rows = values.len() / columns;
        let isa = cpu.isa();
        let writer = self.writer(rows, columns);
        cpu.for_ranges(rows, 8, |range| {
            let values = &values[range.start * columns..range.end * columns];
            // SAFETY: ranges of rows are disjoint.
            unsafe { writer.write(isa, range, values) }
        });
    }

    /// [`QuantRows::set`] from nothing.
    ///
    /// # Panics
    /// As [`QuantRows::set`].
    #[must_use]
    pub fn of(cpu: &Cpu, columns: usize, values: &[f32]) -> Self {
        let mut rows = Self::default();
        rows.set(cpu, columns, values);
        rows
    }

    /// Makes room for `rows` rows of `columns` numbers, which the caller then writes.
    ///
    /// # Panics
    /// When `columns` is no multiple of 32.
    pub(crate) fn writer(&mut self, rows: usize, columns: usize) -> QuantWriter<'_> {
        assert!(
            columns > 0 && columns.is_multiple_of(BLOCK),
            "{columns} columns"
        );
        let blocks = columns / BLOCK;
        self.rows = rows;
        self.columns = columns;
        self.codes.resize(rows * columns, 0);
        self.pairs.resize(rows * blocks, [0.0; 2]);
        self.half_pairs.resize(rows * blocks * 2, [0.0; 2]);
        QuantWriter {
            columns,
            codes: Shared::new(&mut self.codes),
            pairs: Shared::new(&mut self.pairs),
            half_pairs: Shared::new(&mut self.half_pairs),
        }
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

    /// `R` neighbouring rows whose scales are repeated for each group of `group` columns, 32 or 16.
    #[inline]
    pub(crate) fn rows_at<const R: usize>(&self, first: usize, group: usize) -> [QuantRow<'_>; R] {
        let pairs = if group == BLOCK {
            &self.pairs
        } else {
            &self.half_pairs
        };
        let groups = self.columns / group;
        let codes = &self.codes[first * self.columns..][..R * self.columns];
        let pairs = &pairs[first * groups..][..R * groups];
        std::array::from_fn(|r| QuantRow {
            codes: &codes[r * self.columns..(r + 1) * self.columns],
            pairs: &pairs[r * groups..(r + 1) * groups],
        })
    }
}

/// Writes rows of a [`QuantRows`] from several threads.
pub(crate) struct QuantWriter<'a> {
    columns: usize,
    codes: Shared<'a, i8>,
    pairs: Shared<'a, [f32; 2]>,
    half_pairs: Shared<'a, [f32; 2]>,
}

impl QuantWriter<'_> {
    /// Quantises the rows `range`, whose numbers are `values`.
    ///
    /// # Safety
    /// No two calls at the same time may write the same row.
    pub(crate) unsafe fn write(&self, isa: Isa, range: Range<usize>, values: &[f32]) {
        let (start, end, columns) = (range.start, range.end, self.columns);
        let blocks = columns / BLOCK;
        assert_eq!(values.len(), (end - start) * columns);
        // SAFETY: ranges of rows are disjoint, as the caller vouches, and so are the parts of them.
        let part = unsafe {
            Part {
                values,
                codes: self.codes.part(start * columns..end * columns),
                pairs: self.pairs.part(start * blocks..end * blocks),
                half_pairs: self.half_pairs.part(start * blocks * 2..end * blocks * 2),
            }
        };
        on_isa!(isa, quantize(part), quantize_avx2(part));
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
