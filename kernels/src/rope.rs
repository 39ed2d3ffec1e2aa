//! Rotary position embedding (Su et al. 2021).

use crate::Isa;
use crate::cpu::on_isa;

/// Which elements of a head are rotated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeStyle {
    /// Elements `2i` and `2i + 1`: GGUF's Llama weights.
    Interleaved,
    /// Elements `i` and `i + n / 2`: GPT-NeoX, and every model in the Hugging Face layout.
    Halves,
}

/// Cosines and sines for every position.
pub struct RopeTable {
    style: RopeStyle,
    half: usize,
    /// Per position: `half` cosines, `half` sines.
    values: Vec<f32>,
}

impl RopeTable {
    /// A table for positions below `positions`, from the angle per position of each rotated pair, in
    /// radians.
    #[must_use]
    pub fn new(style: RopeStyle, frequencies: &[f64], positions: usize) -> Self {
        let mut values = Vec::with_capacity(positions * frequencies.len() * 2);
        for position in 0..positions {
            let angles = frequencies.iter().map(|f| f * position as f64);
            values.extend(angles.clone().map(|angle| angle.cos() as f32));
            values.extend(angles.map(|angle| angle.sin() as f32));
        }
        Self {
            style,
            half: frequencies.len(),
            values,
        }
    }

    /// Positions covered.
    #[must_use]
    pub fn positions(&self) -> usize {
        self.values.len() / (2 * self.half).max(1)
    }

    /// Rotates each head in `heads`, which all stand at `position`; elements past the rotated ones
    /// stay as they are.
    ///
    /// # Panics
    /// When the position is not covered or heads are shorter than what is rotated.
    pub fn apply(&self, position: usize, head_dim: usize, heads: &mut [f32]) {
        self.apply_on(Isa::best(), position, (head_dim, heads));
    }

    /// [`Self::apply`] with an instruction set that the machine is known to have.
    pub(crate) fn apply_on(
        &self,
        isa: Isa,
        position: usize,
        (head_dim, heads): (usize, &mut [f32]),
    ) {
        let half = self.half;
        assert!(2 * half <= head_dim);
        let (cos, sin) = self.values[position * 2 * half..][..2 * half].split_at(half);
        on_isa!(
            isa,
            rotate(self.style, [cos, sin], head_dim, heads),
            rotate_avx2(self.style, [cos, sin], head_dim, heads)
        );
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn rotate_avx2(style: RopeStyle, angles: [&[f32]; 2], head_dim: usize, heads: &mut [f32]) {
    rotate(style, angles, head_dim, heads);
}

/// Turns the pairs of each head; `angles` are the cosines and the sines, one of each per pair.
#[inline(always)]
fn rotate(style: RopeStyle, [cos, sin]: [&[f32]; 2], head_dim: usize, heads: &mut [f32]) {
    let half = cos.len();
    for head in heads.chunks_exact_mut(head_dim) {
        match style {
            RopeStyle::Interleaved => {
                let (pairs, _) = head[..2 * half].as_chunks_mut::<2>();
                for ((pair, cos), sin) in pairs.iter_mut().zip(cos).zip(sin) {
                    let [a, b] = *pair;
                    *pair = [a * cos - b * sin, a * sin + b * cos];
                }
            }
            RopeStyle::Halves => {
                let (first, second) = head[..2 * half].split_at_mut(half);
                for (((a, b), cos), sin) in first.iter_mut().zip(second).zip(cos).zip(sin) {
                    (*a, *b) = (*a * cos - *b * sin, *a * sin + *b * cos);
                }
            }
        }
    }
}
