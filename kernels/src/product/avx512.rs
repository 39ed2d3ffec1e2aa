//! AVX-512 with VNNI: one register holds four columns of sixteen rows, and `vpdpbusd` multiplies it
//! with four activations broadcast to all lanes.

use super::{TILE, Tile, TileInput};
use crate::quant_rows::QuantRow;
use crate::quantized::{LANES, Layout, Numbers, QuantPanel, ScalesRef, TwoLevelPlace};
use half::f16;
use std::arch::x86_64::*;

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn quant(panel: QuantPanel<'_>, rows: TileInput<'_>, tile: &mut Tile) {
    match rows.count {
        1 => quant_rows::<1>(panel, rows, tile),
        2 => quant_rows::<2>(panel, rows, tile),
        3 => quant_rows::<3>(panel, rows, tile),
        _ => quant_rows::<TILE>(panel, rows, tile),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
fn quant_rows<const R: usize>(panel: QuantPanel<'_>, rows: TileInput<'_>, tile: &mut Tile) {
    // The kernels read memory through pointers; this is what they rely on.
    let columns = panel.groups * panel.layout.group;
    assert!(columns == rows.columns && rows.count >= R && tile.len() >= R);
    assert!(panel.codes.len() == panel.groups * panel.layout.group_bytes());
    let x: [QuantRow<'_>; R] = rows.quantized(panel.layout.group);
    assert!(x.iter().all(|row| row.codes.len() == columns));
    assert!(x.iter().all(|row| row.pairs.len() == panel.groups));
    let Layout { group, .. } = panel.layout;
    let nibbles = panel.layout.nibbles();
    let totals = match (nibbles, group, panel.scales.zero, panel.scales.numbers) {
        (true, 32, None, Numbers::Half(_)) => self::nibbles::<R, false, false>(panel, &x),
        (true, 32, Some(_), Numbers::Half(_)) => self::nibbles::<R, true, false>(panel, &x),
        (true, 32, None, Numbers::TwoLevel(_)) => self::nibbles::<R, false, true>(panel, &x),
        (false, 32, None, Numbers::Half(_)) => bytes::<R, 8, false, false>(panel, &x),
        (false, 32, Some(_), Numbers::Half(_)) => bytes::<R, 8, true, false>(panel, &x),
        (false, 32, None, Numbers::TwoLevel(_)) => bytes::<R, 8, false, true>(panel, &x),
        (false, 16, Some(_), Numbers::TwoLevel(_)) => bytes::<R, 4, true, true>(panel, &x),
        _ => unreachable!("no format has nibbles={nibbles} in groups of {group} with these scales"),
    };
    for (total, out) in totals.into_iter().zip(tile) {
        // SAFETY: `out` has sixteen elements.
        unsafe { _mm512_storeu_ps(out.as_mut_ptr(), total) }
    }
}

/// 4-bit codes in groups of 32. `SYMMETRIC`: offsets follow from scales. `TWO_LEVEL`: see [`TwoLevelPlace`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn nibbles<const R: usize, const SYMMETRIC: bool, const TWO_LEVEL: bool>(
    panel: QuantPanel<'_>,
    x: &[QuantRow<'_>; R],
) -> [__m512; R] {
    let mask = _mm512_set1_epi8(0x0f);
    let mut totals = Totals::<R, SYMMETRIC, TWO_LEVEL>::new(panel.scales);
    for group in 0..panel.groups {
        let mut dots = [_mm512_setzero_si512(); R];
        for line in 0..4 {
            let codes = load_line(panel.codes, group * 4 + line);
            let low = _mm512_and_si512(codes, mask);
            let high = _mm512_and_si512(_mm512_srli_epi16::<4>(codes), mask);
            for (dot, x) in dots.iter_mut().zip(x) {
                let first = broadcast_quad(x.codes, group * 32 + line * 4);
                let second = broadcast_quad(x.codes, group * 32 + line * 4 + 16);
                *dot = _mm512_dpbusd_epi32(*dot, low, first);
                *dot = _mm512_dpbusd_epi32(*dot, high, second);
            }
        }
        // SAFETY: this function is for machines with AVX-512 F.
        unsafe { totals.add(group, dots, x) };
    }
    totals.sums
}

/// 8-bit codes in groups of `4 * QUADS`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn bytes<const R: usize, const QUADS: usize, const SYMMETRIC: bool, const TWO_LEVEL: bool>(
    panel: QuantPanel<'_>,
    x: &[QuantRow<'_>; R],
) -> [__m512; R] {
    let mut totals = Totals::<R, SYMMETRIC, TWO_LEVEL>::new(panel.scales);
    for group in 0..panel.groups {
        let mut dots = [_mm512_setzero_si512(); R];
        for line in group * QUADS..(group + 1) * QUADS {
            let codes = load_line(panel.codes, line);
            for (dot, x) in dots.iter_mut().zip(x) {
                *dot = _mm512_dpbusd_epi32(*dot, codes, broadcast_quad(x.codes, line * 4));
            }
        }
        // SAFETY: this function is for machines with AVX-512 F.
        unsafe { totals.add(group, dots, x) };
    }
    totals.sums
}

/// What the groups so far come to, sixteen outputs for each row of activations.
struct Totals<'a, const R: usize, const SYMMETRIC: bool, const TWO_LEVEL: bool> {
    sums: [__m512; R],
    /// Scales and offsets, unless `TWO_LEVEL`.
    halves: &'a [f16],
    /// `TWO_LEVEL`: scales and offsets.
    factored: &'a [u8],
    /// `SYMMETRIC`: the code that stands for 0.
    zero: f32,
}

impl<'a, const R: usize, const SYMMETRIC: bool, const TWO_LEVEL: bool>
    Totals<'a, R, SYMMETRIC, TWO_LEVEL>
{
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn new(scales: ScalesRef<'a>) -> Self {
        let (halves, factored): (&[f16], &[u8]) = match scales.numbers {
            Numbers::Half(values) => (values, &[]),
            Numbers::TwoLevel(bytes) => (&[], bytes),
        };
        Self {
            sums: [_mm512_setzero_ps(); R],
            halves,
            factored,
            zero: scales.zero.unwrap_or_default(),
        }
    }

    /// Adds the dot products of a group. Left to itself the compiler calls this, with all sums in memory.
    ///
    /// # Safety
    /// The machine must have AVX-512 F, and the callers must be compiled for it.
    #[inline(always)]
    unsafe fn add(&mut self, group: usize, dots: [__m512i; R], x: &[QuantRow<'_>; R]) {
        // SAFETY: as the caller vouches; `quant_rows` checked the number of groups in a row.
        unsafe {
            let (scale, offset) = self.affine(group);
            for ((total, dot), x) in self.sums.iter_mut().zip(dots).zip(x) {
                debug_assert!(group < x.pairs.len());
                let [x_scale, x_sum] = *x.pairs.get_unchecked(group);
                let dot = _mm512_cvtepi32_ps(dot);
                let x_scale = _mm512_set1_ps(x_scale);
                *total = if SYMMETRIC {
                    // The code that stands for 0 was multiplied as any other.
                    let extra = _mm512_set1_ps(-self.zero * x_sum);
                    _mm512_fmadd_ps(scale, _mm512_fmadd_ps(dot, x_scale, extra), *total)
                } else {
                    let sum = _mm512_fmadd_ps(_mm512_mul_ps(scale, x_scale), dot, *total);
                    _mm512_fmadd_ps(offset, _mm512_set1_ps(x_sum), sum)
                };
            }
        }
    }

    /// Scales and offsets of a group; no offsets where they follow from scales.
    ///
    /// # Safety
    /// As [`Totals::add`].
    #[inline(always)]
    unsafe fn affine(&self, group: usize) -> (__m512, __m512) {
        // SAFETY: as the caller vouches.
        unsafe {
            let none = _mm512_setzero_ps();
            if TWO_LEVEL {
                let place = TwoLevelPlace::of::<SYMMETRIC>(group);
                let factors = &self.factored[place.factors..];
                let numbers = &self.factored[place.numbers..];
                let scale = load_product(factors, numbers);
                if SYMMETRIC {
                    return (scale, none);
                }
                let offset = load_product(&factors[2 * LANES..], &numbers[LANES..]);
                return (scale, offset);
            }
            if SYMMETRIC {
                let scales = &self.halves[group * LANES..][..LANES];
                return (load_halves(scales), none);
            }
            let (scales, offsets) = self.halves[group * 2 * LANES..][..2 * LANES].split_at(LANES);
            (load_halves(scales), load_halves(offsets))
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_line(codes: &[u8], line: usize) -> __m512i {
    debug_assert!(line * 64 + 64 <= codes.len());
    // SAFETY: callers stay within the groups of a panel, whose length `quant_rows` checked.
    unsafe { _mm512_loadu_si512(codes.as_ptr().add(line * 64).cast()) }
}

/// The four activations at `at`, in every group of four bytes.
#[inline]
#[target_feature(enable = "avx512f")]
fn broadcast_quad(codes: &[i8], at: usize) -> __m512i {
    debug_assert!(at + 4 <= codes.len());
    // SAFETY: callers stay within the columns of a row, whose length `quant_rows` checked.
    _mm512_set1_epi32(unsafe { codes.as_ptr().add(at).cast::<i32>().read_unaligned() })
}

/// The first sixteen numbers.
///
/// # Safety
/// As [`Totals::add`].
#[inline(always)]
unsafe fn load_halves(values: &[f16]) -> __m512 {
    let values = &values[..LANES];
    // SAFETY: the slice has sixteen elements of two bytes; the caller vouches for the instructions.
    unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(values.as_ptr().cast())) }
}

/// Sixteen half-precision numbers times as many signed bytes.
///
/// # Safety
/// As [`Totals::add`].
#[inline(always)]
unsafe fn load_product(halves: &[u8], bytes: &[u8]) -> __m512 {
    let (halves, bytes) = (&halves[..2 * LANES], &bytes[..LANES]);
    // SAFETY: the slices have as many bytes as the loads read; the caller vouches for the instructions.
    unsafe {
        let halves = _mm256_loadu_si256(halves.as_ptr().cast());
        let bytes = _mm_loadu_si128(bytes.as_ptr().cast());
        let numbers = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
        _mm512_mul_ps(_mm512_cvtph_ps(halves), numbers)
    }
}
