//! A scripted backend: real block tables, invented logits. For tests of the engine and of what drives it.

use crate::{
    Backend, BackendError, BlockId, Capacity, SampleRow, Sampled, StepInput, Ticket, TokenId,
    WantedLogits, sample,
};

/// Computes logits as a function of the context *as read back through the block table*, so that a wrong
/// table, a block shared too early or a lost entry changes the output.
pub struct Scripted<F> {
    capacity: Capacity,
    logits: F,
    /// The "keys and values": the token written at each slot.
    slots: Vec<Option<TokenId>>,
    /// Number and rows of the step under way.
    step: Option<(u64, Vec<RowLogits>)>,
    steps: u64,
}

/// What a row gave.
#[derive(Default)]
struct RowLogits {
    /// Empty when none were wanted.
    logits: Vec<f32>,
    /// Whether a mask will come for them.
    masked: bool,
}

impl<F: FnMut(&[TokenId]) -> Vec<f32> + Send> Scripted<F> {
    /// `logits` maps a context to `capacity.vocab_size` logits.
    pub fn new(capacity: Capacity, logits: F) -> Self {
        let slots = vec![None; capacity.blocks * capacity.block_size];
        Self {
            capacity,
            logits,
            slots,
            step: None,
            steps: 0,
        }
    }
}

/// Logits that depend on every token of the context and its place: a small hash spread over the vocabulary.
pub fn hashed_logits(vocab_size: usize) -> impl FnMut(&[TokenId]) -> Vec<f32> + Send {
    move |context| {
        let mut state = context
            .iter()
            .fold(0x9E37_79B9_7F4A_7C15_u64, |hash, &token| {
                (hash ^ u64::from(token))
                    .wrapping_mul(0x0000_0100_0000_01B3)
                    .rotate_left(23)
            });
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u32 << 22) as f32
        };
        (0..vocab_size).map(|_| next()).collect()
    }
}

impl<F: FnMut(&[TokenId]) -> Vec<f32> + Send> Backend for Scripted<F> {
    fn capacity(&self) -> Capacity {
        self.capacity
    }

    fn copy(&mut self, from: BlockId, to: BlockId) -> Result<(), BackendError> {
        let size = self.capacity.block_size;
        let [from, to] = [from, to].map(|block| block as usize * size);
        if from.max(to) + size > self.slots.len() || self.step.is_some() {
            let message = format!("blocks {} and {} cannot be copied", from / size, to / size);
            return Err(BackendError::InvalidInput(message));
        }
        self.slots.copy_within(from..from + size, to);
        Ok(())
    }

    fn launch(&mut self, input: StepInput) -> Result<Ticket, BackendError> {
        let size = self.capacity.block_size;
        let mut all = Vec::with_capacity(input.rows.len());
        for row in &input.rows {
            let slot = |position: usize| {
                let block = row.table.get(position / size).copied().ok_or_else(|| {
                    BackendError::InvalidInput(format!("position {position} has no block"))
                })?;
                Ok(block as usize * size + position % size)
            };
            if row.tokens.is_empty() {
                return Err(BackendError::InvalidInput("a row without tokens".into()));
            }
            for (i, &token) in row.tokens.iter().enumerate() {
                self.slots[slot(row.start + i)?] = Some(token);
            }
            if !row.samples() {
                all.push(RowLogits::default());
                continue;
            }
            let mut context = Vec::with_capacity(row.start + row.tokens.len());
            for position in 0..row.start + row.tokens.len() {
                let token = self.slots[slot(position)?];
                context.push(token.ok_or_else(|| {
                    BackendError::InvalidInput(format!("position {position} was never written"))
                })?);
            }
            all.push(RowLogits {
                logits: (self.logits)(&context),
                masked: row.logits == WantedLogits::Masked,
            });
        }
        self.steps += 1;
        self.step = Some((self.steps, all));
        Ok(Ticket(self.steps))
    }

    fn wait(&mut self, _ticket: &Ticket) -> Result<(), BackendError> {
        Ok(())
    }

    fn finish(
        &mut self,
        ticket: Ticket,
        rows: &[SampleRow<'_>],
    ) -> Result<Vec<Sampled>, BackendError> {
        let Some((_, mut logits)) = self.step.take().filter(|(step, _)| *step == ticket.0) else {
            return Err(BackendError::InvalidInput(
                "no such step is under way".into(),
            ));
        };
        rows.iter()
            .map(|row| match logits.get_mut(row.row) {
                Some(RowLogits { logits, masked }) if !logits.is_empty() => {
                    if *masked {
                        spoil(logits, row);
                    }
                    Ok(sample(logits, row))
                }
                _ => Err(BackendError::InvalidInput(format!(
                    "row {} has no logits",
                    row.row
                ))),
            })
            .collect()
    }
}

/// What a backend leaves out for a masked row is no logit: whoever looks at it finds the likeliest token.
fn spoil(logits: &mut [f32], row: &SampleRow<'_>) {
    let Some(mask) = &row.mask else { return };
    for (token, logit) in logits.iter_mut().enumerate() {
        if token >= mask.len() || !mask.is_allowed(token as TokenId) {
            *logit = 1e30;
        }
    }
}
