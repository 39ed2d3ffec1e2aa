//! Masks that take long: each holds up its own row, whatever the others do.

use super::*;
use std::time::Instant;

/// Allows `x` only; its masks take the times that are given, one after the other.
struct Paced {
    delays: std::vec::IntoIter<Duration>,
    len: usize,
}

impl Paced {
    /// As many tokens as there are delays, in milliseconds.
    fn constraint(delays: &[u64]) -> Option<Box<dyn Constraint>> {
        let delays: Vec<_> = delays.iter().copied().map(Duration::from_millis).collect();
        Some(Box::new(Self {
            delays: delays.into_iter(),
            len: 0,
        }))
    }
}

impl Constraint for Paced {
    fn advance(&mut self, sampled: Option<TokenId>) -> Result<Edit, ConstraintError> {
        self.len += usize::from(sampled.is_some());
        Ok(Edit {
            keep: self.len,
            append: Vec::new(),
            released: self.len,
            after: match self.delays.len() {
                0 => After::Finish,
                _ => After::Sample {
                    temperature: None,
                    salt: 0,
                },
            },
        })
    }

    fn mask(&mut self) -> Result<Arc<SimpleVob>, ConstraintError> {
        std::thread::sleep(self.delays.next().unwrap_or_default());
        let mut mask = SimpleVob::alloc(vocab());
        mask.allow_token(TokenId::from(b'x'));
        Ok(Arc::new(mask))
    }

    fn committed(&self) -> usize {
        self.len
    }
}

/// Gathers on a thread of its own and says when the end came.
fn timed(events: Receiver<Event>) -> std::thread::JoinHandle<(Outcome, Instant)> {
    std::thread::spawn(move || (gather(&events), Instant::now()))
}

/// One row's second mask takes a second; the rows beside it, free or constrained, are over long before.
#[test]
fn a_slow_mask_delays_its_own_row_only() {
    const SLOW_MS: u64 = 1_000;
    let config = EngineConfig {
        mask_wait_ms: 2,
        late_limit: 100_000,
        ..EngineConfig::default()
    };
    let engine = engine(64, config);
    let (mut slow, slow_events) = request(b"slow", 8, 1);
    slow.constraint = Paced::constraint(&[0, SLOW_MS, 0, 0]);
    let (free, free_events) = request(b"free", 30, 2);
    let (mut quick, quick_events) = request(b"quick", 30, 3);
    quick.constraint = Paced::constraint(&[0; 24]);
    let begun = Instant::now();
    engine
        .submit(vec![slow, free, quick])
        .expect("the engine takes it");
    let rows = [slow_events, free_events, quick_events].map(timed);
    let [(slow, slow_end), (free, free_end), (quick, quick_end)] =
        rows.map(|row| row.join().expect("the row ends"));
    assert_eq!(slow.bytes, b"xxxx");
    assert_eq!(quick.bytes, [b'x'; 24]);
    assert_eq!(free.tokens, alone(b"free", 30, 2));
    assert!(slow_end - begun >= Duration::from_millis(SLOW_MS));
    for end in [free_end, quick_end] {
        let took = end - begun;
        assert!(took < Duration::from_millis(SLOW_MS / 2), "{took:?}");
    }
    assert!(engine.stats().late_masks > 0);
    assert_idle(&engine);
}

/// A row is late by its own masks alone: the outcome is the same as if they had been quick.
#[test]
fn late_rows_come_out_as_if_they_had_been_on_time() {
    let run = |delays: &[u64]| {
        let config = EngineConfig {
            mask_wait_ms: 1,
            late_limit: 100_000,
            ..EngineConfig::default()
        };
        let engine = engine(64, config);
        let (mut one, events) = request(b"a prompt", 20, 7);
        one.constraint = Paced::constraint(delays);
        let (mate, mate_events) = request(b"mate", 40, 9);
        engine.submit(vec![one, mate]).expect("the engine takes it");
        let outcomes = (gather(&events), gather(&mate_events));
        assert_idle(&engine);
        (outcomes.0.tokens, outcomes.0.reason, outcomes.1.tokens)
    };
    assert_eq!(run(&[40, 0, 25, 10]), run(&[0; 4]));
}
