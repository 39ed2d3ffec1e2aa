//! `formwork bench step`: where a step's time goes.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, ensure};
use clap::Args;
use formwork_model::{
    KvDtype, LoadOptions, Model, OperationCost, ProfileOptions, StepProfile, StepShape,
    profile_step,
};

use crate::cli::table::{size, table};
use crate::models;

#[derive(Args, Debug)]
pub(in crate::cli) struct StepArgs {
    /// A path or a known name.
    #[arg(long, default_value = "smollm2")]
    model: String,
    /// Sequences in the step.
    #[arg(long, default_value_t = 1)]
    batch: usize,
    /// New tokens per sequence: 1 is a decode, more are a prefill.
    #[arg(long, default_value_t = 1)]
    tokens: usize,
    /// Tokens per sequence that the cache holds already.
    #[arg(long, default_value_t = 128)]
    context: usize,
    /// What the cache holds keys and values as: f16 or int8.
    #[arg(long, default_value_t = KvDtype::F16, value_name = "f16|int8")]
    kv_dtype: KvDtype,
    /// Threads of the forward pass; 0 takes one per core.
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Steps to measure; figures are medians.
    #[arg(long, default_value_t = 21)]
    repeats: usize,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// More steps tell nothing new.
const MOST_REPEATS: usize = 10_000;

pub(super) fn run(arguments: &StepArgs) -> Result<()> {
    ensure!(
        (1..=MOST_REPEATS).contains(&arguments.repeats),
        "--repeats {} is not in 1..={MOST_REPEATS}",
        arguments.repeats
    );
    let path: PathBuf = models::locate(&arguments.model)?;
    let model = Arc::new(Model::load(&path, &LoadOptions::default())?);
    let profile = profile_step(
        &model,
        ProfileOptions {
            shape: StepShape {
                batch: arguments.batch,
                tokens: arguments.tokens,
                context: arguments.context,
            },
            kv_dtype: arguments.kv_dtype,
            threads: arguments.threads,
            repeats: arguments.repeats,
        },
    )?;
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&profile)?);
    } else {
        print!("{}", describe(&profile));
    }
    Ok(())
}

fn describe(profile: &StepProfile) -> String {
    let StepProfile {
        shape, ceilings, ..
    } = profile;
    let mut rows = vec![
        [
            "OPERATION",
            "CALLS",
            "TIME",
            "SHARE",
            "BYTES",
            "MOP",
            "OF BANDWIDTH",
            "OF ARITHMETIC",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    let seconds = profile.seconds;
    rows.extend(profile.operations.iter().map(|cost| row(cost, seconds)));
    let named: f64 = profile.operations.iter().map(|cost| cost.seconds).sum();
    let rest = OperationCost {
        name: "everything else",
        calls: 1,
        seconds: (seconds - named).max(0.0),
        bytes: 0,
        operations: 0,
        bandwidth_share: 0.0,
        arithmetic_share: 0.0,
    };
    rows.push(row(&rest, seconds));
    format!(
        "{} x {} tokens after {}: {:.2} ms a step, {:.0} tokens/s ({} threads, {})\n\
         ceilings: memory {:.1} GB/s, 8-bit {:.0} GOP/s, f32 {:.0} GFLOP/s\n\n{}",
        shape.batch,
        shape.tokens,
        shape.context,
        seconds * 1e3,
        profile.tokens_per_second,
        profile.threads,
        profile.isa,
        ceilings.read_bytes_per_second / 1e9,
        ceilings.int8_operations_per_second / 1e9,
        ceilings.f32_flops_per_second / 1e9,
        table(&rows)
    )
}

fn row(cost: &OperationCost, step: f64) -> Vec<String> {
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    vec![
        cost.name.to_owned(),
        cost.calls.to_string(),
        format!("{:.3} ms", cost.seconds * 1e3),
        percent(cost.seconds / step),
        size(cost.bytes as u64),
        format!("{:.1}", cost.operations as f64 / 1e6),
        percent(cost.bandwidth_share),
        percent(cost.arithmetic_share),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_each_part_and_its_shares() {
        let options = ProfileOptions {
            shape: StepShape {
                batch: 2,
                tokens: 3,
                context: 20,
            },
            kv_dtype: KvDtype::F16,
            threads: 1,
            repeats: 3,
        };
        let profile = profile_step(&Arc::new(Model::tiny(1)), options).unwrap();
        let text = describe(&profile);
        assert!(text.starts_with("2 x 3 tokens after 20: "), "{text}");
        for cost in &profile.operations {
            assert!(text.contains(cost.name), "{text}");
        }
    }
}
