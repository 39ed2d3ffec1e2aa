//! Tensors of GGUF files: their names, types and sizes.

use crate::ModelError;
use crate::floats::FloatType;
use crate::weights::Role;
use candle_core::quantized::GgmlDType;
use candle_core::quantized::gguf_file::TensorInfo;
use formwork_kernels::BlockFormat;

/// The name of a tensor in GGUF files.
pub(crate) fn tensor_name(role: Role, layer: usize) -> String {
    let part = match role {
        Role::Embedding => return "token_embd.weight".into(),
        Role::Norm => return "output_norm.weight".into(),
        Role::Head => return "output.weight".into(),
        Role::AttentionNorm => "attn_norm.weight",
        Role::Query => "attn_q.weight",
        Role::Key => "attn_k.weight",
        Role::Value => "attn_v.weight",
        Role::Output => "attn_output.weight",
        Role::QueryBias => "attn_q.bias",
        Role::KeyBias => "attn_k.bias",
        Role::ValueBias => "attn_v.bias",
        Role::OutputBias => "attn_output.bias",
        Role::QueryNorm => "attn_q_norm.weight",
        Role::KeyNorm => "attn_k_norm.weight",
        Role::FeedForwardNorm => "ffn_norm.weight",
        Role::Gate => "ffn_gate.weight",
        Role::Up => "ffn_up.weight",
        Role::Down => "ffn_down.weight",
    };
    format!("blk.{layer}.{part}")
}

/// Bytes of a tensor in its file.
pub(super) fn stored_bytes(info: &TensorInfo) -> u64 {
    let blocks = info
        .shape
        .elem_count()
        .div_ceil(info.ggml_dtype.block_size());
    blocks.saturating_mul(info.ggml_dtype.type_size()) as u64
}

pub(super) fn block_format(dtype: GgmlDType) -> Option<BlockFormat> {
    Some(match dtype {
        GgmlDType::Q4_0 => BlockFormat::Q4_0,
        GgmlDType::Q4_1 => BlockFormat::Q4_1,
        GgmlDType::Q5_0 => BlockFormat::Q5_0,
        GgmlDType::Q5_1 => BlockFormat::Q5_1,
        GgmlDType::Q8_0 => BlockFormat::Q8_0,
        GgmlDType::Q4K => BlockFormat::Q4K,
        GgmlDType::Q5K => BlockFormat::Q5K,
        GgmlDType::Q6K => BlockFormat::Q6K,
        _ => return None,
    })
}

pub(super) fn float_type(dtype: GgmlDType) -> Option<FloatType> {
    match dtype {
        GgmlDType::F32 => Some(FloatType::F32),
        GgmlDType::F16 => Some(FloatType::F16),
        GgmlDType::BF16 => Some(FloatType::Bf16),
        _ => None,
    }
}

pub(super) fn unsupported(name: &str, dtype: GgmlDType) -> ModelError {
    ModelError::tensor(name, format!("the type {dtype:?} is not supported"))
}
