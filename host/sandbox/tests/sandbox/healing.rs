//! Token healing: the seam between a context and a grammar's text.

use crate::world::{grammars, greedy, pieces};
use formwork_sandbox::{Matcher, Source, TokenId, Vocabulary};
use proptest::prelude::*;

fn text(vocabulary: &Vocabulary, tokens: &[TokenId]) -> Vec<u8> {
    tokens
        .iter()
        .flat_map(|&token| vocabulary.bytes(token).to_vec())
        .collect()
}

/// A walk of `regex` after a context that ends in `tail`, and the tail's tokens before and after.
fn healed(regex: &str, tail: &str) -> (Matcher, Vec<TokenId>, Vec<TokenId>) {
    let vocabulary = greedy();
    let tail = vocabulary.tokenize(tail.as_bytes());
    let mut matcher = grammars(vocabulary)
        .compile(&Source::Regex(regex.into()))
        .unwrap()
        .start();
    let healed = matcher.start_after(&tail).unwrap();
    (matcher, tail, healed)
}

#[test]
fn the_first_token_may_span_the_seam() {
    let (mut matcher, _, kept) = healed("bc[0-9]x", "xa");
    let vocabulary = matcher.grammar().vocabulary().clone();
    // The grammar forces "bc": "abc" is how the tokenizer spells it after "x".
    assert_eq!(text(&vocabulary, &kept), b"xabc");
    assert_eq!(matcher.forced(), b"");
    let (mut matcher, _, kept) = healed("b[cd]?", "xa");
    assert_eq!(text(&vocabulary, &kept), b"x");
    let mut starts: Vec<_> = matcher
        .mask()
        .unwrap()
        .iter()
        .map(|token| String::from_utf8(vocabulary.bytes(token).to_vec()).unwrap())
        .collect();
    starts.sort();
    assert_eq!(starts, ["a", "ab", "abc"]);
    let abc = vocabulary.tokenize(b"abc")[0];
    matcher.commit(abc).unwrap();
    assert!(matcher.stopped());
    matcher.rollback(1).unwrap();
    let ab = vocabulary.tokenize(b"ab")[0];
    matcher.commit(ab).unwrap();
    assert!(matcher.accepting() && !matcher.stopped());
    matcher.commit(b'c'.into()).unwrap();
    assert!(matcher.commit(b'c'.into()).is_err() && matcher.stopped());
}

#[test]
fn a_seam_that_cannot_be_spanned_stays() {
    let (_, tail, kept) = healed("[0-9]", "]}");
    assert_eq!(tail, kept);
    let vocabulary = pieces();
    let tail = vocabulary.tokenize(b"xa");
    let source = Source::Regex("b".into());
    let mut matcher = grammars(vocabulary).compile(&source).unwrap().start();
    // Not canonical: nothing can be promised.
    assert_eq!(matcher.start_after(&tail).unwrap(), tail);
    matcher.commit(b'b'.into()).unwrap();
    assert!(
        matcher
            .start_after(&tail)
            .unwrap_err()
            .message
            .contains("before the first commit")
    );
}

#[test]
fn special_tokens_in_the_context_stay_whole() {
    let vocabulary = greedy();
    let special = vocabulary.size() - 3;
    let source = Source::Regex("[a-z]+".into());
    let mut matcher = grammars(vocabulary.clone())
        .compile(&source)
        .unwrap()
        .start();
    let kept = matcher
        .start_after(&[b'x'.into(), special, b'a'.into()])
        .unwrap();
    assert_eq!(kept, [b'x'.into(), special]);
    assert!(matcher.mask().unwrap().is_allowed(b'a'.into()));
    assert!(!matcher.mask().unwrap().is_allowed(b'b'.into()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..Default::default() })]

    #[test]
    fn healing_changes_tokens_but_not_text(
        tail in "[xab\"{:]{0,6}",
        choices in prop::collection::vec(any::<u16>(), 1..20),
        back in any::<prop::sample::Index>(),
    ) {
        let (mut matcher, _, kept) = healed("(b|c|\":)(c|a|\"|[0-9]){0,5}", &tail);
        let vocabulary = matcher.grammar().vocabulary().clone();
        let mut tokens = Vec::new();
        for choice in choices {
            let allowed = matcher.mask().unwrap().to_list();
            let token = allowed[usize::from(choice) % allowed.len()];
            if vocabulary.is_end(token) {
                break;
            }
            matcher.commit(token).unwrap();
            tokens.push(token);
        }
        let mut all = text(&vocabulary, &kept);
        all.extend(text(&vocabulary, &tokens));
        prop_assert!(all.starts_with(tail.as_bytes()) || tail.as_bytes().starts_with(&all));
        let keep = back.index(tokens.len() + 1);
        matcher.rollback(tokens.len() - keep).unwrap();
        let (mut fresh, _, _) = healed("(b|c|\":)(c|a|\"|[0-9]){0,5}", &tail);
        for &token in &tokens[..keep] {
            fresh.commit(token).unwrap();
        }
        prop_assert_eq!(matcher.mask().unwrap(), fresh.mask().unwrap());
        prop_assert_eq!(matcher.accepting(), fresh.accepting());
    }
}
