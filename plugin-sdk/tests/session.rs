//! Checks, retries and fallbacks; formats that plan step by step; what a broken format gets.

use formwork_plugin_sdk::FailureKind;
use formwork_plugin_sdk::log::Level;
use formwork_plugin_sdk::prelude::*;
use formwork_plugin_sdk::testing::Trace;

/// Params that choose among the formats of this file.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Params {
    fallback: String,
    fault: String,
}

const PARAMS: &str = "{}";

/// A priority that must not be P9, three times at most.
struct Priority(Params);

impl Format for Priority {
    type Params = Params;
    const PARAMS: &'static str = PARAMS;

    fn open(params: Params, _: &Request) -> Result<Self, Failure> {
        Ok(Self(params))
    }

    fn template(&self) -> Template {
        let field = Field::regex("priority", "P[0-9]")
            .check(|value| match value.text().as_ref() {
                "P9" => Verdict::retry("P9 is not a priority"),
                "P0" => Verdict::replace("P1"),
                "P8" => Verdict::Fail(Failure::unsatisfiable("P8 ends it")),
                _ => Verdict::Accept,
            })
            .retry(3)
            .heat(0.5)
            .hint("{reason}, so not {value}");
        let field = match self.0.fallback.as_str() {
            "write" => field.or_write("none"),
            "accept" => field.or_accept(),
            _ => field,
        };
        let again = field.clone();
        Template::new()
            .literal("<")
            .field(field)
            .literal("|")
            .field(again)
            .literal(">")
    }
}

#[test]
fn a_refused_value_is_tried_again() {
    let outcome = Trace::of::<Priority>(json!({}))
        .attempt("priority", ["P9", "P2"])
        .attempt("priority", ["P9", "P9", "P0"])
        .text("<P2|P0>")
        .run();
    outcome.assert_output("<P2|P1>");
    assert_eq!(outcome.retries, 3);
    let attempts: Vec<_> = outcome.fields.iter().map(|field| field.attempts).collect();
    assert_eq!(attempts, [2, 3]);
    assert_eq!(outcome.fields[0].reasons, ["P9 is not a priority"]);
}

#[test]
fn used_up_attempts_end_as_the_policy_says() {
    let run = |fallback: &str| {
        Trace::of::<Priority>(json!({"fallback": fallback}))
            .attempt("priority", ["P9", "P9", "P9"])
            .text("<P9|P3>")
            .run()
    };
    run("fail").assert_failure(FailureKind::Exhausted, "P9 is not a priority");
    run("write").assert_output("<none|P3>");
    let accepted = run("accept");
    accepted.assert_output("<P9|P3>");
    assert!(!accepted.fields[0].verified && accepted.fields[1].verified);
}

#[test]
fn a_check_may_end_the_request() {
    let outcome = Trace::of::<Priority>(json!({})).text("<P8|P1>").run();
    outcome.assert_failure(FailureKind::Unsatisfiable, "P8 ends it");
}

#[test]
fn a_trace_without_enough_attempts_says_so() {
    let outcome = Trace::of::<Priority>(json!({})).text("<P9|P1>").run();
    outcome.assert_rejected(1, "`.attempt`");
    let outcome = Trace::of::<Priority>(json!({}))
        .attempt("priority", ["Q1"])
        .text("<P9|P1>")
        .run();
    outcome.assert_rejected(1, "allowed: \"P\"");
}

/// A list without repetitions, which masks cannot see to, and of which a check has an opinion too.
struct Unlike(Params);

impl Format for Unlike {
    type Params = Params;
    const PARAMS: &'static str = PARAMS;

    fn open(params: Params, _: &Request) -> Result<Self, Failure> {
        Ok(Self(params))
    }

    fn template(&self) -> Template {
        let schema = json!({"type": "array", "items": {"type": "integer"}, "uniqueItems": true});
        let field = || Field::json_schema("list", schema.to_string());
        let short = |value: &Value| match value.bytes.len() {
            0..6 => Ok(()),
            length => Err(format!("{length} bytes are too many")),
        };
        let first = match self.0.fallback.as_str() {
            "check" => field().check(short).retry(4),
            "accept" => field().or_accept(),
            _ => field(),
        };
        Template::new().field(first).literal("|").field(field())
    }
}

#[test]
fn what_masks_leave_open_of_a_schema_is_validated_unasked() {
    let run = |fallback: &str, first: &[&str], second: &[&str]| {
        let text = [first[first.len() - 1], second[second.len() - 1]].join("|");
        Trace::of::<Unlike>(json!({"fallback": fallback}))
            .attempt("list", first)
            .attempt("list", second)
            .text(text)
            .run()
    };
    let outcome = run("", &["[1,1]", "[1,2]"], &["[2,2]", "[3,3]", "[3]"]);
    outcome.assert_output("[1,2]|[3]");
    let attempts: Vec<_> = outcome.fields.iter().map(|field| field.attempts).collect();
    assert_eq!(attempts, [2, 3]);
    let outcome = run("check", &["[1,1]", "[1,2,3]", "[4,4]", "[4]"], &["[5]"]);
    outcome.assert_output("[4]|[5]");
    assert!(outcome.fields[0].reasons[0].contains("non-unique"));
    assert_eq!(outcome.fields[0].reasons[1], "7 bytes are too many");
    run("", &["[1,1]", "[1,1]", "[1,1]"], &["[1]"])
        .assert_failure(FailureKind::Exhausted, "non-unique");
    let accepted = run("accept", &["[1,1]", "[1,1]", "[1,1]"], &["[1]"]);
    accepted.assert_output("[1,1]|[1]");
    assert!(!accepted.fields[0].verified && accepted.fields[1].verified);
}

/// Walks a matcher token by token, then counts what it saw in a field.
struct Steps {
    matcher: Matcher,
    seen: Vec<u8>,
    stage: u32,
}

impl Format for Steps {
    type Params = Params;
    const PARAMS: &'static str = PARAMS;

    fn open(_: Params, request: &Request) -> Result<Self, Failure> {
        log::info(format!("{} tokens of prompt", request.prompt.len()));
        let grammar = Grammar::compile(&Source::Regex("a+b".into()))?;
        Ok(Self {
            matcher: grammar.start(),
            seen: Vec::new(),
            stage: 0,
        })
    }

    fn plan(&mut self, seen: Observed) -> Result<Plan, Failure> {
        self.stage += 1;
        match seen {
            Observed::Started => Ok(Plan::new().write("> ").sample(self.matcher.mask())),
            Observed::Sampled(token) => {
                self.seen.extend(vocabulary::bytes(token));
                self.matcher.commit(token)?;
                if !self.matcher.accepting() {
                    return Ok(Plan::new().sample_at(self.matcher.mask(), 0.5));
                }
                let count = self.seen.len();
                Ok(Plan::new()
                    .write("=")
                    .field(Field::regex("count", count.to_string()).checked()))
            }
            Observed::Completed(values) => {
                assert_eq!(values[0].field, "count");
                Ok(Plan::new().finish())
            }
        }
    }

    fn check(&mut self, value: &Value) -> Verdict {
        let count: usize = value.json().unwrap_or_default();
        Verdict::from(if count == self.seen.len() {
            Ok(())
        } else {
            Err("wrong")
        })
    }
}

#[test]
fn a_format_plans_token_by_token() {
    let trace = || Trace::of::<Steps>(json!({})).prompt("hello");
    let outcome = trace().text("> aaab=4").run();
    outcome.assert_output("> aaab=4");
    assert_eq!(outcome.log, [(Level::Info, "5 tokens of prompt".into())]);
    trace()
        .text("> b")
        .run()
        .assert_rejected(2, "the mask does not allow \"b\"; allowed: \"a\"");
    trace()
        .text("> aa")
        .run()
        .assert_rejected(4, "the end of the text");
}

/// Does what a format must not do.
struct Broken(Params);

impl Format for Broken {
    type Params = Params;
    const PARAMS: &'static str = PARAMS;

    fn open(params: Params, _: &Request) -> Result<Self, Failure> {
        Ok(Self(params))
    }

    fn plan(&mut self, _: Observed) -> Result<Plan, Failure> {
        let field = Field::regex("n", "[0-9]");
        Ok(match self.0.fault.as_str() {
            "empty" => Plan::new(),
            "past the end" => Plan::new().finish().write("x"),
            "no attempt" => Plan::new().field(field.retry(0)).finish(),
            "hot" => Plan::new().field(field.temperature(f32::NAN)).finish(),
            "nameless" => Plan::new().field(Field::regex("", "x")).finish(),
            "regex" => Plan::new().field(Field::regex("n", "(")).finish(),
            "schema" => Plan::new()
                .field(Field::json_schema("n", "{\"enum\":[]}"))
                .finish(),
            "hidden schema" => {
                let part = Template::new()
                    .literal("x")
                    .field(Field::json_schema("n", "7"));
                Template::new().optional("o", part).into()
            }
            "tangled" => Template::new().optional("o", Template::new()).into(),
            _ => Plan::new().write("x"),
        })
    }
}

#[test]
fn a_broken_format_fails_with_its_reason() {
    use FailureKind::{Internal, InvalidParams, Unsatisfiable};
    let cases = [
        ("empty", Internal, "the plan is empty"),
        ("past the end", Internal, "goes on after its `finish`"),
        ("no attempt", Internal, "field `n`: `attempts` is 0"),
        ("hot", Internal, "field `n`: temperature"),
        ("nameless", Internal, "the name is empty"),
        ("regex", InvalidParams, "field `n`: "),
        ("schema", Unsatisfiable, "field `n`: "),
        (
            "hidden schema",
            InvalidParams,
            "field `n`: a JSON Schema is an object",
        ),
        ("tangled", Internal, "part `o`"),
    ];
    for (fault, kind, part) in cases {
        let outcome = Trace::of::<Broken>(json!({"fault": fault})).run();
        let failure = outcome
            .failure()
            .unwrap_or_else(|| panic!("{fault}: {outcome}"));
        assert_eq!(failure.kind, kind, "{fault}: {failure}");
        assert!(failure.message.contains(part), "{fault}: {failure}");
    }
}

#[test]
fn masks_are_sets() {
    let mut mask = Mask::along("ab");
    assert!(mask.allows(b'a'.into()) && !mask.allows(b'b'.into()));
    mask.add(&Mask::only(&[b'b'.into(), 9_999]));
    assert_eq!(mask.count(), 2);
    mask.remove(&Mask::only(&[b'a'.into()]));
    mask.keep(&Mask::everything());
    assert!(mask.allows(b'b'.into()) && mask.count() == 1);
    let words = vocabulary::describe().size.div_ceil(32) as usize;
    assert!(Mask::from_bits(&vec![0; words + 1]).is_err());
    let bits = Mask::from_bits(&vec![u32::MAX; words]).unwrap();
    assert_eq!(bits.count(), vocabulary::describe().size);
    assert_eq!(Mask::nothing().count(), 0);
}

#[test]
fn matchers_go_back_and_fork() {
    let grammar = Grammar::compile(&Source::Choice(vec!["abc".into(), "abd".into()])).unwrap();
    let mut matcher = grammar.start();
    assert_eq!(matcher.forced(), b"ab");
    matcher.commit(b'a'.into()).unwrap();
    let fork = matcher.clone();
    matcher.commit(b'b'.into()).unwrap();
    assert!(matcher.commit(b'x'.into()).is_err());
    matcher.commit(b'd'.into()).unwrap();
    assert!(matcher.accepting() && !fork.accepting());
    matcher.rollback(2).unwrap();
    assert!(matcher.mask().allows(b'b'.into()) && matcher.mask().count() == 1);
    assert!(matcher.rollback(9).is_err());
}
