//! The shape of a model.

use crate::ModelError;
use formwork_kernels::{KvDtype, KvShape, RopeStyle};
use std::f64::consts::TAU;

/// Families of models; they differ in names of settings and in small things of the forward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Architecture {
    /// Llama, and what shares its layout: Mistral, SmolLM.
    Llama,
    Qwen2,
    Qwen3,
}

impl Architecture {
    /// From GGUF's `general.architecture` or Hugging Face's `model_type`.
    pub(crate) fn from_name(key: &str, name: &str) -> Result<Self, ModelError> {
        match name {
            "llama" | "mistral" | "smollm" => Ok(Self::Llama),
            "qwen2" => Ok(Self::Qwen2),
            "qwen3" => Ok(Self::Qwen3),
            other => Err(ModelError::config(
                key,
                format!(
                    "{other:?} is not supported; supported are llama, mistral, qwen2 and qwen3"
                ),
            )),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct ModelConfig {
    pub(crate) architecture: Architecture,
    pub(crate) hidden: usize,
    pub(crate) feed_forward: usize,
    pub(crate) layers: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) norm_epsilon: f32,
    pub(crate) context_length: usize,
    pub(crate) rope: RopeConfig,
}

#[derive(Clone, Debug)]
pub(crate) struct RopeConfig {
    pub(crate) style: RopeStyle,
    pub(crate) base: f64,
    /// Rotated elements per head; even.
    pub(crate) dims: usize,
    pub(crate) scaling: RopeScaling,
}

#[derive(Clone, Debug)]
pub(crate) enum RopeScaling {
    None,
    /// All angles divided by a factor.
    Linear(f64),
    /// The scheme of Llama 3.1: long wavelengths divided by `factor`, short ones kept.
    Llama3 {
        factor: f64,
        low_frequency: f64,
        high_frequency: f64,
        original_context: f64,
    },
    /// One divisor per pair, as `rope_freqs.weight` in GGUF files.
    Divisors(Vec<f32>),
}

impl RopeConfig {
    /// Radians per position, for each rotated pair.
    pub(crate) fn frequencies(&self) -> Vec<f64> {
        (0..self.dims / 2)
            .map(|pair| {
                let frequency = self.base.powf(-2.0 * pair as f64 / self.dims as f64);
                match &self.scaling {
                    RopeScaling::None => frequency,
                    RopeScaling::Linear(factor) => frequency / factor,
                    RopeScaling::Divisors(divisors) => {
                        frequency / divisors.get(pair).copied().map_or(1.0, f64::from)
                    }
                    RopeScaling::Llama3 {
                        factor,
                        low_frequency,
                        high_frequency,
                        original_context,
                    } => {
                        let turns = original_context * frequency / TAU;
                        let keep = ((turns - low_frequency) / (high_frequency - low_frequency))
                            .clamp(0.0, 1.0);
                        frequency * (keep + (1.0 - keep) / factor)
                    }
                }
            })
            .collect()
    }
}

impl ModelConfig {
    /// Refuses what the kernels cannot compute.
    pub(crate) fn check(&self) -> Result<(), ModelError> {
        let positive = [
            ("hidden size", self.hidden),
            ("feed-forward size", self.feed_forward),
            ("layers", self.layers),
            ("heads", self.heads),
            ("KV heads", self.kv_heads),
            ("head size", self.head_dim),
            ("context length", self.context_length),
        ];
        if let Some((key, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return Err(ModelError::config(*key, "must not be 0"));
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return Err(ModelError::config(
                "heads",
                format!(
                    "{} are no multiple of {} KV heads",
                    self.heads, self.kv_heads
                ),
            ));
        }
        if !self.head_dim.is_multiple_of(16) {
            return Err(ModelError::config(
                "head size",
                format!("{} is no multiple of 16", self.head_dim),
            ));
        }
        if self.rope.dims > self.head_dim || !self.rope.dims.is_multiple_of(2) {
            return Err(ModelError::config(
                "rotary dimensions",
                format!("{} of a head of {}", self.rope.dims, self.head_dim),
            ));
        }
        Ok(())
    }

    pub(crate) fn query_width(&self) -> usize {
        self.heads * self.head_dim
    }

    pub(crate) fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Bytes of one token's keys and values, of all layers.
    pub(crate) fn kv_bytes_per_token(&self, dtype: KvDtype) -> usize {
        let layer = KvShape {
            blocks: 1,
            block_size: 16,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            dtype,
        };
        self.layers * layer.position_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frequencies(scaling: RopeScaling) -> Vec<f64> {
        let config = RopeConfig {
            style: RopeStyle::Halves,
            base: 500_000.0,
            dims: 128,
            scaling,
        };
        config.frequencies()
    }

    #[test]
    fn scaling_stretches_wavelengths() {
        let plain = frequencies(RopeScaling::None);
        assert_eq!(plain[0], 1.0);
        assert!((plain[32] - 500_000f64.powf(-0.5)).abs() < 1e-12);
        let linear = frequencies(RopeScaling::Linear(4.0));
        assert!(plain.iter().zip(&linear).all(|(a, b)| a / 4.0 == *b));
        let divisors = vec![2.0; 64];
        let divided = frequencies(RopeScaling::Divisors(divisors));
        assert!(plain.iter().zip(&divided).all(|(a, b)| a / 2.0 == *b));
    }

    #[test]
    fn llama3_scaling_leaves_short_wavelengths_and_divides_long_ones() {
        let plain = frequencies(RopeScaling::None);
        let scaled = frequencies(RopeScaling::Llama3 {
            factor: 8.0,
            low_frequency: 1.0,
            high_frequency: 4.0,
            original_context: 8192.0,
        });
        for (plain, scaled) in plain.iter().zip(&scaled) {
            let wavelength = TAU / plain;
            let ratio = plain / scaled;
            if wavelength < 8192.0 / 4.0 {
                assert!((ratio - 1.0).abs() < 1e-12);
            } else if wavelength > 8192.0 {
                assert!((ratio - 8.0).abs() < 1e-12);
            } else {
                assert!((1.0..=8.0).contains(&ratio), "{ratio}");
            }
        }
    }
}
