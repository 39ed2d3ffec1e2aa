//! AVX2, FMA and F16C. Each call walks the inner dimension twice, for eight of the sixteen lanes each
//! time, which keeps all sums of a tile in registers.

use super::{TILE, Tile, TileInput};
use crate::dense::DensePanel;
use crate::quant_rows::QuantRow;
use crate::quantized::{LANES, Layout, Numbers, QuantPanel, ScalesRef};
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
    let Layout { nibbles, group } = panel.layout;
    match (nibbles, group, panel.scales.zero.is_some()) {
        (true, 32, false) => self::nibbles::<R, false>(panel, &x, tile),
        (true, 32, true) => self::nibbles::<R, true>(panel, &x, tile),
        (false, 32, false) => bytes::<R, 8, false>(panel, &x, tile),
        (false, 32, true) => bytes::<R, 8, true>(panel, &x, tile),
        (false, 16, false) => bytes::<R, 4, false>(panel, &x, tile),
        (false, 16, true) => bytes::<R, 4, true>(panel, &x, tile),
        _ => unreachable!("no layout has nibbles={nibbles} in groups of {group}"),
    }
}

/// 4-bit codes in groups of 32. `SYMMETRIC`: offsets follow from scales.
#[target_feature(enable = "avx2,fma,f16c")]
fn nibbles<const R: usize, const SYMMETRIC: bool>(
    panel: QuantPanel<'_>,
    x: &[QuantRow<'_>; R],
    tile: &mut Tile,
) {
    let mask = _mm256_set1_epi8(0x0f);
    let ones = _mm256_set1_epi16(1);
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
        let affine = [
            load_affine::<SYMMETRIC>(panel.scales, group, 0),
            load_affine::<SYMMETRIC>(panel.scales, group, 1),
        ];
        for ((total, sums), x) in total.iter_mut().zip(sums).zip(x) {
            for half in 0..2 {
                let dot = _mm256_madd_epi16(sums[half], ones);
                let (scale, offset) = affine[half];
                total[half] = accumulate(total[half], dot, [scale, offset], x, group);
            }
        }
    }
    store::<R>(std::array::from_fn(|r| total[r][0]), 0, tile);
    store::<R>(std::array::from_fn(|r| total[r][1]), 1, tile);
}

/// 8-bit codes in groups of `4 * QUADS`. A code is split in two halves of four bits, so that no
/// 16-bit sum can overflow.
#[target_feature(enable = "avx2,fma,f16c")]
fn bytes<const R: usize, const QUADS: usize, const SYMMETRIC: bool>(
    panel: QuantPanel<'_>,
    x: &[QuantRow<'_>; R],
    tile: &mut Tile,
) {
    let mask = _mm256_set1_epi8(0x0f);
    for half in 0..2 {
        let mut total = [_mm256_setzero_ps(); R];
        for group in 0..panel.groups {
            let mut low_sums = [_mm256_setzero_si256(); R];
            let mut high_sums = [_mm256_setzero_si256(); R];
            for quad in 0..QUADS {
                let line = group * QUADS + quad;
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
            let (scale, offset) = load_affine::<SYMMETRIC>(panel.scales, group, half);
            for r in 0..R {
                let low = _mm256_madd_epi16(low_sums[r], _mm256_set1_epi16(1));
                let high = _mm256_madd_epi16(high_sums[r], _mm256_set1_epi16(16));
                let dot = _mm256_add_epi32(low, high);
                total[r] = accumulate(total[r], dot, [scale, offset], &x[r], group);
            }
        }
        store::<R>(total, half, tile);
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn accumulate(
    total: __m256,
    dot: __m256i,
    [scale, offset]: [__m256; 2],
    x: &QuantRow<'_>,
    group: usize,
) -> __m256 {
    debug_assert!(group < x.pairs.len());
    // SAFETY: callers stay within the groups of a row, whose number `quant_rows` checked.
    let [x_scale, x_sum] = unsafe { *x.pairs.get_unchecked(group) };
    let scale = _mm256_mul_ps(scale, _mm256_set1_ps(x_scale));
    let total = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(dot), total);
    _mm256_fmadd_ps(offset, _mm256_set1_ps(x_sum), total)
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

/// Scales and offsets of eight of the sixteen rows. Written out, not over arrays: this way the sums of the
/// loops around it stay in registers.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn load_affine<const SYMMETRIC: bool>(
    scales: ScalesRef<'_>,
    group: usize,
    half: usize,
) -> (__m256, __m256) {
    if SYMMETRIC {
        let scale = load_eight(scales.numbers, group * LANES + half * 8);
        let zero = _mm256_set1_ps(-scales.zero.unwrap_or_default());
        return (scale, _mm256_mul_ps(scale, zero));
    }
    let at = group * 2 * LANES + half * 8;
    match scales.numbers {
        Numbers::Half(values) => {
            let values = &values[at..at + LANES + 8];
            // SAFETY: the slice has 24 elements; the loads read elements 0..8 and 16..24.
            let (scale, offset) = unsafe {
                (
                    _mm_loadu_si128(values.as_ptr().cast()),
                    _mm_loadu_si128(values.as_ptr().add(LANES).cast()),
                )
            };
            (_mm256_cvtph_ps(scale), _mm256_cvtph_ps(offset))
        }
        Numbers::Full(values) => {
            let values = &values[at..at + LANES + 8];
            // SAFETY: the slice has 24 elements; the loads read elements 0..8 and 16..24.
            unsafe {
                (
                    _mm256_loadu_ps(values.as_ptr()),
                    _mm256_loadu_ps(values.as_ptr().add(LANES)),
                )
            }
        }
    }
}

/// The eight numbers from `at` on.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn load_eight(numbers: Numbers<'_>, at: usize) -> __m256 {
    match numbers {
        Numbers::Half(values) => {
            let values = &values[at..at + 8];
            // SAFETY: the slice has eight elements of two bytes.
            _mm256_cvtph_ps(unsafe { _mm_loadu_si128(values.as_ptr().cast()) })
        }
        Numbers::Full(values) => {
            let values = &values[at..at + 8];
            // SAFETY: the slice has eight elements.
            unsafe { _mm256_loadu_ps(values.as_ptr()) }
        }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store<const R: usize>(total: [__m256; R], half: usize, tile: &mut Tile) {
    for (total, out) in total.into_iter().zip(tile) {
        let out = &mut out[half * 8..half * 8 + 8];
        // SAFETY: the slice has eight elements.
        unsafe { _mm256_storeu_ps(out.as_mut_ptr(), total) }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn dense(panel: DensePanel<'_>, rows: TileInput<'_>, tile: &mut Tile) {
    match rows.count {
        1 => dense_rows::<1>(panel, rows, tile),
        2 => dense_rows::<2>(panel, rows, tile),
        3 => dense_rows::<3>(panel, rows, tile),
        _ => dense_rows::<TILE>(panel, rows, tile),
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn dense_rows<const R: usize>(panel: DensePanel<'_>, rows: TileInput<'_>, tile: &mut Tile) {
    let columns = rows.columns;
    let x: [&[f32]; R] = std::array::from_fn(|r| &rows.values(r)[..columns]);
    let mut total = [[_mm256_setzero_ps(); 2]; R];
    match panel {
        DensePanel::F32(weights) => {
            let (weights, _) = weights[..columns * LANES].as_chunks::<LANES>();
            for (column, weights) in weights.iter().enumerate() {
                // SAFETY: the chunk has sixteen elements.
                let pair = unsafe {
                    [
                        _mm256_loadu_ps(weights.as_ptr()),
                        _mm256_loadu_ps(weights.as_ptr().add(8)),
                    ]
                };
                multiply(&mut total, pair, &x, column);
            }
        }
        DensePanel::Bf16(weights) => {
            let (weights, _) = weights[..columns * LANES].as_chunks::<LANES>();
            for (column, weights) in weights.iter().enumerate() {
                // SAFETY: the chunk has sixteen elements of two bytes.
                let raw = unsafe {
                    [
                        _mm_loadu_si128(weights.as_ptr().cast()),
                        _mm_loadu_si128(weights.as_ptr().add(8).cast()),
                    ]
                };
                let pair = [widen(raw[0]), widen(raw[1])];
                multiply(&mut total, pair, &x, column);
            }
        }
    }
    store::<R>(std::array::from_fn(|r| total[r][0]), 0, tile);
    store::<R>(std::array::from_fn(|r| total[r][1]), 1, tile);
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

/// Eight bf16 numbers to single precision.
#[inline]
#[target_feature(enable = "avx2")]
fn widen(raw: __m128i) -> __m256 {
    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(raw)))
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn multiply<const R: usize>(
    total: &mut [[__m256; 2]; R],
    weights: [__m256; 2],
    x: &[&[f32]; R],
    column: usize,
) {
    for (total, x) in total.iter_mut().zip(x) {
        let x = _mm256_set1_ps(x[column]);
        total[0] = _mm256_fmadd_ps(weights[0], x, total[0]);
        total[1] = _mm256_fmadd_ps(weights[1], x, total[1]);
    }
}
