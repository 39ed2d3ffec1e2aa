//! The same constraints under each vocabulary, to valid outputs.

use formwork_engine::TokenId;
use formwork_model::Tokenizer;
use formwork_sandbox::{Grammar, GrammarLimits, Grammars, Source, Vocabulary};
use serde_json::Value;
use std::sync::Arc;

const SCHEMA: &str = r#"{"type":"object","properties":{
    "kind":{"enum":["日本語","中文、","🦀👍🏽","𝔘𝔫𝔦","é\t","naïve"]},
    "name":{"type":"string","pattern":"^[äöüß]{2,5}$"},
    "note":{"type":"string","maxLength":6},
    "size":{"type":"integer","minimum":-5,"maximum":120}},
    "required":["kind","name","note","size"],"additionalProperties":false}"#;

const KINDS: [&str; 6] = ["日本語", "中文、", "🦀👍🏽", "𝔘𝔫𝔦", "é\t", "naïve"];

fn is_umlauts(text: &str) -> bool {
    (2..=5).contains(&text.chars().count()) && text.chars().all(|c| "äöüß".contains(c))
}

fn is_in_schema(text: &str) -> bool {
    let Ok(value) = serde_json::from_str::<Value>(text) else {
        return false;
    };
    let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
    KINDS.contains(&text("kind").as_str())
        && is_umlauts(&text("name"))
        && text("note").chars().count() <= 6
        // `-0` is an integer too.
        && value["size"].as_f64().is_some_and(|size| size.fract() == 0.0 && (-5.0..=120.0).contains(&size))
        && value.as_object().is_some_and(|map| map.len() == 4)
}

/// Sources, what tells their language by other means, and texts that are in it.
type Constraint = (Source, fn(&str) -> bool, &'static [&'static str]);

fn constraints() -> [Constraint; 4] {
    [
        (
            Source::JsonSchema(SCHEMA.into()),
            is_in_schema,
            &[
                r#"{"kind":"🦀👍🏽","name":"äßö","note":"日\n\"x","size":-5}"#,
                r#"{"kind":"é\t","name":"üü","note":"","size":120}"#,
            ],
        ),
        (
            Source::Regex("[äöüß]{2,5}".into()),
            is_umlauts,
            &["äöüß", "ßß"],
        ),
        (
            Source::Choice(KINDS.map(String::from).to_vec()),
            |text| KINDS.contains(&text),
            &KINDS,
        ),
        (
            Source::Regex(r"(\p{Han}|[🦀-🦎]|é){1,4}\x01?".into()),
            |text| {
                let body = text.strip_suffix('\u{1}').unwrap_or(text);
                let han = |c: char| !c.is_ascii() && (c.is_alphabetic() || c >= '\u{2e80}');
                (1..=4).contains(&body.chars().count()) && body.chars().all(han)
            },
            &["日本語é", "🦀", "é\u{1}"],
        ),
    ]
}

/// A random walk, each token under the mask of its place; the text it ends with.
fn walk(grammar: &Arc<Grammar>, seed: u64) -> String {
    let vocabulary = grammar.vocabulary().clone();
    let (mut matcher, mut state, mut text) = (grammar.start(), seed, Vec::new());
    for _ in 0..400 {
        let mask = matcher.mask().unwrap();
        let accepting = matcher.accepting();
        for token in 0..vocabulary.size() {
            let special = !vocabulary.is_text(token);
            let allowed = mask.is_allowed(token);
            assert!(
                !special || allowed == (accepting && vocabulary.is_end(token)),
                "{token}"
            );
        }
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let allowed = mask.to_list();
        let token = allowed[(state >> 33) as usize % allowed.len()];
        matcher.commit(token).unwrap();
        if vocabulary.is_end(token) {
            return String::from_utf8(text).unwrap();
        }
        text.extend_from_slice(vocabulary.bytes(token));
    }
    panic!("the walk does not end: {}", String::from_utf8_lossy(&text));
}

/// The tokens can be committed one after the other, and complete the text.
fn takes(grammar: &Arc<Grammar>, tokens: &[TokenId]) -> bool {
    let mut matcher = grammar.start();
    tokens.iter().all(|&token| matcher.commit(token).is_ok()) && matcher.accepting()
}

pub(crate) fn check(tokenizer: &Tokenizer) {
    let end = tokenizer.end_tokens().to_vec();
    // As many rows as there are tokens, and padding.
    let rows = tokenizer.vocab_size() as u32 + 64;
    let vocabulary = Vocabulary::new("m", tokenizer.tok_env(), rows, end).unwrap();
    let grammars = Grammars::new(Arc::new(vocabulary), GrammarLimits::default()).unwrap();
    let single = |byte: u8| {
        let ids = 0..tokenizer.vocab_size() as TokenId;
        let mut ids = ids.filter(|&id| !tokenizer.is_special(id));
        ids.find(|&id| tokenizer.bytes(id) == Some(vec![byte]))
    };
    for (source, holds, texts) in constraints() {
        let grammar = grammars.compile(&source).unwrap();
        for seed in 0..12 {
            let text = walk(&grammar, seed);
            assert!(holds(&text), "{source:?} allowed {text:?}");
        }
        for text in texts {
            let missing = tokenizer.missing_bytes();
            if text.bytes().any(|byte| missing.contains(&byte)) {
                continue;
            }
            assert!(holds(text), "{text:?}");
            let tokens = tokenizer.encode_bytes(text.as_bytes());
            assert!(
                takes(&grammar, &tokens),
                "{source:?} does not take {text:?}"
            );
            let bytes: Vec<_> = text.bytes().filter_map(single).collect();
            assert!(takes(&grammar, &bytes), "{text:?} byte by byte");
            if text.chars().last().is_some_and(|last| last.len_utf8() > 1) {
                let torn = &bytes[..bytes.len() - 1];
                assert!(!takes(&grammar, torn), "{text:?} amid a character");
            }
        }
    }
}
