//! What the backend refuses, and how.

mod support;

use formwork_engine::{
    Backend, BackendError, Row, SampleRow, Sampling, StepInput, Ticket, WantedLogits,
};
use formwork_model::{CpuBackend, CpuConfig, KvDtype, LoadOptions, Model, ModelError};
use std::sync::Arc;
use support::greedy;

fn config() -> CpuConfig {
    CpuConfig {
        kv_blocks: 4,
        block_size: 16,
        kv_dtype: KvDtype::F16,
        threads: 1,
        max_context: 48,
    }
}

fn backend() -> CpuBackend {
    CpuBackend::new(Arc::new(Model::tiny(1)), config()).expect("the backend starts")
}

fn row(tokens: &[u32], start: usize, table: &[u32]) -> Row {
    Row {
        tokens: tokens.to_vec(),
        start,
        table: table.to_vec(),
        logits: WantedLogits::All,
    }
}

#[test]
fn invalid_steps_are_refused_with_the_reason() {
    let mut backend = backend();
    for (rows, want) in [
        (vec![], "no row"),
        (vec![row(&[], 0, &[0])], "row 0: it has no token"),
        (vec![row(&[259], 0, &[0])], "token 259"),
        (vec![row(&[1], 0, &[])], "0 blocks, 1 are needed"),
        (vec![row(&[1], 16, &[0])], "1 blocks, 2 are needed"),
        (vec![row(&[1], 0, &[4])], "block 4"),
        (vec![row(&[1], 48, &[0, 1, 2, 3])], "context of 48"),
        (vec![row(&[1], usize::MAX, &[0])], "context of 48"),
        (
            vec![row(&[1], 0, &[2]), row(&[1], 3, &[2])],
            "row 1: block 2",
        ),
    ] {
        let Err(BackendError::InvalidInput(reason)) = backend.launch(StepInput { rows }) else {
            panic!("accepted what should fail with {want:?}");
        };
        assert!(reason.contains(want), "{reason:?} lacks {want:?}");
    }
    // Refusals leave the backend usable.
    let input = StepInput {
        rows: vec![row(&[1], 0, &[0])],
    };
    let ticket = backend.launch(input).unwrap();
    backend.wait(&ticket).unwrap();
    assert!(backend.finish(ticket, &[]).unwrap().is_empty());
}

#[test]
fn steps_out_of_order_are_refused() {
    let mut backend = backend();
    assert!(backend.wait(&Ticket(1)).is_err());
    let input = StepInput {
        rows: vec![row(&[1, 2], 0, &[0])],
    };
    let ticket = backend.launch(input.clone()).unwrap();
    assert!(backend.launch(input.clone()).is_err());
    let sampling = greedy();
    let sample = |row| SampleRow {
        row,
        mask: None,
        sampling: &sampling,
        position: 2,
        history: &[1, 2],
        prompt_len: 2,
    };
    // `finish` without `wait` waits by itself; a row that does not exist ends the step.
    assert!(backend.finish(ticket, &[sample(1)]).is_err());
    let ticket = backend.launch(input.clone()).unwrap();
    assert!(backend.finish(ticket, &[sample(0), sample(0)]).is_err());
    let ticket = backend.launch(input).unwrap();
    assert_eq!(backend.finish(ticket, &[sample(0)]).unwrap().len(), 1);
}

#[test]
fn impossible_settings_are_refused() {
    let model = Arc::new(Model::tiny(1));
    for (config, want) in [
        (
            CpuConfig {
                block_size: 8,
                ..config()
            },
            "multiple of 16",
        ),
        (
            CpuConfig {
                block_size: 0,
                ..config()
            },
            "multiple of 16",
        ),
        (
            CpuConfig {
                kv_blocks: 0,
                ..config()
            },
            "0 blocks",
        ),
        (
            CpuConfig {
                max_context: 0,
                ..config()
            },
            "context is 0",
        ),
    ] {
        let Err(error) = CpuBackend::new(Arc::clone(&model), config) else {
            panic!("accepted what should fail with {want:?}");
        };
        assert!(error.to_string().contains(want), "{error} lacks {want:?}");
    }
}

#[test]
fn broken_files_are_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("model.gguf");
    let load = || Model::load(&file, &LoadOptions::default()).err().unwrap();
    assert!(matches!(load(), ModelError::Io { .. }));
    let magic_only = b"GGUF\x03\0\0\0".to_vec();
    let huge_counts = [&magic_only[..], &[0xff; 16]].concat();
    for bytes in [b"".to_vec(), b"no model".to_vec(), magic_only, huge_counts] {
        std::fs::write(&file, &bytes).unwrap();
        assert!(matches!(load(), ModelError::Format { .. }), "{bytes:?}");
    }
    let missing_config = Model::load(dir.path(), &LoadOptions::default())
        .err()
        .unwrap();
    assert!(missing_config.to_string().contains("config.json"));
}

/// The five likeliest tokens after a row, with their log-probabilities.
type Top = Vec<(u32, f32)>;

/// Runs one row.
fn top(backend: &mut CpuBackend, tokens: &[u32], start: usize, table: &[u32]) -> Top {
    tops(backend, vec![row(tokens, start, table)]).remove(0)
}

/// Runs rows together; an answer for each that samples.
fn tops(backend: &mut CpuBackend, rows: Vec<Row>) -> Vec<Top> {
    let input = StepInput { rows };
    let rows = input.rows.clone();
    let ticket = backend.launch(input).expect("it starts");
    backend.wait(&ticket).expect("it ends");
    let sampling = Sampling {
        logprobs: Some(5),
        ..greedy()
    };
    let sample = |(index, row): (usize, &'_ Row)| (index, row.start + row.tokens.len());
    let sampling_rows = rows.iter().enumerate().filter(|(_, row)| row.samples());
    let samples: Vec<SampleRow<'_>> = sampling_rows
        .map(sample)
        .map(|(row, position)| SampleRow {
            row,
            mask: None,
            sampling: &sampling,
            position: position as u64,
            history: &rows[row].tokens,
            prompt_len: rows[row].tokens.len(),
        })
        .collect();
    let sampled = backend.finish(ticket, &samples).expect("it samples");
    sampled.into_iter().map(|sampled| sampled.top).collect()
}

/// Rows that only fill the cache do not pass the last layer, nor do positions before a row's last: what is sampled
/// beside them and after them is the same as alone.
#[test]
fn rows_that_fill_the_cache_change_nothing_beside_them() {
    let [long, short]: [Vec<u32>; 2] = [(1..20).collect(), (50..57).collect()];
    let alone = |tokens: &[u32], table: &[u32]| top(&mut backend(), tokens, 0, table);
    let mut together = backend();
    let fill = Row {
        logits: WantedLogits::None,
        ..row(&long[..11], 0, &[2])
    };
    let rows = vec![fill.clone(), row(&short, 0, &[1]), row(&[9], 0, &[3])];
    let got = tops(&mut together, rows);
    assert_eq!(got, [alone(&short, &[0]), alone(&[9], &[0])]);
    // The rest of the first one, beside nothing; and a step that samples nothing at all.
    let got = top(&mut together, &long[11..], 11, &[2, 0]);
    assert_eq!(got, alone(&long, &[0, 1]));
    assert_eq!(tops(&mut together, vec![fill]), [] as [Top; 0]);
    assert_eq!(
        top(&mut together, &long[11..], 11, &[2, 0]),
        alone(&long, &[0, 1])
    );
}

#[test]
fn a_copied_block_is_as_good_as_a_computed_one() {
    for kv_dtype in KvDtype::ALL {
        let config = || CpuConfig {
            kv_dtype,
            ..config()
        };
        let start = || CpuBackend::new(Arc::new(Model::tiny(1)), config()).expect("it starts");
        let known: Vec<u32> = (1..33).collect();
        let wanted: Vec<u32> = known[..20].iter().copied().chain(100..108).collect();
        let mut backend = start();
        top(&mut backend, &known, 0, &[0, 1]);
        backend.copy(1, 3).unwrap();
        backend.copy(3, 3).unwrap();
        let copied = top(&mut backend, &wanted[20..], 20, &[0, 3]);
        assert_eq!(copied, top(&mut start(), &wanted, 0, &[2, 1]), "{kv_dtype}");
        // The source is as it was.
        let again = top(&mut backend, &known[31..], 31, &[0, 1]);
        assert_eq!(again, top(&mut start(), &known, 0, &[0, 1]), "{kv_dtype}");
    }
}

#[test]
fn impossible_copies_are_refused() {
    let mut backend = backend();
    assert!(backend.copy(0, 4).is_err() && backend.copy(4, 0).is_err());
    let input = StepInput {
        rows: vec![row(&[1, 2], 0, &[0])],
    };
    let ticket = backend.launch(input).unwrap();
    assert!(backend.copy(0, 1).is_err());
    backend.wait(&ticket).unwrap();
    backend.finish(ticket, &[]).unwrap();
    assert!(backend.copy(0, 1).is_ok());
}
