//! Parsers for one vocabulary.

use crate::index::Index;
use llguidance::api::{GrammarInit, ParserLimits, TopLevelGrammar};
use llguidance::{Logger, ParserFactory, TokenParser};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use toktrie::{InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};

/// Makes parsers whose masks come from an [`Index`].
pub(crate) struct Parsers {
    factory: ParserFactory,
    index: Arc<Index>,
    capabilities: InferenceCapabilities,
}

impl Parsers {
    /// # Errors
    /// When llguidance cannot be set up.
    pub(crate) fn new(env: &TokEnv) -> Result<Self, String> {
        let capabilities = InferenceCapabilities {
            ff_tokens: env.tokenize_is_canonical(),
            ..InferenceCapabilities::default()
        };
        let shown = Arc::new(Shown::new(env));
        let as_env: TokEnv = shown.clone();
        let factory = ParserFactory::new(&as_env, capabilities.clone(), &Index::patterns())
            .map_err(|error| format!("{error:#}"))?;
        shown.whole.store(true, Ordering::Release);
        Ok(Self {
            factory,
            index: Arc::new(Index::new(env)?),
            capabilities,
        })
    }

    /// A parser at the start of a grammar.
    ///
    /// # Errors
    /// What llguidance says against the grammar.
    pub(crate) fn create(
        &self,
        grammar: TopLevelGrammar,
        limits: ParserLimits,
    ) -> Result<TokenParser, String> {
        let source = GrammarInit::Serialized(grammar);
        let capabilities = self.capabilities.clone();
        let mut parser = self
            .factory
            .create_parser_from_init_ext(source, Logger::new(0, 0), capabilities, limits)
            .map_err(|error| format!("{error:#}"))?;
        parser.bias_computer = self.index.clone();
        Ok(parser)
    }

    #[cfg(test)]
    pub(crate) fn index(&self) -> &Index {
        &self.index
    }
}

/// The tokenizer as the factory sees it. The factory indexes the vocabulary when it is made, which takes 24 MB for
/// 49,152 tokens; nothing would use that index, so until then it is shown a vocabulary of one token.
struct Shown {
    env: TokEnv,
    one: TokTrie,
    whole: AtomicBool,
}

impl Shown {
    fn new(env: &TokEnv) -> Self {
        Self {
            env: env.clone(),
            one: TokTrie::from(&TokRxInfo::new(1, 0), &[vec![b'a']]),
            whole: AtomicBool::new(false),
        }
    }
}

impl TokenizerEnv for Shown {
    fn tok_trie(&self) -> &TokTrie {
        match self.whole.load(Ordering::Acquire) {
            true => self.env.tok_trie(),
            false => &self.one,
        }
    }

    fn tokenize_bytes(&self, text: &[u8]) -> Vec<TokenId> {
        self.env.tokenize_bytes(text)
    }

    fn tokenize_bytes_marker(&self, text: &[u8]) -> (Vec<TokenId>, usize) {
        self.env.tokenize_bytes_marker(text)
    }

    fn tokenize_bytes_special(&self, text: &[u8]) -> Vec<TokenId> {
        self.env.tokenize_bytes_special(text)
    }

    fn tokenize_is_canonical(&self) -> bool {
        self.env.tokenize_is_canonical()
    }
}
