//! GGUF files: metadata, vocabulary and tensors.

use crate::config::{Architecture, ModelConfig, RopeConfig, RopeScaling};
use crate::model::Progress;
use crate::tokenizer::{GgufVocabulary, TokenType};
use crate::weights::{Role, TensorSource};
use crate::{ModelError, Tokenizer};
use candle_core::quantized::GgmlDType;
use candle_core::quantized::gguf_file::{Content, TensorInfo, Value};
use formwork_kernels::{
    BlockFormat, Cpu, DenseMatrix, DenseValues, Matrix, QuantMatrix, RopeStyle,
};
use half::{bf16, f16};
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// An opened file; tensors are read one by one, so that the weights are in memory once.
pub(crate) struct GgufFile<'a> {
    path: PathBuf,
    file: BufReader<File>,
    content: Content,
    cpu: &'a Cpu,
    progress: Progress<'a>,
}

impl<'a> GgufFile<'a> {
    pub(crate) fn open(
        path: &Path,
        cpu: &'a Cpu,
        mut progress: Progress<'a>,
    ) -> Result<Self, ModelError> {
        let io = |source| ModelError::Io {
            path: path.to_owned(),
            source,
        };
        let mut file = BufReader::with_capacity(1 << 20, File::open(path).map_err(io)?);
        let content = Content::read(&mut file).map_err(|error| ModelError::Format {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
        progress.total = content.tensor_infos.values().map(stored_bytes).sum();
        Ok(Self {
            path: path.to_owned(),
            file,
            content,
            cpu,
            progress,
        })
    }

    pub(crate) fn string(&self, key: &str) -> Option<&str> {
        match self.content.metadata.get(key) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        }
    }

    fn number(&self, key: &str) -> Option<f64> {
        integer(self.content.metadata.get(key)?)
            .map(|number| number as f64)
            .or(match self.content.metadata.get(key)? {
                Value::F32(number) => Some(f64::from(*number)),
                Value::F64(number) => Some(*number),
                _ => None,
            })
    }

    fn size(&self, key: &str) -> Option<usize> {
        self.content
            .metadata
            .get(key)
            .and_then(integer)
            .and_then(|number| usize::try_from(number).ok())
    }

    fn needed(&self, key: &str) -> Result<usize, ModelError> {
        self.size(key)
            .ok_or_else(|| ModelError::config(key, "is missing or no count"))
    }

    pub(crate) fn parameters(&self) -> u64 {
        let tensors = self.content.tensor_infos.values();
        tensors.map(|info| info.shape.elem_count() as u64).sum()
    }

    /// The type that holds most weights.
    pub(crate) fn quantization(&self) -> String {
        let mut counts: HashMap<String, usize> = HashMap::new();
        for info in self.content.tensor_infos.values() {
            *counts.entry(format!("{:?}", info.ggml_dtype)).or_default() += info.shape.elem_count();
        }
        let most = counts
            .into_iter()
            .max_by(|a, b| a.1.cmp(&b.1).then(b.0.cmp(&a.0)));
        most.map(|(name, _)| name).unwrap_or_default()
    }

    pub(crate) fn config(&mut self) -> Result<ModelConfig, ModelError> {
        let key = "general.architecture";
        let name = self
            .string(key)
            .ok_or_else(|| ModelError::config(key, "is missing"))?
            .to_owned();
        let architecture = Architecture::from_name(key, &name)?;
        let key = |rest: &str| format!("{name}.{rest}");
        let hidden = self.needed(&key("embedding_length"))?;
        let heads = self.needed(&key("attention.head_count"))?;
        let head_dim = self
            .size(&key("attention.key_length"))
            .unwrap_or(hidden / heads.max(1));
        let config = ModelConfig {
            architecture,
            hidden,
            feed_forward: self.needed(&key("feed_forward_length"))?,
            layers: self.needed(&key("block_count"))?,
            heads,
            kv_heads: self.size(&key("attention.head_count_kv")).unwrap_or(heads),
            head_dim,
            norm_epsilon: self
                .number(&key("attention.layer_norm_rms_epsilon"))
                .unwrap_or(1e-5) as f32,
            context_length: self.needed(&key("context_length"))?,
            rope: RopeConfig {
                style: if architecture == Architecture::Llama {
                    RopeStyle::Interleaved
                } else {
                    RopeStyle::Halves
                },
                base: self.number(&key("rope.freq_base")).unwrap_or(10_000.0),
                dims: self.size(&key("rope.dimension_count")).unwrap_or(head_dim),
                scaling: self.rope_scaling(&key("rope.scaling"))?,
            },
        };
        config.check()?;
        Ok(config)
    }

    fn rope_scaling(&mut self, prefix: &str) -> Result<RopeScaling, ModelError> {
        let divisors = "rope_freqs.weight";
        if let Some(info) = self.content.tensor_infos.get(divisors) {
            let len = info.shape.elem_count();
            return self.vector(divisors, len).map(RopeScaling::Divisors);
        }
        let key = format!("{prefix}.type");
        match self.string(&key) {
            None | Some("none") => Ok(RopeScaling::None),
            Some("linear") => Ok(RopeScaling::Linear(
                self.number(&format!("{prefix}.factor")).unwrap_or(1.0),
            )),
            Some(other) => Err(ModelError::config(
                key.clone(),
                format!("{other:?} is not supported; supported are none and linear"),
            )),
        }
    }

    fn array(&self, key: &str) -> Result<&[Value], ModelError> {
        match self.content.metadata.get(key) {
            Some(Value::Array(values)) => Ok(values),
            Some(_) => Err(ModelError::config(key, "is no array")),
            None => Ok(&[]),
        }
    }

    fn texts(&self, key: &str) -> Result<Vec<String>, ModelError> {
        let texts = self.array(key)?.iter().map(|value| match value {
            Value::String(text) => Ok(text.clone()),
            _ => Err(ModelError::config(key, "has an entry that is no text")),
        });
        texts.collect()
    }

    pub(crate) fn tokenizer(&self) -> Result<Tokenizer, ModelError> {
        let tokens = self.texts("tokenizer.ggml.tokens")?;
        let key = "tokenizer.ggml.token_type";
        let types = self.array(key)?.iter().map(|value| {
            integer(value)
                .and_then(TokenType::from_number)
                .ok_or_else(|| ModelError::config(key, format!("{value:?} is no token type")))
        });
        let scores = self.array("tokenizer.ggml.scores")?.iter();
        let scores = scores.map(|value| value.to_f32().unwrap_or(0.0)).collect();
        let id = |name: &str| {
            let id = self.size(&format!("tokenizer.ggml.{name}_token_id"))?;
            u32::try_from(id).ok()
        };
        let flag = |name: &str| match self.content.metadata.get(&format!("tokenizer.ggml.{name}")) {
            Some(Value::Bool(flag)) => Some(*flag),
            _ => None,
        };
        let text = |name: &str| self.string(&format!("tokenizer.ggml.{name}"));
        GgufVocabulary {
            model: text("model").unwrap_or_default().to_owned(),
            pre: text("pre").unwrap_or("default").to_owned(),
            types: types.collect::<Result<_, _>>()?,
            tokens,
            scores,
            merges: self.texts("tokenizer.ggml.merges")?,
            bos: id("bos"),
            end: id("eos").into_iter().chain(id("eot")).collect(),
            add_bos: flag("add_bos_token"),
            add_space_prefix: flag("add_space_prefix"),
        }
        .build()
    }

    fn info(&self, name: &str) -> Result<&TensorInfo, ModelError> {
        self.content
            .tensor_infos
            .get(name)
            .ok_or_else(|| ModelError::tensor(name, "is missing"))
    }

    /// Type and bytes of a tensor of a known shape.
    fn read(&mut self, name: &str, shape: &[usize]) -> Result<(GgmlDType, Vec<u8>), ModelError> {
        let info = self.info(name)?;
        if info.shape.dims() != shape {
            let reason = format!("has shape {:?}, expected {shape:?}", info.shape.dims());
            return Err(ModelError::tensor(name, reason));
        }
        let (dtype, len) = (info.ggml_dtype, stored_bytes(info));
        let at = self.content.tensor_data_offset.checked_add(info.offset);
        let at = at.ok_or_else(|| ModelError::tensor(name, "has an impossible offset"))?;
        let io = |source| ModelError::Io {
            path: self.path.clone(),
            source,
        };
        let size = self.file.get_ref().metadata().map_err(io)?.len();
        // Checked before the allocation, which a broken header could make huge.
        if at.checked_add(len).is_none_or(|end| end > size) {
            return Err(ModelError::tensor(name, "reaches past the end of the file"));
        }
        self.file.seek(SeekFrom::Start(at)).map_err(io)?;
        let mut bytes = vec![0; len as usize];
        self.file.read_exact(&mut bytes).map_err(io)?;
        self.progress.add(len);
        Ok((dtype, bytes))
    }
}

fn integer(value: &Value) -> Option<i64> {
    match *value {
        Value::U8(n) => Some(n.into()),
        Value::I8(n) => Some(n.into()),
        Value::U16(n) => Some(n.into()),
        Value::I16(n) => Some(n.into()),
        Value::U32(n) => Some(n.into()),
        Value::I32(n) => Some(n.into()),
        Value::U64(n) => n.try_into().ok(),
        Value::I64(n) => Some(n),
        _ => None,
    }
}

fn stored_bytes(info: &TensorInfo) -> u64 {
    let blocks = info
        .shape
        .elem_count()
        .div_ceil(info.ggml_dtype.block_size());
    (blocks * info.ggml_dtype.type_size()) as u64
}

fn block_format(dtype: GgmlDType) -> Option<BlockFormat> {
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

/// Little-endian numbers of a floating-point type, in single precision.
pub(crate) fn to_f32(width: FloatType, bytes: &[u8]) -> Vec<f32> {
    match width {
        FloatType::F32 => {
            let (numbers, _) = bytes.as_chunks::<4>();
            numbers
                .iter()
                .map(|&bytes| f32::from_le_bytes(bytes))
                .collect()
        }
        FloatType::F16 => {
            let (numbers, _) = bytes.as_chunks::<2>();
            numbers
                .iter()
                .map(|&bytes| f16::from_le_bytes(bytes).to_f32())
                .collect()
        }
        FloatType::Bf16 => {
            let (numbers, _) = bytes.as_chunks::<2>();
            numbers
                .iter()
                .map(|&bytes| bf16::from_le_bytes(bytes).to_f32())
                .collect()
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FloatType {
    F32,
    F16,
    Bf16,
}

/// A dense matrix: bf16 stays as it is, anything else becomes single precision.
pub(crate) fn dense_matrix(
    name: &str,
    shape: [usize; 2],
    kind: FloatType,
    bytes: &[u8],
) -> Result<Matrix, ModelError> {
    let packed = if kind == FloatType::Bf16 {
        let (numbers, _) = bytes.as_chunks::<2>();
        let values: Vec<bf16> = numbers
            .iter()
            .map(|&bytes| bf16::from_le_bytes(bytes))
            .collect();
        DenseMatrix::pack(shape, &DenseValues::Bf16(&values))
    } else {
        DenseMatrix::pack(shape, &DenseValues::F32(&to_f32(kind, bytes)))
    };
    packed
        .map(Matrix::Dense)
        .map_err(|error| ModelError::tensor(name, error))
}

fn float_type(dtype: GgmlDType) -> Option<FloatType> {
    match dtype {
        GgmlDType::F32 => Some(FloatType::F32),
        GgmlDType::F16 => Some(FloatType::F16),
        GgmlDType::BF16 => Some(FloatType::Bf16),
        _ => None,
    }
}

fn unsupported(name: &str, dtype: GgmlDType) -> ModelError {
    ModelError::tensor(name, format!("the type {dtype:?} is not supported"))
}

impl TensorSource for GgufFile<'_> {
    fn name(&self, role: Role, layer: usize) -> String {
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

    fn has(&self, name: &str) -> bool {
        self.content.tensor_infos.contains_key(name)
    }

    fn rows(&self, name: &str) -> Result<usize, ModelError> {
        match self.info(name)?.shape.dims() {
            &[rows, _] => Ok(rows),
            shape => Err(ModelError::tensor(name, format!("{shape:?} is no matrix"))),
        }
    }

    fn matrix(&mut self, name: &str, shape: [usize; 2]) -> Result<Matrix, ModelError> {
        let (dtype, bytes) = self.read(name, &shape)?;
        if let Some(format) = block_format(dtype) {
            return QuantMatrix::pack(self.cpu, format, shape, &bytes)
                .map(Matrix::Quant)
                .map_err(|error| ModelError::tensor(name, error));
        }
        let kind = float_type(dtype).ok_or_else(|| unsupported(name, dtype))?;
        dense_matrix(name, shape, kind, &bytes)
    }

    fn vector(&mut self, name: &str, len: usize) -> Result<Vec<f32>, ModelError> {
        let (dtype, bytes) = self.read(name, &[len])?;
        let kind = float_type(dtype).ok_or_else(|| unsupported(name, dtype))?;
        Ok(to_f32(kind, &bytes))
    }
}
