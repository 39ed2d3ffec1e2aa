//! Masks are made while a step runs: neither side waits for the other to be over.

use super::*;
use formwork_engine::{
    Backend, BackendError, BlockId, Row, SampleRow, Sampled, StepInput, Ticket, WantedLogits,
};
use std::sync::{Condvar, Mutex};

/// What backend and constraint know of each other.
#[derive(Default)]
struct Meeting {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Between a launch and the logits.
    running: bool,
    /// Masks that the rows launched so far need, and those that were made.
    needed: usize,
    made: usize,
}

impl Meeting {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().expect("nobody panicked"));
        self.changed.notify_all();
    }

    /// Whether it came to be in time.
    fn comes_to(&self, wanted: impl Fn(&State) -> bool) -> bool {
        let state = self.state.lock().expect("nobody panicked");
        let waited = self
            .changed
            .wait_timeout_while(state, WAIT / 4, |state| !wanted(state));
        !waited.expect("nobody panicked").1.timed_out()
    }
}

/// Has its logits only once the masks of all rows are made.
struct Patient<B> {
    backend: B,
    meeting: Arc<Meeting>,
}

impl<B: Backend> Backend for Patient<B> {
    fn capacity(&self) -> Capacity {
        self.backend.capacity()
    }

    fn copy(&mut self, from: BlockId, to: BlockId) -> Result<(), BackendError> {
        self.backend.copy(from, to)
    }

    fn launch(&mut self, input: StepInput) -> Result<Ticket, BackendError> {
        let masked = |row: &&Row| row.logits == WantedLogits::Masked;
        let needed = input.rows.iter().filter(masked).count();
        let ticket = self.backend.launch(input)?;
        self.meeting.change(|state| {
            state.running = true;
            state.needed += needed;
        });
        Ok(ticket)
    }

    fn wait(&mut self, ticket: &Ticket) -> Result<(), BackendError> {
        if !self.meeting.comes_to(|state| state.made >= state.needed) {
            let reason = "no mask is made while a step runs";
            return Err(BackendError::Failed(reason.into()));
        }
        self.meeting.change(|state| state.running = false);
        self.backend.wait(ticket)
    }

    fn finish(
        &mut self,
        ticket: Ticket,
        rows: &[SampleRow<'_>],
    ) -> Result<Vec<Sampled>, BackendError> {
        self.backend.finish(ticket, rows)
    }
}

/// Makes its masks only while a step runs.
struct WhileRunning {
    meeting: Arc<Meeting>,
    len: usize,
}

impl Constraint for WhileRunning {
    fn advance(&mut self, sampled: Option<TokenId>) -> Result<Edit, ConstraintError> {
        self.len += usize::from(sampled.is_some());
        Ok(Edit {
            keep: self.len,
            append: Vec::new(),
            released: self.len,
            after: After::Sample {
                temperature: None,
                salt: 0,
            },
        })
    }

    fn mask(&mut self) -> Result<Arc<SimpleVob>, ConstraintError> {
        if !self.meeting.comes_to(|state| state.running) {
            return Err(ConstraintError::internal("no step runs beside a mask"));
        }
        self.meeting.change(|state| state.made += 1);
        let mut mask = SimpleVob::alloc(vocab());
        mask.allow_token(TokenId::from(b'x'));
        Ok(Arc::new(mask))
    }

    fn committed(&self) -> usize {
        self.len
    }
}

#[test]
fn every_mask_is_made_while_a_step_runs() {
    let capacity = Capacity {
        blocks: 64,
        block_size: 4,
        max_context: 256,
        vocab_size: vocab(),
    };
    let meeting = Arc::new(Meeting::default());
    let backend = Patient {
        backend: Scripted::new(capacity, hashed_logits(vocab())),
        meeting: Arc::clone(&meeting),
    };
    let engine = Engine::start(Box::new(backend), env(), EngineConfig::default());
    let engine = engine.expect("the engine takes it");
    let (mut one, events) = request(b"a prompt", 20, 1);
    let len = 0;
    one.constraint = Some(Box::new(WhileRunning { meeting, len }));
    engine.submit(vec![one]).expect("the engine takes it");
    let outcome = gather(&events);
    assert_eq!(outcome.error, None);
    assert_eq!(outcome.bytes, [b'x'; 20]);
    assert_eq!(engine.stats().late_masks, 0);
    assert_idle(&engine);
}
