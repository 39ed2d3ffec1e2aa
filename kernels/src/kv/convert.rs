//! Between single precision and what the cache holds.

use crate::Isa;
use crate::cpu::on_isa;
use half::f16;

/// Single-precision numbers to half precision, as bits; rounds to nearest, ties to even.
pub(super) fn narrow(isa: Isa, values: &[f32], out: &mut [u16]) {
    on_isa!(isa, narrow_plain(values, out), narrow_avx2(values, out));
}

fn narrow_plain(values: &[f32], out: &mut [u16]) {
    for (&value, out) in values.iter().zip(out) {
        *out = f16::from_f32(value).to_bits();
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
fn narrow_avx2(values: &[f32], out: &mut [u16]) {
    use std::arch::x86_64::{
        _MM_FROUND_TO_NEAREST_INT, _mm_storeu_si128, _mm256_cvtps_ph, _mm256_loadu_ps,
    };
    let (values, rest) = values.as_chunks::<8>();
    let (out, out_rest) = out.as_chunks_mut::<8>();
    for (values, out) in values.iter().zip(out) {
        // SAFETY: both have eight elements.
        unsafe {
            let halves =
                _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(values.as_ptr()));
            _mm_storeu_si128(out.as_mut_ptr().cast(), halves);
        }
    }
    narrow_plain(rest, out_rest);
}

/// Half-precision numbers, as bits, to single precision.
pub(crate) fn widen(isa: Isa, halves: &[u16], out: &mut [f32]) {
    on_isa!(isa, widen_plain(halves, out), widen_avx2(halves, out));
}

fn widen_plain(halves: &[u16], out: &mut [f32]) {
    for (&half, out) in halves.iter().zip(out) {
        *out = f16::from_bits(half).to_f32();
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
fn widen_avx2(halves: &[u16], out: &mut [f32]) {
    use std::arch::x86_64::{_mm_loadu_si128, _mm256_cvtph_ps, _mm256_storeu_ps};
    let (halves, rest) = halves.as_chunks::<8>();
    let (out, out_rest) = out.as_chunks_mut::<8>();
    for (halves, out) in halves.iter().zip(out) {
        // SAFETY: both have eight elements.
        unsafe {
            let halves = _mm_loadu_si128(halves.as_ptr().cast());
            _mm256_storeu_ps(out.as_mut_ptr(), _mm256_cvtph_ps(halves));
        }
    }
    widen_plain(rest, out_rest);
}

/// Codes to single precision, without their scale.
pub(crate) fn widen_bytes(isa: Isa, codes: &[i8], out: &mut [f32]) {
    on_isa!(
        isa,
        widen_bytes_on(codes, out),
        widen_bytes_avx2(codes, out)
    );
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn widen_bytes_avx2(codes: &[i8], out: &mut [f32]) {
    widen_bytes_on(codes, out);
}

#[inline(always)]
fn widen_bytes_on(codes: &[i8], out: &mut [f32]) {
    for (&code, out) in codes.iter().zip(out) {
        *out = f32::from(code);
    }
}

/// The scale under which the largest of `values` becomes 127, in half precision.
pub(super) fn scale_of(isa: Isa, values: &[f32]) -> f16 {
    let largest = on_isa!(isa, largest(values), largest_avx2(values));
    // Stays finite, whatever comes.
    f16::from_f32((largest / 127.0).min(f16::MAX.to_f32()))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn largest_avx2(values: &[f32]) -> f32 {
    largest(values)
}

/// The largest magnitude; that of a NaN is 0.
#[inline(always)]
fn largest(values: &[f32]) -> f32 {
    let (chunks, rest) = values.as_chunks::<8>();
    let mut lanes = [0f32; 8];
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane = if value.abs() > *lane {
                value.abs()
            } else {
                *lane
            };
        }
    }
    rest.iter()
        .chain(&lanes)
        .fold(0.0, |a, b| if b.abs() > a { b.abs() } else { a })
}

/// Codes of `values` under a scale.
pub(super) fn codes_of(isa: Isa, values: &[f32], scale: f16, out: &mut [i8]) {
    let scale = scale.to_f32();
    let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
    on_isa!(
        isa,
        codes_on(values, inverse, out),
        codes_avx2(values, inverse, out)
    );
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn codes_avx2(values: &[f32], inverse: f32, out: &mut [i8]) {
    codes_on(values, inverse, out);
}

#[inline(always)]
fn codes_on(values: &[f32], inverse: f32, out: &mut [i8]) {
    for (&value, out) in values.iter().zip(out) {
        // A scale that was rounded down far, as very small ones are, would lead past the ends.
        let code = (value * inverse).clamp(-127.0, 127.0);
        // Rounds to the nearest integer, ties to even, and leaves it in the low bits; of a NaN some byte is left.
        *out = (code + 12_582_912.0).to_bits() as i8;
    }
}

#[cfg(test)]
mod tests {
    use super::{codes_of, scale_of};
    use crate::Isa;

    #[test]
    fn odd_numbers_are_stored_as_something_finite_and_the_same_on_every_path() {
        let odd: [&[f32]; 7] = [
            &[0.0; 16],
            &[f32::NAN, 1.0, -2.0, 0.0],
            &[f32::INFINITY, 1.0],
            &[f32::MAX, -f32::MAX],
            &[1e-9, -1e-9],
            &[6e-6, -7.5e-6, 3e-6],
            &[1e-40; 3],
        ];
        for values in odd {
            let mut first = None;
            for isa in Isa::available() {
                let scale = scale_of(isa, values);
                assert!(scale.is_finite());
                let mut codes = vec![0; values.len()];
                codes_of(isa, values, scale, &mut codes);
                let got = (scale.to_bits(), codes);
                for (&value, &code) in values.iter().zip(&got.1) {
                    let stored = f32::from(code) * scale.to_f32();
                    let small = value.abs() < 65504.0 * 127.0;
                    assert!(!small || (stored - value).abs() <= scale.to_f32() * 1.5 + 1e-5);
                }
                assert_eq!(first.get_or_insert(got.clone()), &got);
            }
        }
    }
}
