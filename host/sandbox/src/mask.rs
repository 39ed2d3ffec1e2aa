//! Sets of tokens.

use crate::Vocabulary;
use toktrie::recognizer::{AnythingGoes, StackRecognizer};
use toktrie::{SimpleVob, TokenId};

/// The text tokens of a mask over the tokenizer's ids, over all rows of the vocabulary.
pub(crate) fn widen(vocabulary: &Vocabulary, mask: &SimpleVob) -> SimpleVob {
    let mut wide = SimpleVob::alloc(vocabulary.size() as usize);
    wide.or(mask);
    wide.and(vocabulary.text());
    wide
}

/// All text and end tokens.
pub(crate) fn everything(vocabulary: &Vocabulary) -> SimpleVob {
    let mut mask = vocabulary.text().clone();
    mask.or(vocabulary.ends());
    mask
}

/// The given tokens, special ones included since they are named; ids without a token are left out.
pub(crate) fn only(vocabulary: &Vocabulary, tokens: &[TokenId]) -> SimpleVob {
    let mut mask = SimpleVob::alloc(vocabulary.size() as usize);
    for &token in tokens {
        if token < vocabulary.size() {
            mask.allow_token(token);
        }
    }
    mask.and(vocabulary.known());
    mask
}

/// The mask with these bits, one per token, least significant first. Bits past the vocabulary and of
/// ids without a token are cleared.
pub(crate) fn from_bits(vocabulary: &Vocabulary, words: &[u32]) -> Result<SimpleVob, String> {
    let expected = (vocabulary.size() as usize).div_ceil(32);
    if words.len() != expected {
        return Err(format!(
            "a mask over {} tokens has {expected} words, not {}",
            vocabulary.size(),
            words.len()
        ));
    }
    let mut mask = vocabulary.known().clone();
    vocabulary.known().iter_set_entries(|token| {
        if words[token / 32] >> (token % 32) & 1 == 0 {
            mask.set(token, false);
        }
    });
    Ok(mask)
}

/// The text tokens whose bytes are a beginning of `text` or begin with it.
pub fn along(vocabulary: &Vocabulary, text: &[u8]) -> SimpleVob {
    let trie = vocabulary.trie();
    let mut mask = trie.alloc_token_set();
    let mut anything = StackRecognizer::from(AnythingGoes {});
    trie.add_bias(&mut anything, &mut mask, text);
    widen(vocabulary, &mask)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use toktrie::{ApproximateTokEnv, TokRxInfo, TokTrie};

    /// Tokens `a`, `ab`, `abc`, `b`, a special one, one without bytes and an end; 40 rows.
    fn vocabulary() -> Vocabulary {
        let words: [&[u8]; 7] = [b"a", b"ab", b"abc", b"b", b"\xff<tool>", b"", b"\xff<end>"];
        let words = words.map(<[u8]>::to_vec);
        let trie = TokTrie::from(&TokRxInfo::new(7, 6), &words);
        Vocabulary::new("m", Arc::new(ApproximateTokEnv::new(trie)), 40, vec![6]).unwrap()
    }

    #[test]
    fn along_takes_beginnings_and_what_goes_beyond() {
        let check = |text: &str, tokens: &[TokenId]| {
            let mask = along(&vocabulary(), text.as_bytes());
            assert_eq!(
                (mask.len(), mask.to_list()),
                (40, tokens.to_vec()),
                "{text}"
            );
        };
        check("ab", &[0, 1, 2]);
        check("abx", &[0, 1]);
        check("b", &[3]);
        check("x", &[]);
        check("", &[0, 1, 2, 3]);
        let marker = along(&vocabulary(), b"\xff<tool>");
        assert!(marker.is_zero());
    }

    #[test]
    fn sets_hold_no_more_than_the_vocabulary() {
        let vocabulary = vocabulary();
        assert_eq!(everything(&vocabulary).to_list(), [0, 1, 2, 3, 6]);
        let named = only(&vocabulary, &[3, 4, 5, 6, 7, 39, 40, u32::MAX, 3]);
        assert_eq!(named.to_list(), [3, 4, 6]);
        let bits = from_bits(&vocabulary, &[!1, !0]).unwrap();
        assert_eq!(bits.to_list(), [1, 2, 3, 4, 6]);
        assert_eq!(bits.as_slice().len(), 2);
        let error = "a mask over 40 tokens has 2 words, not 3".to_owned();
        assert_eq!(from_bits(&vocabulary, &[0; 3]), Err(error));
    }
}
