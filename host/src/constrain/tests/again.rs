//! Values that are written again from some byte on.

use super::harness::{Bench, MAX_TOKENS, Outcome, accept, write};
use formwork_sandbox::{Action, Fallback, Field, Retry, RetryPolicy, Source, Value, Verdict};
use proptest::prelude::*;
use std::sync::{Arc, Mutex};

fn checked(bench: &Bench, regex: &str, hint: Option<&str>) -> Field {
    let mut field = bench.field("value", regex);
    field.check = true;
    field.max_tokens = 40;
    field.retry = RetryPolicy {
        attempts: 8,
        heat: 0.0,
        hint: hint.map(str::to_owned),
        exhausted: Fallback::Accept,
    };
    field
}

/// Refuses the first values, keeping so many bytes of each; tells what it saw.
fn refusing(
    keeps: Vec<usize>,
) -> (
    impl FnMut(&Value) -> Verdict + Send,
    Arc<Mutex<Vec<String>>>,
) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let values = Arc::clone(&seen);
    let mut keeps = keeps.into_iter();
    let check = move |value: &Value| {
        let text = String::from_utf8(value.bytes.clone()).unwrap();
        values.lock().unwrap().push(text);
        match keeps.next() {
            Some(from) => Verdict::Retry(Retry {
                reason: "no".to_owned(),
                from: from.min(value.bytes.len()),
            }),
            None => Verdict::Accept,
        }
    };
    (check, seen)
}

/// Writes `<x`, the field, `>`; the values that were seen and what came out.
fn run(field: Field, keeps: &[usize], wants: &[&str]) -> (Vec<String>, Outcome) {
    let bench = Bench::new();
    let actions = vec![
        write("<x"),
        Action::Field(field),
        write(">"),
        Action::Finish,
    ];
    let (check, seen) = refusing(keeps.to_vec());
    let outcome = bench.run(actions, wants, check).unwrap();
    let seen = seen.lock().unwrap().clone();
    (seen, outcome)
}

#[test]
fn what_is_kept_is_not_sampled_again() {
    let bench = Bench::new();
    for (hint, behind) in [
        (None, "<x"),
        (Some("({value}: {reason}) "), "<x(ab,cd,ef: no) "),
    ] {
        let field = checked(&bench, "[a-z]{2},[a-z]{2},[a-z]{2}", hint);
        let (seen, outcome) = run(field, &[6], &["ab", "cd", "ef", "xy"]);
        assert_eq!(seen, ["ab,cd,ef", "ab,cd,xy"]);
        assert_eq!(outcome.text, "<xab,cd,xy>");
        // Eight commas and letters at first; the last two once more, and nothing before them.
        let again: Vec<_> = outcome.contexts.iter().rev().take(2).rev().collect();
        assert_eq!(
            again,
            [&format!("{behind}ab,cd,"), &format!("{behind}ab,cd,x")]
        );
        let report = &outcome.reports.fields()[0];
        assert_eq!((report.attempts, report.verified), (2, true));
        // The commas are forced, in the part that stayed as well.
        assert_eq!(report.forced, 2, "{report:?}");
    }
}

#[test]
fn a_token_over_the_edge_is_spelled_anew_from_what_is_kept_of_it() {
    let bench = Bench::new();
    for hint in [None, Some("(no) ")] {
        // `12` is one token; what is kept ends within it.
        let field = checked(&bench, "[0-9],[0-9]{2}", hint);
        let (seen, outcome) = run(field, &[3], &["3", "12", "999"]);
        assert_eq!(seen[0], "3,12");
        assert!(seen[1].starts_with("3,1"), "{seen:?}");
        assert_eq!(outcome.text, format!("<x{}>", seen[1]));
    }
}

#[test]
fn a_token_over_the_seam_before_the_field_stays_whole() {
    let bench = Bench::new();
    // `x"` is one token, half of it template.
    let field = |hint| checked(&bench, "\"?[a-z]{3}", hint);
    let (seen, outcome) = run(field(None), &[3], &["x\"abz", "q"]);
    assert_eq!(seen, ["\"abz", "\"abq"]);
    assert_eq!(outcome.text, "<x\"abq>");
    let (seen, outcome) = run(field(Some("(no) ")), &[3], &["x\"abz", "q"]);
    assert_eq!(seen, ["\"abz", "\"abq"]);
    assert!(
        outcome.contexts.contains(&"<x(no) \"ab".to_owned()),
        "{outcome:?}"
    );
    assert_eq!(outcome.text, "<x\"abq>");
}

#[test]
fn all_of_a_value_may_be_kept() {
    let bench = Bench::new();
    // One that can go on does, one that cannot comes again.
    let (seen, _) = run(
        checked(&bench, "[a-c]{1,4}", None),
        &[9],
        &["ab", ">", "c", ">"],
    );
    assert_eq!(seen, ["ab", "abc"]);
    let (seen, outcome) = run(checked(&bench, "[a-c]{2}", None), &[9; 20], &["ab"]);
    assert_eq!(seen, ["ab"; 8], "attempts are bounded");
    assert!(!outcome.reports.fields()[0].verified);
}

#[test]
fn a_hint_that_would_not_fit_is_left_out() {
    let bench = Bench::new();
    let long = format!("{} {{value}} ", "why ".repeat(MAX_TOKENS / 4 - 3));
    for hint in [long.as_str(), "(no) "] {
        let field = checked(&bench, "[a-z]{2}-[a-z]{2}", Some(hint));
        let (seen, outcome) = run(field, &[3, 4], &["ab", "cd", "xy", "z"]);
        assert_eq!(seen, ["ab-cd", "ab-xy", "ab-xz"]);
        assert_eq!(outcome.text, "<xab-xz>");
        let hinted = outcome
            .contexts
            .iter()
            .any(|context| context.contains(hint));
        assert_eq!(hinted, hint == "(no) ");
    }
}

#[test]
fn a_report_tells_what_enforces_a_schema() {
    let bench = Bench::new();
    let schema = r#"{"type":"array","items":{"type":"boolean"},"uniqueItems":true}"#;
    let grammar = bench
        .grammars
        .compile(&Source::JsonSchema(schema.into()))
        .unwrap();
    let mut field = bench.field("list", "x");
    field.matcher = grammar.start();
    let actions = vec![
        Action::Field(field),
        Action::Field(bench.field("word", "[a-c]")),
        Action::Finish,
    ];
    let outcome = bench.run(actions, &["[true]", "a"], accept).unwrap();
    let fields = outcome.reports.fields();
    let enforced = fields[0].enforced.as_ref().unwrap();
    assert_eq!(enforced.unmasked, ["/uniqueItems"]);
    assert!(
        enforced.masked.contains(&"/items/type".to_owned()),
        "{enforced:?}"
    );
    assert!(fields[1].enforced.is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// The bench checks the books at each token; debug assertions the matcher's length.
    #[test]
    fn each_attempt_begins_with_what_was_kept(
        regex in prop::sample::select(vec![
            "[a-z\",{}: 0-9]{0,20}",
            "\\{(\"[abcx]{1,3}\":\"[abcx]{0,3}\",?){0,4}\\}",
            "(ab|abc|12|\" ){1,6};",
            "(\"|x){3,9}1?2?",
        ]),
        wants in prop::collection::vec("[abcx12\":{},;> ]{1,9}", 1..12),
        keeps in prop::collection::vec(0usize..16, 0..5),
        hint in prop::option::of(prop::sample::select(vec!["({value}) ", "x", "{\""])),
    ) {
        let bench = Bench::new();
        let wants: Vec<&str> = wants.iter().map(String::as_str).collect();
        let (seen, outcome) = run(checked(&bench, regex, hint), &keeps, &wants);
        prop_assert_eq!(seen.len(), keeps.len() + 1);
        for (pair, &keep) in seen.windows(2).zip(&keeps) {
            let keep = keep.min(pair[0].len());
            prop_assert_eq!(&pair[0].as_bytes()[..keep], &pair[1].as_bytes()[..keep]);
        }
        prop_assert_eq!(outcome.text, format!("<x{}>", seen.last().unwrap()));
        let report = &outcome.reports.fields()[0];
        prop_assert!(report.forced <= report.tokens);
    }
}
