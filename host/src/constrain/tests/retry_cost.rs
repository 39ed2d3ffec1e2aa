//! What a retry of one field costs, through the engine: positions run through the model.

use super::harness::{Bench, Scripted, write};
use crate::constrain::{Guided, Reports, Setting};
use formwork_engine::testing::{Scripted as Backend, hashed_logits};
use formwork_engine::{Capacity, Engine, EngineConfig, Event, Request, Sampling, Sink, Usage};
use formwork_sandbox::{Action, LatePolicy, Retry, Source, Value, Verdict};
use serde_json::{Map, json};
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
fn form(bench: &Bench, refusals: u32) -> Usage {
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
    let check = move |value: &Value| match value.attempts > refusals {
        true => Verdict::Accept,
        false => Verdict::Retry("no".into()),
    };
    run(bench, actions, check)
}

/// What is refused of an object of ten properties.
#[derive(Clone, Copy)]
enum Refused {
    Nothing,
    Whole,
    /// From the value of this property on, counted from 1.
    Property(usize),
}

/// Runs the same form as one object under a JSON Schema.
fn object(bench: &Bench, refused: Refused, hint: Option<&str>) -> Usage {
    let text = json!({"type": "string", "pattern": "^[d-w]{8}$"});
    let names: Vec<String> = (1..=FIELDS).map(|index| format!("field {index}")).collect();
    let properties: Map<_, _> = names
        .iter()
        .map(|name| (name.clone(), text.clone()))
        .collect();
    let schema = json!({
        "type": "object", "properties": properties, "required": names, "additionalProperties": false,
    });
    let source = Source::JsonSchema(schema.to_string().into());
    let mut field = bench.field("value", "x");
    field.matcher = bench.grammars.compile(&source).unwrap().start();
    field.max_tokens = 900;
    field.check = true;
    field.retry.attempts = 2;
    field.retry.hint = hint.map(str::to_owned);
    let check = move |value: &Value| {
        let key = |index| format!("\"field {index}\":");
        let text = String::from_utf8_lossy(&value.bytes);
        let from = match refused {
            _ if value.attempts > 1 => return Verdict::Accept,
            Refused::Nothing => return Verdict::Accept,
            Refused::Whole => 0,
            Refused::Property(index) => text.find(&key(index)).unwrap() + key(index).len(),
        };
        let reason = "no".to_owned();
        Verdict::Retry(Retry { reason, from })
    };
    run(bench, vec![Action::Field(field), Action::Finish], check)
}

/// What one request took: one plan, then nothing.
fn run(
    bench: &Bench,
    actions: Vec<Action>,
    check: impl FnMut(&Value) -> Verdict + Send + 'static,
) -> Usage {
    let mut plan = Some(actions);
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
    let (clean, retried) = (form(&bench, 0), form(&bench, 1));
    // A whole retry runs the output again; its prompt is in the prefix cache.
    let whole = clean.computed - clean.prompt;
    let field = retried.computed - clean.computed;
    assert!(field > 0);
    assert!(
        field * 5 <= whole,
        "a field retry ran {field} positions, a whole one {whole}"
    );
}

/// Positions run and tokens sampled by one retry, as shares of all those of the output.
fn share(bench: &Bench, refused: Refused, hint: Option<&str>) -> (f64, f64) {
    let (clean, retried) = (
        object(bench, Refused::Nothing, hint),
        object(bench, refused, hint),
    );
    let share = |more: usize, whole: usize| more as f64 / whole as f64;
    assert_eq!(
        retried.completion, clean.completion,
        "every value is as long as every other"
    );
    (
        share(
            retried.computed - clean.computed,
            clean.computed - clean.prompt,
        ),
        share(retried.sampled - clean.sampled, clean.sampled),
    )
}

#[test]
fn a_retry_within_an_object_costs_what_lies_after_its_place() {
    let bench = Bench::new();
    let hint = Some("(not {value}) ");
    for index in [1, 5, 9, 10] {
        let (computed, sampled) = share(&bench, Refused::Property(index), None);
        println!(
            "property {index} of {FIELDS}: {computed:.2} of the positions, {sampled:.2} of the samples"
        );
        let after = (FIELDS + 1 - index) as f64 / FIELDS as f64;
        assert!(
            computed <= after + 0.05,
            "{computed} of the output was run for the last {after}"
        );
        assert!(
            sampled <= after + 0.01,
            "{sampled} of the output was sampled for the last {after}"
        );
        if index >= 9 {
            assert!(computed <= 0.2, "{computed}");
        }
        let (computed, sampled) = share(&bench, Refused::Property(index), hint);
        println!("  behind a hint: {computed:.2} of the positions, {sampled:.2} of the samples");
        assert!(
            sampled <= after + 0.01,
            "{sampled} of the output was sampled for the last {after}"
        );
    }
    let (computed, sampled) = share(&bench, Refused::Whole, None);
    println!("the whole: {computed:.2} of the positions, {sampled:.2} of the samples");
    assert!((0.95..=1.05).contains(&computed), "{computed}");
}
