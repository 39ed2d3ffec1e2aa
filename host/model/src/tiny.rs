//! A model small enough for any test.

use crate::config::{Architecture, ModelConfig, RopeConfig, RopeScaling};
use crate::model::ModelParts;
use crate::tokenizer::{GgufVocabulary, TokenType, byte_text};
use crate::weights::{self, Role, TensorSource};
use crate::{Model, ModelError, ModelInfo};
use formwork_kernels::{
    BlockFormat, Cpu, CpuOptions, DenseMatrix, DenseValues, Matrix, QuantMatrix, RopeStyle,
};
use half::f16;

const SPECIALS: [&str; 3] = ["<|bos|>", "<|im_start|>", "<|im_end|>"];

const CHAT_TEMPLATE: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n\
    {{ message.content }}<|im_end|>\n{% endfor %}\
    {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

pub(crate) fn model(seed: u64) -> Model {
    build(seed).expect("the tiny model's parts fit together; its tests load it")
}

fn build(seed: u64) -> Result<Model, ModelError> {
    let config = ModelConfig {
        architecture: Architecture::Llama,
        hidden: 64,
        feed_forward: 128,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 16,
        norm_epsilon: 1e-5,
        context_length: 4096,
        rope: RopeConfig {
            style: RopeStyle::Interleaved,
            base: 10_000.0,
            dims: 16,
            scaling: RopeScaling::None,
        },
    };
    let cpu = Cpu::new(CpuOptions {
        threads: 1,
        isa: None,
    })
    .map_err(|error| ModelError::Backend(error.to_string()))?;
    let mut source = RandomTensors {
        cpu,
        state: seed,
        parameters: 0,
    };
    let weights = weights::load(&mut source, &config)?;
    let info = ModelInfo {
        name: format!("tiny-{seed}"),
        parameters: source.parameters,
        quantization: "mixed".into(),
        ..ModelInfo::default()
    };
    Model::from_parts(ModelParts {
        info,
        config,
        weights,
        tokenizer: vocabulary().build()?,
        chat_template: Some(CHAT_TEMPLATE.into()),
    })
}

fn vocabulary() -> GgufVocabulary {
    let bytes = (0..=255).map(byte_text);
    let tokens: Vec<String> = bytes.chain(SPECIALS.map(String::from)).collect();
    let mut types = vec![TokenType::Normal; 256];
    types.resize(tokens.len(), TokenType::Control);
    GgufVocabulary {
        model: "gpt2".into(),
        pre: "gpt-2".into(),
        tokens,
        types,
        bos: Some(256),
        end: vec![258],
        add_bos: Some(true),
        ..GgufVocabulary::default()
    }
}

/// Tensors drawn from a counter. Different matrices use different formats, so that one small model
/// runs the kernels of all of them.
struct RandomTensors {
    cpu: Cpu,
    state: u64,
    parameters: u64,
}

impl RandomTensors {
    /// SplitMix64 (Steele, Lea and Flood 2014).
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in -1..1.
    fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    /// Blocks of random codes under one scale that gives weights a spread of about `1 / sqrt(columns)`.
    fn blocks(&mut self, format: BlockFormat, [rows, columns]: [usize; 2]) -> Vec<u8> {
        let largest_code = if format == BlockFormat::Q8_0 {
            128.0
        } else {
            8.0
        };
        let scale = f16::from_f32(1.7 / (columns as f32).sqrt() / largest_code);
        let mut bytes = Vec::new();
        for _ in 0..rows * columns / format.block_len() {
            bytes.extend(scale.to_le_bytes());
            bytes.extend((2..format.block_bytes()).map(|_| self.next() as u8));
        }
        bytes
    }
}

impl TensorSource for RandomTensors {
    fn name(&self, role: Role, layer: usize) -> String {
        format!("{role:?}.{layer}")
    }

    fn has(&self, _name: &str) -> bool {
        false
    }

    fn rows(&self, _name: &str) -> Result<usize, ModelError> {
        Ok(256 + SPECIALS.len())
    }

    fn matrix(&mut self, name: &str, shape: [usize; 2]) -> Result<Matrix, ModelError> {
        self.parameters += (shape[0] * shape[1]) as u64;
        let format = match name.split('.').next() {
            Some("Embedding" | "Value" | "Down") => BlockFormat::Q8_0,
            Some("Output") => {
                let spread = 1.7 / (shape[1] as f32).sqrt();
                let values: Vec<f32> = (0..shape[0] * shape[1])
                    .map(|_| self.unit() * spread)
                    .collect();
                return DenseMatrix::pack(shape, &DenseValues::F32(&values))
                    .map(Matrix::Dense)
                    .map_err(|error| ModelError::tensor(name, error));
            }
            _ => BlockFormat::Q4_0,
        };
        let bytes = self.blocks(format, shape);
        QuantMatrix::pack(&self.cpu, format, shape, &bytes)
            .map(Matrix::Quant)
            .map_err(|error| ModelError::tensor(name, error))
    }

    fn vector(&mut self, _name: &str, len: usize) -> Result<Vec<f32>, ModelError> {
        self.parameters += len as u64;
        Ok((0..len).map(|_| 1.0 + self.unit() / 4.0).collect())
    }
}
