//! What a constraint may do, and what becomes of one that fails.

use super::*;

/// Answers from a list of edits; every mask allows just one token.
struct Script {
    edits: std::vec::IntoIter<Edit>,
    len: usize,
    allow: u8,
    delay: Duration,
    late_limit: Option<u32>,
}

impl Script {
    fn new(edits: Vec<Edit>) -> Self {
        Self {
            edits: edits.into_iter(),
            len: 0,
            allow: b'x',
            delay: Duration::ZERO,
            late_limit: None,
        }
    }
}

impl Constraint for Script {
    fn advance(&mut self, sampled: Option<TokenId>) -> Result<Edit, ConstraintError> {
        self.len += usize::from(sampled.is_some());
        let edit = self
            .edits
            .next()
            .ok_or_else(|| ConstraintError::internal("no edit is left"))?;
        self.len = edit.keep + edit.append.len();
        Ok(edit)
    }

    fn mask(&mut self) -> Result<Arc<SimpleVob>, ConstraintError> {
        std::thread::sleep(self.delay);
        let mut mask = SimpleVob::alloc(vocab());
        if self.allow != 0 {
            mask.allow_token(TokenId::from(self.allow));
        }
        Ok(Arc::new(mask))
    }

    fn committed(&self) -> usize {
        self.len
    }

    fn late_limit(&self) -> Option<u32> {
        self.late_limit
    }
}

fn edit(keep: usize, append: &[u8], released: usize, after: After) -> Edit {
    Edit {
        keep,
        append: append.iter().map(|&b| b.into()).collect(),
        released,
        after,
    }
}

const SAMPLE: After = After::Sample {
    temperature: None,
    salt: 0,
};

fn run(engine: &Engine, script: Script) -> Outcome {
    let (mut request, events) = request(b"prompt", 40, 1);
    request.constraint = Some(Box::new(script));
    engine.submit(vec![request]).expect("the engine takes it");
    gather(&events)
}

#[test]
fn edits_force_retract_and_release() {
    let engine = engine(64, EngineConfig::default());
    let outcome = run(
        &engine,
        Script::new(vec![
            edit(0, b"head:", 5, SAMPLE),
            // One sampled `x`, held back; then taken away for a hint that nobody is to see.
            edit(6, b"", 5, SAMPLE),
            edit(5, b"(no!)", 5, SAMPLE),
            // The value is accepted, the hint goes.
            edit(5, b"xx;", 8, SAMPLE),
            // Retokenised without a change of the text that was shown.
            edit(7, b";tail", 12, After::Finish),
        ]),
    );
    assert_eq!(String::from_utf8_lossy(&outcome.bytes), "head:xx;tail");
    assert_eq!(outcome.reason, Some(FinishReason::Stop));
    assert_eq!(outcome.usage.sampled, 4);
    assert_eq!(outcome.usage.completion, 12);
    assert_eq!(outcome.tokens.len(), 12);
    assert_idle(&engine);
}

#[test]
fn a_constraint_fails_alone() {
    let engine = engine(64, EngineConfig::default());
    let (mate, mate_events) = request(b"bystander", 60, 5);
    engine.submit(vec![mate]).expect("the engine takes it");
    type Expected = fn(&SequenceError) -> bool;
    let bad: Vec<(Script, Expected)> = vec![
        (
            Script {
                allow: 0,
                ..Script::new(vec![edit(0, b"", 0, SAMPLE)])
            },
            |e| matches!(e, SequenceError::EmptyMask { position: 6 }),
        ),
        (Script::new(vec![]), |e| {
            matches!(e, SequenceError::Constraint(_))
        }),
        (Script::new(vec![edit(3, b"", 0, SAMPLE)]), |e| {
            matches!(e, SequenceError::Constraint(_))
        }),
        (Script::new(vec![edit(0, b"a", 2, SAMPLE)]), |e| {
            matches!(e, SequenceError::Constraint(_))
        }),
    ];
    for (script, expected) in bad {
        let error = run(&engine, script).error.expect("it fails");
        assert!(expected(&error), "{error:?}");
    }
    assert_eq!(gather(&mate_events).tokens, alone(b"bystander", 60, 5));
    assert_idle(&engine);
}

#[test]
fn a_late_mask_holds_up_its_own_row_only() {
    let config = EngineConfig {
        mask_wait_ms: 1,
        late_limit: 10_000,
        ..EngineConfig::default()
    };
    let engine = engine(64, config);
    let slow = Script {
        delay: Duration::from_millis(60),
        ..Script::new(vec![
            edit(0, b"", 0, SAMPLE),
            edit(1, b"", 1, After::Finish),
        ])
    };
    let (mut late, late_events) = request(b"prompt", 40, 1);
    late.constraint = Some(Box::new(slow));
    let (quick, quick_events) = request(b"quick", 8, 2);
    engine
        .submit(vec![late, quick])
        .expect("the engine takes it");
    assert_eq!(gather(&quick_events).tokens, alone(b"quick", 8, 2));
    assert_eq!(gather(&late_events).bytes, b"x");
    assert!(engine.stats().late_masks > 0);
    assert_idle(&engine);
}

#[test]
fn a_constraint_may_rather_fail_than_be_late() {
    let config = EngineConfig {
        mask_wait_ms: 1,
        ..EngineConfig::default()
    };
    let engine = engine(64, config);
    let slow = Script {
        delay: Duration::from_millis(200),
        late_limit: Some(0),
        ..Script::new(vec![edit(0, b"", 0, SAMPLE)])
    };
    let error = run(&engine, slow).error;
    assert_eq!(
        error,
        Some(SequenceError::Late {
            position: 6,
            misses: 1
        })
    );
    assert_idle(&engine);
}

#[test]
fn forced_text_ends_at_the_requests_limit() {
    let engine = engine(64, EngineConfig::default());
    let (mut request, events) = request(b"prompt", 5, 1);
    let finished = edit(0, b"longer than five", 16, After::Finish);
    request.constraint = Some(Box::new(Script::new(vec![finished])));
    engine.submit(vec![request]).expect("the engine takes it");
    let outcome = gather(&events);
    assert_eq!(outcome.bytes, b"longe");
    assert_eq!(outcome.reason, Some(FinishReason::Length));
    assert_eq!(outcome.usage.completion, 5);
    assert_idle(&engine);
}
