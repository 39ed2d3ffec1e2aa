//! AVX2 and FMA: a tile's sums stay in registers, two of eight lanes per query.

use super::{MOST, Numbers, SPAN, Scores, Values};
use crate::kv::RUN;
use std::arch::x86_64::*;

#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::attention) fn scores(tile: Scores<'_>) {
    match tile.keys {
        Numbers::Full(keys) => scores_in(keys, tile),
        Numbers::Half(keys) => scores_in(keys, tile),
        Numbers::Byte(keys) => scores_in(keys, tile),
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn scores_in<T: Number>(keys: &[T], tile: Scores<'_>) {
    match tile.scores.len() / SPAN {
        1 => scores_of::<1, T>(keys, tile),
        2 => scores_of::<2, T>(keys, tile),
        3 => scores_of::<3, T>(keys, tile),
        _ => scores_of::<MOST, T>(keys, tile),
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn scores_of<const Q: usize, T: Number>(keys: &[T], tile: Scores<'_>) {
    let (keys, _) = keys.as_chunks::<RUN>();
    let dim = keys.len();
    let queries: [&[f32]; Q] = std::array::from_fn(|q| &tile.queries[q * dim..(q + 1) * dim]);
    let mut sums = [[_mm256_setzero_ps(); 2]; Q];
    for (element, keys) in keys.iter().enumerate() {
        let keys = load_run(keys);
        for (sums, query) in sums.iter_mut().zip(queries) {
            // SAFETY: a query has as many elements as there are rows of keys.
            let query = _mm256_set1_ps(unsafe { *query.get_unchecked(element) });
            sums[0] = _mm256_fmadd_ps(query, keys[0], sums[0]);
            sums[1] = _mm256_fmadd_ps(query, keys[1], sums[1]);
        }
    }
    for (sums, scores) in sums.into_iter().zip(tile.scores.chunks_exact_mut(SPAN)) {
        store_run(sums, &mut scores[tile.offset..]);
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::attention) fn values(tile: Values<'_>) {
    match tile.values {
        Numbers::Full(values) => values_in(values, tile),
        Numbers::Half(values) => values_in(values, tile),
        Numbers::Byte(values) => values_in(values, tile),
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn values_in<T: Number>(values: &[T], tile: Values<'_>) {
    match tile.weights.len() / SPAN {
        1 => values_of::<1, T>(values, tile),
        2 => values_of::<2, T>(values, tile),
        3 => values_of::<3, T>(values, tile),
        _ => values_of::<MOST, T>(values, tile),
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn values_of<const Q: usize, T: Number>(values: &[T], tile: Values<'_>) {
    let dim = tile.sums.len() / Q;
    assert!(dim.is_multiple_of(RUN));
    let count = values.len() / dim;
    let weights: [&[f32]; Q] =
        std::array::from_fn(|q| &tile.weights[q * SPAN + tile.offset..][..count]);
    for chunk in (0..dim).step_by(RUN) {
        let mut sums: [[__m256; 2]; Q] = std::array::from_fn(|q| {
            let (sums, _) = tile.sums[q * dim + chunk..].as_chunks::<RUN>();
            load_run(&sums[0])
        });
        for (position, values) in values.chunks_exact(dim).enumerate() {
            // SAFETY: a row of values is `dim` long, in which a run begins at `chunk`.
            let values = load_run(unsafe { &*values.as_ptr().add(chunk).cast::<[T; RUN]>() });
            for (sums, weights) in sums.iter_mut().zip(weights) {
                // SAFETY: there are `count` weights, one for each row of values.
                let weight = _mm256_set1_ps(unsafe { *weights.get_unchecked(position) });
                sums[0] = _mm256_fmadd_ps(weight, values[0], sums[0]);
                sums[1] = _mm256_fmadd_ps(weight, values[1], sums[1]);
            }
        }
        for (q, sums) in sums.into_iter().enumerate() {
            store_run(sums, &mut tile.sums[q * dim + chunk..]);
        }
    }
}

/// What a run may be stored in.
trait Number: Copy {
    const KIND: Kind;
}

enum Kind {
    Full,
    Half,
    Byte,
}

impl Number for f32 {
    const KIND: Kind = Kind::Full;
}

/// Half precision, in bits.
impl Number for u16 {
    const KIND: Kind = Kind::Half;
}

impl Number for i8 {
    const KIND: Kind = Kind::Byte;
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn load_run<T: Number>(from: &[T; RUN]) -> [__m256; 2] {
    let from = from.as_ptr();
    match T::KIND {
        Kind::Full => {
            let from = from.cast::<f32>();
            // SAFETY: there are sixteen elements, of the type that their kind says.
            unsafe { [_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))] }
        }
        Kind::Half => {
            let from = from.cast::<__m128i>();
            // SAFETY: as above; they take two bytes each.
            unsafe {
                [
                    _mm256_cvtph_ps(_mm_loadu_si128(from)),
                    _mm256_cvtph_ps(_mm_loadu_si128(from.add(1))),
                ]
            }
        }
        Kind::Byte => {
            let from = from.cast::<i8>();
            // SAFETY: as above; they take one byte each, and each load reads eight of them.
            let halves = unsafe {
                [
                    _mm_loadl_epi64(from.cast()),
                    _mm_loadl_epi64(from.add(8).cast()),
                ]
            };
            halves.map(|half| _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(half)))
        }
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
