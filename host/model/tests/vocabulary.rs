//! The vocabulary is byte-exact: every id, every text.

mod support;

use formwork_engine::TokenId;
use formwork_model::{ChatInputs, Model, SpecialTokens, Tokenizer};
use proptest::prelude::*;
use serde_json::json;
use std::sync::{Arc, LazyLock};
use support::smollm2;
use toktrie::TokTrie;

fn check_every_id(tokenizer: &Tokenizer) {
    let env = tokenizer.tok_env();
    let trie = env.tok_trie();
    assert_eq!(trie.vocab_size(), tokenizer.vocab_size());
    assert!(env.tokenize_is_canonical());
    assert_eq!(trie.eos_tokens(), tokenizer.end_tokens());
    for id in 0..tokenizer.vocab_size() as TokenId {
        let bytes = tokenizer.bytes(id).expect("each id has bytes");
        let in_trie = trie.token(id);
        if tokenizer.is_special(id) {
            assert_eq!(in_trie[0], TokTrie::SPECIAL_TOKEN_MARKER, "token {id}");
            assert_eq!(in_trie[1..], bytes, "token {id}");
            assert!(tokenizer.decode(&[id]).is_empty(), "token {id}");
            let name = String::from_utf8(bytes).expect("a name is text");
            assert_eq!(tokenizer.encode(&name, SpecialTokens::Parse), [id]);
            let literal = tokenizer.encode(&name, SpecialTokens::AsText);
            assert!(literal.iter().all(|&token| !tokenizer.is_special(token)));
            assert_eq!(tokenizer.decode(&literal), name.as_bytes());
        } else {
            assert_eq!(in_trie, bytes, "token {id}");
            assert_eq!(tokenizer.decode(&[id]), bytes, "token {id}");
            let encoded = tokenizer.encode_bytes(&bytes);
            assert_eq!(tokenizer.decode(&encoded), bytes, "token {id}");
            assert_eq!(env.tokenize_bytes(&bytes), encoded, "token {id}");
        }
    }
    assert_eq!(tokenizer.bytes(tokenizer.vocab_size() as TokenId), None);
}

#[test]
fn every_id_of_the_tiny_model() {
    check_every_id(Model::tiny(1).tokenizer());
}

#[test]
fn every_id_of_a_real_model() {
    if let Some(model) = smollm2() {
        check_every_id(model.tokenizer());
    }
}

static REAL: LazyLock<Option<Arc<Model>>> = LazyLock::new(smollm2);
static TINY: LazyLock<Arc<Model>> = LazyLock::new(|| Arc::new(Model::tiny(1)));

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_bytes_come_back(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        for model in std::iter::once(&*TINY).chain(REAL.as_ref()) {
            let tokenizer = model.tokenizer();
            let missing = tokenizer.missing_bytes();
            let want: Vec<u8> =
                bytes.iter().copied().filter(|byte| !missing.contains(byte)).collect();
            let got = tokenizer.decode(&tokenizer.encode_bytes(&bytes));
            prop_assert_eq!(got, want);
        }
    }

    #[test]
    fn any_text_comes_back(text in "\\PC{0,40}|[a-z \\n\\t0-9<|>_]{0,60}") {
        for model in std::iter::once(&*TINY).chain(REAL.as_ref()) {
            let tokenizer = model.tokenizer();
            let missing = tokenizer.missing_bytes();
            if text.bytes().any(|byte| missing.contains(&byte)) {
                continue;
            }
            let tokens = tokenizer.encode(&text, SpecialTokens::AsText);
            prop_assert_eq!(tokenizer.decode(&tokens), text.as_bytes());
            prop_assert_eq!(tokenizer.encode_bytes(text.as_bytes()), tokens);
        }
    }
}

#[test]
fn a_real_vocabulary_cuts_text_as_it_was_trained_to() {
    let Some(model) = smollm2() else { return };
    let tokenizer = model.tokenizer();
    for (text, want) in [
        (
            "Hello world, it's 2026!",
            "Hello| world|,| it|'s| |2|0|2|6|!",
        ),
        ("x = 1234567.89", "x| =| |1|2|3|4|5|6|7|.|8|9"),
        ("  two  spaces\n\n\ttab", " | two| | spaces|\n\n|\t|tab"),
        ("don't WE'LL", "don|'t| WE|'|LL"),
        ("naïve café", "na|ïve| café"),
        ("<|im_end|>", "<|||im|_|end|||>"),
    ] {
        let tokens = tokenizer.encode(text, SpecialTokens::AsText);
        let pieces = tokens.iter().map(|&token| tokenizer.bytes(token).unwrap());
        let pieces: Vec<_> = pieces
            .map(|bytes| String::from_utf8(bytes).unwrap())
            .collect();
        assert_eq!(pieces.join("|"), want);
    }
    assert_eq!(tokenizer.end_tokens(), [2, 0]);
    assert_eq!(tokenizer.bos(), Some(1));
    assert!(!tokenizer.add_bos());
}

#[test]
fn a_real_chat_template_renders() {
    let Some(model) = smollm2() else { return };
    let text = model.chat_template().unwrap().render(&ChatInputs {
        messages: &json!([{"role": "user", "content": "Hi"}]),
        tools: None,
        add_generation_prompt: true,
        date: "2026-01-31",
        extra: serde_json::Map::new(),
    });
    assert_eq!(
        text.unwrap(),
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging \
         Face<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    );
}
