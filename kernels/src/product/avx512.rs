//! AVX-512 with VNNI: one register holds four columns of sixteen rows, and `vpdpbusd` multiplies it
//! with four activations broadcast to all lanes.

use super::{TILE, Tile, TileInput};
use crate::quant_rows::QuantRow;
use crate::quantized::{LANES, Numbers, QuantPanel, ScalesRef, numbers_per_group};
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
    assert!(columns == rows.columns && rows.count >= R);
    assert!(panel.codes.len() == panel.groups * panel.layout.group_bytes());
    let x: [QuantRow<'_>; R] = rows.quantized(panel.layout.group);
    assert!(x.iter().all(|row| row.codes.len() == columns));
    let mut total = [_mm512_setzero_ps(); R];
    for group in 0..panel.groups {
        let dots = if panel.layout.nibbles {
            nibble_dots(panel.codes, group, &x)
        } else {
            byte_dots(panel.codes, group, panel.layout.group / 4, &x)
        };
        let (scale, offset) = load_affine(panel.scales, group);
        for r in 0..R {
            let [x_scale, x_sum] = x[r].pairs[group];
            let scale = _mm512_mul_ps(scale, _mm512_set1_ps(x_scale));
            total[r] = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(dots[r]), total[r]);
            total[r] = _mm512_fmadd_ps(offset, _mm512_set1_ps(x_sum), total[r]);
        }
    }
    for (total, out) in total.into_iter().zip(tile) {
        // SAFETY: `out` has sixteen elements.
        unsafe { _mm512_storeu_ps(out.as_mut_ptr(), total) }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn nibble_dots<const R: usize>(codes: &[u8], group: usize, x: &[QuantRow<'_>; R]) -> [__m512i; R] {
    let mask = _mm512_set1_epi8(0x0f);
    let mut dots = [_mm512_setzero_si512(); R];
    for line in 0..4 {
        let codes = load_line(codes, group * 4 + line);
        let low = _mm512_and_si512(codes, mask);
        let high = _mm512_and_si512(_mm512_srli_epi16::<4>(codes), mask);
        for (dot, x) in dots.iter_mut().zip(x) {
            let first = broadcast_quad(x.codes, group * 32 + line * 4);
            let second = broadcast_quad(x.codes, group * 32 + line * 4 + 16);
            *dot = _mm512_dpbusd_epi32(*dot, low, first);
            *dot = _mm512_dpbusd_epi32(*dot, high, second);
        }
    }
    dots
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn byte_dots<const R: usize>(
    codes: &[u8],
    group: usize,
    quads: usize,
    x: &[QuantRow<'_>; R],
) -> [__m512i; R] {
    let mut dots = [_mm512_setzero_si512(); R];
    for line in group * quads..(group + 1) * quads {
        let codes = load_line(codes, line);
        for (dot, x) in dots.iter_mut().zip(x) {
            *dot = _mm512_dpbusd_epi32(*dot, codes, broadcast_quad(x.codes, line * 4));
        }
    }
    dots
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

#[inline]
#[target_feature(enable = "avx512f")]
fn load_affine(scales: ScalesRef<'_>, group: usize) -> (__m512, __m512) {
    let at = group * numbers_per_group(scales.zero);
    let scale = load_sixteen(scales.numbers, at);
    let offset = match scales.zero {
        Some(zero) => _mm512_mul_ps(scale, _mm512_set1_ps(-zero)),
        None => load_sixteen(scales.numbers, at + LANES),
    };
    (scale, offset)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_sixteen(numbers: Numbers<'_>, at: usize) -> __m512 {
    match numbers {
        Numbers::Half(values) => {
            let values = &values[at..at + LANES];
            // SAFETY: the slice has sixteen elements of two bytes.
            _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(values.as_ptr().cast()) })
        }
        Numbers::Full(values) => {
            let values = &values[at..at + LANES];
            // SAFETY: the slice has sixteen elements.
            unsafe { _mm512_loadu_ps(values.as_ptr()) }
        }
    }
}
