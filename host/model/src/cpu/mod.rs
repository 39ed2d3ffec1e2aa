//! The backend for CPUs.

mod forward;
mod probe;
mod profile;
mod validate;

pub use profile::{
    MachineCeilings, OperationCost, ProfileOptions, StepProfile, StepShape, profile_step,
};

use crate::{Model, ModelError};
use formwork_engine::{
    Backend, BackendError, Capacity, SampleRow, Sampled, StepInput, Ticket, sample,
};
use formwork_kernels::{Cpu, CpuOptions};
use forward::Forward;
use probe::Off;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

/// Settings of [`CpuBackend`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuConfig {
    /// Blocks of the KV cache.
    pub kv_blocks: usize,
    /// Token positions per block; a multiple of 16.
    pub block_size: usize,
    /// Threads of the forward pass; 0 takes one per core.
    pub threads: usize,
    /// Longest context, in tokens; cut to the model's own limit.
    pub max_context: usize,
}

/// Runs a [`Model`] on the CPU. A row's result does not depend on the other rows of a step nor on the
/// number of threads, to the bit.
pub struct CpuBackend {
    cpu: Arc<Cpu>,
    capacity: Capacity,
    /// Away while a step runs; gone for good when a step's thread died.
    forward: Option<Box<Forward>>,
    step: Option<Step>,
    next_ticket: u64,
}

/// A step under way.
struct Step {
    ticket: u64,
    /// Per row of the input: its index among the rows of logits.
    logit_rows: Vec<Option<usize>>,
    done: Option<Receiver<Outcome>>,
    failure: Option<String>,
}

/// What comes back from the compute threads.
struct Outcome {
    forward: Box<Forward>,
    failure: Option<String>,
}

impl CpuBackend {
    /// Starts compute threads and takes memory for the cache.
    ///
    /// # Errors
    /// When settings are impossible or threads cannot be started.
    pub fn new(model: Arc<Model>, config: CpuConfig) -> Result<Self, ModelError> {
        if config.block_size == 0 || !config.block_size.is_multiple_of(16) {
            return Err(ModelError::Backend(format!(
                "the block size {} is no multiple of 16",
                config.block_size
            )));
        }
        if config.kv_blocks == 0 || u32::try_from(config.kv_blocks).is_err() {
            return Err(ModelError::Backend(format!(
                "a cache of {} blocks is impossible",
                config.kv_blocks
            )));
        }
        let config = CpuConfig {
            max_context: config.max_context.min(model.config().context_length),
            ..config
        };
        if config.max_context == 0 {
            return Err(ModelError::Backend("the longest context is 0".into()));
        }
        let cpu = Cpu::new(CpuOptions {
            threads: config.threads,
            isa: None,
        })
        .map_err(|error| ModelError::Backend(error.to_string()))?;
        let cpu = Arc::new(cpu);
        let capacity = Capacity {
            blocks: config.kv_blocks,
            block_size: config.block_size,
            max_context: config.max_context,
            vocab_size: model.info().vocab_size,
        };
        tracing::info!(isa = ?cpu.isa(), threads = cpu.threads(), "CPU backend");
        let forward = Forward::new(Arc::clone(&cpu), model, &config);
        Ok(Self {
            cpu,
            capacity,
            forward: Some(Box::new(forward)),
            step: None,
            next_ticket: 0,
        })
    }

    fn step(&mut self, ticket: &Ticket) -> Result<&mut Step, BackendError> {
        self.step
            .as_mut()
            .filter(|step| step.ticket == ticket.0)
            .ok_or_else(|| {
                BackendError::InvalidInput(format!("no step has the ticket {}", ticket.0))
            })
    }
}

impl Backend for CpuBackend {
    fn capacity(&self) -> Capacity {
        self.capacity
    }

    fn launch(&mut self, input: StepInput) -> Result<Ticket, BackendError> {
        validate::step(&input, self.capacity)?;
        if self.step.is_some() {
            return Err(BackendError::InvalidInput(
                "the step before has not been finished".into(),
            ));
        }
        let mut forward = self.forward.take().ok_or_else(|| {
            BackendError::Failed("the compute threads are gone after a failure".into())
        })?;
        let mut wanted = 0;
        let logit_rows = input.rows.iter().map(|row| {
            row.wants_logits.then(|| {
                wanted += 1;
                wanted - 1
            })
        });
        self.next_ticket += 1;
        let (sender, done) = sync_channel(1);
        self.step = Some(Step {
            ticket: self.next_ticket,
            logit_rows: logit_rows.collect(),
            done: Some(done),
            failure: None,
        });
        self.cpu.spawn(move || {
            // A panic leaves at most wrong numbers behind, in blocks that the engine will not use.
            let result = catch_unwind(AssertUnwindSafe(|| forward.step(&input, &mut Off)));
            let failure = result.err().map(|panic| panic_message(&*panic));
            // Nobody listens when the backend was dropped meanwhile.
            let _ = sender.send(Outcome { forward, failure });
        });
        Ok(Ticket(self.next_ticket))
    }

    fn wait(&mut self, ticket: &Ticket) -> Result<(), BackendError> {
        let step = self.step(ticket)?;
        if let Some(done) = step.done.take() {
            match done.recv() {
                Ok(outcome) => {
                    step.failure = outcome.failure;
                    self.forward = Some(outcome.forward);
                }
                Err(_) => step.failure = Some("the compute thread is gone".into()),
            }
        }
        match &self.step(ticket)?.failure {
            None => Ok(()),
            Some(failure) => Err(BackendError::Failed(failure.clone())),
        }
    }

    fn finish(
        &mut self,
        ticket: Ticket,
        rows: &[SampleRow<'_>],
    ) -> Result<Vec<Sampled>, BackendError> {
        let waited = self.wait(&ticket);
        let step = self.step.take().ok_or_else(|| {
            BackendError::InvalidInput(format!("no step has the ticket {}", ticket.0))
        });
        waited?;
        let step = step?;
        let forward = self
            .forward
            .as_mut()
            .ok_or_else(|| BackendError::Failed("the compute threads are gone".into()))?;
        let mut logits: Vec<_> = forward
            .logits
            .chunks_exact_mut(self.capacity.vocab_size)
            .map(Some)
            .collect();
        let mut work = Vec::with_capacity(rows.len());
        for row in rows {
            let index = step.logit_rows.get(row.row).copied().flatten();
            let logits = index.and_then(|index| logits[index].take());
            let logits = logits.ok_or_else(|| {
                BackendError::InvalidInput(format!(
                    "row {} wanted no logits, or is sampled twice",
                    row.row
                ))
            })?;
            work.push((logits, row));
        }
        Ok(self.cpu.map(&mut work, |(logits, row)| sample(logits, row)))
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!(
        "the forward pass panicked: {}",
        text.unwrap_or("no message")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use formwork_engine::Row;

    fn input(start: usize) -> StepInput {
        StepInput {
            rows: vec![Row {
                tokens: vec![1],
                start,
                table: vec![0, 1, 2, 3],
                wants_logits: true,
            }],
        }
    }

    #[test]
    fn a_panic_in_the_forward_pass_is_an_error_and_not_the_end() {
        let config = CpuConfig {
            kv_blocks: 4,
            block_size: 16,
            threads: 2,
            max_context: 32,
        };
        let mut backend = CpuBackend::new(Arc::new(Model::tiny(1)), config).unwrap();
        // Validation now lets through a position that the rotary table does not cover.
        backend.capacity.max_context = 64;
        for _ in 0..2 {
            let ticket = backend.launch(input(40)).unwrap();
            let failed = backend.wait(&ticket);
            assert!(
                matches!(failed, Err(BackendError::Failed(reason)) if reason.contains("panicked"))
            );
            assert!(backend.finish(ticket, &[]).is_err());
            let ticket = backend.launch(input(0)).unwrap();
            backend.wait(&ticket).unwrap();
            backend.finish(ticket, &[]).unwrap();
        }
    }

    #[test]
    fn a_backend_can_be_dropped_in_the_middle_of_a_step() {
        let config = CpuConfig {
            kv_blocks: 4,
            block_size: 16,
            threads: 1,
            max_context: 64,
        };
        let mut backend = CpuBackend::new(Arc::new(Model::tiny(1)), config).unwrap();
        backend.launch(input(0)).unwrap();
        drop(backend);
    }
}
