//! Loaded models.

use crate::chat::ChatTemplate;
use crate::config::ModelConfig;
use crate::gguf::{GgufFile, tensor_name};
use crate::packed::{PackedCache, PackedError, Pending};
use crate::weights::{self, Weights};
use crate::{ModelError, Tokenizer, hf, tiny};
use formwork_kernels::{Cpu, CpuOptions, KvDtype, Matrix, release_freed_memory};
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// How far loading has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadProgress {
    /// Bytes of weights done.
    pub done: u64,
    /// Bytes of weights in all.
    pub total: u64,
}

/// A function that is told about progress.
pub type ProgressFn = Box<dyn Fn(LoadProgress) + Send + Sync>;

/// How to load a model.
#[derive(Default)]
pub struct LoadOptions {
    /// Told after each tensor.
    pub progress: Option<ProgressFn>,
    /// Threads that repack weights; 0 takes one per core.
    pub threads: usize,
    /// Whether packed weights are read from a file beside the model where there is one, and are to be kept
    /// there otherwise. Loading never writes: [`PackedWriter`](crate::PackedWriter) does.
    pub packed_cache: PackedCache,
}

/// Counts bytes and tells the caller.
pub(crate) struct Progress<'a> {
    done: u64,
    pub(crate) total: u64,
    tell: Option<&'a ProgressFn>,
}

impl<'a> Progress<'a> {
    fn new(tell: Option<&'a ProgressFn>) -> Self {
        Self {
            done: 0,
            total: 0,
            tell,
        }
    }

    pub(crate) fn add(&mut self, bytes: u64) {
        self.done += bytes;
        if let Some(tell) = self.tell {
            tell(LoadProgress {
                done: self.done,
                total: self.total,
            });
        }
    }
}

/// What a model is, for people and for `/v1/models`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ModelInfo {
    /// From the model's own files, else the file's name.
    pub name: String,
    /// `llama`, `qwen2` or `qwen3`.
    pub architecture: String,
    /// Weights in all.
    pub parameters: u64,
    /// Longest context that the model was made for, in tokens.
    pub context_length: usize,
    /// Type of most weights, such as `Q4_1`.
    pub quantization: String,
    /// Entries of a row of logits.
    pub vocab_size: usize,
    /// Transformer layers.
    pub layers: usize,
    /// Width of the hidden state.
    pub hidden_size: usize,
    /// Size of the files with the weights.
    pub file_bytes: u64,
    /// Size of the packed weights in memory.
    pub weight_bytes: u64,
    /// Size of one token's keys and values in the CPU backend's cache, in half precision; see
    /// [`Model::kv_bytes_per_token`].
    pub kv_bytes_per_token: u64,
}

/// A model's weights, vocabulary and chat template; immutable.
pub struct Model {
    info: ModelInfo,
    config: ModelConfig,
    weights: Weights,
    tokenizer: Arc<Tokenizer>,
    chat_template: Option<ChatTemplate>,
    /// Packed weights that are yet to be kept.
    pending: Option<Pending>,
}

/// What [`Model`] is put together from.
pub(crate) struct ModelParts {
    pub(crate) info: ModelInfo,
    pub(crate) config: ModelConfig,
    pub(crate) weights: Weights,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) chat_template: Option<String>,
}

impl Model {
    /// Loads a `.gguf` file, or a directory with `config.json`, `tokenizer.json` and safetensors.
    ///
    /// # Errors
    /// When files are missing or broken, or the model is of a kind that is not supported.
    pub fn load(path: &Path, options: &LoadOptions) -> Result<Self, ModelError> {
        let cpu = Cpu::new(CpuOptions {
            threads: options.threads,
            isa: None,
        })
        .map_err(|error| ModelError::Backend(error.to_string()))?;
        let progress = Progress::new(options.progress.as_ref());
        let model = if path.is_dir() {
            hf::load(path, progress)
        } else {
            let file = GgufFile::open(path, &cpu, progress, options.packed_cache);
            file.and_then(|file| load_gguf(path, file))
        };
        // The metadata's texts and the tokenizer's tables in the making: megabytes in small pieces.
        release_freed_memory();
        model
    }

    /// A small Llama with seeded random weights and a vocabulary of bytes, for tests: two layers, a
    /// hidden state of 64, a context of 4096; tokens 0 to 255 are the bytes, 256 is `<|bos|>`, 257
    /// `<|im_start|>`, 258 `<|im_end|>`.
    #[must_use]
    pub fn tiny(seed: u64) -> Self {
        tiny::model(seed)
    }

    pub(crate) fn from_parts(parts: ModelParts) -> Result<Self, ModelError> {
        let ModelParts {
            mut info,
            config,
            weights,
            tokenizer,
            chat_template,
        } = parts;
        let vocab_size = weights.embedding.rows();
        if tokenizer.vocab_size() > vocab_size {
            return Err(ModelError::Tokenizer(format!(
                "the vocabulary has {} tokens, the model's logits {vocab_size}",
                tokenizer.vocab_size()
            )));
        }
        info.architecture = config.architecture.name().into();
        info.context_length = config.context_length;
        info.vocab_size = vocab_size;
        info.layers = config.layers;
        info.hidden_size = config.hidden;
        info.weight_bytes = weights.bytes() as u64;
        info.kv_bytes_per_token = config.kv_bytes_per_token(KvDtype::F16) as u64;
        let text = |token: Option<u32>| {
            let bytes = token.and_then(|token| tokenizer.bytes(token));
            bytes.map_or_else(String::new, |bytes| String::from_utf8_lossy(&bytes).into())
        };
        let (bos, eos) = (
            text(tokenizer.bos()),
            text(tokenizer.end_tokens().first().copied()),
        );
        let chat_template = chat_template
            .map(|source| ChatTemplate::new(&source, &bos, &eos))
            .transpose()?;
        Ok(Self {
            info,
            config,
            weights,
            tokenizer: Arc::new(tokenizer),
            chat_template,
            pending: None,
        })
    }

    /// The file that the packed weights would be kept in, when they are to be kept and are not yet.
    #[must_use]
    pub fn packed_weights_to_keep(&self) -> Option<&Path> {
        self.pending.as_ref().map(|pending| pending.path.as_path())
    }

    /// Writes the packed weights to their file, unless nothing is to be kept. Takes no memory to speak of.
    /// Returns the file's size in bytes.
    ///
    /// # Errors
    /// When the file cannot be written, another process is writing it, or `stop` became true. Nothing is left
    /// behind then.
    pub fn keep_packed_weights(&self, stop: &AtomicBool) -> Result<u64, PackedError> {
        let Some(pending) = &self.pending else {
            return Ok(0);
        };
        let matrices = self.weights.matrices().filter_map(|(role, layer, matrix)| {
            let Matrix::Quant(matrix) = matrix else {
                return None;
            };
            Some((tensor_name(role, layer), matrix))
        });
        pending.write(&matrices.collect::<Vec<_>>(), stop)
    }

    /// What the model is.
    #[must_use]
    pub fn info(&self) -> ModelInfo {
        self.info.clone()
    }

    /// Bytes of one token's keys and values in the CPU backend's cache.
    #[must_use]
    pub fn kv_bytes_per_token(&self, dtype: KvDtype) -> usize {
        self.config.kv_bytes_per_token(dtype)
    }

    /// Its vocabulary.
    #[must_use]
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// Its chat template, if it was trained with one.
    #[must_use]
    pub fn chat_template(&self) -> Option<&ChatTemplate> {
        self.chat_template.as_ref()
    }

    pub(crate) fn config(&self) -> &ModelConfig {
        &self.config
    }

    pub(crate) fn weights(&self) -> &Weights {
        &self.weights
    }
}

fn load_gguf(path: &Path, mut file: GgufFile<'_>) -> Result<Model, ModelError> {
    let file_bytes = std::fs::metadata(path)
        .map_err(|source| ModelError::Io {
            path: path.to_owned(),
            source,
        })?
        .len();
    let config = file.config()?;
    let vocabulary = file.take_vocabulary()?;
    // The two take about as long as each other.
    let (tokenizer, weights) = std::thread::scope(|scope| {
        let tokenizer = scope.spawn(|| {
            let tokenizer = vocabulary.build();
            // Early, so that the largest size the process ever has stays small.
            release_freed_memory();
            tokenizer
        });
        let weights = weights::load(&mut file, &config);
        (tokenizer.join(), weights)
    });
    let tokenizer = tokenizer.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    let weights = weights?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let info = ModelInfo {
        name: file.string("general.name").unwrap_or(&stem).to_owned(),
        parameters: file.parameters(),
        quantization: file.quantization(),
        file_bytes,
        ..ModelInfo::default()
    };
    let chat_template = file.string("tokenizer.chat_template").map(str::to_owned);
    let mut model = Model::from_parts(ModelParts {
        info,
        config,
        weights,
        tokenizer,
        chat_template,
    })?;
    model.pending = file.finish();
    Ok(model)
}
