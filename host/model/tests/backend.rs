//! What the backend refuses, and how.

mod support;

use formwork_engine::{Backend, BackendError, Row, SampleRow, StepInput, Ticket, WantedLogits};
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
