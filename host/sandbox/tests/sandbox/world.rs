//! Small vocabularies and sandboxes for the tests.

use formwork_sandbox::{
    GrammarLimits, Grammars, OpenRequest, Plugin, Sandbox, SandboxLimits, Session, TokenId,
    Vocabulary,
};
use std::sync::Arc;
use toktrie::{ApproximateTokEnv, TokRxInfo, TokTrie, TokenizerEnv};

/// One token per byte, six special ones after them, the last two of which end a turn; 300 rows.
pub(crate) fn bytes() -> Arc<Vocabulary> {
    let env = ApproximateTokEnv::single_byte_env();
    Arc::new(Vocabulary::new("bytes", env, 300, vec![260, 261]).unwrap())
}

/// Bytes and common pieces of JSON, without a canonical tokenizer; the last two tokens end a turn.
pub(crate) fn pieces() -> Arc<Vocabulary> {
    let mut words: Vec<Vec<u8>> = (0..=255u8).map(|byte| vec![byte]).collect();
    let pieces = [
        "{\"", "\":", "\":\"", "\",\"", "\"}", "true", "false", "null", "tr", "12", "123", "-1",
        "ab", "abc", "bca", "  ", "\\u00", "é", "日本", "name\":", "]}", "[]", "0.", "{}",
    ];
    words.extend(pieces.iter().map(|piece| piece.as_bytes().to_vec()));
    words.extend(["\u{0}<tool>", "\u{0}<eot>", "\u{0}<eos>"].map(|name| {
        let mut word = name.as_bytes().to_vec();
        word[0] = TokTrie::SPECIAL_TOKEN_MARKER;
        word
    }));
    let size = words.len() as u32;
    let trie = TokTrie::from(&TokRxInfo::new(size, size - 1), &words);
    let env = Arc::new(ApproximateTokEnv::new(trie));
    Arc::new(Vocabulary::new("pieces", env, size, vec![size - 2, size - 1]).unwrap())
}

/// The same pieces with a tokenizer that is canonical: it takes the longest token.
pub(crate) fn greedy() -> Arc<Vocabulary> {
    struct Greedy(TokTrie);
    impl TokenizerEnv for Greedy {
        fn tok_trie(&self) -> &TokTrie {
            &self.0
        }
        fn tokenize_bytes(&self, text: &[u8]) -> Vec<TokenId> {
            self.0.greedy_tokenize(text)
        }
    }
    let pieces = pieces();
    let env = Arc::new(Greedy(pieces.trie().clone()));
    Arc::new(Vocabulary::new("greedy", env, pieces.size(), pieces.end().to_vec()).unwrap())
}

pub(crate) fn grammars(vocabulary: Arc<Vocabulary>) -> Arc<Grammars> {
    Grammars::new(vocabulary, GrammarLimits::default()).unwrap()
}

/// Limits for a pool that a test can fill.
pub(crate) fn few(sessions: u32) -> SandboxLimits {
    SandboxLimits {
        sessions,
        ..SandboxLimits::default()
    }
}

pub(crate) fn sandbox(limits: SandboxLimits) -> Sandbox {
    Sandbox::new(grammars(bytes()), limits).unwrap()
}

pub(crate) fn request() -> OpenRequest {
    OpenRequest {
        params: "{}".into(),
        prompt: vec![b'h'.into(), b'i'.into()].into(),
        max_tokens: 10,
        request_id: "test".into(),
    }
}

pub(crate) fn open(plugin: &Plugin) -> Session {
    plugin.open(&request()).unwrap()
}
