//! The engine against the scripted backend: what runs together must come out as if it ran alone.

mod beginnings;
mod constraints;
mod overlap;
mod slow_masks;
#[path = "../support/mod.rs"]
mod support;

use formwork_engine::testing::{Scripted, hashed_logits};
use formwork_engine::{
    After, Capacity, Constraint, ConstraintError, Edit, Engine, EngineConfig, Event, FinishReason,
    Request, Sampling, SequenceError, SimpleVob, SubmitError, TokenId, Usage,
};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use support::Relay;
use toktrie::ApproximateTokEnv;

const WAIT: Duration = Duration::from_secs(20);

/// Everything a sequence told, once it is over.
#[derive(Debug, Default)]
struct Outcome {
    bytes: Vec<u8>,
    tokens: Vec<TokenId>,
    reason: Option<FinishReason>,
    error: Option<SequenceError>,
    usage: Usage,
}

fn gather(events: &Receiver<Event>) -> Outcome {
    let mut outcome = Outcome::default();
    loop {
        match events.recv_timeout(WAIT).expect("the sequence ends") {
            Event::Tokens(chunk) => {
                outcome.bytes.extend(chunk.bytes);
                outcome.tokens.extend(chunk.tokens.iter().map(|t| t.token));
            }
            Event::Finished { reason, usage } => {
                return Outcome {
                    reason: Some(reason),
                    usage,
                    ..outcome
                };
            }
            Event::Failed { error, usage } => {
                return Outcome {
                    error: Some(error),
                    usage,
                    ..outcome
                };
            }
        }
    }
}

fn env() -> toktrie::TokEnv {
    ApproximateTokEnv::single_byte_env()
}

fn vocab() -> usize {
    env().tok_trie().vocab_size()
}

fn engine(blocks: usize, config: EngineConfig) -> Engine {
    let capacity = Capacity {
        blocks,
        block_size: 4,
        max_context: 256,
        vocab_size: vocab(),
    };
    let backend = Scripted::new(capacity, hashed_logits(vocab()));
    Engine::start(Box::new(backend), env(), config).expect("the engine takes it")
}

fn request(prompt: &[u8], max_tokens: usize, seed: u64) -> (Request, Receiver<Event>) {
    let (sender, events) = channel();
    let request = Request {
        prompt: prompt.iter().map(|&b| TokenId::from(b)).collect(),
        max_tokens,
        sampling: Sampling {
            seed,
            ..Sampling::default()
        },
        end: vec![],
        constraint: None,
        sink: Box::new(Relay(sender)),
        priority: 0,
    };
    (request, events)
}

fn alone(prompt: &[u8], max_tokens: usize, seed: u64) -> Vec<TokenId> {
    let engine = engine(64, EngineConfig::default());
    let (request, events) = request(prompt, max_tokens, seed);
    engine.submit(vec![request]).expect("the engine takes it");
    gather(&events).tokens
}

/// Waits until the engine is idle, then checks that every block is back.
fn assert_idle(engine: &Engine) {
    for _ in 0..2000 {
        let stats = engine.stats();
        if stats.running == 0 && stats.waiting == 0 {
            assert_eq!(stats.blocks_leased, 0, "{stats:?}");
            assert_eq!(stats.blocks_free + stats.blocks_cached, stats.blocks_total);
            assert_eq!(stats.unmasked_tokens, 0);
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("the engine does not come to rest: {:?}", engine.stats());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Any mix of sequences, in a pool that may be far too small for all of them at once, gives each the
    /// tokens it would have had alone: through chunked prefill, prefix hits and preemption.
    #[test]
    fn batch_mates_do_not_matter(
        work in prop::collection::vec((1usize..40, 1usize..30, 0u64..3, prop::bool::ANY), 1..12),
        blocks in 20usize..60,
        token_budget in 1usize..40,
        max_rows in 1usize..8,
    ) {
        let engine = engine(blocks, EngineConfig { token_budget, max_rows, ..EngineConfig::default() });
        let mut running = Vec::new();
        for (len, max_tokens, seed, shared) in work {
            let start = if shared { 0 } else { len as u8 };
            let prompt: Vec<u8> = (0..len as u8).map(|i| i.wrapping_mul(7).wrapping_add(start)).collect();
            let (request, events) = request(&prompt, max_tokens, seed);
            engine.submit(vec![request]).expect("the engine takes it");
            running.push((prompt, max_tokens, seed, events));
        }
        for (prompt, max_tokens, seed, events) in running {
            let outcome = gather(&events);
            prop_assert_eq!(outcome.reason, Some(FinishReason::Length));
            prop_assert_eq!(outcome.tokens, alone(&prompt, max_tokens, seed));
        }
        assert_idle(&engine);
    }
}

#[test]
fn a_prefix_is_computed_once() {
    let engine = engine(64, EngineConfig::default());
    let prompt: Vec<u8> = (0..41).collect();
    let group: Vec<_> = (0..8).map(|seed| request(&prompt, 4, seed)).collect();
    let (requests, events): (Vec<_>, Vec<_>) = group.into_iter().unzip();
    engine.submit(requests).expect("the engine takes it");
    let cached: Vec<usize> = events.iter().map(|e| gather(e).usage.cached).collect();
    // 40 of 41 positions are in full blocks of 4; the first sequence computes them for all.
    assert_eq!(cached, [0, 40, 40, 40, 40, 40, 40, 40]);
    assert_idle(&engine);
}

#[test]
fn refusals_take_nothing_in() {
    let engine = engine(
        8,
        EngineConfig {
            queue_limit: 2,
            ..EngineConfig::default()
        },
    );
    let group: Vec<_> = (0..3).map(|seed| request(b"abc", 4, seed).0).collect();
    assert_eq!(
        engine.submit(group),
        Err(SubmitError::QueueFull {
            waiting: 0,
            limit: 2
        })
    );
    let empty = request(b"", 4, 0).0;
    assert_eq!(engine.submit(vec![empty]), Err(SubmitError::EmptyPrompt));
    // 8 blocks of 4 positions bound the context, whatever the model could do.
    let long = request(&[7; 32], 4, 0).0;
    assert_eq!(
        engine.submit(vec![long]),
        Err(SubmitError::PromptTooLong {
            prompt: 32,
            limit: 31
        })
    );
    let (fits, events) = request(&[7; 31], 4, 0);
    engine.submit(vec![fits]).expect("the engine takes it");
    assert_eq!(gather(&events).usage.completion, 1);
    engine.shutdown();
    assert_eq!(
        engine.submit(vec![request(b"abc", 4, 0).0]),
        Err(SubmitError::ShuttingDown)
    );
}

#[test]
fn aborts_give_blocks_back() {
    let capacity = Capacity {
        blocks: 64,
        block_size: 4,
        max_context: 256,
        vocab_size: vocab(),
    };
    let mut logits = hashed_logits(vocab());
    // Slow enough that no sequence ends by itself before its abort arrives.
    let slow = move |context: &[TokenId]| {
        std::thread::sleep(Duration::from_millis(2));
        logits(context)
    };
    let backend = Box::new(Scripted::new(capacity, slow));
    let engine = Engine::start(backend, env(), EngineConfig::default()).expect("the engine starts");
    for round in 0..50 {
        let (request, events) = request(&[round; 9], 240, u64::from(round));
        let ids = engine.submit(vec![request]).expect("the engine takes it");
        if round % 2 == 0 {
            let _ = events.recv_timeout(WAIT);
        }
        engine.abort(ids[0]);
        assert_eq!(gather(&events).reason, Some(FinishReason::Aborted));
    }
    assert_idle(&engine);
}
