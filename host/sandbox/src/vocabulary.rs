//! The model's vocabulary as plugins see it.

use sha2::{Digest, Sha256};
use std::sync::{Arc, OnceLock};
use toktrie::{SimpleVob, TokEnv, TokTrie, TokenId, TokenizerEnv};

/// Why a vocabulary cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VocabularyError {
    /// The output head has fewer rows than the tokenizer has tokens.
    #[error("the output head has {size} rows, the tokenizer {tokens} tokens")]
    HeadTooSmall {
        /// Rows of the head.
        size: u32,
        /// Tokens of the tokenizer.
        tokens: usize,
    },
    /// There is no token that ends a turn.
    #[error("the vocabulary names no end token")]
    NoEnd,
    /// An end token lies outside the tokenizer's vocabulary.
    #[error("end token {token} is outside the tokenizer's {tokens} tokens")]
    EndOutOfRange {
        /// The token.
        token: TokenId,
        /// Tokens of the tokenizer.
        tokens: usize,
    },
}

/// The model's vocabulary as plugins see it: cheap to clone, shared.
#[derive(Clone)]
pub struct Vocabulary {
    inner: Arc<Inner>,
}

struct Inner {
    model: String,
    size: u32,
    end: Vec<TokenId>,
    digest: String,
    env: TokEnv,
    /// End tokens, `size` bits.
    ends: SimpleVob,
    /// Tokens that stand for text: neither special, nor an end, nor without bytes; `size` bits.
    text: SimpleVob,
    /// Ids that have a token at all; `size` bits.
    known: SimpleVob,
    flat_trie: OnceLock<Vec<u8>>,
}

impl Vocabulary {
    /// A vocabulary of `size` rows (those of the output head) over the tokenizer `env`; `end` holds every
    /// id that ends a turn.
    ///
    /// # Errors
    /// When the head is smaller than the tokenizer, or `end` is empty or out of range.
    pub fn new(
        model: impl Into<String>,
        env: TokEnv,
        size: u32,
        mut end: Vec<TokenId>,
    ) -> Result<Self, VocabularyError> {
        let tokens = env.tok_trie().vocab_size();
        if (size as usize) < tokens {
            return Err(VocabularyError::HeadTooSmall { size, tokens });
        }
        end.sort_unstable();
        end.dedup();
        if end.is_empty() {
            return Err(VocabularyError::NoEnd);
        }
        if let Some(&token) = end.iter().find(|&&token| token as usize >= tokens) {
            return Err(VocabularyError::EndOutOfRange { token, tokens });
        }
        let env = knowing(env, &end);
        let trie = env.tok_trie();
        let mut ends = SimpleVob::alloc(size as usize);
        for &token in &end {
            ends.allow_token(token);
        }
        let mut text = SimpleVob::alloc(size as usize);
        let mut known = ends.clone();
        for token in 0..tokens as TokenId {
            known.set(
                token as usize,
                known.get(token as usize) || !trie.token(token).is_empty(),
            );
            if is_text(trie.token(token)) && !ends.is_allowed(token) {
                text.allow_token(token);
            }
        }
        Ok(Self {
            inner: Arc::new(Inner {
                model: model.into(),
                size,
                end,
                digest: digest(trie),
                env,
                ends,
                text,
                known,
                flat_trie: OnceLock::new(),
            }),
        })
    }

    /// The model's name.
    pub fn model(&self) -> &str {
        &self.inner.model
    }

    /// Rows of the output head, and bits of every mask.
    pub fn size(&self) -> u32 {
        self.inner.size
    }

    /// Every id that ends a turn, ascending.
    pub fn end(&self) -> &[TokenId] {
        &self.inner.end
    }

    /// SHA-256 (hex) over each token's length (little-endian, 32 bits) and bytes, in order of the ids.
    pub fn digest(&self) -> &str {
        &self.inner.digest
    }

    /// The tokenizer; its trie knows all end tokens.
    pub fn env(&self) -> &TokEnv {
        &self.inner.env
    }

    /// The token trie; it knows all end tokens.
    pub fn trie(&self) -> &TokTrie {
        self.inner.env.tok_trie()
    }

    /// The canonical tokens of `text`; never a special token on account of what the text spells.
    pub fn tokenize(&self, text: &[u8]) -> Vec<TokenId> {
        self.inner.env.tokenize_bytes(text)
    }

    /// The bytes that a token stands for in the output: empty for special and end tokens and for ids
    /// without a token.
    pub fn bytes(&self, token: TokenId) -> &[u8] {
        if self.is_text(token) {
            self.trie().token(token)
        } else {
            &[]
        }
    }

    /// Whether the token stands for text: it is neither special nor an end.
    pub fn is_text(&self, token: TokenId) -> bool {
        token < self.inner.size && self.inner.text.is_allowed(token)
    }

    /// Whether the token ends a turn.
    pub fn is_end(&self, token: TokenId) -> bool {
        token < self.inner.size && self.inner.ends.is_allowed(token)
    }

    /// The ids that have a token, special ones included, as a mask.
    pub(crate) fn known(&self) -> &SimpleVob {
        &self.inner.known
    }

    /// The trie in toktrie's flat layout: its nodes in preorder, the root first, eight bytes each. The
    /// first little-endian word holds the byte (bits 0 to 7) and the token (bits 8 to 31, all ones where
    /// none ends); the second holds the number of parents to climb after the subtree's last node, less
    /// one (bits 0 to 9), and the number of nodes in the subtree (bits 10 to 31).
    pub fn flat_trie(&self) -> &[u8] {
        self.inner.flat_trie.get_or_init(|| flatten(self.trie()))
    }

    /// The end tokens as a mask.
    pub(crate) fn ends(&self) -> &SimpleVob {
        &self.inner.ends
    }

    /// The text tokens as a mask.
    pub(crate) fn text(&self) -> &SimpleVob {
        &self.inner.text
    }
}

impl std::fmt::Debug for Vocabulary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vocabulary")
            .field("model", &self.inner.model)
            .field("size", &self.inner.size)
            .field("digest", &self.inner.digest)
            .finish_non_exhaustive()
    }
}

fn is_text(bytes: &[u8]) -> bool {
    bytes
        .first()
        .is_some_and(|&first| first != TokTrie::SPECIAL_TOKEN_MARKER)
}

fn digest(trie: &TokTrie) -> String {
    let mut hash = Sha256::new();
    for token in 0..trie.vocab_size() as TokenId {
        let bytes = trie.token(token);
        hash.update((bytes.len() as u32).to_le_bytes());
        hash.update(bytes);
    }
    hex(&hash.finalize())
}

fn flatten(trie: &TokTrie) -> Vec<u8> {
    let words = nodes(trie).into_iter().flatten();
    words.flat_map(u32::to_le_bytes).collect()
}

/// A trie's nodes in the layout of [`Vocabulary::flat_trie`], two words each.
pub(crate) fn nodes(trie: &TokTrie) -> Vec<[u32; 2]> {
    let mut nodes = Vec::with_capacity(trie.root().subtree_size());
    let mut stack = vec![trie.root()];
    while let Some(node) = stack.pop() {
        let token = node.token_id().unwrap_or(0x00ff_ffff);
        let parents = (node.num_parents() - 1) as u32;
        let size = node.subtree_size() as u32;
        nodes.push([token << 8 | u32::from(node.byte()), size << 10 | parents]);
        let first = stack.len();
        stack.extend(trie.node_children(node));
        stack[first..].reverse();
    }
    nodes
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The tokenizer with a trie that knows all of `ends`, which are sorted. A trie takes megabytes: where the
/// tokenizer's own knows them, it is the one.
fn knowing(env: TokEnv, ends: &[TokenId]) -> TokEnv {
    let mut known = env.tok_trie().eos_tokens().to_vec();
    known.sort_unstable();
    known.dedup();
    if known == ends {
        return env;
    }
    let trie = env.tok_trie().with_eos_tokens(ends);
    Arc::new(EnvWithEnds { base: env, trie })
}

/// The tokenizer with a trie that knows every end token.
struct EnvWithEnds {
    base: TokEnv,
    trie: TokTrie,
}

impl TokenizerEnv for EnvWithEnds {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, text: &[u8]) -> Vec<TokenId> {
        self.base.tokenize_bytes(text)
    }

    fn tokenize_bytes_marker(&self, text: &[u8]) -> (Vec<TokenId>, usize) {
        self.base.tokenize_bytes_marker(text)
    }

    fn tokenize_bytes_special(&self, text: &[u8]) -> Vec<TokenId> {
        self.base.tokenize_bytes_special(text)
    }

    fn tokenize_is_canonical(&self) -> bool {
        self.base.tokenize_is_canonical()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toktrie::ApproximateTokEnv;

    fn bytes() -> TokEnv {
        ApproximateTokEnv::single_byte_env()
    }

    #[test]
    fn ends_and_specials_are_not_text() {
        let vocabulary = Vocabulary::new("bytes", bytes(), 300, vec![261, 258, 261]).unwrap();
        assert_eq!(vocabulary.end(), [258, 261]);
        assert_eq!(vocabulary.bytes(b'a'.into()), b"a");
        // 255 is the byte that marks special tokens; 256 is special; 299 has a row but no token.
        for token in [255, 256, 261, 299, 300, u32::MAX] {
            assert!(!vocabulary.is_text(token), "{token}");
            assert_eq!(vocabulary.bytes(token), b"", "{token}");
        }
        assert!(vocabulary.is_end(258) && !vocabulary.is_end(257));
        assert_eq!(vocabulary.text().num_set(), 255);
        assert_eq!(vocabulary.trie().eos_tokens(), [258, 261]);
    }

    #[test]
    fn the_digest_tells_vocabularies_apart() {
        let one = Vocabulary::new("one", bytes(), 262, vec![261]).unwrap();
        let same = Vocabulary::new("other name", bytes(), 320, vec![260]).unwrap();
        assert_eq!(one.digest(), same.digest());
        assert_eq!(one.digest().len(), 64);
        let trie = TokTrie::from(
            &toktrie::TokRxInfo::new(2, 1),
            &[b"a".to_vec(), b"\xff<end>".to_vec()],
        );
        let small = Vocabulary::new("small", Arc::new(ApproximateTokEnv::new(trie)), 2, vec![1]);
        assert_ne!(small.unwrap().digest(), one.digest());
    }

    #[test]
    fn the_flat_trie_spells_every_token() {
        let words = ["a", "ab", "abc", "b", "\u{e9}"].map(|word| word.as_bytes().to_vec());
        let trie = TokTrie::from(&toktrie::TokRxInfo::new(5, 4), &words);
        let env = Arc::new(ApproximateTokEnv::new(trie));
        let vocabulary = Vocabulary::new("small", env, 5, vec![4]).unwrap();
        let flat = vocabulary.flat_trie();
        let word = |at: usize| u32::from_le_bytes(flat[at..at + 4].try_into().unwrap());
        let (mut path, mut found) = (Vec::new(), Vec::new());
        for node in 1..flat.len() / 8 {
            let (bits, shape) = (word(node * 8), word(node * 8 + 4));
            path.push(bits as u8);
            if bits >> 8 != 0x00ff_ffff {
                found.push((bits >> 8, path.clone()));
            }
            if shape >> 10 == 1 {
                path.truncate(path.len() - ((shape & 0x3ff) as usize + 1));
            }
        }
        found.sort();
        assert_eq!(found, (0..).zip(words).collect::<Vec<_>>());
    }

    #[test]
    fn impossible_vocabularies_are_refused() {
        let check = |size, end, message: &str| {
            let error = Vocabulary::new("m", bytes(), size, end).unwrap_err();
            assert_eq!(error.to_string(), message);
        };
        check(
            100,
            vec![261],
            "the output head has 100 rows, the tokenizer 262 tokens",
        );
        check(262, vec![], "the vocabulary names no end token");
        check(
            300,
            vec![270],
            "end token 270 is outside the tokenizer's 262 tokens",
        );
    }
}
