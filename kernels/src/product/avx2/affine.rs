//! Scales and offsets: read from the packed form, and applied to dot products.

use super::store_eight;
use crate::quantized::{AFFINE, SYMMETRIC, SYMMETRIC_TWO_LEVEL, TWO_LEVEL, is_symmetric};
use crate::quantized::{LANES, Numbers, ScalesRef, TwoLevelPlace};
use std::arch::x86_64::*;

/// Scales and offsets of eight of the sixteen rows; no offsets where they follow from scales. Written out, not
/// over arrays: this way the sums of the loops around it stay in registers. `factors` are those of the group's
/// block; they are loaded with its first group, so calls begin there.
///
/// # Safety
/// The machine has AVX2 and F16C. (As a function that says so itself it would not be inlined everywhere, and its
/// callers would keep their sums in memory across the call.)
#[inline(always)]
pub(super) unsafe fn load_affine<const KIND: u8>(
    scales: ScalesRef<'_>,
    factors: &mut Factors,
    group: usize,
    half: usize,
) -> (__m256, __m256) {
    match (scales.numbers, KIND) {
        (Numbers::Half(values), SYMMETRIC) => {
            let values = &values[group * LANES + half * 8..][..8];
            // SAFETY: the slice has eight elements of two bytes; the caller vouches for the machine.
            unsafe {
                let scale = _mm_loadu_si128(values.as_ptr().cast());
                (_mm256_cvtph_ps(scale), _mm256_setzero_ps())
            }
        }
        (Numbers::Half(values), AFFINE) => {
            let values = &values[group * 2 * LANES + half * 8..][..LANES + 8];
            // SAFETY: the slice has 24 elements; the loads read elements 0..8 and 16..24. The caller vouches for
            // the machine.
            unsafe {
                let scale = _mm_loadu_si128(values.as_ptr().cast());
                let offset = _mm_loadu_si128(values.as_ptr().add(LANES).cast());
                (_mm256_cvtph_ps(scale), _mm256_cvtph_ps(offset))
            }
        }
        (Numbers::TwoLevel(bytes), SYMMETRIC_TWO_LEVEL) => {
            let place = TwoLevelPlace::of::<true>(group);
            let numbers = &bytes[place.numbers + half * 8..];
            // SAFETY: the caller vouches for the machine.
            unsafe {
                if group.is_multiple_of(16) {
                    factors.load::<LANES>(&bytes[place.factors..]);
                }
                (factors.times(half * 8, numbers), _mm256_setzero_ps())
            }
        }
        (Numbers::TwoLevel(bytes), TWO_LEVEL) => {
            let place = TwoLevelPlace::of::<false>(group);
            let numbers = &bytes[place.numbers + half * 8..][..LANES + 8];
            // SAFETY: the caller vouches for the machine.
            unsafe {
                if group.is_multiple_of(8) {
                    factors.load::<{ 2 * LANES }>(&bytes[place.factors..]);
                }
                let scale = factors.times(half * 8, numbers);
                (scale, factors.times(LANES + half * 8, &numbers[LANES..]))
            }
        }
        (_, kind) => unreachable!("the scales are not of kind {kind}"),
    }
}

/// The factors of the scales and offsets of a block of groups, where these come in two levels.
#[repr(align(32))]
pub(super) struct Factors([f32; 2 * LANES]);

impl Factors {
    pub(super) const NONE: Self = Self([0.0; 2 * LANES]);

    /// Makes `N` half-precision numbers single.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    fn load<const N: usize>(&mut self, halves: &[u8]) {
        let (halves, _) = halves[..2 * N].as_chunks::<16>();
        let (factors, _) = self.0.as_chunks_mut::<8>();
        for (halves, factors) in halves.iter().zip(factors) {
            // SAFETY: there are sixteen bytes.
            let halves = unsafe { _mm_loadu_si128(halves.as_ptr().cast()) };
            store_eight(_mm256_cvtph_ps(halves), factors);
        }
    }

    /// The eight factors from `at` on, times as many signed bytes.
    ///
    /// # Safety
    /// The machine has AVX2.
    #[inline(always)]
    unsafe fn times(&self, at: usize, bytes: &[u8]) -> __m256 {
        let (factors, bytes) = (&self.0[at..at + 8], &bytes[..8]);
        // SAFETY: the slices have as many elements as the loads read; the caller vouches for the machine.
        unsafe {
            let factors = _mm256_loadu_ps(factors.as_ptr());
            let bytes = _mm_loadl_epi64(bytes.as_ptr().cast());
            _mm256_mul_ps(factors, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)))
        }
    }
}

/// What a group of one row of activations multiplies its dot products with.
pub(super) struct Scaled<const KIND: u8> {
    scale: __m256,
    /// What offsets are multiplied with. Where they follow from scales: what is added to a scaled dot product,
    /// since the code that stands for 0 was multiplied as any other.
    sum: __m256,
}

impl<const KIND: u8> Scaled<KIND> {
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn of(pairs: &[[f32; 2]], group: usize, zero: f32) -> Self {
        debug_assert!(group < pairs.len());
        // SAFETY: callers stay within the groups of a row, whose number they checked.
        let [scale, sum] = unsafe { *pairs.get_unchecked(group) };
        Self {
            scale: _mm256_set1_ps(scale),
            sum: _mm256_set1_ps(if is_symmetric(KIND) { -zero * sum } else { sum }),
        }
    }

    /// Adds the dot products of eight rows of weights, whose scales and offsets are given.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    pub(super) fn add(&self, total: __m256, dot: __m256i, scale: __m256, offset: __m256) -> __m256 {
        let dot = _mm256_cvtepi32_ps(dot);
        if is_symmetric(KIND) {
            return _mm256_fmadd_ps(scale, _mm256_fmadd_ps(dot, self.scale, self.sum), total);
        }
        let total = _mm256_fmadd_ps(_mm256_mul_ps(scale, self.scale), dot, total);
        _mm256_fmadd_ps(offset, self.sum, total)
    }
}
