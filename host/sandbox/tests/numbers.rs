//! A value-level oracle for numeric bounds: bounds × exclusivity × sign × type, each against plain arithmetic.
//! What the mask lets through and validation does not stop counts as accepted.

use formwork_sandbox::{GrammarLimits, Grammars, Source, Vocabulary};
use std::sync::Arc;
use toktrie::ApproximateTokEnv;

const BOUNDS: [f64; 9] = [-10.0, -5.0, -1.0, -0.5, 0.0, 0.5, 1.0, 5.0, 10.0];
const VALUES: [&str; 31] = [
    "-100", "-11", "-10.5", "-10", "-9.9", "-6", "-5.7", "-5", "-4.9", "-1.5", "-1", "-0.9",
    "-0.5", "-0.49", "-0.1", "0", "0.1", "0.49", "0.5", "0.51", "0.9", "1", "1.5", "4.9", "5",
    "5.7", "6", "9.9", "10", "10.5", "11",
];

struct Bound {
    keyword: &'static str,
    holds: fn(f64, f64) -> bool,
}

const LOWER: [Bound; 2] = [
    Bound {
        keyword: "minimum",
        holds: |value, bound| value >= bound,
    },
    Bound {
        keyword: "exclusiveMinimum",
        holds: |value, bound| value > bound,
    },
];
const UPPER: [Bound; 2] = [
    Bound {
        keyword: "maximum",
        holds: |value, bound| value <= bound,
    },
    Bound {
        keyword: "exclusiveMaximum",
        holds: |value, bound| value < bound,
    },
];

fn grammars() -> Arc<Grammars> {
    let env = ApproximateTokEnv::single_byte_env();
    let size = env.tok_trie().vocab_size() as u32;
    let end = vec![env.tok_trie().eos_token()];
    let vocabulary = Vocabulary::new("bytes", env, size, end).expect("the vocabulary serves");
    Grammars::new(Arc::new(vocabulary), GrammarLimits::default()).expect("the grammars start")
}

/// Every pair of a lower and an upper bound, either of them absent.
fn ranges() -> Vec<Vec<(&'static Bound, f64)>> {
    let side = |bounds: &'static [Bound]| {
        let given = bounds
            .iter()
            .flat_map(|b| BOUNDS.map(|value| vec![(b, value)]));
        std::iter::once(Vec::new()).chain(given).collect::<Vec<_>>()
    };
    let (lower, upper) = (side(&LOWER), side(&UPPER));
    let pairs = lower
        .iter()
        .flat_map(|l| upper.iter().map(move |u| [l.clone(), u.clone()].concat()));
    pairs.collect()
}

fn accepted(grammars: &Arc<Grammars>, schema: &str, value: &str) -> bool {
    let Ok(grammar) = grammars.compile(&Source::JsonSchema(schema.into())) else {
        return false;
    };
    let mut walk = grammar.start();
    for byte in value.bytes() {
        if walk.commit(u32::from(byte)).is_err() {
            return false;
        }
    }
    walk.accepting() && grammar.validate(value.as_bytes()).is_ok()
}

fn check(kind: &str) {
    let grammars = grammars();
    let mut wrong = Vec::new();
    for range in ranges() {
        let keywords: Vec<String> = range
            .iter()
            .map(|(bound, at)| format!(",\"{}\":{at}", bound.keyword))
            .collect();
        let schema = format!("{{\"type\":\"{kind}\"{}}}", keywords.concat());
        for text in VALUES {
            let value: f64 = text.parse().expect("the table holds numbers");
            let fits = range.iter().all(|(bound, at)| (bound.holds)(value, *at))
                && (kind == "number" || value.fract() == 0.0);
            if accepted(&grammars, &schema, text) != fits {
                wrong.push(format!(
                    "{schema}: {text} should be {}",
                    if fits { "in" } else { "out" }
                ));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong, such as\n{}",
        wrong.len(),
        wrong[..wrong.len().min(20)].join("\n")
    );
}

#[test]
fn integers_are_bounded_as_arithmetic_says() {
    check("integer");
}

#[test]
fn numbers_are_bounded_as_arithmetic_says() {
    check("number");
}
