//! What a retry of one field costs, through the engine: positions run through the model.

use super::harness::{Bench, Scripted, write};
use crate::constrain::{Guided, Reports, Setting};
use formwork_engine::testing::{Scripted as Backend, hashed_logits};
use formwork_engine::{Capacity, Engine, EngineConfig, Event, Request, Sampling, Sink, Usage};
use formwork_sandbox::{Action, LatePolicy, Value, Verdict};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

const FIELDS: usize = 10;

struct Relay(Sender<Event>);

impl Sink for Relay {
    fn emit(&mut self, event: Event) {
        let _ = self.0.send(event);
    }
}

/// Runs the form; the fifth field is refused `refusals` times.
fn run(bench: &Bench, refusals: u32) -> Usage {
    let mut actions = Vec::new();
    for index in 0..FIELDS {
        actions.push(write(&format!("\"field {index}\": \"")));
        let mut field = bench.field(&format!("f{index}"), "[a-z]{8}");
        field.check = index == 4;
        field.retry.attempts = refusals + 1;
        field.retry.hint = Some("(not {value}) ".into());
        actions.push(Action::Field(field));
        actions.push(write("\", "));
    }
    actions.push(Action::Finish);
    let mut plan = Some(actions);
    let check = move |value: &Value| match value.attempts > refusals {
        true => Verdict::Accept,
        false => Verdict::Retry("no".into()),
    };
    let planner = Scripted {
        plan: Box::new(move |_| Ok(plan.take().unwrap_or_default())),
        check: Box::new(check),
    };
    let setting = Setting {
        vocabulary: bench.vocabulary.clone(),
        temperature: 1.0,
        max_tokens: 900,
        on_late: LatePolicy::Hold,
        reports: Reports::new(),
    };
    let vocab_size = bench.vocabulary.size() as usize;
    let capacity = Capacity {
        blocks: 100,
        block_size: 16,
        max_context: 1600,
        vocab_size,
    };
    let backend = Backend::new(capacity, hashed_logits(vocab_size));
    let config = EngineConfig::default();
    let engine = Engine::start(Box::new(backend), bench.vocabulary.env().clone(), config).unwrap();
    let (sender, events) = channel();
    let request = Request {
        prompt: (0..200).map(|token| token % 250).collect(),
        max_tokens: 900,
        sampling: Sampling::default(),
        end: bench.vocabulary.end().to_vec(),
        constraint: Some(Box::new(Guided::new(Box::new(planner), setting))),
        sink: Box::new(Relay(sender)),
        priority: 0,
    };
    engine.submit(vec![request]).unwrap();
    loop {
        match events.recv_timeout(Duration::from_secs(20)).unwrap() {
            Event::Finished { usage, .. } => return usage,
            Event::Failed { error, .. } => panic!("{error}"),
            Event::Tokens(_) => {}
        }
    }
}

#[test]
fn a_field_retry_recomputes_a_fifth_of_a_whole_retry_at_most() {
    let bench = Bench::new();
    let (clean, retried) = (run(&bench, 0), run(&bench, 1));
    // A whole retry runs the output again; its prompt is in the prefix cache.
    let whole = clean.computed - clean.prompt;
    let field = retried.computed - clean.computed;
    assert!(field > 0);
    assert!(
        field * 5 <= whole,
        "a field retry ran {field} positions, a whole one {whole}"
    );
}
