//! Random edits against a naive model: after any rewind, append or retokenisation, in a pool where prefixes
//! are shared and blocks run short, each token is sampled from the logits of the context as it should be.

mod support;

use formwork_engine::testing::{Scripted, hashed_logits};
use formwork_engine::{
    After, Capacity, Constraint, ConstraintError, Edit, Engine, EngineConfig, Event, FinishReason,
    Request, SampleRow, Sampling, SimpleVob, TokenId, sample,
};
use proptest::prelude::*;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::Relay;
use toktrie::ApproximateTokEnv;

const VOCAB: usize = 257;

/// A context (generated tokens), and what was sampled after it.
type Sampled = (Vec<TokenId>, TokenId);

/// Edits drawn from a counter: the same seed makes the same edits, so that sequences can come to share
/// generated blocks.
struct Mutator {
    tokens: Vec<TokenId>,
    state: u64,
    edits_left: u32,
    seen: Arc<Mutex<Vec<Sampled>>>,
}

impl Mutator {
    fn draw(&mut self, below: usize) -> usize {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) as usize % below
    }
}

impl Constraint for Mutator {
    fn advance(&mut self, sampled: Option<TokenId>) -> Result<Edit, ConstraintError> {
        if let Some(token) = sampled {
            let context = self.tokens.clone();
            self.seen
                .lock()
                .expect("nobody panics")
                .push((context, token));
            self.tokens.push(token);
        }
        let len = self.tokens.len();
        let (keep, appended) = match self.draw(4) {
            0 => (len, 0),
            1 => (len, 1 + self.draw(9)),
            2 => (self.draw(len + 1), self.draw(6)),
            _ => (len.saturating_sub(self.draw(4)), self.draw(4)),
        };
        let append: Vec<TokenId> = (0..appended).map(|_| self.draw(250) as TokenId).collect();
        self.tokens.truncate(keep);
        self.tokens.extend(&append);
        self.edits_left -= 1;
        let after = match self.edits_left {
            0 => After::Finish,
            _ => After::Sample {
                temperature: None,
                salt: 0,
            },
        };
        // Nothing is released before the end: random edits do not keep the text.
        Ok(Edit {
            keep,
            append,
            released: 0,
            after,
        })
    }

    fn mask(&mut self) -> Result<Arc<SimpleVob>, ConstraintError> {
        Ok(Arc::new(SimpleVob::alloc_ones(VOCAB)))
    }

    fn committed(&self) -> usize {
        self.tokens.len()
    }
}

fn expected(prompt: &[TokenId], context: &[TokenId], sampling: &Sampling) -> Option<TokenId> {
    let history = [prompt, context].concat();
    let mut logits = hashed_logits(VOCAB)(&history);
    let row = SampleRow {
        row: 0,
        mask: None,
        sampling,
        position: history.len() as u64,
        history: &history,
        prompt_len: prompt.len(),
    };
    sample(&mut logits, &row).token
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn tokens_are_sampled_from_the_context_as_edited(
        work in prop::collection::vec((1usize..30, 1u32..25, 0u64..3), 1..8),
        blocks in 40usize..90,
        token_budget in 1usize..30,
    ) {
        let capacity = Capacity { blocks, block_size: 4, max_context: 160, vocab_size: VOCAB };
        let backend = Scripted::new(capacity, hashed_logits(VOCAB));
        let config = EngineConfig { token_budget, ..EngineConfig::default() };
        let engine = Engine::start(Box::new(backend), ApproximateTokEnv::single_byte_env(), config)?;
        let mut running = Vec::new();
        for (len, edits, seed) in work {
            let prompt: Vec<TokenId> = (0..len as TokenId).collect();
            let seen = Arc::new(Mutex::new(Vec::new()));
            let mutator =
                Mutator { tokens: Vec::new(), state: seed, edits_left: edits, seen: Arc::clone(&seen) };
            let (sender, events) = channel();
            let sampling = Sampling { seed, ..Sampling::default() };
            engine.submit(vec![Request {
                prompt: prompt.clone(),
                max_tokens: 200,
                sampling: sampling.clone(),
                end: vec![],
                constraint: Some(Box::new(mutator)),
                sink: Box::new(Relay(sender)),
                priority: 0,
            }])?;
            running.push((prompt, sampling, seen, events));
        }
        for (prompt, sampling, seen, events) in running {
            let reason = loop {
                match events.recv_timeout(Duration::from_secs(20))? {
                    Event::Finished { reason, .. } => break reason,
                    Event::Failed { error, .. } => panic!("{error}"),
                    Event::Tokens(_) => {}
                }
            };
            prop_assert!(matches!(reason, FinishReason::Stop | FinishReason::Length));
            for (context, token) in seen.lock().expect("nobody panics").iter() {
                prop_assert_eq!(Some(*token), expected(&prompt, context, &sampling));
            }
        }
        for _ in 0..1000 {
            if engine.stats().running + engine.stats().waiting == 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        prop_assert_eq!(engine.stats().blocks_leased, 0);
    }
}
