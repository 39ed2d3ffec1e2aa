//! AVX2 and FMA: a tile's sums stay in registers, two of eight lanes per query.

use super::{MOST, SPAN, Scores, Values};
use crate::kv::RUN;
use std::arch::x86_64::*;

#[target_feature(enable = "avx2,fma")]
pub(in crate::attention) fn scores(tile: Scores<'_>) {
    match tile.scores.len() / SPAN {
        1 => scores_of::<1>(tile),
        2 => scores_of::<2>(tile),
        3 => scores_of::<3>(tile),
        _ => scores_of::<MOST>(tile),
    }
}

#[target_feature(enable = "avx2,fma")]
fn scores_of<const Q: usize>(tile: Scores<'_>) {
    let (keys, _) = tile.keys.as_chunks::<RUN>();
    let dim = keys.len();
    let queries: [&[f32]; Q] = std::array::from_fn(|q| &tile.queries[q * dim..(q + 1) * dim]);
    let mut sums = [[_mm256_setzero_ps(); 2]; Q];
    for (element, keys) in keys.iter().enumerate() {
        let keys = load_run(keys);
        for (sums, query) in sums.iter_mut().zip(queries) {
            let query = _mm256_set1_ps(query[element]);
            sums[0] = _mm256_fmadd_ps(query, keys[0], sums[0]);
            sums[1] = _mm256_fmadd_ps(query, keys[1], sums[1]);
        }
    }
    for (sums, scores) in sums.into_iter().zip(tile.scores.chunks_exact_mut(SPAN)) {
        store_run(sums, &mut scores[tile.offset..]);
    }
}

#[target_feature(enable = "avx2,fma")]
pub(in crate::attention) fn values(tile: Values<'_>) {
    match tile.weights.len() / SPAN {
        1 => values_of::<1>(tile),
        2 => values_of::<2>(tile),
        3 => values_of::<3>(tile),
        _ => values_of::<MOST>(tile),
    }
}

#[target_feature(enable = "avx2,fma")]
fn values_of<const Q: usize>(tile: Values<'_>) {
    let dim = tile.sums.len() / Q;
    let count = tile.values.len() / dim;
    let weights: [&[f32]; Q] =
        std::array::from_fn(|q| &tile.weights[q * SPAN + tile.offset..][..count]);
    for chunk in (0..dim).step_by(RUN) {
        let mut sums: [[__m256; 2]; Q] =
            std::array::from_fn(|q| load_run(&tile.sums[q * dim + chunk..]));
        for (position, values) in tile.values.chunks_exact(dim).enumerate() {
            let values = load_run(&values[chunk..]);
            for (sums, weights) in sums.iter_mut().zip(weights) {
                let weight = _mm256_set1_ps(weights[position]);
                sums[0] = _mm256_fmadd_ps(weight, values[0], sums[0]);
                sums[1] = _mm256_fmadd_ps(weight, values[1], sums[1]);
            }
        }
        for (q, sums) in sums.into_iter().enumerate() {
            store_run(sums, &mut tile.sums[q * dim + chunk..]);
        }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_run(from: &[f32]) -> [__m256; 2] {
    let from = &from[..RUN];
    // SAFETY: the slice has sixteen elements.
    unsafe {
        [
            _mm256_loadu_ps(from.as_ptr()),
            _mm256_loadu_ps(from.as_ptr().add(8)),
        ]
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store_run(values: [__m256; 2], to: &mut [f32]) {
    let to = &mut to[..RUN];
    // SAFETY: the slice has sixteen elements.
    unsafe {
        _mm256_storeu_ps(to.as_mut_ptr(), values[0]);
        _mm256_storeu_ps(to.as_mut_ptr().add(8), values[1]);
    }
}
