//! What a decode step allocates: in the backend nothing but the answer's vector, and in the engine around it a
//! few small things per row. A test of its own, and a single one, since it counts what the whole process does.

// Tests may panic; the lint's own exception knows test functions only, not their helpers.
#![allow(clippy::unwrap_used)]

mod support;

use formwork_engine::{
    Backend, Engine, EngineConfig, Event, Request, Row, SampleRow, Sampling, SimpleVob, Sink,
    StepInput, WantedLogits,
};
use formwork_model::{CpuBackend, CpuConfig, KvDtype, Model};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;
use support::{Driver, smollm2};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// `finish` returns a vector.
const ALLOCATIONS: usize = 1;
/// Most allocations of the engine and the backend per step and row: the row's tokens and block table, and the
/// chunk of text that its sink gets.
const PER_ROW: usize = 6;

fn allocations() -> usize {
    let stats = ALLOCATOR.stats();
    stats.allocations + stats.reallocations
}

/// Allocations of each of some decode steps of eight rows, masks given as told.
fn count(model: &Arc<Model>, kv_dtype: KvDtype, wanted: WantedLogits) -> Vec<usize> {
    let mut driver = Driver::with_dtype(model, kv_dtype, 2, [8, 64]);
    let which: Vec<usize> = (0..8)
        .map(|index| driver.add(&[65 + index, 66, 67]))
        .collect();
    let mut mask = SimpleVob::alloc(model.info().vocab_size);
    (60..80).for_each(|token| mask.allow_token(token));
    let mask = (wanted == WantedLogits::Masked).then(|| Arc::new(mask));
    let greedy = Sampling {
        temperature: 0.0,
        ..Sampling::default()
    };
    let drawn = Sampling {
        top_k: 40,
        top_p: 0.95,
        ..Sampling::default()
    };
    let samplings = [&greedy, &drawn];
    let mut counts = Vec::new();
    for _ in 0..12 {
        let prepared: Vec<Row> = which
            .iter()
            .map(|&index| Row {
                logits: wanted,
                ..driver.row(index, 64)
            })
            .collect();
        let input = StepInput { rows: prepared };
        let history = [65u32; 4];
        let rows: Vec<SampleRow<'_>> = (0..8)
            .map(|row| SampleRow {
                row,
                mask: mask.clone(),
                sampling: samplings[row % 2],
                position: 3,
                history: &history,
                prompt_len: 3,
            })
            .collect();
        let before = allocations();
        let ticket = driver.backend.launch(input).unwrap();
        driver.backend.wait(&ticket).unwrap();
        let sampled = driver.backend.finish(ticket, &rows).unwrap();
        counts.push(allocations() - before);
        for (&index, sampled) in which.iter().zip(sampled) {
            let sequence = &mut driver.sequences[index];
            sequence.computed = sequence.tokens.len();
            sequence.tokens.push(sampled.token.unwrap());
        }
    }
    counts
}

/// Tells the count of allocations at two tokens of its sequence.
struct Meter {
    tokens: usize,
    told: Sender<usize>,
}

const METERED: [usize; 2] = [40, 140];

impl Sink for Meter {
    fn emit(&mut self, event: Event) {
        if let Event::Tokens(chunk) = event {
            self.tokens += chunk.tokens.len();
            if METERED.contains(&self.tokens) {
                let _ = self.told.send(allocations());
            }
        }
    }
}

/// Allocations per step and row of eight sequences that run freely.
fn engine_count() -> usize {
    let model = Arc::new(Model::tiny(1));
    let config = CpuConfig {
        kv_blocks: 128,
        block_size: 16,
        kv_dtype: KvDtype::F16,
        threads: 2,
        max_context: 256,
    };
    let backend = CpuBackend::new(Arc::clone(&model), config).unwrap();
    let env = model.tokenizer().tok_env();
    let engine = Engine::start(Box::new(backend), env, EngineConfig::default()).unwrap();
    let (told, counts) = channel();
    let request = |_| Request {
        prompt: vec![65, 66, 67],
        max_tokens: 200,
        sampling: Sampling::default(),
        end: vec![],
        constraint: None,
        sink: Box::new(Meter {
            tokens: 0,
            told: told.clone(),
        }),
        priority: 0,
    };
    engine.submit((0..8).map(request).collect()).unwrap();
    let mut counts: Vec<usize> = (0..16)
        .map(|_| counts.recv_timeout(Duration::from_secs(60)).unwrap())
        .collect();
    counts.sort_unstable();
    // From the last row's first mark to the first row's second one.
    (counts[8] - counts[7]) / (METERED[1] - METERED[0]) / 8
}

#[test]
fn a_decode_step_allocates_its_answer_and_nothing_else() {
    let per_row = engine_count();
    println!("the engine and the backend: {per_row} allocations per step and row");
    assert!(per_row <= PER_ROW);
    let tiny = Arc::new(Model::tiny(1));
    for model in std::iter::once(tiny).chain(smollm2()) {
        for kv_dtype in KvDtype::ALL {
            for wanted in [WantedLogits::All, WantedLogits::Masked] {
                let counts = count(&model, kv_dtype, wanted);
                println!("{kv_dtype}, {wanted:?}: {counts:?} allocations in each step");
                // The first steps make room. Which thread does what differs from step to step, so another
                // thread may make room for itself later: most steps must be without.
                let clean = counts[4..].iter().filter(|&&count| count == ALLOCATIONS);
                assert!(clean.count() >= 6, "{counts:?}");
            }
        }
    }
}
