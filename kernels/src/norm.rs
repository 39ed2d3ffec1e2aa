//! Root mean square normalisation.

use crate::cpu::on_isa;
use crate::{Cpu, shared::Shared};

/// Normalises rows of `weight.len()` numbers (Zhang and Sennrich 2019): `x / sqrt(mean(x²) + epsilon)`
/// times `weight`. The sum of squares runs in sixteen fixed lanes.
///
/// # Panics
/// When `values` is no whole number of rows or `out` has another length.
pub fn rms_norm(cpu: &Cpu, weight: &[f32], epsilon: f32, values: &[f32], out: &mut [f32]) {
    let n = weight.len();
    assert!(n > 0 && values.len().is_multiple_of(n) && out.len() == values.len());
    let shared = Shared::new(out);
    let isa = cpu.isa();
    cpu.for_ranges(values.len() / n, 16, |range| {
        for row in range {
            let values = &values[row * n..][..n];
            // SAFETY: each row is visited once.
            let out = unsafe { shared.part(row * n..(row + 1) * n) };
            on_isa!(
                isa,
                norm_row(weight, epsilon, values, out),
                norm_row_avx2(weight, epsilon, values, out)
            );
        }
    });
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn norm_row_avx2(weight: &[f32], epsilon: f32, values: &[f32], out: &mut [f32]) {
    norm_row(weight, epsilon, values, out);
}

#[inline(always)]
fn norm_row(weight: &[f32], epsilon: f32, values: &[f32], out: &mut [f32]) {
    let (chunks, rest) = values.as_chunks::<16>();
    let mut lanes = [0f32; 16];
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane = value.mul_add(*value, *lane);
        }
    }
    for (lane, value) in lanes.iter_mut().zip(rest) {
        *lane = value.mul_add(*value, *lane);
    }
    let sum = tree_sum(lanes);
    let scale = 1.0 / (sum / values.len() as f32 + epsilon).sqrt();
    for ((out, value), weight) in out.iter_mut().zip(values).zip(weight) {
        *out = value * scale * weight;
    }
}

/// The sum of sixteen numbers, pairwise.
#[inline(always)]
pub(crate) fn tree_sum(mut lanes: [f32; 16]) -> f32 {
    let mut width = 8;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
        width /= 2;
    }
    lanes[0]
}
