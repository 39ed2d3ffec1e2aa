//! The generated tokens as the context should have them, and the text they spell.

use formwork_engine::{After, Edit, TokenId};
use formwork_sandbox::{Failure, FailureKind, Vocabulary};
use std::ops::Range;

/// Tokens looked at on the left of a seam. More make no difference in practice: a token that merges with
/// the text after it is the last one, or one of a few short ones.
const SEAM: usize = 4;

/// Generated tokens with their byte offsets, and how far they still equal the engine's.
pub(super) struct Output {
    vocabulary: Vocabulary,
    tokens: Vec<TokenId>,
    /// Offset of the end of each token's text.
    ends: Vec<usize>,
    /// Leading tokens that the engine has too.
    shared: usize,
}

impl Output {
    pub(super) fn new(vocabulary: Vocabulary) -> Self {
        Self {
            vocabulary,
            tokens: Vec::new(),
            ends: Vec::new(),
            shared: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Bytes of the text.
    pub(super) fn bytes(&self) -> usize {
        self.offset_of(self.len())
    }

    /// Offset of the first byte after the first `tokens`.
    pub(super) fn offset_of(&self, tokens: usize) -> usize {
        tokens.checked_sub(1).map_or(0, |last| self.ends[last])
    }

    /// How many leading tokens end at or before byte `offset`.
    pub(super) fn tokens_before(&self, offset: usize) -> usize {
        self.ends.partition_point(|&end| end <= offset)
    }

    /// The text from byte `offset` on.
    pub(super) fn text_from(&self, offset: usize) -> Vec<u8> {
        let first = self.tokens_before(offset);
        let start = self.offset_of(first);
        let mut text = self.spell(&self.tokens[first..]);
        text.drain(..(offset - start).min(text.len()));
        text
    }

    pub(super) fn spell(&self, tokens: &[TokenId]) -> Vec<u8> {
        tokens
            .iter()
            .flat_map(|&token| self.vocabulary.bytes(token))
            .copied()
            .collect()
    }

    /// Some of the tokens; an end before the start is an empty range.
    pub(super) fn tokens(&self, range: Range<usize>) -> &[TokenId] {
        self.tokens.get(range).unwrap_or_default()
    }

    /// Appends a token that the engine has appended too.
    pub(super) fn push_sampled(&mut self, token: TokenId) {
        self.push(token);
        self.shared = self.len();
    }

    /// Appends a token that the engine does not have yet.
    pub(super) fn push(&mut self, token: TokenId) {
        let end = self.bytes() + self.vocabulary.bytes(token).len();
        self.tokens.push(token);
        self.ends.push(end);
    }

    /// Keeps the first `tokens`.
    pub(super) fn truncate(&mut self, tokens: usize) {
        self.tokens.truncate(tokens);
        self.ends.truncate(tokens);
        self.shared = self.shared.min(self.len());
    }

    /// Up to [`SEAM`] tokens at the end, but none of the first `from`.
    pub(super) fn tail(&self, from: usize) -> Vec<TokenId> {
        self.tokens[self.len().saturating_sub(SEAM).max(from.min(self.len()))..].to_vec()
    }

    /// Appends text. It is tokenised together with the tokens before it, as far as these are canonical
    /// themselves, so that the seam looks as it would in a text tokenised as a whole.
    ///
    /// # Errors
    /// `Unsatisfiable` when the vocabulary cannot spell the text: some have no token for some bytes.
    pub(super) fn write(&mut self, text: &[u8]) -> Result<(), Failure> {
        let mut tail = self.tail(0);
        while !tail.is_empty() && self.vocabulary.tokenize(&self.spell(&tail)) != tail {
            tail.remove(0);
        }
        let mut whole = self.spell(&tail);
        whole.extend_from_slice(text);
        let tokens = self.vocabulary.tokenize(&whole);
        if self.spell(&tokens) != whole {
            return Err(unspellable(&whole));
        }
        let base = self.len() - tail.len();
        self.replace(base, &tokens);
        Ok(())
    }

    /// Puts `tokens` in the place of everything past the first `base`.
    pub(super) fn replace(&mut self, base: usize, tokens: &[TokenId]) {
        let same = self.tokens[base..]
            .iter()
            .zip(tokens)
            .take_while(|(a, b)| a == b)
            .count();
        self.truncate(base + same);
        tokens[same..].iter().for_each(|&token| self.push(token));
    }

    /// What the engine has to do so that it has these tokens too.
    pub(super) fn edit(&mut self, released: usize, after: After) -> Edit {
        let append = self.tokens[self.shared..].to_vec();
        let len = self.len();
        let keep = std::mem::replace(&mut self.shared, len);
        Edit {
            keep,
            append,
            released: released.min(len),
            after,
        }
    }
}

/// The vocabulary has no tokens for a text that must be written.
pub(super) fn unspellable(text: &[u8]) -> Failure {
    let text = text.escape_ascii();
    Failure::new(
        FailureKind::Unsatisfiable,
        format!("the model's vocabulary has no tokens that spell \"{text}\""),
    )
}
