//! Validated values from end to end: a real component decides, the walk carries out, a model that knows
//! nothing of the schema writes. What comes out is valid, or there is a typed refusal.

use std::sync::{Arc, Mutex};

use formwork::constrain::{Guided, Planner, Reports, Setting};
use formwork_engine::{After, Constraint, ConstraintError, FailureKind};
use formwork_sandbox::{
    Action, GuestError, LatePolicy, LogLine, Observed, Plugin, Session, TokenId, Value, Verdict,
    Vocabulary,
};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value as Json, json};

use crate::world::{admitted, open, vocabulary};

const CASES: usize = 150;
const MAX_TOKENS: usize = 400;

/// Each value that was judged, and how much of it is kept where it is written again.
type Judged = Vec<(Vec<u8>, Option<usize>)>;

/// A session that tells what it judged.
struct Watched {
    session: Session,
    judged: Arc<Mutex<Judged>>,
}

impl Planner for Watched {
    fn plan(&mut self, observed: Observed) -> Result<Vec<Action>, GuestError> {
        self.session.plan(observed)
    }

    fn check(&mut self, value: &Value) -> Result<Verdict, GuestError> {
        let verdict = self.session.check(value)?;
        let from = match &verdict {
            Verdict::Retry(retry) => Some(retry.from),
            _ => None,
        };
        let mut judged = self.judged.lock().unwrap();
        judged.push((value.bytes.clone(), from));
        Ok(verdict)
    }

    fn take_log(&mut self) -> Vec<LogLine> {
        self.session.take_log()
    }
}

/// What came of one request.
struct Outcome {
    text: Result<String, ConstraintError>,
    judged: Judged,
    tokens: usize,
    retracted: usize,
}

/// Lets a model that takes any allowed token write a value, and keeps the engine's books.
fn write(session: Session, vocabulary: &Vocabulary, seed: u64) -> Outcome {
    let judged = Arc::new(Mutex::new(Vec::new()));
    let watched = Watched {
        session,
        judged: Arc::clone(&judged),
    };
    let setting = Setting {
        vocabulary: vocabulary.clone(),
        temperature: 1.0,
        max_tokens: MAX_TOKENS,
        on_late: LatePolicy::Hold,
        reports: Reports::new(),
    };
    let mut guided = Guided::new(Box::new(watched), setting);
    let (mut tokens, mut retracted) = (Vec::<TokenId>::new(), 0);
    let mut random = seed.wrapping_mul(2).wrapping_add(1);
    let mut step = |sampled: Option<TokenId>| -> Result<(After, Option<TokenId>), ConstraintError> {
        tokens.extend(sampled);
        let edit = guided.advance(sampled)?;
        retracted += tokens.len() - edit.keep;
        tokens.truncate(edit.keep);
        tokens.extend(edit.append);
        assert_eq!(guided.committed(), tokens.len());
        if edit.after == After::Finish {
            return Ok((edit.after, None));
        }
        assert!(tokens.len() < MAX_TOKENS, "a small value does not end");
        let mask = guided.mask()?;
        let mut allowed = Vec::new();
        mask.iter_set_entries(|token| allowed.push(token as TokenId));
        assert!(!allowed.is_empty(), "the mask is empty");
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        Ok((edit.after, Some(allowed[random as usize % allowed.len()])))
    };
    let mut sampled = None;
    let ended = loop {
        match step(sampled) {
            Ok((After::Finish, _)) => break Ok(()),
            Ok((_, next)) => sampled = next,
            Err(error) => break Err(error),
        }
    };
    let text: Vec<u8> = tokens
        .iter()
        .flat_map(|&t| vocabulary.bytes(t))
        .copied()
        .collect();
    let judged = judged.lock().unwrap().clone();
    Outcome {
        text: ended.map(|()| String::from_utf8(text).unwrap()),
        judged,
        tokens: tokens.len(),
        retracted,
    }
}

/// Small values.
fn leaves() -> impl Strategy<Value = Json> {
    let number = json!({"type": "integer", "minimum": 0, "maximum": 3});
    prop_oneof![
        Just(json!({"type": "boolean"})),
        Just(json!({"enum": ["a", "b", "12"]})),
        Just(number.clone()),
        (0..4).prop_map(move |odd| {
            let mut schema = number.clone();
            schema["not"] = json!({"const": odd});
            schema
        }),
    ]
}

/// A keyword that masks do not enforce in full, on an object with properties `a`, `b` and `c`.
fn twists() -> impl Strategy<Value = Json> {
    let present = |names: &[&str]| json!({"required": names});
    prop_oneof![
        Just(json!({"not": present(&["a", "b"])})),
        Just(json!({"dependentRequired": {"a": ["c"], "c": ["b"]}})),
        Just(json!({"dependentSchemas": {"b": {"properties": {"c": false}}}})),
        Just(json!({"propertyNames": {"not": {"const": "b"}}})),
        Just(
            json!({"if": present(&["a"]), "then": present(&["c"]), "else": {"properties": {"b": false}}})
        ),
        Just(json!({"oneOf": [present(&["a"]), present(&["b"])]})),
        (leaves(), leaves()).prop_map(|(a, c)| json!({
            "if": {"properties": {"a": a}, "required": ["a"]}, "then": {"properties": {"c": c}},
            "else": {"maxProperties": 2},
        })),
    ]
}

fn schemas() -> impl Strategy<Value = Json> {
    leaves().prop_recursive(2, 12, 4, |inner| {
        let list = (inner.clone(), 0..3u32).prop_map(|(items, least)| json!({
            "type": "array", "items": items, "minItems": least, "maxItems": 4, "uniqueItems": true,
        }));
        let members = prop::array::uniform3(inner);
        let object = (members, twists()).prop_map(|([a, b, c], twist)| {
            let mut schema = twist;
            schema["type"] = json!("object");
            schema["properties"] = json!({"a": a, "b": b, "c": c});
            schema["additionalProperties"] = json!(false);
            schema
        });
        prop_oneof![list, object]
    })
}

/// What must hold of one request, and whether it was mended by a further attempt that kept something.
fn judge(plugin: &Plugin, vocabulary: &Vocabulary, schema: &Json, seed: u64) -> Option<bool> {
    let session = match open(plugin, &json!({"schema": schema, "attempts": 8})) {
        Ok(session) => session,
        // No value satisfies some of them, which is plain to see for some of these.
        Err(GuestError::Failure(_)) => return None,
        Err(error) => panic!("{schema}: {error}"),
    };
    let outcome = write(session, vocabulary, seed);
    for pair in outcome.judged.windows(2) {
        let (value, from) = &pair[0];
        let kept = &value[..from.unwrap()];
        assert!(
            pair[1].0.starts_with(kept),
            "{schema}: {:?}",
            outcome.judged
        );
    }
    match &outcome.text {
        Ok(text) => {
            let value: Json = serde_json::from_str(text).unwrap();
            assert!(jsonschema::is_valid(schema, &value), "{schema}: {text}");
            if outcome.judged.len() < 2 {
                assert_eq!(
                    outcome.retracted, 0,
                    "{schema}: {text} in {} tokens",
                    outcome.tokens
                );
            }
        }
        Err(error) => assert_eq!(error.kind, FailureKind::Exhausted, "{schema}: {error}"),
    }
    let kept = outcome
        .judged
        .iter()
        .any(|(_, from)| from.is_some_and(|from| from > 0));
    Some(outcome.text.is_ok() && kept)
}

#[test]
fn what_comes_out_is_valid_or_refused_and_what_is_kept_is_unchanged() {
    let plugin = admitted("formwork/json-schema");
    let vocabulary = vocabulary();
    let mut runner = TestRunner::new_with_rng(
        Config::default(),
        proptest::test_runner::TestRng::deterministic_rng(
            proptest::test_runner::RngAlgorithm::ChaCha,
        ),
    );
    let (mut written, mut mended) = (0, 0);
    for seed in 0..CASES {
        let schema = schemas().new_tree(&mut runner).unwrap().current();
        if let Some(kept) = judge(&plugin, &vocabulary, &schema, seed as u64) {
            written += 1;
            mended += usize::from(kept);
        }
    }
    println!("{written} of {CASES} schemas have values; {mended} values were mended from within");
    assert!(
        written > CASES / 2 && mended > CASES / 20,
        "{written}, {mended}"
    );
}
