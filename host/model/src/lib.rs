//! Weights, tokenizers, chat templates and the CPU backend.
//!
//! [`Model::load`] reads a GGUF file or a Hugging Face directory and packs its weights for
//! `formwork-kernels`; [`CpuBackend`] runs it behind the engine's `Backend` trait.

mod chat;
mod config;
mod cpu;
mod error;
mod floats;
mod gguf;
mod hf;
mod model;
mod packed;
mod tiny;
mod tokenizer;
mod weights;

pub use chat::{ChatInputs, ChatTemplate};
pub use cpu::{
    CpuBackend, CpuConfig, MachineCeilings, OperationCost, ProfileOptions, StepProfile, StepShape,
    profile_step,
};
pub use error::ModelError;
pub use formwork_kernels::{KvDtype, release_freed_memory};
pub use model::{LoadOptions, LoadProgress, Model, ModelInfo, ProgressFn};
pub use packed::{PackedCache, PackedError, PackedWriter, is_packed_file, packed_file};
pub use tokenizer::{SpecialTokens, Tokenizer};
