//! Measures steps of a shape, operation by operation.

use super::forward::Forward;
use super::probe::{Operation, Recorder, Total};
use super::{CpuConfig, validate};
use crate::{Model, ModelError};
use formwork_engine::{Capacity, Row, StepInput, WantedLogits};
use formwork_kernels::{Cpu, CpuOptions, KvDtype};
use serde::Serialize;
use std::sync::Arc;
use std::time::Instant;

/// Positions per block of the cache.
const BLOCK_SIZE: usize = 32;

/// A step to measure.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct StepShape {
    /// Sequences.
    pub batch: usize,
    /// New tokens of each: 1 is a decode.
    pub tokens: usize,
    /// Tokens of each that the cache holds already.
    pub context: usize,
}

/// Settings of [`profile_step`].
#[derive(Clone, Copy, Debug)]
pub struct ProfileOptions {
    /// The step.
    pub shape: StepShape,
    /// What the cache holds keys and values as.
    pub kv_dtype: KvDtype,
    /// Threads; 0 takes one per core.
    pub threads: usize,
    /// Steps, after one to warm up. Figures are medians over them.
    pub repeats: usize,
}

/// Where a step's time goes.
#[derive(Clone, Debug, Serialize)]
pub struct StepProfile {
    /// The step.
    pub shape: StepShape,
    /// Threads that ran it.
    pub threads: usize,
    /// Instruction set that ran it.
    pub isa: String,
    /// What the machine can do at most, measured just before.
    pub ceilings: MachineCeilings,
    /// Time of the whole step, in seconds.
    pub seconds: f64,
    /// New tokens per second.
    pub tokens_per_second: f64,
    /// Its parts.
    pub operations: Vec<OperationCost>,
}

/// Rates of all threads together.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct MachineCeilings {
    /// Bytes per second when reading memory.
    pub read_bytes_per_second: f64,
    /// 8-bit multiplications and additions per second.
    pub int8_operations_per_second: f64,
    /// Single-precision multiplications and additions per second.
    pub f32_flops_per_second: f64,
}

impl MachineCeilings {
    fn measure(cpu: &Cpu) -> Self {
        let ceilings = cpu.ceilings();
        Self {
            read_bytes_per_second: ceilings.read_bytes_per_second,
            int8_operations_per_second: ceilings.int8_operations_per_second,
            f32_flops_per_second: ceilings.f32_flops_per_second,
        }
    }
}

/// One part of a step.
#[derive(Clone, Debug, Serialize)]
pub struct OperationCost {
    /// What it is.
    pub name: &'static str,
    /// Calls per step.
    pub calls: usize,
    /// Time per step, in seconds.
    pub seconds: f64,
    /// Bytes of weights and cache per step; of activations where there are neither.
    pub bytes: usize,
    /// Multiplications and additions per step.
    pub operations: usize,
    /// Bytes per second, as a share of the read bandwidth. Above 1 what is read was in a cache.
    pub bandwidth_share: f64,
    /// Operations per second, as a share of the dot product rate that applies.
    pub arithmetic_share: f64,
}

/// Runs steps of one shape and measures each operation.
///
/// # Errors
/// When the shape is impossible for the model, or threads cannot be started.
pub fn profile_step(
    model: &Arc<Model>,
    options: ProfileOptions,
) -> Result<StepProfile, ModelError> {
    let ProfileOptions { shape, threads, .. } = options;
    let positions = shape.context.saturating_add(shape.tokens);
    if positions > model.config().context_length {
        return Err(ModelError::Backend(format!(
            "a context of {positions} tokens is beyond the model's {}",
            model.config().context_length
        )));
    }
    let cpu = Cpu::new(CpuOptions { threads, isa: None })
        .map_err(|error| ModelError::Backend(error.to_string()))?;
    let cpu = Arc::new(cpu);
    let ceilings = MachineCeilings::measure(&cpu);
    let blocks_each = positions.div_ceil(BLOCK_SIZE);
    let config = CpuConfig {
        kv_blocks: blocks_each.saturating_mul(shape.batch),
        block_size: BLOCK_SIZE,
        kv_dtype: options.kv_dtype,
        threads,
        max_context: positions,
    };
    let input = input(shape, blocks_each, model.info().vocab_size);
    let capacity = Capacity {
        blocks: config.kv_blocks,
        block_size: BLOCK_SIZE,
        max_context: positions,
        vocab_size: model.info().vocab_size,
    };
    validate::step(&input, capacity, &mut Vec::new())
        .map_err(|error| ModelError::Backend(error.to_string()))?;
    let mut forward = Forward::new(Arc::clone(&cpu), Arc::clone(model), &config);
    let mut runs = Vec::new();
    for repeat in 0..=options.repeats.max(1) {
        let mut recorder = Recorder::default();
        let start = Instant::now();
        forward.step(&input, &mut recorder);
        let seconds = start.elapsed().as_secs_f64();
        if repeat > 0 {
            runs.push((seconds, recorder));
        }
    }
    let seconds = median(runs.iter().map(|(seconds, _)| *seconds));
    let operations = Operation::ALL.map(|operation| cost(operation, &runs, &ceilings));
    Ok(StepProfile {
        shape,
        threads: cpu.threads(),
        isa: format!("{:?}", cpu.isa()),
        ceilings,
        seconds,
        tokens_per_second: (shape.batch * shape.tokens) as f64 / seconds,
        operations: operations.into(),
    })
}

fn input(shape: StepShape, blocks_each: usize, vocabulary: usize) -> StepInput {
    let rows = (0..shape.batch).map(|index| {
        let first = (index * blocks_each) as u32;
        Row {
            // Any tokens do: no operation's time depends on them.
            tokens: (0..shape.tokens)
                .map(|token| ((index * 31 + token * 7) % vocabulary) as u32)
                .collect(),
            start: shape.context,
            table: (first..first + blocks_each as u32).collect(),
            logits: WantedLogits::All,
        }
    });
    StepInput {
        rows: rows.collect(),
    }
}

fn cost(
    operation: Operation,
    runs: &[(f64, Recorder)],
    ceilings: &MachineCeilings,
) -> OperationCost {
    let totals = || {
        runs.iter()
            .map(|(_, recorder)| recorder.totals[operation as usize])
    };
    let Total { calls, work, .. } = totals().next().unwrap_or_default();
    let seconds = median(totals().map(|total| total.time.as_secs_f64()));
    let rate = if operation == Operation::Attention {
        ceilings.f32_flops_per_second
    } else {
        ceilings.int8_operations_per_second
    };
    let share = |amount: usize, most: f64| {
        if seconds > 0.0 && most > 0.0 {
            amount as f64 / seconds / most
        } else {
            0.0
        }
    };
    OperationCost {
        name: operation.name(),
        calls,
        seconds,
        bytes: work.bytes,
        operations: work.operations,
        bandwidth_share: share(work.bytes, ceilings.read_bytes_per_second),
        arithmetic_share: share(work.operations, rate),
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(shape: StepShape) -> Result<StepProfile, ModelError> {
        let options = ProfileOptions {
            shape,
            kv_dtype: KvDtype::F16,
            threads: 1,
            repeats: 3,
        };
        profile_step(&Arc::new(Model::tiny(1)), options)
    }

    #[test]
    fn parts_add_up_to_no_more_than_the_whole_and_work_grows_with_the_step() {
        let shape = |batch| StepShape {
            batch,
            tokens: 1,
            context: 100,
        };
        let (one, four) = (profile(shape(1)).unwrap(), profile(shape(4)).unwrap());
        for profile in [&one, &four] {
            assert!(profile.seconds > 0.0 && profile.ceilings.read_bytes_per_second > 0.0);
            assert!(
                profile
                    .operations
                    .iter()
                    .all(|cost| cost.calls > 0 || cost.seconds == 0.0)
            );
        }
        for (one, four) in one.operations.iter().zip(&four.operations) {
            assert_eq!(four.operations, 4 * one.operations, "{}", one.name);
        }
    }

    #[test]
    fn impossible_shapes_are_refused() {
        for (batch, tokens, context) in [(0, 1, 0), (1, 0, 0), (1, 1, usize::MAX), (1, 1, 4096)] {
            let shape = StepShape {
                batch,
                tokens,
                context,
            };
            assert!(profile(shape).is_err(), "{shape:?}");
        }
    }
}
