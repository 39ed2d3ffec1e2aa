//! The backend for CPUs.

mod driver;
mod forward;
mod head;
mod probe;
mod profile;
mod validate;

pub use profile::{
    MachineCeilings, OperationCost, ProfileOptions, StepProfile, StepShape, profile_step,
};

use crate::{Model, ModelError};
use driver::{Driver, Work, panic_message};
use formwork_engine::{
    Backend, BackendError, BlockId, Capacity, SampleRow, Sampled, StepInput, Ticket, sample,
};
use formwork_kernels::{Cpu, CpuOptions, KvDtype};
use forward::Forward;
use head::Head;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Settings of [`CpuBackend`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuConfig {
    /// Blocks of the KV cache.
    pub kv_blocks: usize,
    /// Token positions per block; a multiple of 16.
    pub block_size: usize,
    /// What the cache holds keys and values as.
    pub kv_dtype: KvDtype,
    /// Threads of the forward pass; 0 takes one per core.
    pub threads: usize,
    /// Longest context, in tokens; cut to the model's own limit.
    pub max_context: usize,
}

/// Runs a [`Model`] on the CPU. A row's result does not depend on the other rows of a step nor on the
/// number of threads, to the bit.
pub struct CpuBackend {
    cpu: Arc<Cpu>,
    driver: Driver,
    capacity: Capacity,
    /// Away while a step runs; gone for good when the driver died.
    forward: Option<Box<Forward>>,
    step: Option<Step>,
    next_ticket: u64,
    memory: Memory,
}

/// A step under way.
struct Step {
    ticket: u64,
    running: bool,
    failure: Option<String>,
}

/// Memory that is kept from step to step.
#[derive(Default)]
struct Memory {
    written: Vec<(BlockId, usize)>,
    /// Per row of the input: its index among those that sample.
    samplers: Vec<Option<usize>>,
    /// Per row that samples: the [`SampleRow`] that samples it.
    sampled_by: Vec<Option<usize>>,
    /// The other way round.
    order: Vec<usize>,
    /// Per row of logits.
    draws: Vec<Draw>,
}

/// Sampling of one row of logits.
#[derive(Default)]
struct Draw {
    /// The [`SampleRow`]; `None` leaves the row alone.
    by: Option<usize>,
    sampled: Sampled,
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
        let driver = Driver::start().map_err(|error| {
            ModelError::Backend(format!("cannot start compute threads: {error}"))
        })?;
        Ok(Self {
            cpu,
            driver,
            capacity,
            forward: Some(Box::new(forward)),
            step: None,
            next_ticket: 0,
            memory: Memory::default(),
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

    fn copy(&mut self, from: BlockId, to: BlockId) -> Result<(), BackendError> {
        let [from, to] = [from, to].map(|block| block as usize);
        if from.max(to) >= self.capacity.blocks {
            let message = format!("there is no block {}", from.max(to));
            return Err(BackendError::InvalidInput(message));
        }
        let away = || BackendError::InvalidInput("a step is under way or has failed".into());
        let forward = self.forward.as_mut().ok_or_else(away)?;
        forward.copy_block(from, to);
        Ok(())
    }

    fn launch(&mut self, input: StepInput) -> Result<Ticket, BackendError> {
        validate::step(&input, self.capacity, &mut self.memory.written)?;
        if self.step.is_some() {
            return Err(BackendError::InvalidInput(
                "the step before has not been finished".into(),
            ));
        }
        let gone = || BackendError::Failed("the compute threads are gone after a failure".into());
        let forward = self.forward.take().ok_or_else(gone)?;
        let Memory {
            samplers,
            sampled_by,
            ..
        } = &mut self.memory;
        samplers.clear();
        sampled_by.clear();
        for row in &input.rows {
            samplers.push(row.samples().then_some(sampled_by.len()));
            sampled_by.extend(row.samples().then_some(None));
        }
        if !self.driver.launch(Work { forward, input }) {
            return Err(gone());
        }
        self.next_ticket += 1;
        self.step = Some(Step {
            ticket: self.next_ticket,
            running: true,
            failure: None,
        });
        Ok(Ticket(self.next_ticket))
    }

    fn wait(&mut self, ticket: &Ticket) -> Result<(), BackendError> {
        if std::mem::take(&mut self.step(ticket)?.running) {
            let outcome = self.driver.wait();
            let step = self.step(ticket)?;
            match outcome {
                Some(outcome) => {
                    step.failure = outcome.failure;
                    self.forward = Some(outcome.forward);
                }
                None => step.failure = Some("the compute thread is gone".into()),
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
        // A ticket of another step ends nothing.
        self.step(&ticket)?;
        self.step = None;
        waited?;
        self.memory.assign(rows)?;
        let forward = self
            .forward
            .as_mut()
            .ok_or_else(|| BackendError::Failed("the compute threads are gone".into()))?;
        let (cpu, memory) = (&*self.cpu, &mut self.memory);
        let vocab_size = self.capacity.vocab_size;
        catch_unwind(AssertUnwindSafe(|| {
            let order = memory.order.iter().copied();
            let masks = rows.iter().map(|row| row.mask.as_deref());
            forward.finish_logits(order.zip(masks));
            memory.sample(cpu, forward, (rows, vocab_size))
        }))
        .map_err(|panic| BackendError::Failed(panic_message(&*panic)))
    }
}

impl Memory {
    /// Notes which row is sampled by which of `rows`.
    fn assign(&mut self, rows: &[SampleRow<'_>]) -> Result<(), BackendError> {
        self.order.clear();
        for (by, row) in rows.iter().enumerate() {
            let index = self.samplers.get(row.row).copied().flatten();
            let free = index.filter(|&index| self.sampled_by[index].is_none());
            let index = free.ok_or_else(|| {
                BackendError::InvalidInput(format!(
                    "row {} wanted no logits, or is sampled twice",
                    row.row
                ))
            })?;
            self.sampled_by[index] = Some(by);
            self.order.push(index);
        }
        Ok(())
    }

    /// Samples each of `rows` from its logits, in parallel.
    fn sample(
        &mut self,
        cpu: &Cpu,
        forward: &mut Forward,
        (rows, vocab_size): (&[SampleRow<'_>], usize),
    ) -> Vec<Sampled> {
        let head = &mut forward.head;
        let count = head.logits().len() / vocab_size;
        self.draws.clear();
        self.draws.resize_with(count, Draw::default);
        let place = |head: &Head, index| head.place(index).filter(|&place| place < count);
        for (by, &index) in self.order.iter().enumerate() {
            if let Some(place) = place(head, index) {
                self.draws[place].by = Some(by);
            }
        }
        let logits = (head.logits(), vocab_size);
        cpu.for_rows(&mut self.draws, logits, |draw, logits| {
            if let Some(by) = draw.by {
                draw.sampled = sample(logits, &rows[by]);
            }
        });
        let results = self.order.iter().map(|&index| {
            let place = place(head, index);
            place.map_or_else(Sampled::default, |place| {
                std::mem::take(&mut self.draws[place].sampled)
            })
        });
        results.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use formwork_engine::{Row, WantedLogits};

    fn input(start: usize) -> StepInput {
        StepInput {
            rows: vec![Row {
                tokens: vec![1],
                start,
                table: vec![0, 1, 2, 3],
                logits: WantedLogits::All,
            }],
        }
    }

    #[test]
    fn a_panic_in_the_forward_pass_is_an_error_and_not_the_end() {
        let config = CpuConfig {
            kv_blocks: 4,
            block_size: 16,
            kv_dtype: KvDtype::F16,
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
            kv_dtype: KvDtype::F16,
            threads: 1,
            max_context: 64,
        };
        let mut backend = CpuBackend::new(Arc::new(Model::tiny(1)), config).unwrap();
        backend.launch(input(0)).unwrap();
        drop(backend);
    }
}
