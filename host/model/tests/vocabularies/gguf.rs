//! The least model with a given vocabulary, as a GGUF file.

use crate::files::Expected;
use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use formwork_model::{LoadOptions, Model};

/// Smallest width of a model.
const WIDTH: usize = 32;

fn tensor(shape: &[usize]) -> QTensor {
    let tensor = Tensor::ones(shape, candle_core::DType::F32, &Device::Cpu);
    let stored = tensor.and_then(|tensor| QTensor::quantize(&tensor, GgmlDType::F32));
    stored.expect("the tensor can be made")
}

fn array<T>(items: &[T], value: impl Fn(&T) -> Value) -> Value {
    Value::Array(items.iter().map(value).collect())
}

pub(crate) fn model(expected: &Expected) -> Model {
    let stored = &expected.stored;
    let count = |count: usize| Value::U32(count as u32);
    let text = |text: &String| Value::String(text.clone());
    let mut metadata = vec![
        ("general.architecture", Value::String("llama".into())),
        ("llama.embedding_length", count(WIDTH)),
        ("llama.feed_forward_length", count(WIDTH)),
        ("llama.block_count", count(1)),
        ("llama.attention.head_count", count(1)),
        ("llama.attention.head_count_kv", count(1)),
        ("llama.context_length", count(64)),
        ("llama.rope.freq_base", Value::F32(1e4)),
        ("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5)),
        ("tokenizer.ggml.model", Value::String(stored.model.into())),
        ("tokenizer.ggml.pre", Value::String(stored.pre.into())),
        ("tokenizer.ggml.tokens", array(&stored.tokens, text)),
        (
            "tokenizer.ggml.token_type",
            array(&stored.types, |&kind| Value::I32(kind)),
        ),
        ("tokenizer.ggml.bos_token_id", count(1)),
        (
            "tokenizer.ggml.eos_token_id",
            count(expected.end[0] as usize),
        ),
    ];
    if stored.scores.is_empty() {
        metadata.push(("tokenizer.ggml.merges", array(&stored.merges, text)));
    } else {
        let scores = array(&stored.scores, |&score| Value::F32(score));
        metadata.push(("tokenizer.ggml.scores", scores));
    }
    let square = || tensor(&[WIDTH, WIDTH]);
    let tensors = [
        ("token_embd.weight", tensor(&[expected.tokens.len(), WIDTH])),
        ("output_norm.weight", tensor(&[WIDTH])),
        ("blk.0.attn_norm.weight", tensor(&[WIDTH])),
        ("blk.0.attn_q.weight", square()),
        ("blk.0.attn_k.weight", square()),
        ("blk.0.attn_v.weight", square()),
        ("blk.0.attn_output.weight", square()),
        ("blk.0.ffn_norm.weight", tensor(&[WIDTH])),
        ("blk.0.ffn_gate.weight", square()),
        ("blk.0.ffn_up.weight", square()),
        ("blk.0.ffn_down.weight", square()),
    ];
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("model.gguf");
    let mut file = std::fs::File::create(&path).expect("the file can be made");
    let metadata: Vec<_> = metadata.iter().map(|(key, value)| (*key, value)).collect();
    let tensors: Vec<_> = tensors
        .iter()
        .map(|(name, tensor)| (*name, tensor))
        .collect();
    gguf_file::write(&mut file, &metadata, &tensors).expect("the file can be written");
    Model::load(&path, &LoadOptions::default()).expect("the model loads")
}
