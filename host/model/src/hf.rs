//! Models in the Hugging Face layout: a directory of JSON files and safetensors.

use crate::config::{Architecture, ModelConfig, RopeConfig, RopeScaling};
use crate::floats::{FloatType, dense_matrix, to_f32};
use crate::model::{ModelParts, Progress};
use crate::tokenizer::JsonSettings;
use crate::weights::{self, Role, TensorSource};
use crate::{Model, ModelError, ModelInfo, Tokenizer};
use formwork_kernels::{Matrix, RopeStyle};
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde_json::Value;
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Largest header that is read; the format's own limit.
const MAX_HEADER: u64 = 100_000_000;

pub(crate) fn load(dir: &Path, progress: Progress<'_>) -> Result<Model, ModelError> {
    let config_json = read_json(&dir.join("config.json"))?;
    let config = parse_config(&config_json)?;
    let tokenizer = load_tokenizer(dir, &config_json)?;
    let mut shards = Shards::open(dir, progress)?;
    let weights = weights::load(&mut shards, &config)?;
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let info = ModelInfo {
        name: name.into_owned(),
        parameters: shards.parameters(),
        quantization: shards.most_common_type(),
        file_bytes: shards.progress.total,
        ..ModelInfo::default()
    };
    Model::from_parts(ModelParts {
        info,
        config,
        weights,
        tokenizer,
        chat_template: chat_template(dir)?,
    })
}

fn read(path: &Path) -> Result<Vec<u8>, ModelError> {
    std::fs::read(path).map_err(|source| ModelError::Io {
        path: path.to_owned(),
        source,
    })
}

fn read_json(path: &Path) -> Result<Value, ModelError> {
    serde_json::from_slice(&read(path)?).map_err(|error| ModelError::Format {
        path: path.to_owned(),
        reason: error.to_string(),
    })
}

/// `None` when there is no such file.
fn optional_json(path: &Path) -> Result<Option<Value>, ModelError> {
    path.exists().then(|| read_json(path)).transpose()
}

fn parse_config(json: &Value) -> Result<ModelConfig, ModelError> {
    let count = |key: &str| json[key].as_u64().map(|number| number as usize);
    let needed =
        |key: &str| count(key).ok_or_else(|| ModelError::config(key, "is missing or no count"));
    let key = "model_type";
    let architecture = Architecture::from_name(key, json[key].as_str().unwrap_or_default())?;
    if json["mlp_bias"] == true {
        return Err(ModelError::config("mlp_bias", "is not supported"));
    }
    let hidden = needed("hidden_size")?;
    let heads = needed("num_attention_heads")?;
    let head_dim = count("head_dim").unwrap_or(hidden / heads.max(1));
    let mut context_length = needed("max_position_embeddings")?;
    // Attention is never cut to a window here; contexts that would need it are refused instead.
    if let Some(window) = count("sliding_window")
        && json["use_sliding_window"] != false
    {
        context_length = context_length.min(window);
    }
    // Newer files keep rotary settings in `rope_parameters`.
    let parameters = &json["rope_parameters"];
    let base = parameters["rope_theta"]
        .as_f64()
        .or(json["rope_theta"].as_f64());
    let scaling = if parameters.is_object() {
        parameters
    } else {
        &json["rope_scaling"]
    };
    let config = ModelConfig {
        architecture,
        hidden,
        feed_forward: needed("intermediate_size")?,
        layers: needed("num_hidden_layers")?,
        heads,
        kv_heads: count("num_key_value_heads").unwrap_or(heads),
        head_dim,
        norm_epsilon: json["rms_norm_eps"].as_f64().unwrap_or(1e-6) as f32,
        context_length,
        rope: RopeConfig {
            style: RopeStyle::Halves,
            base: base.unwrap_or(10_000.0),
            dims: head_dim,
            scaling: rope_scaling(scaling)?,
        },
    };
    config.check()?;
    Ok(config)
}

fn rope_scaling(json: &Value) -> Result<RopeScaling, ModelError> {
    let number = |key: &str| {
        json[key]
            .as_f64()
            .ok_or_else(|| ModelError::config(format!("rope_scaling.{key}"), "is missing"))
    };
    let kind = json["rope_type"].as_str().or(json["type"].as_str());
    match kind {
        None | Some("default") => Ok(RopeScaling::None),
        Some("linear") => Ok(RopeScaling::Linear(number("factor")?)),
        Some("llama3") => Ok(RopeScaling::Llama3 {
            factor: number("factor")?,
            low_frequency: number("low_freq_factor")?,
            high_frequency: number("high_freq_factor")?,
            original_context: number("original_max_position_embeddings")?,
        }),
        Some(other) => Err(ModelError::config(
            "rope_scaling.rope_type",
            format!("{other:?} is not supported; supported are default, linear and llama3"),
        )),
    }
}

fn load_tokenizer(dir: &Path, config: &Value) -> Result<Tokenizer, ModelError> {
    let settings = optional_json(&dir.join("tokenizer_config.json"))?.unwrap_or_default();
    let generation = optional_json(&dir.join("generation_config.json"))?.unwrap_or_default();
    // A token is a text, or an object with the text as its content.
    let text = |key: &str| {
        let token = &settings[key];
        token
            .as_str()
            .or(token["content"].as_str())
            .map(str::to_owned)
    };
    let mut end = Vec::new();
    for ids in [&generation["eos_token_id"], &config["eos_token_id"]] {
        let ids = ids
            .as_array()
            .map_or(std::slice::from_ref(ids), Vec::as_slice);
        end.extend(ids.iter().filter_map(Value::as_u64).map(|id| id as u32));
    }
    Tokenizer::from_json(
        &read(&dir.join("tokenizer.json"))?,
        JsonSettings {
            bos: text("bos_token"),
            add_bos: settings["add_bos_token"] == true,
            end,
            eos: text("eos_token"),
        },
    )
}

fn chat_template(dir: &Path) -> Result<Option<String>, ModelError> {
    let path = dir.join("chat_template.jinja");
    if path.exists() {
        return Ok(Some(String::from_utf8_lossy(&read(&path)?).into_owned()));
    }
    let settings = optional_json(&dir.join("tokenizer_config.json"))?.unwrap_or_default();
    let template = &settings["chat_template"];
    // Some models have several, by name.
    let named = template.as_array().into_iter().flatten();
    let default = named
        .filter(|entry| entry["name"] == "default")
        .find_map(|entry| entry["template"].as_str());
    Ok(template.as_str().or(default).map(str::to_owned))
}

/// The safetensors files of a model.
struct Shards<'a> {
    files: Vec<Shard>,
    /// Which file holds a tensor.
    index: HashMap<String, usize>,
    progress: Progress<'a>,
}

struct Shard {
    path: PathBuf,
    file: File,
    metadata: Metadata,
    /// Where the tensors begin.
    start: u64,
}

impl Shard {
    fn open(path: PathBuf) -> Result<Self, ModelError> {
        let io = |source| ModelError::Io {
            path: path.clone(),
            source,
        };
        let format = |reason: String| ModelError::Format {
            path: path.clone(),
            reason,
        };
        let mut file = File::open(&path).map_err(io)?;
        let mut len = [0; 8];
        file.read_exact(&mut len).map_err(io)?;
        let len = u64::from_le_bytes(len);
        if len > MAX_HEADER {
            return Err(format(format!("the header claims {len} bytes")));
        }
        let mut header = vec![0; len as usize];
        file.read_exact(&mut header).map_err(io)?;
        let metadata =
            serde_json::from_slice(&header).map_err(|error| format(error.to_string()))?;
        Ok(Self {
            path,
            file,
            metadata,
            start: 8 + len,
        })
    }
}

impl<'a> Shards<'a> {
    fn open(dir: &Path, mut progress: Progress<'a>) -> Result<Self, ModelError> {
        let index = optional_json(&dir.join("model.safetensors.index.json"))?;
        let mut names: Vec<String> = match &index {
            Some(index) => {
                let map = index["weight_map"].as_object().into_iter().flatten();
                map.filter_map(|(_, file)| file.as_str().map(str::to_owned))
                    .collect()
            }
            None => vec!["model.safetensors".into()],
        };
        names.sort();
        names.dedup();
        let mut files = Vec::new();
        let mut index = HashMap::new();
        for name in names {
            // Names come from a file; they must not lead out of the directory.
            if Path::new(&name).components().count() != 1 || name.starts_with("..") {
                return Err(ModelError::config(
                    "weight_map",
                    format!("{name:?} is no file name"),
                ));
            }
            let shard = Shard::open(dir.join(name))?;
            for (tensor, info) in shard.metadata.tensors() {
                progress.total += (info.data_offsets.1 - info.data_offsets.0) as u64;
                index.insert(tensor, files.len());
            }
            files.push(shard);
        }
        Ok(Self {
            files,
            index,
            progress,
        })
    }

    fn infos(&self) -> impl Iterator<Item = &TensorInfo> {
        self.files
            .iter()
            .flat_map(|shard| shard.metadata.tensors().into_values())
    }

    fn parameters(&self) -> u64 {
        self.infos()
            .map(|info| info.shape.iter().product::<usize>() as u64)
            .sum()
    }

    fn most_common_type(&self) -> String {
        let mut sizes: HashMap<String, usize> = HashMap::new();
        for info in self.infos() {
            *sizes.entry(format!("{:?}", info.dtype)).or_default() +=
                info.shape.iter().product::<usize>();
        }
        let most = sizes
            .into_iter()
            .max_by(|a, b| a.1.cmp(&b.1).then(b.0.cmp(&a.0)));
        most.map(|(name, _)| name).unwrap_or_default()
    }

    fn shard(&self, name: &str) -> Result<usize, ModelError> {
        let shard = self.index.get(name).copied();
        shard.ok_or_else(|| ModelError::tensor(name, "is missing"))
    }

    fn info(&self, name: &str) -> Result<&TensorInfo, ModelError> {
        let info = self.files[self.shard(name)?].metadata.info(name);
        info.ok_or_else(|| ModelError::tensor(name, "is missing"))
    }

    fn read(&mut self, name: &str, shape: &[usize]) -> Result<(FloatType, Vec<u8>), ModelError> {
        let info = self.info(name)?;
        if info.shape != shape {
            let reason = format!("has shape {:?}, expected {shape:?}", info.shape);
            return Err(ModelError::tensor(name, reason));
        }
        let (kind, width) = match info.dtype {
            Dtype::F32 => (FloatType::F32, 4),
            Dtype::F16 => (FloatType::F16, 2),
            Dtype::BF16 => (FloatType::Bf16, 2),
            other => {
                let reason = format!("the type {other:?} is not supported");
                return Err(ModelError::tensor(name, reason));
            }
        };
        let (from, to) = info.data_offsets;
        if to.checked_sub(from) != Some(shape.iter().product::<usize>() * width) {
            return Err(ModelError::tensor(name, "its bytes do not fit its shape"));
        }
        let index = self.shard(name)?;
        let shard = &mut self.files[index];
        let io = |source| ModelError::Io {
            path: shard.path.clone(),
            source,
        };
        let size = shard.file.metadata().map_err(io)?.len();
        if shard.start + to as u64 > size {
            return Err(ModelError::tensor(name, "reaches past the end of the file"));
        }
        let at = SeekFrom::Start(shard.start + from as u64);
        shard.file.seek(at).map_err(io)?;
        let mut bytes = vec![0; to - from];
        shard.file.read_exact(&mut bytes).map_err(io)?;
        self.progress.add(bytes.len() as u64);
        Ok((kind, bytes))
    }
}

impl TensorSource for Shards<'_> {
    fn name(&self, role: Role, layer: usize) -> String {
        let part = match role {
            Role::Embedding => return "model.embed_tokens.weight".into(),
            Role::Norm => return "model.norm.weight".into(),
            Role::Head => return "lm_head.weight".into(),
            Role::AttentionNorm => "input_layernorm.weight",
            Role::Query => "self_attn.q_proj.weight",
            Role::Key => "self_attn.k_proj.weight",
            Role::Value => "self_attn.v_proj.weight",
            Role::Output => "self_attn.o_proj.weight",
            Role::QueryBias => "self_attn.q_proj.bias",
            Role::KeyBias => "self_attn.k_proj.bias",
            Role::ValueBias => "self_attn.v_proj.bias",
            Role::OutputBias => "self_attn.o_proj.bias",
            Role::QueryNorm => "self_attn.q_norm.weight",
            Role::KeyNorm => "self_attn.k_norm.weight",
            Role::FeedForwardNorm => "post_attention_layernorm.weight",
            Role::Gate => "mlp.gate_proj.weight",
            Role::Up => "mlp.up_proj.weight",
            Role::Down => "mlp.down_proj.weight",
        };
        format!("model.layers.{layer}.{part}")
    }

    fn has(&self, name: &str) -> bool {
        self.index.contains_key(name)
    }

    fn rows(&self, name: &str) -> Result<usize, ModelError> {
        match self.info(name)?.shape[..] {
            [rows, _] => Ok(rows),
            ref shape => Err(ModelError::tensor(name, format!("{shape:?} is no matrix"))),
        }
    }

    fn matrix(&mut self, name: &str, shape: [usize; 2]) -> Result<Matrix, ModelError> {
        let (kind, bytes) = self.read(name, &shape)?;
        dense_matrix(name, shape, kind, &bytes)
    }

    fn vector(&mut self, name: &str, len: usize) -> Result<Vec<f32>, ModelError> {
        let (kind, bytes) = self.read(name, &[len])?;
        Ok(to_f32(kind, &bytes))
    }
}
