//! Plans written down as data, walked by a pretend model, checked token by token.

mod again;
mod harness;
mod retry_cost;

use super::{Guided, Reports, Setting};
use formwork_engine::{After, Constraint, FailureKind};
use formwork_sandbox::{Action, Fallback, LatePolicy, Observed, RetryPolicy, Source, Verdict};
use harness::{Bench, Scripted, accept, vocabulary, vocabulary_without, write};
use std::sync::Arc;

#[test]
fn a_template_comes_out_as_a_whole_text_would_be_tokenised() {
    let bench = Bench::new();
    let actions = vec![
        write("{\""),
        write("k\":\""),
        Action::Field(bench.field("word", "[a-c]{1,5}")),
        write("\",\"n\":"),
        Action::Field(bench.field("number", "[0-9]{2}")),
        write("}"),
        Action::Finish,
    ];
    let outcome = bench.run(actions, &["ab", "\"", "12"], accept).unwrap();
    assert_eq!(outcome.text, "{\"k\":\"ab\",\"n\":12}");
    assert_eq!(
        outcome.tokens,
        bench.vocabulary.tokenize(outcome.text.as_bytes())
    );
    let fields = outcome.reports.fields();
    let values: Vec<_> = fields
        .iter()
        .map(|f| &outcome.text[f.start..f.end])
        .collect();
    assert_eq!(values, ["ab", "12"]);
    // One `ab`, one token that says the word ends, one `12`: all else is forced.
    assert_eq!(outcome.contexts.len(), 3);
}

#[test]
fn a_refused_value_is_decoded_again_behind_a_hint_that_nobody_sees() {
    let bench = Bench::new();
    let mut field = bench.field("word", "[a-z]{3}");
    field.check = true;
    field.retry = RetryPolicy {
        attempts: 3,
        heat: 0.5,
        hint: Some("({value}: {reason}) ".into()),
        exhausted: Fallback::Fail,
    };
    let actions = vec![write("<"), Action::Field(field), write(">"), Action::Finish];
    let outcome = bench
        .run(actions, &["bad", "abc"], |value| {
            match value.bytes.as_slice() {
                b"bad" => Verdict::Retry("not {value}".into()),
                _ => Verdict::Accept,
            }
        })
        .unwrap();
    assert_eq!(outcome.text, "<abc>");
    assert!(
        outcome
            .contexts
            .contains(&"<(bad: not {value}) ".to_string()),
        "{outcome:?}"
    );
    let report = &outcome.reports.fields()[0];
    assert_eq!((report.attempts, report.verified), (2, true));
    assert_eq!(outcome.tokens, bench.vocabulary.tokenize(b"<abc>"));
}

#[test]
fn when_attempts_are_used_up_the_fallback_decides() {
    let bench = Bench::new();
    let run = |exhausted| {
        let mut field = bench.field("word", "[a-z]{3}");
        field.check = true;
        field.retry = RetryPolicy {
            attempts: 2,
            heat: 0.0,
            hint: None,
            exhausted,
        };
        let actions = vec![write("<"), Action::Field(field), write(">"), Action::Finish];
        bench.run(actions, &["one", "two"], |_| Verdict::Retry("no".into()))
    };
    let error = run(Fallback::Fail).unwrap_err();
    assert_eq!(error.kind, FailureKind::Exhausted);
    assert!(
        error.message.contains("`word` failed 2 of 2 attempts"),
        "{error}"
    );
    assert!(error.message.contains("\"two\": no"), "{error}");
    let written = run(Fallback::Write(b"null".to_vec())).unwrap();
    assert_eq!(written.text, "<null>");
    assert!(!written.reports.fields()[0].verified);
    let accepted = run(Fallback::Accept).unwrap();
    assert_eq!(accepted.text, "<two>");
    assert!(!accepted.reports.fields()[0].verified);
}

#[test]
fn a_value_can_be_replaced_and_a_long_one_runs_over() {
    let bench = Bench::new();
    let mut replaced = bench.field("word", "[a-z]{3}");
    replaced.check = true;
    let mut long = bench.field("long", "[0-9]+;");
    long.max_tokens = 4;
    long.retry.exhausted = Fallback::Write(b"0;".to_vec());
    let actions = vec![
        Action::Field(replaced),
        write("-"),
        Action::Field(long),
        Action::Finish,
    ];
    let outcome = bench
        .run(actions, &["abc", "7777777777"], |_| {
            Verdict::Replace(b"ABC".to_vec())
        })
        .unwrap();
    assert_eq!(outcome.text, "ABC-0;");
}

#[test]
fn a_plugin_may_sample_for_itself() {
    let bench = Bench::new();
    let mut mask = toktrie::SimpleVob::alloc(bench.vocabulary.size() as usize);
    mask.allow_token(b'q'.into());
    mask.allow_token(bench.vocabulary.end()[0]);
    let mask = Arc::new(mask);
    let end = bench.vocabulary.end()[0];
    let mut seen = Vec::new();
    let plan = Box::new(move |observed| {
        if let Observed::Sampled(token) = observed {
            seen.push(token);
        }
        if seen.contains(&end) {
            assert_eq!(seen, [b'q'.into(), b'q'.into(), end]);
            return Ok(vec![Action::Finish]);
        }
        Ok(vec![
            write("."),
            Action::Sample {
                mask: Arc::clone(&mask),
                temperature: Some(0.5),
            },
        ])
    });
    let planner = Scripted {
        plan,
        check: Box::new(accept),
    };
    assert_eq!(bench.walk(planner, &["qq"]).unwrap().text, ".q.q.");
}

#[test]
fn a_plugin_that_gets_nowhere_is_stopped() {
    let bench = Bench::new();
    let error = bench.run(vec![], &[], accept).unwrap_err();
    assert_eq!(error.kind, FailureKind::Internal);
    let plan = Box::new(|_| Ok(vec![write("more ")]));
    let planner = Scripted {
        plan,
        check: Box::new(accept),
    };
    let reports = Reports::new();
    let setting = Setting {
        vocabulary: bench.vocabulary.clone(),
        temperature: 0.0,
        max_tokens: 50,
        on_late: LatePolicy::Hold,
        reports: Arc::clone(&reports),
    };
    let edit = Guided::new(Box::new(planner), setting)
        .advance(None)
        .unwrap();
    // Past the request's limit nothing more is written: the engine ends the sequence there.
    assert!((50..60).contains(&edit.append.len()));
}

#[test]
fn a_field_ends_where_the_next_one_begins() {
    let bench = Bench::new();
    let actions = vec![
        Action::Field(bench.field("number", "[0-9]+")),
        Action::Field(bench.field("?unit", "kg|m")),
        Action::Finish,
    ];
    let outcome = bench.run(actions, &["12", "kg"], accept).unwrap();
    assert_eq!(outcome.text, "12kg");
    assert_eq!(
        outcome.reports.fields().len(),
        1,
        "a template's own choice is not reported"
    );
}

#[test]
fn at_the_requests_limit_a_field_is_left_to_the_engine() {
    let bench = Bench::new();
    let plan = Box::new(move |_| {
        let mut field = bench.field("word", "[a-z]{50}");
        field.max_tokens = 3;
        Ok(vec![Action::Field(field)])
    });
    let setting = Setting {
        vocabulary: vocabulary(),
        temperature: 0.0,
        max_tokens: 3,
        on_late: LatePolicy::Hold,
        reports: Reports::new(),
    };
    let mut guided = Guided::new(
        Box::new(Scripted {
            plan,
            check: Box::new(accept),
        }),
        setting,
    );
    guided.advance(None).unwrap();
    for _ in 0..3 {
        guided.mask().unwrap();
        let edit = guided.advance(Some(b'q'.into())).unwrap();
        // Not a failed attempt: the text so far stands, and the engine says `length`.
        assert_eq!(
            edit.after,
            After::Sample {
                temperature: Some(0.0),
                salt: 0
            }
        );
    }
    assert_eq!(guided.committed(), 3);
}

#[test]
fn a_document_is_closed_before_its_limit_where_the_schema_lets_it() {
    let bench = Bench::new();
    // The beginning, `{"s":"`, is forced.
    let rambling = "abc".repeat(200);
    let run = |schema: &str| {
        let grammar = bench
            .grammars
            .compile(&Source::JsonSchema(schema.into()))
            .unwrap();
        let mut field = bench.field("value", "x");
        field.matcher = grammar.start();
        field.max_tokens = 60;
        bench.run(
            vec![Action::Field(field), Action::Finish],
            &[&rambling],
            accept,
        )
    };
    let open = r#"{"type":"object","properties":{"s":{"type":"string"}},"required":["s"],"additionalProperties":false}"#;
    let closed = run(open).unwrap().text;
    assert!(
        closed.starts_with("{\"s\":\"abcabc") && closed.ends_with("\"}"),
        "{closed}"
    );
    assert!(
        closed.len() > 60,
        "it is not closed long before it has to be: {closed}"
    );
    // A value is missing that nobody but the model can give: there is no early end.
    let needs_more = r#"{"type":"object","properties":{"s":{"type":"string"},"n":{"type":"integer"}},"required":["s","n"],"additionalProperties":false}"#;
    assert_eq!(run(needs_more).unwrap_err().kind, FailureKind::Exhausted);
}

#[test]
fn a_plan_that_ends_with_a_token_leaves_no_values_to_the_next() {
    let bench = Bench::new();
    let mut mask = formwork_sandbox::SimpleVob::alloc(bench.vocabulary.size() as usize);
    mask.allow_token(b'-'.into());
    let mask = Arc::new(mask);
    let (fields, mut plans) = (["first", "second"].map(|name| bench.field(name, "x")), 0);
    let mut fields = fields.into_iter().map(Action::Field);
    let plan = Box::new(move |observed: Observed| {
        plans += 1;
        Ok(match plans {
            1 => {
                let (mask, temperature) = (Arc::clone(&mask), None);
                vec![fields.next().unwrap(), Action::Sample { mask, temperature }]
            }
            2 => {
                assert_eq!(observed, Observed::Sampled(b'-'.into()));
                vec![fields.next().unwrap()]
            }
            _ => {
                let Observed::Completed(values) = observed else {
                    panic!("{observed:?}");
                };
                let names: Vec<_> = values.iter().map(|value| &value.field).collect();
                assert_eq!(names, ["second"]);
                vec![Action::Finish]
            }
        })
    });
    let check = Box::new(accept);
    let outcome = bench.walk(Scripted { plan, check }, &[]).unwrap();
    assert_eq!(outcome.text, "x-x");
}

#[test]
fn a_limit_amid_a_seam_takes_nothing_from_the_template() {
    let bench = Bench::new();
    for exhausted in [Fallback::Accept, Fallback::Write(b"!".to_vec())] {
        for before in ["ab", "{\"", "x", "a"] {
            let mut field = bench.field("word", "c[a-z]*;");
            field.max_tokens = 1;
            field.retry.exhausted = exhausted.clone();
            let actions = vec![
                write(before),
                Action::Field(field),
                write("."),
                Action::Finish,
            ];
            // Nothing fits: the model takes the first token that is allowed, which may be a part of the seam.
            let text = bench.run(actions, &[], accept).unwrap().text;
            let value = text
                .strip_prefix(before)
                .and_then(|rest| rest.strip_suffix('.'));
            assert!(
                value.is_some_and(|value| ["", "!", "c", "c;"].contains(&value)),
                "{text}"
            );
        }
    }
}

#[test]
fn text_that_the_vocabulary_cannot_spell_is_an_error() {
    let bench = Bench::with(vocabulary_without(4));
    let written = bench
        .run(vec![write("a\u{4}b"), Action::Finish], &[], accept)
        .unwrap_err();
    assert_eq!(written.kind, FailureKind::Unsatisfiable);
    assert!(written.message.contains("\\x04"), "{written}");
    let forced = bench.field("word", "a\\x04b");
    let forced = bench
        .run(vec![Action::Field(forced), Action::Finish], &[], accept)
        .unwrap_err();
    assert_eq!(forced.kind, FailureKind::Unsatisfiable);
    let spelled = bench
        .run(vec![write("ab"), Action::Finish], &[], accept)
        .unwrap();
    assert_eq!(spelled.text, "ab");
}
