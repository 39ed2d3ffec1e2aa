//! Root mean square normalisation.

use crate::cpu::on_isa;
use crate::{Cpu, Isa, QuantRows, add_assign, shared::Shared};

/// Normalises rows of `weight.len()` numbers (Zhang and Sennrich 2019): `x / sqrt(mean(x²) + epsilon)`
/// times `weight`. The sum of squares runs in sixteen fixed lanes.
///
/// # Panics
/// When `values` is no whole number of rows or `out` has another length.
pub fn rms_norm(cpu: &Cpu, weight: &[f32], epsilon: f32, values: &[f32], out: &mut [f32]) {
    let n = weight.len();
    assert!(n > 0 && values.len().is_multiple_of(n) && out.len() == values.len());
    let isa = cpu.isa();
    let shared = Shared::new(out);
    cpu.for_ranges(values.len() / n, 16, |range| {
        for row in range {
            let values = &values[row * n..][..n];
            // SAFETY: each row is visited once.
            let out = unsafe { shared.part(row * n..(row + 1) * n) };
            norm_row_on(isa, (weight, epsilon), values, out);
        }
    });
}

/// What follows a layer's half in one pass over the rows: the residual sum and the next norm.
pub struct AddNorm<'a> {
    /// Weights of the norm; a row is as long.
    pub weight: &'a [f32],
    /// See [`rms_norm`].
    pub epsilon: f32,
    /// Added to the hidden state first.
    pub delta: Option<&'a [f32]>,
}

impl AddNorm<'_> {
    /// Adds `delta` to the rows of `hidden`, writes the normalised rows to `out` and, where wanted, the
    /// same quantised.
    ///
    /// # Panics
    /// When lengths do not fit.
    pub fn run(
        &self,
        cpu: &Cpu,
        hidden: &mut [f32],
        out: &mut [f32],
        quantized: Option<&mut QuantRows>,
    ) {
        let n = self.weight.len();
        assert!(n > 0 && hidden.len().is_multiple_of(n) && out.len() == hidden.len());
        assert!(self.delta.is_none_or(|delta| delta.len() == hidden.len()));
        let (isa, rows) = (cpu.isa(), hidden.len() / n);
        let writer = quantized.map(|quantized| quantized.writer(rows, n));
        let (hidden, out) = (Shared::new(hidden), Shared::new(out));
        cpu.for_ranges(rows, 8, |range| {
            for row in range {
                let place = row * n..(row + 1) * n;
                // SAFETY: each row is visited once.
                let (hidden, out) =
                    unsafe { (hidden.part(place.clone()), out.part(place.clone())) };
                if let Some(delta) = self.delta {
                    add_assign(hidden, &delta[place]);
                }
                norm_row_on(isa, (self.weight, self.epsilon), hidden, out);
                if let Some(writer) = &writer {
                    // SAFETY: as above.
                    unsafe { writer.write(isa, row..row + 1, out) }
                }
            }
        });
    }
}

fn norm_row_on(isa: Isa, (weight, epsilon): (&[f32], f32), values: &[f32], out: &mut [f32]) {
    on_isa!(
        isa,
        norm_row(weight, epsilon, values, out),
        norm_row_avx2(weight, epsilon, values, out)
    );
}

/// Normalises each head of `heads` in place.
pub(crate) fn norm_heads(isa: Isa, (weight, epsilon): (&[f32], f32), heads: &mut [f32]) {
    for head in heads.chunks_exact_mut(weight.len()) {
        let scale = on_isa!(
            isa,
            inverse_rms(epsilon, head),
            inverse_rms_avx2(epsilon, head)
        );
        for (value, weight) in head.iter_mut().zip(weight) {
            *value = *value * scale * weight;
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn inverse_rms_avx2(epsilon: f32, values: &[f32]) -> f32 {
    inverse_rms(epsilon, values)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn norm_row_avx2(weight: &[f32], epsilon: f32, values: &[f32], out: &mut [f32]) {
    norm_row(weight, epsilon, values, out);
}

#[inline(always)]
fn norm_row(weight: &[f32], epsilon: f32, values: &[f32], out: &mut [f32]) {
    let scale = inverse_rms(epsilon, values);
    for ((out, value), weight) in out.iter_mut().zip(values).zip(weight) {
        *out = value * scale * weight;
    }
}

#[inline(always)]
fn inverse_rms(epsilon: f32, values: &[f32]) -> f32 {
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
    1.0 / (tree_sum(lanes) / values.len() as f32 + epsilon).sqrt()
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
