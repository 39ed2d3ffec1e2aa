//! A small model with quantised tensors of several formats, as a GGUF file.

use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use std::path::Path;

/// The K formats take blocks of 256.
const HIDDEN: usize = 256;
const LAYERS: usize = 2;
const HEADS: usize = 4;
/// The vocabulary: `a` to `z` and the token that ends a text.
const VOCABULARY: usize = 27;

/// Writes the model that `seed` stands for.
pub(crate) fn write(path: &Path, seed: u64) {
    let mut state = seed;
    let mut tensor = |shape: &[usize], dtype: GgmlDType, center: f32| {
        let values = (0..shape.iter().product()).map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            center + ((state >> 40) as f32 / (1u64 << 23) as f32 - 1.0) * 0.1
        });
        let values: Vec<f32> = values.collect();
        let tensor = Tensor::from_vec(values, shape, &Device::Cpu);
        let stored = tensor.and_then(|tensor| QTensor::quantize(&tensor, dtype));
        stored.expect("the tensor can be made")
    };
    let kv = HIDDEN / 2;
    let mut tensors = vec![
        (
            "token_embd.weight".to_owned(),
            tensor(&[VOCABULARY, HIDDEN], GgmlDType::Q8_0, 0.0),
        ),
        (
            "output_norm.weight".to_owned(),
            tensor(&[HIDDEN], GgmlDType::F32, 1.0),
        ),
    ];
    for layer in 0..LAYERS {
        for (name, shape, dtype, center) in [
            ("attn_norm", &[HIDDEN][..], GgmlDType::F32, 1.0),
            ("attn_q", &[HIDDEN, HIDDEN], GgmlDType::Q4K, 0.0),
            ("attn_k", &[kv, HIDDEN], GgmlDType::Q4_0, 0.0),
            ("attn_v", &[kv, HIDDEN], GgmlDType::Q6K, 0.0),
            ("attn_output", &[HIDDEN, HIDDEN], GgmlDType::F16, 0.0),
            ("ffn_norm", &[HIDDEN], GgmlDType::F32, 1.0),
            ("ffn_gate", &[2 * HIDDEN, HIDDEN], GgmlDType::Q4_1, 0.0),
            ("ffn_up", &[2 * HIDDEN, HIDDEN], GgmlDType::Q5K, 0.0),
            ("ffn_down", &[HIDDEN, 2 * HIDDEN], GgmlDType::Q5_1, 0.0),
        ] {
            let name = format!("blk.{layer}.{name}.weight");
            tensors.push((name, tensor(shape, dtype, center)));
        }
    }
    let metadata = metadata();
    let metadata: Vec<_> = metadata.iter().map(|(key, value)| (*key, value)).collect();
    let tensors: Vec<_> = tensors
        .iter()
        .map(|(name, tensor)| (name.as_str(), tensor))
        .collect();
    let mut file = std::fs::File::create(path).expect("the file can be made");
    gguf_file::write(&mut file, &metadata, &tensors).expect("the file can be written");
}

fn metadata() -> Vec<(&'static str, Value)> {
    let count = |count: usize| Value::U32(count as u32);
    let text = |text: &str| Value::String(text.to_owned());
    let mut tokens: Vec<Value> = ('a'..='z')
        .map(|letter| text(&letter.to_string()))
        .collect();
    tokens.push(text("<|end|>"));
    let mut types = vec![Value::I32(1); VOCABULARY - 1];
    types.push(Value::I32(3));
    vec![
        ("general.architecture", text("llama")),
        ("llama.embedding_length", count(HIDDEN)),
        ("llama.feed_forward_length", count(2 * HIDDEN)),
        ("llama.block_count", count(LAYERS)),
        ("llama.attention.head_count", count(HEADS)),
        ("llama.attention.head_count_kv", count(HEADS / 2)),
        ("llama.context_length", count(256)),
        ("llama.rope.freq_base", Value::F32(1e4)),
        ("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5)),
        ("tokenizer.ggml.model", text("gpt2")),
        ("tokenizer.ggml.pre", text("gpt-2")),
        ("tokenizer.ggml.tokens", Value::Array(tokens)),
        ("tokenizer.ggml.token_type", Value::Array(types)),
        ("tokenizer.ggml.merges", Value::Array(Vec::new())),
        ("tokenizer.ggml.eos_token_id", count(VOCABULARY - 1)),
    ]
}
