//! Drives a backend the way the engine does, without an engine.

#![allow(dead_code)] // Each test binary uses its own part of this module.

use formwork_engine::{
    Backend, BackendError, Row, SampleRow, Sampled, Sampling, SimpleVob, StepInput, TokenId,
    WantedLogits,
};
use formwork_model::{CpuBackend, CpuConfig, KvDtype, LoadOptions, Model};
use std::path::PathBuf;
use std::sync::Arc;

const FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// The real model, or `None` with a printed reason.
pub(crate) fn smollm2() -> Option<Arc<Model>> {
    let path = smollm2_path()?;
    let model = Model::load(&path, &LoadOptions::default()).expect("the model loads");
    Some(Arc::new(model))
}

/// Its file, or `None` with a printed reason.
pub(crate) fn smollm2_path() -> Option<PathBuf> {
    let path = std::env::var_os("FORMWORK_TEST_MODEL").map_or_else(default_path, PathBuf::from);
    if !path.exists() {
        println!("skipped: there is no model at {}", path.display());
        return None;
    }
    Some(path)
}

fn default_path() -> PathBuf {
    let home = std::env::var_os("FORMWORK_HOME").map_or_else(
        || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache/formwork"),
        PathBuf::from,
    );
    home.join("models").join(FILE)
}

/// Greedy, with the log-probabilities of the best five.
pub(crate) fn greedy() -> Sampling {
    Sampling {
        temperature: 0.0,
        logprobs: Some(5),
        ..Sampling::default()
    }
}

/// A sequence and the blocks it owns.
pub(crate) struct Sequence {
    pub(crate) tokens: Vec<TokenId>,
    pub(crate) prompt_len: usize,
    /// Tokens that the cache holds.
    pub(crate) computed: usize,
    pub(crate) table: Vec<u32>,
}

/// A backend whose sequences own equal runs of blocks.
pub(crate) struct Driver {
    pub(crate) backend: CpuBackend,
    pub(crate) sequences: Vec<Sequence>,
    blocks_each: usize,
}

impl Driver {
    /// Room for `sequences` of `positions` tokens.
    pub(crate) fn new(model: &Arc<Model>, threads: usize, room: [usize; 2]) -> Self {
        Self::with_dtype(model, KvDtype::F16, threads, room)
    }

    /// [`Self::new`] with a cache of another kind.
    pub(crate) fn with_dtype(
        model: &Arc<Model>,
        kv_dtype: KvDtype,
        threads: usize,
        [sequences, positions]: [usize; 2],
    ) -> Self {
        let blocks_each = positions.div_ceil(16);
        let config = CpuConfig {
            kv_blocks: blocks_each * sequences,
            block_size: 16,
            kv_dtype,
            threads,
            max_context: positions,
        };
        let backend = CpuBackend::new(Arc::clone(model), config).expect("the backend starts");
        Self {
            backend,
            sequences: Vec::new(),
            blocks_each,
        }
    }

    /// Adds a sequence and returns its index. Its blocks lie in reverse order.
    pub(crate) fn add(&mut self, prompt: &[TokenId]) -> usize {
        let index = self.sequences.len();
        let first = (index * self.blocks_each) as u32;
        self.sequences.push(Sequence {
            tokens: prompt.to_vec(),
            prompt_len: prompt.len(),
            computed: 0,
            table: (first..first + self.blocks_each as u32).rev().collect(),
        });
        index
    }

    /// The next row of a sequence.
    pub(crate) fn row(&self, index: usize, limit: usize) -> Row {
        let sequence = &self.sequences[index];
        let end = sequence.tokens.len().min(sequence.computed + limit);
        Row {
            tokens: sequence.tokens[sequence.computed..end].to_vec(),
            start: sequence.computed,
            table: sequence.table.clone(),
            logits: match end == sequence.tokens.len() {
                true => WantedLogits::All,
                false => WantedLogits::None,
            },
        }
    }

    /// One step of the sequences `which`, each advanced by at most `limit` tokens; those that reach
    /// their end sample one token, which is appended.
    pub(crate) fn step(
        &mut self,
        which: &[usize],
        limit: usize,
        sampling: &Sampling,
    ) -> Result<Vec<(usize, Sampled)>, BackendError> {
        self.step_masked(which, limit, sampling, |_| (None, WantedLogits::All))
    }

    /// [`Self::step`] where each sequence has a mask, which is promised or not.
    pub(crate) fn step_masked(
        &mut self,
        which: &[usize],
        limit: usize,
        sampling: &Sampling,
        mask: impl Fn(usize) -> (Option<Arc<SimpleVob>>, WantedLogits),
    ) -> Result<Vec<(usize, Sampled)>, BackendError> {
        let rows = which.iter().map(|&index| {
            let mut row = self.row(index, limit);
            if row.samples() {
                row.logits = mask(index).1;
            }
            row
        });
        let rows: Vec<Row> = rows.collect();
        let wanted: Vec<usize> = (0..rows.len()).filter(|&row| rows[row].samples()).collect();
        for (&index, row) in which.iter().zip(&rows) {
            self.sequences[index].computed += row.tokens.len();
        }
        let ticket = self.backend.launch(StepInput { rows })?;
        self.backend.wait(&ticket)?;
        let sample_rows: Vec<SampleRow<'_>> = wanted
            .iter()
            .map(|&row| {
                let sequence = &self.sequences[which[row]];
                SampleRow {
                    row,
                    mask: mask(which[row]).0,
                    sampling,
                    position: sequence.tokens.len() as u64,
                    history: &sequence.tokens,
                    prompt_len: sequence.prompt_len,
                }
            })
            .collect();
        let sampled = self.backend.finish(ticket, &sample_rows)?;
        drop(sample_rows);
        let mut out = Vec::new();
        for (row, sampled) in wanted.into_iter().zip(sampled) {
            let index = which[row];
            self.sequences[index]
                .tokens
                .push(sampled.token.expect("a token is sampled"));
            out.push((index, sampled));
        }
        Ok(out)
    }

    /// Generates until each of `which` has `count` tokens beyond its prompt; prompts run in chunks of
    /// `limit` tokens.
    pub(crate) fn generate(
        &mut self,
        which: &[usize],
        count: usize,
        limit: usize,
    ) -> Vec<Vec<TokenId>> {
        let sampling = greedy();
        loop {
            let open: Vec<usize> = which
                .iter()
                .copied()
                .filter(|&index| self.generated(index).len() < count)
                .collect();
            if open.is_empty() {
                break;
            }
            self.step(&open, limit, &sampling).expect("the step runs");
        }
        which
            .iter()
            .map(|&index| self.generated(index).to_vec())
            .collect()
    }

    fn generated(&self, index: usize) -> &[TokenId] {
        let sequence = &self.sequences[index];
        &sequence.tokens[sequence.prompt_len..]
    }
}
