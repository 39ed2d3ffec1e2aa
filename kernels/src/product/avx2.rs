//! AVX2, FMA and F16C, for a few rows of activations: loops are arranged so that all sums of a tile stay in
//! registers. 4-bit codes of sixteen rows are walked once; 8-bit ones, which have two sums each, eight rows at a
//! time.

mod affine;
mod dense;
pub(super) mod wide;

pub(super) use dense::dense;

use super::{TILE, Tile, TileInput};
use crate::quant_rows::QuantRow;
use crate::quantized::{AFFINE, SYMMETRIC, SYMMETRIC_TWO_LEVEL, TWO_LEVEL};
use crate::quantized::{LANES, Layout, Numbers, QuantPanel};
use affine::{Factors, Scaled, load_affine};
use std::arch::x86_64::*;

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn quant(panel: QuantPanel<'_>, rows: TileInput<'_>, tile: &mut Tile) {
    match rows.count {
        1 => quant_rows::<1>(panel, rows, tile),
        2 => quant_rows::<2>(panel, rows, tile),
        3 => quant_rows::<3>(panel, rows, tile),
        _ => quant_rows::<TILE>(panel, rows, tile),
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn quant_rows<const R: usize>(panel: QuantPanel<'_>, rows: TileInput<'_>, tile: &mut Tile) {
    // The kernels read memory through pointers; this is what they rely on.
    let columns = panel.groups * panel.layout.group;
    assert!(columns == rows.columns && rows.count >= R);
    assert!(panel.codes.len() == panel.groups * panel.layout.group_bytes());
    let x: [QuantRow<'_>; R] = rows.quantized(panel.layout.group);
    assert!(x.iter().all(|row| row.codes.len() == columns));
    assert!(x.iter().all(|row| row.pairs.len() == panel.groups));
    let Layout { group, largest, .. } = panel.layout;
    match (largest, group, panel.scales.kind()) {
        (15, 32, AFFINE) => nibbles::<R, AFFINE>(panel, &x, tile),
        (15, 32, SYMMETRIC) => nibbles::<R, SYMMETRIC>(panel, &x, tile),
        (15, 32, TWO_LEVEL) => nibbles::<R, TWO_LEVEL>(panel, &x, tile),
        // So many products of at most 2 * 31 * 127, or 2 * 63 * 127, stay below 2^15.
        (31, 32, AFFINE) => bytes::<R, 8, 4, AFFINE>(panel, &x, tile),
        (31, 32, SYMMETRIC) => bytes::<R, 8, 4, SYMMETRIC>(panel, &x, tile),
        (31, 32, TWO_LEVEL) => bytes::<R, 8, 4, TWO_LEVEL>(panel, &x, tile),
        (63, 16, SYMMETRIC_TWO_LEVEL) => {
            bytes::<R, 4, 2, SYMMETRIC_TWO_LEVEL>(panel, &x, tile);
        }
        (255, 32, SYMMETRIC) => halves::<R>(panel, &x, tile),
        (largest, group, kind) => unreachable!("no layout has {largest}, {group}, {kind}"),
    }
}

/// 4-bit codes in groups of 32. `KIND`: see [`ScalesRef::kind`].
#[target_feature(enable = "avx2,fma,f16c")]
fn nibbles<const R: usize, const KIND: u8>(
    panel: QuantPanel<'_>,
    x: &[QuantRow<'_>; R],
    tile: &mut Tile,
) {
    let mask = _mm256_set1_epi8(0x0f);
    let ones = _mm256_set1_epi16(1);
    let zero = panel.scales.zero.unwrap_or_default();
    let mut factors = Factors::NONE;
    let mut total = [[_mm256_setzero_ps(); 2]; R];
    for group in 0..panel.groups {
        // Eight products of at most 2 * 15 * 127 each stay below 2^15.
        let mut sums = [[_mm256_setzero_si256(); 2]; R];
        for line in 0..4 {
            let at = group * 256 + line * 64;
            let codes = [
                load_codes(panel.codes, at),
                load_codes(panel.codes, at + 32),
            ];
            let low = codes.map(|codes| _mm256_and_si256(codes, mask));
            for (sums, x) in sums.iter_mut().zip(x) {
                let quad = broadcast_quad(x.codes, group * 32 + line * 4);
                for half in 0..2 {
                    sums[half] =
                        _mm256_add_epi16(sums[half], _mm256_maddubs_epi16(low[half], quad));
                }
                pin(sums);
            }
            let high = codes.map(|codes| _mm256_and_si256(_mm256_srli_epi16::<4>(codes), mask));
            for (sums, x) in sums.iter_mut().zip(x) {
                let quad = broadcast_quad(x.codes, group * 32 + line * 4 + 16);
                for half in 0..2 {
                    sums[half] =
                        _mm256_add_epi16(sums[half], _mm256_maddubs_epi16(high[half], quad));
                }
                pin(sums);
            }
        }
        // SAFETY: this function is for machines with AVX2 and F16C.
        let affine = unsafe {
            [
                load_affine::<KIND>(panel.scales, &mut factors, group, 0),
                load_affine::<KIND>(panel.scales, &mut factors, group, 1),
            ]
        };
        for ((total, sums), x) in total.iter_mut().zip(sums).zip(x) {
            let x = Scaled::<KIND>::of(x.pairs, group, zero);
            for half in 0..2 {
                let dot = _mm256_madd_epi16(sums[half], ones);
                let (scale, offset) = affine[half];
                total[half] = x.add(total[half], dot, scale, offset);
            }
        }
    }
    store::<R>(std::array::from_fn(|r| total[r][0]), 0, tile);
    store::<R>(std::array::from_fn(|r| total[r][1]), 1, tile);
}

/// Codes of a byte in groups of `4 * QUADS`, so small that the products of `SHARE` quads fit a sum of 16 bits.
#[target_feature(enable = "avx2,fma,f16c")]
fn bytes<const R: usize, const QUADS: usize, const SHARE: usize, const KIND: u8>(
    panel: QuantPanel<'_>,
    x: &[QuantRow<'_>; R],
    tile: &mut Tile,
) {
    let ones = _mm256_set1_epi16(1);
    let zero = panel.scales.zero.unwrap_or_default();
    let mut factors = Factors::NONE;
    for half in 0..2 {
        let mut total = [_mm256_setzero_ps(); R];
        for group in 0..panel.groups {
            let mut dots = [_mm256_setzero_si256(); R];
            for first in (0..QUADS).step_by(SHARE) {
                let mut sums = [_mm256_setzero_si256(); R];
                for quad in first..first + SHARE {
                    let line = group * QUADS + quad;
                    let codes = load_codes(panel.codes, line * 64 + half * 32);
                    for (sum, x) in sums.iter_mut().zip(x) {
                        let quad = broadcast_quad(x.codes, line * 4);
                        *sum = _mm256_add_epi16(*sum, _mm256_maddubs_epi16(codes, quad));
                    }
                    pin(&mut sums);
                }
                for (dot, sum) in dots.iter_mut().zip(sums) {
                    *dot = _mm256_add_epi32(*dot, _mm256_madd_epi16(sum, ones));
                }
            }
            // SAFETY: this function is for machines with AVX2 and F16C.
            let (scale, offset) =
                unsafe { load_affine::<KIND>(panel.scales, &mut factors, group, half) };
            for ((total, dot), x) in total.iter_mut().zip(dots).zip(x) {
                let x = Scaled::<KIND>::of(x.pairs, group, zero);
                *total = x.add(*total, dot, scale, offset);
            }
        }
        store::<R>(total, half, tile);
    }
}

/// 8-bit codes in groups of 32, whose offsets follow from their scales. A code is split in two halves of four
/// bits, so that no 16-bit sum can overflow.
#[target_feature(enable = "avx2,fma,f16c")]
fn halves<const R: usize>(panel: QuantPanel<'_>, x: &[QuantRow<'_>; R], tile: &mut Tile) {
    let mask = _mm256_set1_epi8(0x0f);
    let zero = panel.scales.zero.unwrap_or_default();
    let mut factors = Factors::NONE;
    for half in 0..2 {
        let mut total = [_mm256_setzero_ps(); R];
        for group in 0..panel.groups {
            let mut low_sums = [_mm256_setzero_si256(); R];
            let mut high_sums = [_mm256_setzero_si256(); R];
            for line in group * 8..(group + 1) * 8 {
                let codes = load_codes(panel.codes, line * 64 + half * 32);
                let low = _mm256_and_si256(codes, mask);
                let high = _mm256_and_si256(_mm256_srli_epi16::<4>(codes), mask);
                for r in 0..R {
                    let quad = broadcast_quad(x[r].codes, line * 4);
                    low_sums[r] = _mm256_add_epi16(low_sums[r], _mm256_maddubs_epi16(low, quad));
                    high_sums[r] = _mm256_add_epi16(high_sums[r], _mm256_maddubs_epi16(high, quad));
                }
                pin(&mut low_sums);
                pin(&mut high_sums);
            }
            // SAFETY: this function is for machines with AVX2 and F16C.
            let (scale, offset) =
                unsafe { load_affine::<SYMMETRIC>(panel.scales, &mut factors, group, half) };
            for r in 0..R {
                let low = _mm256_madd_epi16(low_sums[r], _mm256_set1_epi16(1));
                let high = _mm256_madd_epi16(high_sums[r], _mm256_set1_epi16(16));
                let dot = _mm256_add_epi32(low, high);
                let x = Scaled::<SYMMETRIC>::of(x[r].pairs, group, zero);
                total[r] = x.add(total[r], dot, scale, offset);
            }
        }
        store::<R>(total, half, tile);
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_codes(codes: &[u8], at: usize) -> __m256i {
    debug_assert!(at + 32 <= codes.len());
    // SAFETY: callers stay within the groups of a panel, whose length `quant_rows` checked.
    unsafe { _mm256_loadu_si256(codes.as_ptr().add(at).cast()) }
}

/// The four activations at `at`, in every group of four bytes.
#[inline]
#[target_feature(enable = "avx2")]
fn broadcast_quad(codes: &[i8], at: usize) -> __m256i {
    debug_assert!(at + 4 <= codes.len());
    // SAFETY: callers stay within the columns of a row, whose length `quant_rows` checked.
    _mm256_set1_epi32(unsafe { codes.as_ptr().add(at).cast::<i32>().read_unaligned() })
}

#[inline]
#[target_feature(enable = "avx2")]
fn store<const R: usize>(total: [__m256; R], half: usize, tile: &mut Tile) {
    for (total, out) in total.into_iter().zip(tile) {
        store_eight(total, &mut out[half * 8..]);
    }
}

/// Writes the first eight elements.
#[inline]
#[target_feature(enable = "avx2")]
fn store_eight(numbers: __m256, to: &mut [f32]) {
    let to = &mut to[..8];
    // SAFETY: the slice has eight elements.
    unsafe { _mm256_storeu_ps(to.as_mut_ptr(), numbers) }
}

/// Keeps the compiler from regrouping sums across calls: left alone it adds up row by row, needs all
/// codes of a group at once, and spills most registers.
#[inline]
#[target_feature(enable = "avx2")]
fn pin<const R: usize>(sums: &mut [__m256i; R]) {
    for sum in sums {
        // SAFETY: the assembly is empty; it only pretends to change a register.
        unsafe {
            std::arch::asm!(
                "/* {0} */",
                inout(ymm_reg) * sum,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
    }
}

/// [`pin`] for sums of numbers.
#[inline]
#[target_feature(enable = "avx2")]
fn pin_numbers<const R: usize>(sums: &mut [__m256; R]) {
    for sum in sums {
        // SAFETY: as above.
        unsafe {
            std::arch::asm!(
                "/* {0} */",
                inout(ymm_reg) * sum,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
    }
}
