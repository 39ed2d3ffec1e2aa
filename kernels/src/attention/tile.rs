//! The two inner loops: scores of sixteen positions, and their weighted values, for up to
//! [`MOST`] queries at a time. Each sum is one chain of fused multiply-adds, over the head's elements
//! for a score and over positions for a value, so that it does not matter which queries are together.

#[cfg(target_arch = "x86_64")]
mod avx2;

use super::SPAN;
use crate::kv::RUN;

#[cfg(target_arch = "x86_64")]
pub(super) use avx2::{scores as scores_avx2, values as values_avx2};

/// Most queries in a tile: their sums fill half of the sixteen vector registers of AVX2.
pub(super) const MOST: usize = 4;

/// Keys or values of a run of sixteen positions.
#[derive(Clone, Copy)]
pub(super) enum Numbers<'a> {
    /// In single precision: made once where several tiles read them.
    Full(&'a [f32]),
    /// In half precision, as bits: made single on the way into a register. AVX2 only.
    Half(&'a [u16]),
    /// Codes whose scale is applied elsewhere: made single on the way into a register. AVX2 only.
    Byte(&'a [i8]),
}

impl<'a> Numbers<'a> {
    /// The first `count` of them.
    pub(super) fn up_to(self, count: usize) -> Self {
        match self {
            Self::Full(numbers) => Self::Full(&numbers[..count]),
            Self::Half(numbers) => Self::Half(&numbers[..count]),
            Self::Byte(numbers) => Self::Byte(&numbers[..count]),
        }
    }

    fn full(self) -> &'a [f32] {
        match self {
            Self::Full(numbers) => numbers,
            Self::Half(_) | Self::Byte(_) => unreachable!("the plain path reads single precision"),
        }
    }
}

/// Scores of sixteen positions.
pub(super) struct Scores<'a> {
    /// One row of sixteen positions per element of a head.
    pub(super) keys: Numbers<'a>,
    pub(super) queries: &'a [f32],
    /// Per query, [`SPAN`] of them.
    pub(super) scores: &'a mut [f32],
    /// Of the first position within the span.
    pub(super) offset: usize,
}

/// Weighted values of up to sixteen positions.
pub(super) struct Values<'a> {
    /// One row per position.
    pub(super) values: Numbers<'a>,
    /// Per query, [`SPAN`] of them.
    pub(super) weights: &'a [f32],
    /// What they are added to, per query.
    pub(super) sums: &'a mut [f32],
    /// Of the first position within the span.
    pub(super) offset: usize,
}

pub(super) fn scores(tile: Scores<'_>) {
    match tile.scores.len() / SPAN {
        1 => scores_of::<1>(tile),
        2 => scores_of::<2>(tile),
        3 => scores_of::<3>(tile),
        _ => scores_of::<MOST>(tile),
    }
}

fn scores_of<const Q: usize>(tile: Scores<'_>) {
    let (keys, _) = tile.keys.full().as_chunks::<RUN>();
    let dim = keys.len();
    let queries: [&[f32]; Q] = std::array::from_fn(|q| &tile.queries[q * dim..(q + 1) * dim]);
    let mut sums = [[0f32; RUN]; Q];
    for (element, keys) in keys.iter().enumerate() {
        for q in 0..Q {
            let query = queries[q][element];
            for lane in 0..RUN {
                sums[q][lane] = query.mul_add(keys[lane], sums[q][lane]);
            }
        }
    }
    for (sums, scores) in sums.iter().zip(tile.scores.chunks_exact_mut(SPAN)) {
        scores[tile.offset..tile.offset + RUN].copy_from_slice(sums);
    }
}

pub(super) fn values(tile: Values<'_>) {
    match tile.weights.len() / SPAN {
        1 => values_of::<1>(tile),
        2 => values_of::<2>(tile),
        3 => values_of::<3>(tile),
        _ => values_of::<MOST>(tile),
    }
}

fn values_of<const Q: usize>(tile: Values<'_>) {
    let dim = tile.sums.len() / Q;
    let numbers = tile.values.full();
    let count = numbers.len() / dim;
    let weights: [&[f32]; Q] =
        std::array::from_fn(|q| &tile.weights[q * SPAN + tile.offset..][..count]);
    for chunk in 0..dim / RUN {
        let mut sums = [[0f32; RUN]; Q];
        for (q, sums) in sums.iter_mut().enumerate() {
            sums.copy_from_slice(&tile.sums[q * dim + chunk * RUN..][..RUN]);
        }
        for (position, values) in numbers.chunks_exact(dim).enumerate() {
            let values = &values[chunk * RUN..][..RUN];
            for q in 0..Q {
                let weight = weights[q][position];
                for lane in 0..RUN {
                    sums[q][lane] = weight.mul_add(values[lane], sums[q][lane]);
                }
            }
        }
        for (q, sums) in sums.iter().enumerate() {
            tile.sums[q * dim + chunk * RUN..][..RUN].copy_from_slice(sums);
        }
    }
}
