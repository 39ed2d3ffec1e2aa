//! The vocabulary that everything is tried on, and its compiler.

use formwork_sandbox::{
    FailureKind, Grammar, GrammarLimits, Grammars, MAX_MESSAGE_BYTES, Source, TokenId, Vocabulary,
};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use toktrie::{TokRxInfo, TokTrie, TokenizerEnv};

/// Pieces beside the single bytes: such as straddle the seams of JSON and of templates, and characters that
/// span tokens in more than one way.
const PIECES: &[&str] = &[
    "{\"", "\":", "\":\"", "\",\"", "\"}", "true", "false", "null", "tr", "12", "123", "-1", "ab",
    "abc", "bca", "  ", "\\u00", "é", "日本", "name\":", "]}", "[]", "0.", "{}", " x", "x\"",
];

/// Takes the longest token, which makes its spellings canonical.
struct Greedy(TokTrie);

impl TokenizerEnv for Greedy {
    fn tok_trie(&self) -> &TokTrie {
        &self.0
    }

    fn tokenize_bytes(&self, text: &[u8]) -> Vec<TokenId> {
        self.0.greedy_tokenize(text)
    }

    fn tokenize_is_canonical(&self) -> bool {
        true
    }
}

fn vocabulary() -> Vocabulary {
    let mut words: Vec<Vec<u8>> = (0..=255u8).map(|byte| vec![byte]).collect();
    words.extend(PIECES.iter().map(|piece| piece.as_bytes().to_vec()));
    // Half of a character, as byte-level vocabularies have them.
    words.push(vec![0xe6, 0x97]);
    words.extend(["<tool>", "<eot>", "<eos>"].map(|name| {
        let mut word = vec![TokTrie::SPECIAL_TOKEN_MARKER];
        word.extend(name.bytes());
        word
    }));
    let size = words.len() as u32;
    let trie = TokTrie::from(&TokRxInfo::new(size, size - 1), &words);
    // Rows past the tokenizer's vocabulary, as padded output heads have them.
    let vocabulary = Vocabulary::new(
        "fuzz",
        Arc::new(Greedy(trie)),
        size + 9,
        vec![size - 2, size - 1],
    );
    vocabulary.expect("the vocabulary is sound")
}

static GRAMMARS: LazyLock<Arc<Grammars>> = LazyLock::new(|| {
    let limits = GrammarLimits {
        cache_bytes: 64 << 20,
        ..GrammarLimits::default()
    };
    Grammars::new(Arc::new(vocabulary()), limits).expect("the vocabulary can be indexed")
});

/// The compiler that all targets share.
pub(crate) fn grammars() -> &'static Arc<Grammars> {
    &GRAMMARS
}

/// The source's grammar, or `None` after a refusal that says what is wrong in its limits of time and length.
pub(crate) fn compile(source: &Source) -> Option<Arc<Grammar>> {
    let begun = Instant::now();
    let outcome = grammars().compile(source);
    let patience = Duration::from_millis(2 * grammars().limits().compile_ms);
    let took = begun.elapsed();
    assert!(took < patience, "{source:?} took {took:?}");
    match outcome {
        Ok(grammar) => Some(grammar),
        Err(failure) => {
            let kinds = [FailureKind::InvalidParams, FailureKind::Unsatisfiable];
            assert!(kinds.contains(&failure.kind), "{source:?}: {failure}");
            assert!(!failure.message.trim().is_empty(), "{source:?}");
            assert!(failure.message.len() <= MAX_MESSAGE_BYTES, "{source:?}");
            None
        }
    }
}
