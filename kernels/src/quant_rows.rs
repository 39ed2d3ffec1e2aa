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

    /// `count` neighbouring rows whose scales are repeated for each group of `group` columns, 32 or 16.
    #[inline]
    pub(crate) fn span(&self, first: usize, count: usize, group: usize) -> QuantSpan<'_> {
        let pairs = if group == BLOCK {
            &self.pairs
        } else {
            &self.half_pairs
        };
        let groups = self.columns / group;
        QuantSpan {
            codes: &self.codes[first * self.columns..][..count * self.columns],
            pairs: &pairs[first * groups..][..count * groups],
        }
    }

    /// `R` neighbouring rows whose scales are repeated for each group of `group` columns, 32 or 16.
    #[inline]
    pub(crate) fn rows_at<const R: usize>(&self, first: usize, group: usize) -> [QuantRow<'_>; R] {
        let groups = self.columns / group;
        let QuantSpan { codes, pairs } = self.span(first, R, group);
        std::array::from_fn(|r| QuantRow {
            codes: &codes[r * self.columns..(r + 1) * self.columns],
            pairs: &pairs[r * groups..(r + 1) * groups],
        })
    }
}

/// Neighbouring rows, as kernels see them: row by row.
#[derive(Clone, Copy)]
pub(crate) struct QuantSpan<'a> {
    /// As many as there are columns for each row.
    pub(crate) codes: &'a [i8],
    /// As many as there are groups for each row; see [`QuantRow::pairs`].
    pub(crate) pairs: &'a [[f32; 2]],
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

    /// Quantises one block of a row, given as `[row, block]`.
    ///
    /// # Safety
    /// No two calls at the same time may write the same block.
    #[inline]
    pub(crate) unsafe fn write_block(
        &self,
        isa: Isa,
        [row, block]: [usize; 2],
        values: &[f32; BLOCK],
    ) {
        let at = row * (self.columns / BLOCK) + block;
        // SAFETY: blocks are disjoint, as the caller vouches, and so are the parts of them.
        let part = unsafe {
            Part {
                values,
                codes: self.codes.part(at * BLOCK..(at + 1) * BLOCK),
                pairs: self.pairs.part(at..at + 1),
                half_pairs: self.half_pairs.part(at * 2..(at + 1) * 2),
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
    let (values, _) = part.values.as_chunks::<BLOCK>();
    let (codes, _) = part.codes.as_chunks_mut::<BLOCK>();
    let (half_pairs, _) = part.half_pairs.as_chunks_mut::<2>();
    for (((values, codes), pair), halves) in
        values.iter().zip(codes).zip(part.pairs).zip(half_pairs)
    {
        let (scale, totals) = x86::quantize_block(values, codes);
        halves[0] = [scale, scale * totals[0] as f32];
        halves[1] = [scale, scale * totals[1] as f32];
        *pair = [scale, scale * (totals[0] + totals[1]) as f32];
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::BLOCK;
    use std::arch::x86_64::*;

    /// The scale of a block and the sums of its halves' codes, with the operations of the plain path.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn quantize_block(
        values: &[f32; BLOCK],
        codes: &mut [i8; BLOCK],
    ) -> (f32, [i32; 2]) {
        // SAFETY: the four loads read the 32 values.
        let values: [__m256; 4] =
            std::array::from_fn(|part| unsafe { _mm256_loadu_ps(values.as_ptr().add(part * 8)) });
        let magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fff_ffff));
        let mut largest = _mm256_setzero_ps();
        for value in values {
            // The second operand wins over a NaN in the first.
            largest = _mm256_max_ps(_mm256_and_ps(value, magnitude), largest);
        }
        let largest = horizontal_max(largest);
        let scale = largest / 127.0;
        let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
        let (inverse, round) = (_mm256_set1_ps(inverse), _mm256_set1_ps(12_582_912.0));
        let wide = values.map(|value| {
            let sum = _mm256_add_ps(_mm256_mul_ps(value, inverse), round);
            // The low byte, with its sign.
            _mm256_srai_epi32::<24>(_mm256_slli_epi32::<24>(_mm256_castps_si256(sum)))
        });
        let totals = [
            horizontal_sum(_mm256_add_epi32(wide[0], wide[1])),
            horizontal_sum(_mm256_add_epi32(wide[2], wide[3])),
        ];
        let pairs = _mm256_packs_epi16(
            _mm256_packs_epi32(wide[0], wide[1]),
            _mm256_packs_epi32(wide[2], wide[3]),
        );
        // Packing works within halves of a register and leaves groups of four in this order.
        let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        let packed = _mm256_permutevar8x32_epi32(pairs, order);
        // SAFETY: there are 32 codes.
        unsafe { _mm256_storeu_si256(codes.as_mut_ptr().cast(), packed) }
        (scale, totals)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn horizontal_max(lanes: __m256) -> f32 {
        let four = _mm_max_ps(
            _mm256_castps256_ps128(lanes),
            _mm256_extractf128_ps::<1>(lanes),
        );
        let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn horizontal_sum(lanes: __m256i) -> i32 {
        let four = _mm_add_epi32(
            _mm256_castsi256_si128(lanes),
            _mm256_extracti128_si256::<1>(lanes),
        );
        let two = _mm_add_epi32(four, _mm_shuffle_epi32::<0b01_00_11_10>(four));
        _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32::<0b10_11_00_01>(two)))
    }
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
