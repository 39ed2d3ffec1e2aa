//! The vocabulary as masks and grammars see it.

use super::{Vocabulary, encode_bytes};
use formwork_engine::TokenId;
use toktrie::{TokRxInfo, TokTrie, TokenizerEnv};

pub(super) struct Env {
    tokenizer: tokenizers::Tokenizer,
    vocabulary: Vocabulary,
    trie: TokTrie,
}

impl Env {
    /// `end` has at least one token.
    pub(super) fn new(
        tokenizer: tokenizers::Tokenizer,
        vocabulary: Vocabulary,
        end: &[TokenId],
    ) -> Self {
        let words: Vec<Vec<u8>> = vocabulary
            .bytes
            .iter()
            .zip(&vocabulary.special)
            .map(|(bytes, &special)| {
                let marker = special.then_some(TokTrie::SPECIAL_TOKEN_MARKER);
                marker.into_iter().chain(bytes.iter().copied()).collect()
            })
            .collect();
        let info = TokRxInfo::new(words.len() as u32, end[0]);
        let trie = TokTrie::from(&info, &words).with_eos_tokens(end);
        Self {
            tokenizer,
            vocabulary,
            trie,
        }
    }
}

impl TokenizerEnv for Env {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        encode_bytes(&self.tokenizer, &self.vocabulary, bytes)
    }

    fn tokenize_is_canonical(&self) -> bool {
        true
    }
}
