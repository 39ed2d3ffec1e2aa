//! Prints tokens per second of prefill and of decode at several batch sizes, free and under a mask that allows
//! few tokens.
//!
//! Usage: `throughput MODEL [THREADS]`

use formwork_engine::{
    Backend, Row, SampleRow, Sampling, SimpleVob, StepInput, TokenId, WantedLogits,
};
use formwork_model::{CpuBackend, CpuConfig, KvDtype, LoadOptions, Model};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

const PROMPT: usize = 32;
const STEPS: usize = 32;
const BLOCKS_EACH: usize = 40;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments
        .next()
        .ok_or("usage: throughput MODEL [THREADS]")?;
    let threads = arguments.next().map_or(Ok(0), |text| text.parse())?;
    let start = Instant::now();
    let model = Arc::new(Model::load(Path::new(&path), &LoadOptions::default())?);
    println!("load            {:8.2} s", start.elapsed().as_secs_f64());
    println!("{:?}", model.info());
    let config = CpuConfig {
        kv_blocks: 32 * BLOCKS_EACH,
        block_size: 16,
        kv_dtype: KvDtype::F16,
        threads,
        max_context: BLOCKS_EACH * 16,
    };
    let vocab_size = model.info().vocab_size;
    let mut backend = CpuBackend::new(model, config)?;
    let warm = row(0, 0, vec![1; 512]);
    run(&mut backend, vec![warm.clone()], None)?;
    let best = (0..3)
        .map(|_| run(&mut backend, vec![warm.clone()], None).map(|(seconds, _)| seconds))
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .fold(f64::INFINITY, f64::min);
    println!("prefill 512     {:8.1} tok/s", 512.0 / best);
    for batch in [1, 8, 32] {
        for mask in [None, few_tokens(vocab_size)] {
            let (best, mean) = decode(&mut backend, batch, mask.as_ref())?;
            println!(
                "decode batch {batch:2} {:8.1} tok/s best step, {:8.1} mean, {}",
                batch as f64 / best,
                batch as f64 / mean,
                mask.map_or("free", |_| "few tokens allowed")
            );
        }
    }
    Ok(())
}

/// A mask that allows 32 tokens here and there.
fn few_tokens(vocab_size: usize) -> Option<Arc<SimpleVob>> {
    let mut mask = SimpleVob::alloc(vocab_size);
    let step = (vocab_size / 32).max(1);
    (0..vocab_size)
        .step_by(step)
        .for_each(|token| mask.allow_token(token as TokenId));
    Some(Arc::new(mask))
}

fn row(sequence: usize, start: usize, tokens: Vec<TokenId>) -> Row {
    let first = (sequence * BLOCKS_EACH) as u32;
    Row {
        tokens,
        start,
        table: (first..first + BLOCKS_EACH as u32).collect(),
        logits: WantedLogits::All,
    }
}

/// Seconds per step, best and mean.
fn decode(
    backend: &mut CpuBackend,
    batch: usize,
    mask: Option<&Arc<SimpleVob>>,
) -> Result<(f64, f64), Box<dyn std::error::Error>> {
    let prompt: Vec<TokenId> = (100..100 + PROMPT as TokenId).collect();
    let rows = (0..batch).map(|sequence| row(sequence, 0, prompt.clone()));
    let (_, mut tokens) = run(backend, rows.collect(), mask)?;
    let (mut best, mut total) = (f64::INFINITY, 0.0);
    for step in 0..STEPS {
        let rows = tokens
            .iter()
            .enumerate()
            .map(|(sequence, &token)| row(sequence, PROMPT + step, vec![token]));
        let (seconds, next) = run(backend, rows.collect(), mask)?;
        best = f64::min(best, seconds);
        total += seconds;
        tokens = next;
    }
    Ok((best, total / STEPS as f64))
}

/// One step: its seconds and the greedy token of each row.
fn run(
    backend: &mut CpuBackend,
    mut rows: Vec<Row>,
    mask: Option<&Arc<SimpleVob>>,
) -> Result<(f64, Vec<TokenId>), Box<dyn std::error::Error>> {
    let sampling = Sampling {
        temperature: 0.0,
        ..Sampling::default()
    };
    let count = rows.len();
    if mask.is_some() {
        rows.iter_mut()
            .for_each(|row| row.logits = WantedLogits::Masked);
    }
    let start = Instant::now();
    let ticket = backend.launch(StepInput { rows })?;
    backend.wait(&ticket)?;
    let rows: Vec<SampleRow<'_>> = (0..count)
        .map(|row| SampleRow {
            row,
            mask: mask.cloned(),
            sampling: &sampling,
            position: 0,
            history: &[],
            prompt_len: 0,
        })
        .collect();
    let sampled = backend.finish(ticket, &rows)?;
    let seconds = start.elapsed().as_secs_f64();
    let tokens = sampled.iter().map(|sampled| sampled.token.unwrap_or(0));
    Ok((seconds, tokens.collect()))
}
