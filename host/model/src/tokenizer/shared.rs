//! One BPE model for several ways to cut text. The library's own tokenizers each own their model, which
//! for a large vocabulary is many megabytes of hash tables.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::{
    DecoderWrapper, Model, ModelWrapper, NormalizerWrapper, PostProcessorWrapper,
    PreTokenizerWrapper, Result, Token, TokenizerImpl,
};

/// A tokenizer whose clones share the model.
pub(super) type Cutter = TokenizerImpl<
    SharedBpe,
    NormalizerWrapper,
    PreTokenizerWrapper,
    PostProcessorWrapper,
    DecoderWrapper,
>;

#[derive(Clone)]
pub(super) struct SharedBpe(Arc<BPE>);

impl From<BPE> for SharedBpe {
    fn from(model: BPE) -> Self {
        Self(Arc::new(model))
    }
}

impl<'de> Deserialize<'de> for SharedBpe {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        match ModelWrapper::deserialize(deserializer)? {
            ModelWrapper::BPE(model) => Ok(model.into()),
            _ => Err(D::Error::custom("only BPE models are supported")),
        }
    }
}

impl Model for SharedBpe {
    type Trainer = BpeTrainer;

    fn tokenize(&self, sequence: &str) -> Result<Vec<Token>> {
        self.0.tokenize(sequence)
    }

    fn token_to_id(&self, token: &str) -> Option<u32> {
        self.0.token_to_id(token)
    }

    fn id_to_token(&self, id: u32) -> Option<String> {
        self.0.id_to_token(id)
    }

    fn get_vocab(&self) -> HashMap<String, u32> {
        self.0.get_vocab()
    }

    fn get_vocab_size(&self) -> usize {
        self.0.get_vocab_size()
    }

    fn save(&self, folder: &Path, prefix: Option<&str>) -> Result<Vec<PathBuf>> {
        self.0.save(folder, prefix)
    }

    fn get_trainer(&self) -> BpeTrainer {
        self.0.get_trainer()
    }
}
