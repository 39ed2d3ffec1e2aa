//! One model, written as a Hugging Face directory and as a GGUF file, is the same model.

mod support;

use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use formwork_model::{LoadOptions, Model, SpecialTokens};
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use support::{Driver, greedy};

const HIDDEN: usize = 64;
const FEED_FORWARD: usize = 96;
const LAYERS: usize = 2;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const HEAD_DIM: usize = 16;
const TOKENS: [&str; 6] = ["a", "b", "Ġ", "ab", "<|end|>", "Ã"];

/// Tensors by name in the Hugging Face layout: shape and values.
type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

fn tensors() -> Tensors {
    let mut state = 1u64;
    let mut tensors = Tensors::new();
    let mut add = |name: String, shape: &[usize], center: f32| {
        let values = (0..shape.iter().product()).map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            center + ((state >> 40) as f32 / (1u64 << 23) as f32 - 1.0) * 0.3
        });
        tensors.insert(name, (shape.to_vec(), values.collect()));
    };
    let kv = KV_HEADS * HEAD_DIM;
    add(
        "model.embed_tokens.weight".into(),
        &[TOKENS.len(), HIDDEN],
        0.0,
    );
    add("lm_head.weight".into(), &[TOKENS.len(), HIDDEN], 0.0);
    add("model.norm.weight".into(), &[HIDDEN], 1.0);
    for layer in 0..LAYERS {
        for (name, shape, center) in [
            ("input_layernorm.weight", &[HIDDEN][..], 1.0),
            ("self_attn.q_proj.weight", &[HIDDEN, HIDDEN], 0.0),
            ("self_attn.k_proj.weight", &[kv, HIDDEN], 0.0),
            ("self_attn.v_proj.weight", &[kv, HIDDEN], 0.0),
            ("self_attn.o_proj.weight", &[HIDDEN, HIDDEN], 0.0),
            ("post_attention_layernorm.weight", &[HIDDEN], 1.0),
            ("mlp.gate_proj.weight", &[FEED_FORWARD, HIDDEN], 0.0),
            ("mlp.up_proj.weight", &[FEED_FORWARD, HIDDEN], 0.0),
            ("mlp.down_proj.weight", &[HIDDEN, FEED_FORWARD], 0.0),
        ] {
            add(format!("model.layers.{layer}.{name}"), shape, center);
        }
    }
    tensors
}

fn write_json(path: &Path, value: &serde_json::Value) {
    std::fs::write(path, value.to_string()).expect("the file can be written");
}

/// Two shards and an index.
fn write_directory(dir: &Path, tensors: &Tensors) {
    let mut weight_map = serde_json::Map::new();
    for shard in 0..2 {
        let file = format!("model-{shard}.safetensors");
        let part: Vec<_> = tensors.iter().skip(shard).step_by(2).collect();
        let bytes: Vec<Vec<u8>> = part
            .iter()
            .map(|(_, (_, values))| values.iter().flat_map(|v| v.to_le_bytes()).collect())
            .collect();
        let views = part.iter().zip(&bytes).map(|((name, (shape, _)), bytes)| {
            weight_map.insert((*name).clone(), json!(file));
            let view = TensorView::new(Dtype::F32, shape.clone(), bytes);
            ((*name).clone(), view.expect("bytes fit the shape"))
        });
        let views: Vec<_> = views.collect();
        let stored = safetensors::serialize(views, None).expect("tensors can be stored");
        std::fs::write(dir.join(file), stored).expect("the file can be written");
    }
    write_json(
        &dir.join("model.safetensors.index.json"),
        &json!({"weight_map": weight_map}),
    );
    write_json(
        &dir.join("config.json"),
        &json!({
            "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": FEED_FORWARD,
            "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
            "num_key_value_heads": KV_HEADS, "max_position_embeddings": 256,
            "rms_norm_eps": 1e-5, "rope_theta": 5000.0, "eos_token_id": 4,
        }),
    );
    let vocabulary: serde_json::Map<String, serde_json::Value> = TOKENS
        .iter()
        .zip(0..)
        .map(|(&text, id)| (text.into(), json!(id)))
        .collect();
    write_json(
        &dir.join("tokenizer.json"),
        &json!({
            "version": "1.0",
            "added_tokens": [{"id": 4, "content": "<|end|>", "special": true, "normalized": false,
                "single_word": false, "lstrip": false, "rstrip": false}],
            "normalizer": {"type": "NFC"},
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false,
                "trim_offsets": true, "use_regex": true},
            "decoder": {"type": "ByteLevel", "add_prefix_space": false,
                "trim_offsets": true, "use_regex": true},
            "model": {"type": "BPE", "vocab": vocabulary, "merges": [["a", "b"]]},
        }),
    );
    write_json(
        &dir.join("tokenizer_config.json"),
        &json!({"eos_token": {"content": "<|end|>"}, "chat_template": "{{ eos_token }}"}),
    );
}

/// Query and key rows in the order of GGUF's Llama: the two halves of a head are interleaved.
fn interleave(values: &[f32]) -> Vec<f32> {
    let rows: Vec<&[f32]> = values.chunks_exact(HIDDEN).collect();
    let order = (0..rows.len()).map(|row| {
        let (head, at) = (row / HEAD_DIM, row % HEAD_DIM);
        head * HEAD_DIM + at % 2 * HEAD_DIM / 2 + at / 2
    });
    order.flat_map(|row| rows[row].to_vec()).collect()
}

fn gguf_name(name: &str) -> String {
    [
        ("model.embed_tokens", "token_embd"),
        ("lm_head", "output"),
        ("model.norm", "output_norm"),
        ("model.layers", "blk"),
        ("input_layernorm", "attn_norm"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("post_attention_layernorm", "ffn_norm"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
    ]
    .iter()
    .fold(name.to_owned(), |name, (from, to)| name.replace(from, to))
}

fn metadata() -> Vec<(&'static str, Value)> {
    let texts = |texts: &[&str]| {
        Value::Array(
            texts
                .iter()
                .map(|&text| Value::String(text.into()))
                .collect(),
        )
    };
    let count = |count: usize| Value::U32(count as u32);
    let types = [1, 1, 1, 1, 3, 1].map(Value::I32);
    vec![
        ("general.architecture", Value::String("llama".into())),
        ("llama.embedding_length", count(HIDDEN)),
        ("llama.feed_forward_length", count(FEED_FORWARD)),
        ("llama.block_count", count(LAYERS)),
        ("llama.attention.head_count", count(HEADS)),
        ("llama.attention.head_count_kv", count(KV_HEADS)),
        ("llama.context_length", count(256)),
        ("llama.rope.freq_base", Value::F32(5000.0)),
        ("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5)),
        ("tokenizer.ggml.model", Value::String("gpt2".into())),
        ("tokenizer.ggml.pre", Value::String("gpt-2".into())),
        ("tokenizer.ggml.tokens", texts(&TOKENS)),
        ("tokenizer.ggml.token_type", Value::Array(types.into())),
        ("tokenizer.ggml.merges", texts(&["a b"])),
        ("tokenizer.ggml.eos_token_id", count(4)),
        (
            "tokenizer.chat_template",
            Value::String("{{ eos_token }}".into()),
        ),
    ]
}

fn write_gguf(path: &Path, tensors: &Tensors) {
    let stored: Vec<(String, QTensor)> = tensors
        .iter()
        .map(|(name, (shape, values))| {
            let rotated = name.contains("q_proj") || name.contains("k_proj");
            let values = if rotated {
                interleave(values)
            } else {
                values.clone()
            };
            let tensor = Tensor::from_vec(values, shape.clone(), &Device::Cpu);
            let tensor = tensor.and_then(|tensor| QTensor::quantize(&tensor, GgmlDType::F32));
            (gguf_name(name), tensor.expect("the tensor can be made"))
        })
        .collect();
    let tensors: Vec<_> = stored
        .iter()
        .map(|(name, tensor)| (name.as_str(), tensor))
        .collect();
    let metadata = metadata();
    let metadata: Vec<_> = metadata.iter().map(|(key, value)| (*key, value)).collect();
    let mut file = std::fs::File::create(path).expect("the file can be made");
    gguf_file::write(&mut file, &metadata, &tensors).expect("the file can be written");
}

fn load(path: &Path) -> Arc<Model> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&seen);
    let options = LoadOptions {
        progress: Some(Box::new(move |progress| {
            told.lock().expect("nobody panicked").push(progress);
        })),
        threads: 1,
        ..LoadOptions::default()
    };
    let model = Model::load(path, &options).expect("the model loads");
    let seen = seen.lock().expect("nobody panicked");
    let last = seen.last().expect("progress was told");
    assert_eq!(last.done, last.total);
    assert!(seen.is_sorted_by_key(|progress| progress.done));
    Arc::new(model)
}

#[test]
fn a_directory_and_a_gguf_file_are_the_same_model() {
    let dir = tempfile::tempdir().unwrap();
    let tensors = tensors();
    write_directory(dir.path(), &tensors);
    let file = dir.path().join("model.gguf");
    write_gguf(&file, &tensors);
    let models = [load(dir.path()), load(&file)];
    let runs = models.each_ref().map(|model| {
        let tokenizer = model.tokenizer();
        assert_eq!(tokenizer.end_tokens(), [4]);
        assert_eq!(
            tokenizer.encode("ab a<|end|>", SpecialTokens::Parse),
            [3, 2, 0, 4]
        );
        assert_eq!(tokenizer.missing_bytes().len(), 252);
        assert_eq!(tokenizer.bytes(5).unwrap(), [0xc3]);
        let mut driver = Driver::new(model, 1, [1, 64]);
        let index = driver.add(&[0, 1, 2, 3, 1, 1, 0, 5]);
        let steps = (0..20).map(|_| driver.step(&[index], 3, &greedy()).unwrap());
        steps
            .flatten()
            .map(|(_, sampled)| sampled)
            .collect::<Vec<_>>()
    });
    assert_eq!(runs[0].len(), runs[1].len());
    assert!(runs[0].len() > 10);
    for (a, b) in runs[0].iter().zip(&runs[1]) {
        assert_eq!(a.token, b.token);
        assert!((a.logprob - b.logprob).abs() < 1e-3, "{a:?} {b:?}");
    }
    assert_eq!(models[0].info().parameters, models[1].info().parameters);
    assert_eq!(models[1].info().quantization, "F32");
    assert_eq!(models[0].info().weight_bytes, models[1].info().weight_bytes);
}

#[test]
fn what_is_wrong_with_a_directory_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let tensors = tensors();
    let complete = || write_directory(dir.path(), &tensors);
    let edit = |file: &str, from: &str, to: &str| {
        let path = dir.path().join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{file} has {from}");
        std::fs::write(path, text.replace(from, to)).unwrap();
    };
    for (file, from, to, want) in [
        ("config.json", "\"llama\"", "\"mamba\"", "model_type"),
        (
            "config.json",
            "\"hidden_size\":64",
            "\"hidden_size\":0",
            "hidden size",
        ),
        (
            "config.json",
            "\"hidden_size\":64",
            "\"hidden_size\":128",
            "shape",
        ),
        (
            "config.json",
            "\"num_hidden_layers\":2",
            "\"num_hidden_layers\":3",
            "layers.2",
        ),
        (
            "config.json",
            "\"rope_theta\"",
            "\"rope_scaling\":{\"rope_type\":\"yarn\"},\"x\"",
            "yarn",
        ),
        ("config.json", "{", "[", "config.json"),
        ("tokenizer.json", "\"BPE\"", "\"WordLevel\"", "tokenizer"),
        (
            "model.safetensors.index.json",
            "model-1",
            "../model-1",
            "weight_map",
        ),
        (
            "tokenizer_config.json",
            "{{ eos_token }}",
            "{% if %}",
            "chat template",
        ),
    ] {
        complete();
        edit(file, from, to);
        let error = Model::load(dir.path(), &LoadOptions::default())
            .err()
            .unwrap();
        assert!(
            error.to_string().contains(want),
            "{file}: {error} lacks {want}"
        );
    }
}

#[test]
fn a_file_cut_short_is_refused_at_every_length() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("model.gguf");
    write_gguf(&file, &tensors());
    let bytes = std::fs::read(&file).unwrap();
    for kept in (0..bytes.len()).step_by(bytes.len() / 200) {
        std::fs::write(&file, &bytes[..kept]).unwrap();
        assert!(
            Model::load(&file, &LoadOptions::default()).is_err(),
            "{kept} bytes"
        );
    }
}
