//! Element-wise operations.

use crate::cpu::on_isa;
use crate::exp::exp;
use crate::{Cpu, QuantRows, shared::Shared};

/// The gate of a SwiGLU feed-forward layer (Shazeer 2020): each row of `gate_up` holds `n` gates and
/// `n` values; the row of `out` gets `silu(gate) * value`.
///
/// # Panics
/// When `out` is not half as long as `gate_up`, or no whole number of rows of `n`.
pub fn silu_mul(cpu: &Cpu, n: usize, gate_up: &[f32], out: &mut [f32]) {
    silu_mul_quantized(cpu, n, gate_up, (out, None));
}

/// [`silu_mul`] that also quantises the rows it writes, where wanted.
///
/// # Panics
/// As [`silu_mul`], and when rows to quantise are no multiple of 32 long.
pub fn silu_mul_quantized(
    cpu: &Cpu,
    n: usize,
    gate_up: &[f32],
    (out, quantized): (&mut [f32], Option<&mut QuantRows>),
) {
    assert!(n > 0 && out.len().is_multiple_of(n) && gate_up.len() == out.len() * 2);
    let rows = out.len() / n;
    let writer = quantized.map(|quantized| quantized.writer(rows, n));
    let shared = Shared::new(out);
    let isa = cpu.isa();
    cpu.for_ranges(rows, 2, |range| {
        for row in range {
            let (gate, up) = gate_up[row * 2 * n..][..2 * n].split_at(n);
            // SAFETY: each row is visited once.
            let out = unsafe { shared.part(row * n..(row + 1) * n) };
            on_isa!(
                isa,
                silu_mul_row(gate, up, out),
                silu_mul_row_avx2(gate, up, out)
            );
            if let Some(writer) = &writer {
                // SAFETY: as above.
                unsafe { writer.write(isa, row..row + 1, out) }
            }
        }
    });
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn silu_mul_row_avx2(gate: &[f32], up: &[f32], out: &mut [f32]) {
    silu_mul_row(gate, up, out);
}

#[inline(always)]
fn silu_mul_row(gate: &[f32], up: &[f32], out: &mut [f32]) {
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
