//! Vocabularies of three kinds, byte-exact for every id, and the same constraints under each: byte-level BPE of
//! 49,152 and of 131,072 tokens, and SentencePiece. What each token's bytes are is read from the vocabulary's
//! own file, by other code than the tokenizer's.

// Tests may panic; the lint's own exception knows test functions only, not their helpers.
#![allow(clippy::unwrap_used)]

mod files;
mod gguf;
mod golden;
mod walks;

use files::{Expected, Kind};
use formwork_engine::TokenId;
use formwork_model::{SpecialTokens, Tokenizer};
use toktrie::TokTrie;

/// Texts that vocabularies cut in many ways: scripts, astral characters, joiners, controls, invalid UTF-8.
const TEXTS: &[&[u8]] = &[
    "日本語と中文、한국어 ภาษาไทย עברית".as_bytes(),
    "🦀👍🏽 👨\u{200d}👩\u{200d}👧 𝔘𝔫𝔦 𐍈 \u{10FFFF}".as_bytes(),
    "naïve café Straße ÄÖÜß ǅ e\u{301}".as_bytes(),
    b"\x00\x01\x1b[0m\x7f \t\r\n  \x0b\x0c",
    b"{\"a\": [1, -2.5e3, null],\n\t\"b\": \"\\u00e9\"}",
    b" leading and trailing  ",
    "▁ <0x41> Ġ </s> <|im_end|> [INST]".as_bytes(),
    b"\xff\xfe\x80 \xe6\x97 \xf0\x9f\xa6",
    b"",
];

fn check_every_id(tokenizer: &Tokenizer, expected: &Expected) {
    let env = tokenizer.tok_env();
    let trie = env.tok_trie();
    assert_eq!(tokenizer.vocab_size(), expected.tokens.len());
    assert_eq!(trie.vocab_size(), expected.tokens.len());
    let mut wrong = Vec::new();
    for (id, (bytes, kind)) in (0..).zip(&expected.tokens) {
        let special = *kind == Kind::Special;
        let marker = special.then_some(TokTrie::SPECIAL_TOKEN_MARKER);
        let in_trie: Vec<u8> = marker.into_iter().chain(bytes.iter().copied()).collect();
        let decoded = if special { &[][..] } else { bytes };
        let right = tokenizer.bytes(id).as_ref() == Some(bytes)
            && tokenizer.is_special(id) == special
            && trie.token(id) == in_trie
            && tokenizer.decode(&[id]) == decoded;
        let again = special || {
            let tokens = tokenizer.encode_bytes(bytes);
            tokenizer.decode(&tokens) == *bytes && env.tokenize_bytes(bytes) == tokens
        };
        if !right || !again {
            wrong.push((id, bytes.escape_ascii().to_string(), *kind));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} ids: {:?}",
        wrong.len(),
        &wrong[..wrong.len().min(9)]
    );
    assert_eq!(tokenizer.bytes(expected.tokens.len() as TokenId), None);
    assert_eq!(tokenizer.end_tokens(), expected.end);
    assert_eq!(trie.eos_tokens(), expected.end);
}

fn check_texts(tokenizer: &Tokenizer, expected: &Expected) {
    let missing = tokenizer.missing_bytes();
    assert_eq!(missing, expected.missing_bytes());
    for text in TEXTS {
        let spelled: Vec<u8> = text
            .iter()
            .copied()
            .filter(|byte| !missing.contains(byte))
            .collect();
        let tokens = tokenizer.encode_bytes(text);
        assert!(
            tokens.iter().all(|&token| !tokenizer.is_special(token)),
            "{}",
            text.escape_ascii()
        );
        assert_eq!(
            tokenizer.decode(&tokens),
            spelled,
            "{}",
            text.escape_ascii()
        );
    }
    for (text, tokens) in expected.golden {
        assert_eq!(
            tokenizer.encode(text, SpecialTokens::AsText),
            *tokens,
            "{text:?}"
        );
    }
}

fn check(expected: &Expected) {
    let model = gguf::model(expected);
    let tokenizer = model.tokenizer();
    check_every_id(tokenizer, expected);
    check_texts(tokenizer, expected);
    walks::check(tokenizer);
}

#[test]
fn byte_level_of_131_072_tokens() {
    if let Some(expected) = files::tekken() {
        assert_eq!(expected.tokens.len(), 131_072);
        check(&expected);
    }
}

#[test]
fn sentence_piece_of_32_768_tokens() {
    if let Some(expected) = files::sentence_piece() {
        assert_eq!(expected.tokens.len(), 32_768);
        check(&expected);
    }
}

#[test]
fn byte_level_of_49_152_tokens() {
    let Some((model, expected)) = files::smollm2() else {
        return;
    };
    assert_eq!(expected.tokens.len(), 49_152);
    check_every_id(model.tokenizer(), &expected);
    check_texts(model.tokenizer(), &expected);
    walks::check(model.tokenizer());
}

#[test]
fn a_vocabulary_read_as_the_other_kind_is_noticed() {
    // What the check is for: one token's bytes read in the other kind's way.
    let Some(mut expected) = files::sentence_piece() else {
        return;
    };
    let model = gguf::model(&expected);
    let space = expected
        .tokens
        .iter()
        .position(|(bytes, _)| bytes.starts_with(b" t"));
    let token = space.expect("some token begins with a space");
    expected.tokens[token].0 = "▁t".into();
    let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        check_every_id(model.tokenizer(), &expected);
    }));
    assert!(checked.is_err());
}
