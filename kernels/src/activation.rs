//! Element-wise operations.

use crate::Isa;
use crate::cpu::on_isa;
use crate::exp::exp;

/// Writes `silu(gate) * up` for each pair of elements.
pub(crate) fn silu_mul<const N: usize>(
    isa: Isa,
    gate: &[f32; N],
    up: &[f32; N],
    out: &mut [f32; N],
) {
    on_isa!(
        isa,
        silu_mul_row(gate, up, out),
        silu_mul_row_avx2(gate, up, out)
    );
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn silu_mul_row_avx2<const N: usize>(gate: &[f32; N], up: &[f32; N], out: &mut [f32; N]) {
    silu_mul_row(gate, up, out);
}

#[inline(always)]
fn silu_mul_row<const N: usize>(gate: &[f32; N], up: &[f32; N], out: &mut [f32; N]) {
    for ((out, &gate), &up) in out.iter_mut().zip(gate).zip(up) {
        *out = gate / (1.0 + exp(-gate)) * up;
    }
}

/// Adds `other` to `values`; `other` is repeated as often as it fits.
///
/// # Panics
/// When `other` is empty or does not fit a whole number of times.
pub fn add_assign(values: &mut [f32], other: &[f32]) {
    assert!(!other.is_empty() && values.len().is_multiple_of(other.len()));
    for values in values.chunks_exact_mut(other.len()) {
        for (value, other) in values.iter_mut().zip(other) {
            *value += other;
        }
    }
}
