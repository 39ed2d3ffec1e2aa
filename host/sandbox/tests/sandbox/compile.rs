//! Compiling grammars: refusals, bounds, the cache.

use crate::world::{bytes, grammars, pieces};
use formwork_sandbox::{FailureKind, GrammarLimits, Grammars, Source};
use proptest::prelude::*;
use std::time::{Duration, Instant};

fn refused(source: Source, kind: FailureKind, message: &str) {
    let begun = Instant::now();
    let failure = grammars(bytes()).compile(&source).unwrap_err();
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(failure.kind, kind, "{failure}");
    assert!(failure.message.contains(message), "{failure}");
    assert!(!failure.message.contains("backtrace"), "{failure}");
}

fn schema(text: impl Into<formwork_sandbox::Schema>) -> Source {
    Source::JsonSchema(text.into())
}

fn lark(text: impl Into<String>) -> Source {
    Source::Lark(text.into())
}

fn regex(text: impl Into<String>) -> Source {
    Source::Regex(text.into())
}

#[test]
fn hostile_sources_hit_a_named_bound() {
    use FailureKind::InvalidParams;
    let limited = |source, bound| refused(source, InvalidParams, bound);
    let nested = |open: &str, middle: &str, close: &str, n| {
        format!("{}{middle}{}", open.repeat(n), close.repeat(n))
    };
    limited(
        regex(nested("(", "a", ")", 60_000)),
        "the limit (depth) of 100",
    );
    limited(
        lark(format!("start: {}", nested("(", "\"a\"", ")", 60_000))),
        "(depth) of 100",
    );
    limited(
        lark(format!("start: /{}/", nested("(", "a", ")", 60_000))),
        "(depth) of 100",
    );
    limited(
        schema(nested("{\"items\":", "{}", "}", 10_000)),
        "the limit (depth) of 100",
    );
    let pattern = nested("(", "a", ")", 60_000);
    limited(
        schema(format!("{{\"pattern\":\"{pattern}\"}}")),
        "at /pattern: the regex is invalid at byte 100: groups nest",
    );
    let rules: String = (0..5_000).map(|n| format!("r{n}: r{}\n", n + 1)).collect();
    limited(
        lark(format!("start: r0\n{rules}r5000: \"x\"")),
        "the limit (rules) of 2000",
    );
    limited(
        schema(" ".repeat(2 << 20)),
        "the limit (source_bytes) is 1048576",
    );
}

#[test]
fn deep_but_lawful_sources_compile() {
    let chain: String = (0..1_900).map(|n| format!("r{n}: r{}\n", n + 1)).collect();
    let nested = format!("{}a{}", "(".repeat(90), ")".repeat(90));
    let items = format!(
        "{}{{\"type\":\"null\"}}{}",
        "{\"items\":".repeat(90),
        "}".repeat(90)
    );
    for source in [
        lark(format!("start: r0\n{chain}r1900: \"x\"")),
        regex(nested),
        schema(items),
        schema(
            r##"{"$ref":"#/$defs/t","$defs":{"t":{"type":"object","properties":{"l":{"$ref":"#/$defs/t"}}}}}"##,
        ),
        schema("true"),
        regex(""),
        regex("^a/b$"),
        regex("[äöü]+"),
        regex("(((a{1,1000}){1,1000}){1,1000}){1,1000}b"),
    ] {
        let grammar = grammars(bytes()).compile(&source).unwrap();
        grammar.start().mask().unwrap();
    }
}

#[test]
fn wrong_sources_are_refused_with_their_place() {
    use FailureKind::{InvalidParams, Unsatisfiable};
    refused(regex("a[b"), InvalidParams, "invalid at byte 1");
    refused(regex(r"a(?=b)"), InvalidParams, "invalid at byte 1");
    refused(schema("{\"type\":"), InvalidParams, "line 1 column 8");
    refused(schema("{\"type\":\"strin\"}"), InvalidParams, "strin");
    refused(
        schema("{\"properties\":{\"a\":{\"pattern\":\"(\"}}}"),
        InvalidParams,
        "/properties/a/pattern",
    );
    refused(lark("start: \"a\"\nstart: \"b\""), InvalidParams, "start");
    refused(lark("start: nowhere"), InvalidParams, "nowhere");
    refused(lark("start: \"a\n"), InvalidParams, "1(");
    refused(
        lark("start: <|tool|>"),
        InvalidParams,
        "at 1:8: special tokens cannot be named",
    );
    refused(schema("{\"enum\":[]}"), Unsatisfiable, "at /enum");
    refused(
        schema(
            r#"{"type":"object","properties":{"x":{"type":"string","enum":[]}},"required":["x"]}"#,
        ),
        Unsatisfiable,
        "at /properties/x/enum",
    );
    refused(schema("false"), Unsatisfiable, "allows no value");
    refused(
        schema(r#"{"type":"integer","minimum":3,"maximum":2}"#),
        Unsatisfiable,
        "minimum",
    );
    refused(Source::Choice(vec![]), Unsatisfiable, "no options");
    refused(regex(r"[^\x{0}-\x{10FFFF}]"), Unsatisfiable, "");
}

#[test]
fn a_requests_own_options_cannot_loosen_the_format() {
    let source = schema(
        r#"{"x-guidance":{"whitespace_flexible":true,"item_separator":" , "},
        "type":"array","items":{"const":1},"minItems":2,"maxItems":2}"#,
    );
    let mut matcher = grammars(bytes()).compile(&source).unwrap().start();
    assert_eq!(matcher.forced(), b"[1,1]");
}

#[test]
fn control_characters_are_only_escaped_and_specials_never_allowed() {
    let grammar = grammars(pieces())
        .compile(&schema("{\"type\":\"string\"}"))
        .unwrap();
    let mut matcher = grammar.start();
    matcher.commit(u32::from(b'"')).unwrap();
    let mask = matcher.mask().unwrap();
    let vocabulary = grammar.vocabulary();
    assert!((0..0x20).all(|control| !mask.is_allowed(control)));
    assert!((0..vocabulary.size()).all(|t| vocabulary.is_text(t) || !mask.is_allowed(t)));
    let loose = lark("start: /(.|\\n)*/\n%llguidance {\"allow_invalid_utf8\": true}");
    if let Ok(grammar) = grammars(pieces()).compile(&loose) {
        let mask = grammar.start().mask().unwrap();
        let special = |&token: &u32| !vocabulary.is_text(token) && !vocabulary.is_end(token);
        assert_eq!(mask.to_list().iter().filter(|t| special(t)).count(), 0);
    }
}

#[test]
fn equal_sources_share_one_compilation() {
    let grammars = grammars(bytes());
    let source = schema(r#"{"type":"object"}"#);
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let (grammars, source) = (grammars.clone(), source.clone());
            std::thread::spawn(move || grammars.compile(&source).unwrap())
        })
        .collect();
    let compiled: Vec<_> = threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect();
    assert!(
        compiled
            .iter()
            .all(|one| std::sync::Arc::ptr_eq(one, &compiled[0]))
    );
    let bad = regex("a[");
    assert_eq!(
        grammars.compile(&bad).unwrap_err(),
        grammars.compile(&bad).unwrap_err()
    );
    let stats = grammars.stats();
    assert_eq!((stats.entries, stats.misses, stats.hits), (2, 2, 8));
}

#[test]
fn want_of_resources_is_not_remembered() {
    let limits = GrammarLimits {
        compile_fuel: 100,
        ..GrammarLimits::default()
    };
    let grammars = Grammars::new(bytes(), limits).unwrap();
    let source = Source::Choice((0..500).map(|n| format!("option {n}")).collect());
    for _ in 0..2 {
        assert_eq!(
            grammars.compile(&source).unwrap_err().kind,
            FailureKind::InvalidParams
        );
    }
    let stats = grammars.stats();
    assert_eq!((stats.entries, stats.misses), (0, 2));
}

#[test]
fn a_mask_that_costs_too_much_is_a_named_failure() {
    let limits = GrammarLimits {
        mask_items: 20,
        ..GrammarLimits::default()
    };
    let grammars = Grammars::new(bytes(), limits).unwrap();
    let source = lark("start: a\na: b a b | b\nb: c | c b\nc: \"x\" | \"y\" | \"z\"");
    let failure = match grammars.compile(&source) {
        Err(failure) => failure,
        Ok(grammar) => {
            let mut matcher = grammar.start();
            let mut step = || {
                matcher.mask()?;
                matcher.commit(b'x'.into())
            };
            (0..100).find_map(|_| step().err()).unwrap()
        }
    };
    assert_eq!(failure.kind, FailureKind::InvalidParams, "{failure}");
    assert_eq!(grammars.stats().entries, 0);
}

#[test]
fn the_cache_keeps_to_its_bytes() {
    let limits = GrammarLimits {
        cache_bytes: 1 << 20,
        ..GrammarLimits::default()
    };
    let grammars = Grammars::new(bytes(), limits).unwrap();
    for n in 0..60 {
        grammars.compile(&regex(format!("x{n}[a-z]*"))).unwrap();
        assert!(grammars.stats().bytes <= 1 << 20);
    }
    let stats = grammars.stats();
    assert!(stats.evictions > 0 && stats.entries > 1, "{stats:?}");
    // The last one is still there.
    grammars.compile(&regex("x59[a-z]*")).unwrap();
    assert_eq!(grammars.stats().hits, 1);
}

#[test]
fn too_many_choices_at_one_point_are_a_limit_and_no_fault_of_the_plugin() {
    let rules: String = (0..1_500)
        .map(|n| format!("r{n}: \"lit{n}\" | r{}\n", n + 1))
        .collect();
    let source = lark(format!("start: r0+\n{rules}r1500: \"end\""));
    let mut matcher = grammars(bytes()).compile(&source).unwrap().start();
    matcher.mask().unwrap();
    let failure = matcher.commit(b'l'.into()).unwrap_err();
    assert_eq!(failure.kind, FailureKind::InvalidParams, "{failure}");
    assert!(failure.message.contains("too costly"), "{failure}");
}

/// Text that looks like a grammar more often than chance would have it.
fn grammar_like() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "start",
        ":",
        " ",
        "\n",
        "a",
        "b",
        "A",
        "|",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "*",
        "+",
        "?",
        "~3..5",
        "\"x\"",
        "\"",
        "/",
        "/[a-z]+/",
        "\\",
        "%ignore",
        "%import common.INT",
        "%json",
        "%llguidance",
        "@b",
        "<",
        "::",
        "_",
        "->",
        "!",
        "#",
        "//",
        "{1,9}",
        "^",
        "$",
        ".",
        ",",
        "0",
        "\"type\"",
        "\"string\"",
        "\"enum\"",
        "\"pattern\"",
        "\"$ref\"",
        "\"#\"",
        "[[:alpha:]]",
        "(?i)",
        "(?P<n>",
        "é",
        "\u{0}",
        "[^",
        "&",
        "%regex",
    ]);
    prop::collection::vec(pieces, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

    #[test]
    fn no_source_whatever_takes_the_process_down(text in grammar_like()) {
        let grammars = grammars(bytes());
        let begun = Instant::now();
        for source in [
            lark(format!("start: {text}")),
            lark(text.clone()),
            regex(text.clone()),
            schema(text.clone()),
            schema(format!("{{\"properties\":{text}}}")),
            Source::Choice(vec![text.clone()]),
        ] {
            if let Ok(grammar) = grammars.compile(&source) {
                let mut matcher = grammar.start();
                for byte in text.bytes() {
                    let Ok(mask) = matcher.mask() else { break };
                    let token = if mask.is_allowed(byte.into()) { byte.into() } else {
                        mask.first_bit_set().unwrap() as u32
                    };
                    if matcher.commit(token).is_err() {
                        break;
                    }
                }
            }
        }
        prop_assert!(begun.elapsed() < Duration::from_secs(10));
    }
}
