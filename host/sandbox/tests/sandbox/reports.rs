//! What users of other engines ran into, each for its whole kind. Reports that other tests here state by
//! themselves (depth, size, costs, ends, numbers) are not repeated.

use crate::world::{bytes, grammars, pieces};
use formwork_sandbox::{
    FailureKind, Grammar, GrammarLimits, Grammars, KeyOrder, Schema, Source, Spacing, TokenId,
};
use serde_json::{Value, json};
use std::sync::Arc;

fn schema(value: &Value) -> Source {
    Source::JsonSchema(value.to_string().into())
}

fn lark(text: &str) -> Source {
    Source::Lark(text.into())
}

fn regex(text: &str) -> Source {
    Source::Regex(text.into())
}

fn compile(source: &Source) -> Arc<Grammar> {
    let compiled = grammars(bytes()).compile(source);
    compiled.unwrap_or_else(|failure| panic!("{source:?}: {failure}"))
}

/// Whether a text can be written byte by byte and is complete then.
fn takes(grammar: &Arc<Grammar>, text: &[u8]) -> bool {
    let mut matcher = grammar.start();
    text.iter().all(|&byte| matcher.commit(byte.into()).is_ok()) && matcher.accepting()
}

/// Sources of every kind with their first masks: what a request gets when it is alone.
fn sources() -> Vec<Source> {
    let mut spaced = Schema::from(r#"{"type":"array","items":{"type":"null"}}"#);
    let compact = spaced.clone();
    spaced.spacing = Spacing::Spaced;
    let mut any_order = Schema::from(
        r#"{"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"}},
        "required":["a","b"],"additionalProperties":false}"#,
    );
    let ordered = any_order.clone();
    any_order.key_order = KeyOrder::Any;
    vec![
        Source::JsonSchema(compact),
        Source::JsonSchema(spaced),
        Source::JsonSchema(ordered),
        Source::JsonSchema(any_order),
        lark("start: \"x\" start | \"y\""),
        // The same text as another kind.
        regex("start: \"x\" start | \"y\""),
        regex("[a-c]+"),
        Source::Choice(vec!["[a-c]+".into()]),
        Source::Choice(vec!["a".into(), "b".into()]),
        Source::Choice(vec!["ab".into()]),
    ]
}

/// All that a walk of a few steps sees.
fn trace(grammar: &Arc<Grammar>) -> Vec<Vec<TokenId>> {
    let mut matcher = grammar.start();
    let mut masks = Vec::new();
    for _ in 0..6 {
        let allowed = matcher.mask().unwrap().to_list();
        let next = allowed.iter().copied().max_by_key(|token| token % 97);
        masks.push(allowed);
        if matcher.stopped() || next.is_none_or(|token| matcher.commit(token).is_err()) {
            break;
        }
    }
    masks
}

#[test]
fn requests_never_see_each_other() {
    let alone: Vec<_> = sources()
        .iter()
        .map(|source| trace(&compile(source)))
        .collect();
    let wrong = [
        lark("start: \"a\"\nstart: \"b\""),
        regex("a["),
        schema(&json!({"enum": []})),
    ];
    for first in 0..alone.len() {
        let shared = grammars(bytes());
        for offset in 0..alone.len() {
            let at = (first + offset) % alone.len();
            let grammar = shared.compile(&sources()[at]).unwrap();
            assert_eq!(
                trace(&grammar),
                alone[at],
                "{:?} after {offset} others",
                sources()[at]
            );
            shared.compile(&wrong[at % wrong.len()]).unwrap_err();
        }
    }
}

#[test]
fn a_refused_source_leaves_the_compiler_as_it_was() {
    let good = lark("start: \"a\" | \"b\"");
    let deep = format!("start: {}", "(".repeat(60_000));
    for bad in [
        lark("start: \"a\"\nstart: \"b\""),
        lark("start: x\nx: y\ny: nowhere"),
        lark(&deep),
        lark("start: \"a"),
        lark(""),
        regex("(a|b"),
        regex(r"(?P<stop>a)"),
        schema(&json!({"type": "strin"})),
        schema(&json!({"properties": {"a": {"$ref": "#/nowhere"}}})),
        Source::JsonSchema("{\"type\":".into()),
        Source::Choice(Vec::new()),
    ] {
        let grammars = grammars(bytes());
        let before = trace(&grammars.compile(&good).unwrap());
        let refused = grammars.compile(&bad).unwrap_err();
        assert_ne!(refused.kind, FailureKind::Internal, "{bad:?}: {refused}");
        assert_eq!(grammars.compile(&bad).unwrap_err(), refused);
        assert_eq!(trace(&grammars.compile(&good).unwrap()), before);
        let third = grammars.compile(&regex("c|d")).unwrap();
        assert_eq!(trace(&third)[0], [u32::from(b'c'), u32::from(b'd')]);
    }
}

#[test]
fn recursion_has_no_depth_of_its_own() {
    let tree = json!({"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object",
        "properties": {"l": {"$ref": "#/$defs/tree"}}, "additionalProperties": false}}});
    let mutual = json!({"$ref": "#/$defs/a", "$defs": {
        "a": {"type": "array", "items": {"$ref": "#/$defs/b"}, "maxItems": 1},
        "b": {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "additionalProperties": false}}});
    let either = json!({"anyOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#"}}]});
    let cases: [(Value, &str, &str, &str); 4] = [
        (
            json!({"type": "array", "items": {"$ref": "#"}}),
            "[",
            "",
            "]",
        ),
        (tree, "{\"l\":", "{}", "}"),
        (mutual, "[{\"a\":", "[]", "}]"),
        (either, "[", "null", "]"),
    ];
    for (source, open, middle, close) in cases {
        let grammar = compile(&schema(&source));
        for depth in [1, 2, 7, 40, 300] {
            let text = format!("{}{middle}{}", open.repeat(depth), close.repeat(depth));
            assert!(takes(&grammar, text.as_bytes()), "{source} at {depth}");
            let torn = format!("{}{middle}{}", open.repeat(depth), close.repeat(depth - 1));
            assert!(!takes(&grammar, torn.as_bytes()), "{source} at {depth}");
        }
    }
    let parentheses = compile(&lark("start: \"(\" start \")\" | \"x\""));
    let text = format!("{}x{}", "(".repeat(300), ")".repeat(300));
    assert!(takes(&parentheses, text.as_bytes()));
}

#[test]
fn refusals_fill_the_cache_no_further_than_grammars_do() {
    let limits = GrammarLimits {
        cache_bytes: 256 << 10,
        ..GrammarLimits::default()
    };
    let grammars = Grammars::new(bytes(), limits).unwrap();
    for n in 0..300 {
        let source = schema(&json!({"enum": [], "title": format!("{n}{}", "x".repeat(400))}));
        grammars.compile(&source).unwrap_err();
        assert!(
            grammars.stats().bytes <= 256 << 10,
            "{:?}",
            grammars.stats()
        );
    }
    let stats = grammars.stats();
    assert!(stats.entries > 1 && stats.evictions > 0, "{stats:?}");
}

/// Texts beyond ASCII: scripts, emoji with modifiers and joiners, astral letters, and the last character.
const BEYOND: [&str; 8] = [
    "日本語",
    "中文、",
    "한국어",
    "né",
    "🦀👍🏽",
    "👨\u{200d}👩\u{200d}👧",
    "𝔘𝔫𝔦𐍈",
    "\u{10FFFF}\u{FFFD}",
];

/// What comes out where UTF-8 is taken for Latin-1.
fn mangled(text: &str) -> String {
    text.bytes().map(char::from).collect()
}

#[test]
fn every_way_to_name_a_text_means_its_utf_8() {
    for text in BEYOND {
        let quoted = Value::from(text).to_string();
        let key = format!("{{{quoted}:null}}");
        let nothing = json!({"type": "null"});
        let only = json!({"type": "object", "properties": {text: nothing}, "required": [text], "additionalProperties": false});
        let some = json!({"type": "object", "patternProperties": {format!("^{text}$"): nothing}, "minProperties": 1, "additionalProperties": false});
        for (source, spelled) in [
            (schema(&json!({"enum": [text, "other"]})), quoted.as_str()),
            (schema(&json!({"const": text})), &quoted),
            (
                schema(&json!({"type": "string", "pattern": format!("^{text}$")})),
                &quoted,
            ),
            (
                schema(
                    &json!({"type": "string", "minLength": text.chars().count(), "maxLength": text.chars().count()}),
                ),
                &quoted,
            ),
            (schema(&only), &key),
            (schema(&some), &key),
            (Source::Choice(vec![text.into(), "other".into()]), text),
            (regex(text), text),
            (lark(&format!("start: \"{text}\" | \"other\"")), text),
            (lark(&format!("start: /{text}/")), text),
        ] {
            let grammar = compile(&source);
            assert!(takes(&grammar, spelled.as_bytes()), "{source:?} {spelled}");
            let wrong = spelled.replace(text, &mangled(text));
            assert!(!takes(&grammar, wrong.as_bytes()), "{source:?} {wrong}");
            // Nothing ends within a character.
            let end = spelled.len() - 1;
            assert!(!takes(&grammar, &spelled.as_bytes()[..end]), "{source:?}");
        }
    }
}

#[test]
fn texts_are_written_in_their_plain_form() {
    for text in ["https://a.b/c?d=e&f#g", "a/b\\c", "'<>&'", "\u{2028}é"] {
        let quoted = Value::from(text).to_string();
        let only = json!({"type": "object", "properties": {text: {"const": 1}}, "required": [text], "additionalProperties": false});
        for (source, forced) in [
            (json!({"const": text}), quoted.clone()),
            (json!({"enum": [text]}), quoted.clone()),
            (only, format!("{{{quoted}:1}}")),
        ] {
            let mut matcher = compile(&schema(&source)).start();
            assert_eq!(matcher.forced(), forced.as_bytes(), "{source}");
        }
    }
}

#[test]
fn keys_come_in_the_schemas_order() {
    let names = ["zeta", "alpha", "Mid", "10", "2", "ä"];
    for turn in 0..names.len() {
        let mut order = names;
        order.rotate_left(turn);
        order.swap(1, 4);
        let properties: serde_json::Map<String, Value> = order
            .iter()
            .map(|&name| (name.into(), json!({"const": turn})))
            .collect();
        let written: serde_json::Map<String, Value> = order
            .iter()
            .map(|&name| (name.into(), json!(turn)))
            .collect();
        let mut required = order;
        required.reverse();
        let object = json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
        let fields: Vec<_> = order
            .iter()
            .map(|name| format!("\"{name}\":{turn}"))
            .collect();
        let expected = format!("{{{}}}", fields.join(","));
        for (source, forced) in [
            (object.clone(), expected.clone()),
            (json!({"allOf": [object.clone()]}), expected.clone()),
            (
                json!({"type": "array", "items": object, "minItems": 1, "maxItems": 1}),
                format!("[{expected}]"),
            ),
            (json!({"const": written}), expected),
        ] {
            let mut matcher = compile(&schema(&source)).start();
            assert_eq!(
                String::from_utf8(matcher.forced()).unwrap(),
                forced,
                "{source}"
            );
        }
    }
}

#[test]
fn classes_hold_characters_that_span_tokens() {
    // One token per byte: every letter beyond ASCII spans tokens. `pieces` has some whole and in halves.
    for vocabulary in [bytes(), pieces()] {
        for (pattern, inside, outside) in [
            ("[äöüß]{2}", "äß", "äe"),
            ("[à-ö]+", "åéñ", "å÷"),
            (r"\p{Han}{1,3}", "日本語", "日本ア"),
            ("[日本é]{3}", "é本日", "é本目"),
            ("[^a-zä]+", "öé🦀", "öä"),
            ("[🦀-🦎]{1,2}", "🦀🦎", "🦀🥀"),
            (r"\w+", "Straße", "Stra-e"),
            ("(?i)ÄÖ", "äö", "äu"),
        ] {
            let grammar = grammars(vocabulary.clone())
                .compile(&regex(pattern))
                .unwrap();
            assert!(takes(&grammar, inside.as_bytes()), "{pattern} {inside}");
            assert!(!takes(&grammar, outside.as_bytes()), "{pattern} {outside}");
            // Each first byte of an allowed letter is in the mask.
            let mut matcher = grammar.start();
            for byte in inside.bytes() {
                let (mask, forced) = (matcher.mask().unwrap(), matcher.forced());
                assert!(
                    mask.is_allowed(byte.into()) || !forced.is_empty(),
                    "{pattern} {byte}"
                );
                matcher.commit(byte.into()).unwrap();
            }
            assert!(!takes(&grammar, &"äé🦀".as_bytes()[..1]), "{pattern}");
        }
    }
}

fn is_space(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_whitespace)
}

/// Walks that take white space whenever they may: the longest run outside of strings.
fn longest_run(source: &Source) -> usize {
    let grammar = grammars(pieces()).compile(source).unwrap();
    let vocabulary = grammar.vocabulary().clone();
    let mut longest = 0;
    for seed in 0..20u32 {
        let (mut matcher, mut run, mut quoted) = (grammar.start(), 0, false);
        for step in 0..60 {
            let allowed = matcher.mask().unwrap().to_list();
            let is_blank = |&&token: &&TokenId| is_space(vocabulary.bytes(token));
            let only_blank = allowed.iter().all(|token| is_blank(&token));
            assert!(
                run == 0 || !only_blank,
                "{source:?}: white space without end"
            );
            let blank = allowed.iter().find(is_blank).filter(|_| !quoted);
            let any = allowed[(seed * 7919 + step * 104_729) as usize % allowed.len()];
            let token = blank.copied().unwrap_or(any);
            if vocabulary.is_end(token) {
                break;
            }
            matcher.commit(token).unwrap();
            for &byte in vocabulary.bytes(token) {
                // Escaped quotes would only make the test look at less.
                quoted ^= byte == b'"';
                run = if !quoted && byte.is_ascii_whitespace() {
                    run + 1
                } else {
                    0
                };
                longest = longest.max(run);
            }
        }
    }
    longest
}

#[test]
fn white_space_is_bounded_and_never_all_that_is_left() {
    for text in [
        "{}",
        r#"{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"array"}},"required":["a","b"]}"#,
        r#"{"type":"array","items":{"type":"object"},"minItems":3}"#,
        r##"{"anyOf":[{"type":"null"},{"type":"array","items":{"$ref":"#"}}]}"##,
        r#"{"x-guidance":{"whitespace_flexible":true},"type":"array","items":{"type":"null"}}"#,
    ] {
        let mut given = Schema::from(text);
        assert_eq!(longest_run(&Source::JsonSchema(given.clone())), 0, "{text}");
        given.spacing = Spacing::Spaced;
        assert!(longest_run(&Source::JsonSchema(given)) <= 1, "{text}");
    }
}
