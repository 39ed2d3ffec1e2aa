//! Text to tokens and back, byte-exact.

mod build;
mod bytes;
mod env;
mod pre;
mod shared;
#[cfg(test)]
mod tests;

pub(crate) use build::{GgufVocabulary, JsonSettings, TokenType};

use crate::ModelError;
use formwork_engine::TokenId;
use shared::Cutter;
use std::sync::Arc;
use toktrie::{TokEnv, TokRxInfo, TokTrie};

/// How a byte-level vocabulary writes a single byte.
pub(crate) fn byte_text(byte: u8) -> String {
    bytes::byte_to_char(byte).into()
}

/// What to do with the names of special tokens in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialTokens {
    /// The name becomes the token: for text that a chat template made.
    Parse,
    /// The name stays plain text: for text from outside.
    AsText,
}

/// A vocabulary and the way to cut text into it.
pub struct Tokenizer {
    /// Knows the special tokens.
    parsing: Cutter,
    /// Takes special tokens for text.
    literal: Arc<Cutter>,
    /// As `literal`, without the space that some vocabularies put in front.
    raw: Arc<Cutter>,
    vocabulary: Arc<Vocabulary>,
    bos: Option<TokenId>,
    add_bos: bool,
    end: Vec<TokenId>,
    env: TokEnv,
}

/// What every token stands for.
struct Vocabulary {
    /// Knows each token's bytes. Those of special tokens are their names behind a marker; ids that stand
    /// for nothing have none.
    trie: TokTrie,
    special: Vec<bool>,
    /// The token of each single byte, where there is one.
    byte_tokens: Vec<Option<TokenId>>,
}

impl Vocabulary {
    /// From the bytes of each token, names of special ones; `end` has at least one token.
    fn new(mut bytes: Vec<Vec<u8>>, special: Vec<bool>, end: &[TokenId]) -> Self {
        let byte_tokens = byte_tokens(&bytes, &special);
        for (bytes, _) in bytes
            .iter_mut()
            .zip(&special)
            .filter(|&(_, &special)| special)
        {
            bytes.insert(0, TokTrie::SPECIAL_TOKEN_MARKER);
        }
        let info = TokRxInfo::new(bytes.len() as u32, end[0]);
        Self {
            trie: TokTrie::from(&info, &bytes).with_eos_tokens(end),
            special,
            byte_tokens,
        }
    }

    fn bytes(&self, token: TokenId) -> Option<&[u8]> {
        let &special = self.special.get(token as usize)?;
        Some(&self.trie.token(token)[usize::from(special)..])
    }
}

impl Tokenizer {
    /// Tokens of `text`. Neither BOS nor EOS is added.
    #[must_use]
    pub fn encode(&self, text: &str, special: SpecialTokens) -> Vec<TokenId> {
        match special {
            SpecialTokens::Parse => encode(&self.parsing, text, &self.vocabulary),
            SpecialTokens::AsText => encode(&self.literal, text, &self.vocabulary),
        }
    }

    /// Tokens of any bytes, invalid UTF-8 included; never special tokens. Their bytes, put together,
    /// are `bytes` again, but for [missing bytes](Tokenizer::missing_bytes), which are left out.
    #[must_use]
    pub fn encode_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        encode_bytes(&self.raw, &self.vocabulary, bytes)
    }

    /// The bytes of `tokens`, special tokens and unknown ids left out.
    #[must_use]
    pub fn decode(&self, tokens: &[TokenId]) -> Vec<u8> {
        let mut out = Vec::new();
        for &token in tokens.iter().filter(|&&token| !self.is_special(token)) {
            if let Some(bytes) = self.vocabulary.bytes(token) {
                out.extend_from_slice(bytes);
            }
        }
        out
    }

    /// The bytes of one token: a special token's are its name's. `None` past the vocabulary.
    #[must_use]
    pub fn bytes(&self, token: TokenId) -> Option<Vec<u8>> {
        self.vocabulary.bytes(token).map(<[u8]>::to_vec)
    }

    /// Bytes that no sequence of tokens spells: small vocabularies lack some control characters and
    /// bytes that are rare in UTF-8.
    #[must_use]
    pub fn missing_bytes(&self) -> Vec<u8> {
        (0..=255)
            .filter(|&byte: &u8| self.vocabulary.byte_tokens[usize::from(byte)].is_none())
            .collect()
    }

    /// Whether the token has a meaning rather than a text.
    #[must_use]
    pub fn is_special(&self, token: TokenId) -> bool {
        self.vocabulary
            .special
            .get(token as usize)
            .is_some_and(|&special| special)
    }

    /// The token that opens a text.
    #[must_use]
    pub fn bos(&self) -> Option<TokenId> {
        self.bos
    }

    /// Whether the model wants [`Tokenizer::bos`] in front of every prompt. Chat templates that print
    /// it themselves make it superfluous.
    #[must_use]
    pub fn add_bos(&self) -> bool {
        self.add_bos
    }

    /// Tokens that end an answer; at least one.
    #[must_use]
    pub fn end_tokens(&self) -> &[TokenId] {
        &self.end
    }

    /// Tokens in the vocabulary. A row of logits may be longer; what is past it must not be sampled.
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        self.vocabulary.special.len()
    }

    /// The vocabulary as a trie, in which special tokens carry toktrie's marker byte 0xFF, together
    /// with the canonical tokenization of [`Tokenizer::encode_bytes`].
    #[must_use]
    pub fn tok_env(&self) -> TokEnv {
        Arc::clone(&self.env)
    }
}

fn encode(tokenizer: &Cutter, text: &str, vocabulary: &Vocabulary) -> Vec<TokenId> {
    match tokenizer.encode_fast(text, false) {
        Ok(encoding) => encoding.get_ids().to_vec(),
        Err(error) => {
            // Regular expressions can run out of stack on hostile text; bytes always work.
            tracing::warn!(%error, bytes = text.len(), "text cannot be tokenized; its bytes are used");
            byte_by_byte(vocabulary, text.as_bytes()).collect()
        }
    }
}

fn byte_by_byte<'a>(
    vocabulary: &'a Vocabulary,
    bytes: &'a [u8],
) -> impl Iterator<Item = TokenId> + 'a {
    bytes
        .iter()
        .filter_map(|&byte| vocabulary.byte_tokens[usize::from(byte)])
}

fn encode_bytes(tokenizer: &Cutter, vocabulary: &Vocabulary, bytes: &[u8]) -> Vec<TokenId> {
    let mut out = Vec::new();
    for chunk in bytes.utf8_chunks() {
        if !chunk.valid().is_empty() {
            out.extend(encode_exactly(tokenizer, vocabulary, chunk.valid()));
        }
        out.extend(byte_by_byte(vocabulary, chunk.invalid()));
    }
    out
}

/// SentencePiece writes a space as a character of its own, and takes that character for a space. Here it is
/// spelled by its bytes then.
fn encode_exactly(tokenizer: &Cutter, vocabulary: &Vocabulary, text: &str) -> Vec<TokenId> {
    let tokens = encode(tokenizer, text, vocabulary);
    let is_marked = text.contains(build::SPACE);
    let spelled = || tokens.iter().filter_map(|&token| vocabulary.bytes(token));
    if !is_marked || spelled().flatten().eq(text.as_bytes()) {
        return tokens;
    }
    let marker = build::SPACE.to_string();
    let mut tokens = Vec::new();
    for (index, part) in text.split(build::SPACE).enumerate() {
        if index > 0 {
            tokens.extend(byte_by_byte(vocabulary, marker.as_bytes()));
        }
        tokens.extend(encode(tokenizer, part, vocabulary));
    }
    tokens
}

/// What a [`Tokenizer`] is put together from.
struct Parts {
    parsing: Cutter,
    /// The tokenizer without a prefix space, where that makes a difference.
    raw: Option<Cutter>,
    bytes: Vec<Vec<u8>>,
    special: Vec<bool>,
    bos: Option<TokenId>,
    add_bos: bool,
    end: Vec<TokenId>,
}

impl Parts {
    fn finish(self) -> Result<Tokenizer, ModelError> {
        if self.end.is_empty() {
            return Err(ModelError::Tokenizer("the model names no end token".into()));
        }
        let size = self.bytes.len();
        if let Some(&id) = self
            .end
            .iter()
            .chain(&self.bos)
            .find(|&&id| id as usize >= size)
        {
            return Err(ModelError::Tokenizer(format!(
                "special token {id} is outside the vocabulary of {size}"
            )));
        }
        let vocabulary = Arc::new(Vocabulary::new(self.bytes, self.special, &self.end));
        let literally = |mut cutter: Cutter| {
            cutter.set_encode_special_tokens(true);
            Arc::new(cutter)
        };
        let literal = literally(self.parsing.clone());
        let raw = self.raw.map_or_else(|| Arc::clone(&literal), literally);
        let env = env::Env {
            cutter: Arc::clone(&raw),
            vocabulary: Arc::clone(&vocabulary),
        };
        Ok(Tokenizer {
            parsing: self.parsing,
            literal,
            raw,
            vocabulary,
            bos: self.bos,
            add_bos: self.add_bos,
            end: self.end,
            env: Arc::new(env),
        })
    }
}

/// The token of each byte.
fn byte_tokens(bytes: &[Vec<u8>], special: &[bool]) -> Vec<Option<TokenId>> {
    let mut found: Vec<Option<TokenId>> = vec![None; 256];
    // From the end, so that the lowest id wins.
    for (id, bytes) in bytes.iter().enumerate().rev() {
        if let [byte] = bytes[..]
            && !special[id]
        {
            found[usize::from(byte)] = Some(id as TokenId);
        }
    }
    found
}
