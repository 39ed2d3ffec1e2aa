//! The vocabulary as masks and grammars see it.

use super::shared::Cutter;
use super::{Vocabulary, encode_bytes};
use formwork_engine::TokenId;
use std::sync::Arc;
use toktrie::{TokTrie, TokenizerEnv};

pub(super) struct Env {
    pub(super) cutter: Arc<Cutter>,
    pub(super) vocabulary: Arc<Vocabulary>,
}

impl TokenizerEnv for Env {
    fn tok_trie(&self) -> &TokTrie {
        &self.vocabulary.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        encode_bytes(&self.cutter, &self.vocabulary, bytes)
    }

    fn tokenize_is_canonical(&self) -> bool {
        true
    }
}
