//! GGUF files: metadata, vocabulary and tensors.

mod tensors;

pub(crate) use tensors::tensor_name;

use crate::ModelError;
use crate::config::{Architecture, ModelConfig, RopeConfig, RopeScaling};
use crate::floats::{dense_matrix, to_f32};
use crate::model::Progress;
use crate::packed::{Cache, PackedCache, Pending, Tensors, Wanted};
use crate::tokenizer::{GgufVocabulary, TokenType};
use crate::weights::{Role, TensorSource};
use candle_core::quantized::GgmlDType;
use candle_core::quantized::gguf_file::{Content, TensorInfo, Value};
use formwork_kernels::{BlockFormat, Cpu, MappedFile, Matrix, QuantMatrix, RopeStyle};
use std::collections::HashMap;
use std::fs::File;
use std::io::Cursor;
use std::ops::Range;
use std::path::Path;
use tensors::{block_format, float_type, stored_bytes, unsupported};

/// An opened file. Tensors are packed one by one straight from the mapping, whose pages are then let go, so
/// that the weights are in memory once.
pub(crate) struct GgufFile<'a> {
    map: MappedFile,
    content: Content,
    cpu: &'a Cpu,
    progress: Progress<'a>,
    packed: Option<Cache>,
}

impl<'a> GgufFile<'a> {
    pub(crate) fn open(
        path: &Path,
        cpu: &'a Cpu,
        mut progress: Progress<'a>,
        packed: PackedCache,
    ) -> Result<Self, ModelError> {
        let io = |source| ModelError::Io {
            path: path.to_owned(),
            source,
        };
        let file = File::open(path).map_err(io)?;
        let map = MappedFile::new(&file).map_err(io)?;
        let content =
            Content::read(&mut Cursor::new(map.bytes())).map_err(|error| ModelError::Format {
                path: path.to_owned(),
                reason: error.to_string(),
            })?;
        let stored = content.tensor_infos.values().map(stored_bytes);
        progress.total = stored.fold(0, u64::saturating_add);
        let infos = content.tensor_infos.values();
        let quantised = infos.filter(|info| block_format(info.ggml_dtype).is_some());
        let quantised = quantised.map(stored_bytes).fold(0, u64::saturating_add);
        let wanted = packed.wants(quantised);
        let extents = || extents(&content, map.bytes());
        let packed = wanted.then(|| Cache::open(path, &file, extents()));
        Ok(Self {
            packed: packed.flatten(),
            map,
            content,
            cpu,
            progress,
        })
    }

    /// Ends loading. The packed weights that are yet to be kept, if they are to be.
    pub(crate) fn finish(self) -> Option<Pending> {
        self.packed.and_then(Cache::finish)
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

    /// Takes an array out of the metadata: vocabularies are large, and nobody needs them twice.
    fn take_array(&mut self, key: &str) -> Result<Vec<Value>, ModelError> {
        match self.content.metadata.remove(key) {
            Some(Value::Array(values)) => Ok(values),
            Some(_) => Err(ModelError::config(key, "is no array")),
            None => Ok(Vec::new()),
        }
    }

    fn take_texts(&mut self, key: &str) -> Result<Vec<String>, ModelError> {
        let texts = self.take_array(key)?.into_iter().map(|value| match value {
            Value::String(text) => Ok(text),
            _ => Err(ModelError::config(key, "has an entry that is no text")),
        });
        texts.collect()
    }

    /// Takes the vocabulary out of the metadata.
    pub(crate) fn take_vocabulary(&mut self) -> Result<GgufVocabulary, ModelError> {
        let tokens = self.take_texts("tokenizer.ggml.tokens")?;
        let merges = self.take_texts("tokenizer.ggml.merges")?;
        let key = "tokenizer.ggml.token_type";
        let types = self.take_array(key)?;
        let types = types.iter().map(|value| {
            integer(value)
                .and_then(TokenType::from_number)
                .ok_or_else(|| ModelError::config(key, format!("{value:?} is no token type")))
        });
        let types = types.collect::<Result<_, _>>()?;
        let scores = self.take_array("tokenizer.ggml.scores")?;
        let scores = scores
            .iter()
            .map(|value| value.to_f32().unwrap_or(0.0))
            .collect();
        let id = |name: &str| {
            let id = self.size(&format!("tokenizer.ggml.{name}_token_id"))?;
            u32::try_from(id).ok()
        };
        let flag = |name: &str| match self.content.metadata.get(&format!("tokenizer.ggml.{name}")) {
            Some(Value::Bool(flag)) => Some(*flag),
            _ => None,
        };
        let text = |name: &str| self.string(&format!("tokenizer.ggml.{name}"));
        Ok(GgufVocabulary {
            model: text("model").unwrap_or_default().to_owned(),
            pre: text("pre").unwrap_or("default").to_owned(),
            types,
            tokens,
            scores,
            merges,
            bos: id("bos"),
            end: id("eos").into_iter().chain(id("eot")).collect(),
            add_bos: flag("add_bos_token"),
            add_space_prefix: flag("add_space_prefix"),
        })
    }

    fn info(&self, name: &str) -> Result<&TensorInfo, ModelError> {
        self.content
            .tensor_infos
            .get(name)
            .ok_or_else(|| ModelError::tensor(name, "is missing"))
    }

    /// Type of a tensor of a known shape, and where its bytes lie in the file.
    fn find(&self, name: &str, shape: &[usize]) -> Result<(GgmlDType, Range<usize>), ModelError> {
        let info = self.info(name)?;
        if info.shape.dims() != shape {
            let reason = format!("has shape {:?}, expected {shape:?}", info.shape.dims());
            return Err(ModelError::tensor(name, reason));
        }
        let start = self.content.tensor_data_offset.checked_add(info.offset);
        let end = start.and_then(|start| start.checked_add(stored_bytes(info)));
        let size = self.map.bytes().len() as u64;
        match (start, end) {
            (Some(start), Some(end)) if end <= size => {
                Ok((info.ggml_dtype, start as usize..end as usize))
            }
            _ => Err(ModelError::tensor(name, "reaches past the end of the file")),
        }
    }

    /// The bytes of a tensor, which are about to be read.
    fn bytes(&self, range: &Range<usize>) -> &[u8] {
        self.map.will_need(range.clone());
        &self.map.bytes()[range.clone()]
    }

    /// A quantised matrix as it was kept, else packed. In the first case hardly any of the tensor's own bytes
    /// are touched.
    fn quantised(
        &mut self,
        name: &str,
        (format, shape): (BlockFormat, [usize; 2]),
        range: &Range<usize>,
    ) -> Result<QuantMatrix, ModelError> {
        if let Some(cache) = &mut self.packed {
            let wanted = Wanted {
                name,
                format,
                shape,
                stored: &self.map.bytes()[range.clone()],
            };
            if let Some(matrix) = cache.matrix(self.cpu, wanted) {
                return Ok(matrix);
            }
        }
        QuantMatrix::pack(self.cpu, format, shape, self.bytes(range))
            .map_err(|error| ModelError::tensor(name, error))
    }

    /// Notes that a tensor is done.
    fn done(&mut self, range: Range<usize>) {
        self.progress.add(range.len() as u64);
        self.map.release(range);
    }
}

/// What a model's file is told by. Ranges may be nonsense: the file is not checked yet.
fn extents<'a>(content: &Content, bytes: &'a [u8]) -> Tensors<'a> {
    let start = content.tensor_data_offset;
    let header = (start as usize).min(bytes.len());
    let ranges = content.tensor_infos.values().map(|info| {
        let start = start.saturating_add(info.offset);
        start..start.saturating_add(stored_bytes(info))
    });
    Tensors {
        header: &bytes[..header],
        ranges: ranges.collect(),
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

impl TensorSource for GgufFile<'_> {
    fn name(&self, role: Role, layer: usize) -> String {
        tensor_name(role, layer)
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
        let (dtype, range) = self.find(name, &shape)?;
        let matrix = if let Some(format) = block_format(dtype) {
            Matrix::Quant(self.quantised(name, (format, shape), &range)?)
        } else {
            let kind = float_type(dtype).ok_or_else(|| unsupported(name, dtype))?;
            dense_matrix(name, shape, kind, self.bytes(&range))?
        };
        self.done(range);
        Ok(matrix)
    }

    fn vector(&mut self, name: &str, len: usize) -> Result<Vec<f32>, ModelError> {
        let (dtype, range) = self.find(name, &[len])?;
        let kind = float_type(dtype).ok_or_else(|| unsupported(name, dtype))?;
        let vector = to_f32(kind, self.bytes(&range));
        self.done(range);
        Ok(vector)
    }
}
