//! Floating-point weights.

use super::store;
use crate::dense::DensePanel;
use crate::product::{TILE, Tile, TileInput};
use crate::quantized::LANES;
use std::arch::x86_64::*;

#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::product) fn dense(panel: DensePanel<'_>, rows: TileInput<'_>, tile: &mut Tile) {
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
