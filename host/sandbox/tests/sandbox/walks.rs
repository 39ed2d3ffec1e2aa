//! Walks under masks: what they can reach, and that going back is as if one had never gone.

use crate::world::{bytes, grammars, pieces};
use formwork_sandbox::{Grammar, Matcher, Source, TokenId, Vocabulary};
use proptest::prelude::*;
use std::sync::Arc;

type Oracle = fn(&str) -> bool;

fn is_json(text: &str) -> Option<serde_json::Value> {
    serde_json::from_str(text).ok()
}

/// Grammars and what their outputs must look like, told by other means.
fn languages() -> Vec<(Source, Oracle)> {
    let schema = |text: &str| Source::JsonSchema(text.into());
    vec![
        (Source::Regex("[a-c]{2,4}-[0-9]+".into()), |text| {
            text.split_once('-').is_some_and(|(head, tail)| {
                (2..=4).contains(&head.len())
                    && head.bytes().all(|byte| (b'a'..=b'c').contains(&byte))
                    && !tail.is_empty()
                    && tail.bytes().all(|byte| byte.is_ascii_digit())
            })
        }),
        (Source::Regex("(ab|é|日本)*".into()), |text| {
            text.replace("ab", "")
                .replace('é', "")
                .replace("日本", "")
                .is_empty()
        }),
        (
            Source::Choice(vec![
                "a".into(),
                "ab".into(),
                "".into(),
                "日\u{7f}\n\"".into(),
            ]),
            |text| ["a", "ab", "", "日\u{7f}\n\""].contains(&text),
        ),
        (
            Source::Lark("start: \"(\" start \")\" | \"x\"".into()),
            |text| {
                let half = text.len() / 2;
                text == format!("{}x{}", "(".repeat(half), ")".repeat(half))
            },
        ),
        (
            schema(r#"{"type":"integer","minimum":-5,"exclusiveMaximum":13}"#),
            |text| {
                text.parse::<i64>()
                    .is_ok_and(|value| (-5..13).contains(&value))
            },
        ),
        (
            schema(
                r#"{"type":"object","properties":{"name":{"type":"string","maxLength":4},
                "b":{"enum":["é\t",null,1.5]},"a":{"type":"array","items":{"type":"boolean"},
                "maxItems":3}},"required":["name","b","a"],"additionalProperties":false}"#,
            ),
            |text| {
                is_json(text).is_some_and(|value| {
                    let keys: Vec<_> = value.as_object().unwrap().keys().cloned().collect();
                    let items = value["a"].as_array().unwrap();
                    keys == ["name", "b", "a"]
                        && value["name"].as_str().unwrap().chars().count() <= 4
                        && ["\"é\\t\"", "null", "1.5"].contains(&value["b"].to_string().as_str())
                        && items.len() <= 3
                        && items.iter().all(serde_json::Value::is_boolean)
                        && value.to_string().len() <= text.len()
                })
            },
        ),
    ]
}

fn compile(vocabulary: Arc<Vocabulary>, source: &Source) -> Arc<Grammar> {
    grammars(vocabulary).compile(source).unwrap()
}

/// Follows `choices` under the masks; says what text was committed and whether it is complete.
pub(crate) fn walk(matcher: &mut Matcher, choices: &[u16]) -> (Vec<TokenId>, bool) {
    let vocabulary = matcher.grammar().vocabulary().clone();
    let mut tokens = Vec::new();
    for &choice in choices {
        let mask = matcher.mask().unwrap();
        assert_eq!(mask.len(), vocabulary.size() as usize);
        let allowed = mask.to_list();
        assert!(!allowed.is_empty());
        let ends = allowed
            .iter()
            .filter(|&&token| vocabulary.is_end(token))
            .count();
        assert_eq!(
            ends,
            if matcher.accepting() {
                vocabulary.end().len()
            } else {
                0
            }
        );
        if matcher.stopped() {
            assert_eq!(allowed.len(), ends);
        }
        assert!(
            allowed
                .iter()
                .all(|&t| vocabulary.is_text(t) || vocabulary.is_end(t))
        );
        let token = allowed[usize::from(choice) % allowed.len()];
        matcher.commit(token).unwrap();
        if vocabulary.is_end(token) {
            return (tokens, true);
        }
        tokens.push(token);
    }
    let complete = matcher.accepting();
    (tokens, complete)
}

pub(crate) fn text(vocabulary: &Vocabulary, tokens: &[TokenId]) -> Vec<u8> {
    tokens
        .iter()
        .flat_map(|&token| vocabulary.bytes(token).to_vec())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..Default::default() })]

    #[test]
    fn complete_walks_are_in_the_language(choices in prop::collection::vec(any::<u16>(), 1..80)) {
        for vocabulary in [bytes(), pieces()] {
            for (source, oracle) in languages() {
                let mut matcher = compile(vocabulary.clone(), &source).start();
                let (tokens, complete) = walk(&mut matcher, &choices);
                if complete {
                    let text = String::from_utf8(text(&vocabulary, &tokens)).unwrap();
                    prop_assert!(oracle(&text), "{source:?} allowed {text:?}");
                }
            }
        }
    }

    #[test]
    fn going_back_is_as_if_one_had_never_gone(
        choices in prop::collection::vec(any::<u16>(), 1..40),
        back in any::<prop::sample::Index>(),
    ) {
        for vocabulary in [bytes(), pieces()] {
            for (source, _) in languages() {
                let grammar = compile(vocabulary.clone(), &source);
                let mut matcher = grammar.start();
                let (tokens, _) = walk(&mut matcher, &choices);
                let keep = back.index(tokens.len() + 1);
                matcher.rollback(matcher.committed() - keep).unwrap();
                let mut fresh = grammar.start();
                for &token in &tokens[..keep] {
                    fresh.commit(token).unwrap();
                }
                prop_assert_eq!(matcher.committed(), keep);
                prop_assert_eq!(matcher.accepting(), fresh.accepting());
                prop_assert_eq!(matcher.stopped(), fresh.stopped());
                prop_assert_eq!(matcher.forced(), fresh.forced());
                prop_assert_eq!(matcher.mask().unwrap(), fresh.mask().unwrap());
            }
        }
    }

    #[test]
    fn a_mask_holds_what_can_be_committed(choices in prop::collection::vec(any::<u16>(), 0..25)) {
        for (source, _) in languages() {
            let vocabulary = pieces();
            let mut matcher = compile(vocabulary.clone(), &source).start();
            walk(&mut matcher, &choices);
            let mask = matcher.mask().unwrap();
            for token in 0..vocabulary.size() {
                let fits = matcher.fork().commit(token).is_ok();
                prop_assert_eq!(mask.is_allowed(token), fits, "{:?} token {}", source, token);
            }
        }
    }
}

#[test]
fn every_end_waits_for_completion_and_nothing_follows_it() {
    let grammar = compile(bytes(), &Source::Regex("ab?".into()));
    let mut matcher = grammar.start();
    let list = |matcher: &mut Matcher| matcher.mask().unwrap().to_list();
    assert_eq!(list(&mut matcher), [97]);
    assert!(matcher.commit(260).is_err() && matcher.commit(98).is_err());
    matcher.commit(97).unwrap();
    assert_eq!(list(&mut matcher), [98, 260, 261]);
    assert!(matcher.accepting() && !matcher.stopped());
    let mut other = matcher.fork();
    other.commit(98).unwrap();
    assert_eq!(list(&mut other), [260, 261]);
    assert!(other.stopped() && other.forced().is_empty());
    matcher.commit(261).unwrap();
    assert_eq!(list(&mut matcher), [260, 261]);
    assert!(matcher.stopped() && matcher.commit(98).is_err());
    matcher.commit(260).unwrap();
    matcher.rollback(2).unwrap();
    assert_eq!(list(&mut matcher), [98, 260, 261]);
    assert!(
        matcher
            .rollback(2)
            .unwrap_err()
            .message
            .contains("1 are committed")
    );
    for token in [256, 259, 299, 300, u32::MAX] {
        assert!(matcher.commit(token).is_err(), "{token}");
    }
}

#[test]
fn forced_text_is_told_in_bytes_and_tokens() {
    let source = Source::JsonSchema(r#"{"const":{"a":[1,"日"]}}"#.into());
    let mut matcher = compile(bytes(), &source).start();
    let expected = "{\"a\":[1,\"日\"]}".as_bytes();
    assert_eq!(matcher.forced(), expected);
    let tokens = matcher.forced_tokens();
    assert_eq!(text(matcher.grammar().vocabulary(), &tokens), expected);
    for token in tokens {
        matcher.commit(token).unwrap();
    }
    assert!(matcher.stopped());
}

#[test]
fn the_empty_text_alone_stops_at_once() {
    let mut matcher = compile(bytes(), &Source::Choice(vec![String::new()])).start();
    assert!(matcher.stopped() && matcher.accepting());
    assert_eq!(matcher.mask().unwrap().to_list(), [260, 261]);
}

#[test]
fn walks_on_many_threads_do_not_see_each_other() {
    let (source, _) = languages().pop().unwrap();
    let grammar = compile(bytes(), &source);
    let choices: Vec<u16> = (0..60u16).map(|step| step.wrapping_mul(40_503)).collect();
    let (alone, _) = walk(&mut grammar.start(), &choices);
    std::thread::scope(|scope| {
        for thread in 0..12u16 {
            let (grammar, choices, alone) = (&grammar, &choices, &alone);
            scope.spawn(move || {
                for round in 0..10 {
                    let other: Vec<u16> = choices.iter().map(|c| c ^ (thread + round)).collect();
                    walk(&mut grammar.start(), &other);
                    assert_eq!(walk(&mut grammar.start(), choices).0, *alone);
                }
            });
        }
    });
}
