//! Packed weights kept beside a model: the model is the same with and without them, whatever becomes of the file.

#![cfg(unix)]

mod support;
#[path = "support/synthetic.rs"]
mod synthetic;

use formwork_model::{
    LoadOptions, Model, PackedCache, PackedError, PackedWriter, is_packed_file, packed_file,
};
use proptest::prelude::*;
use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::{Driver, greedy};

fn load(path: &Path, packed_cache: PackedCache) -> Arc<Model> {
    let options = LoadOptions {
        packed_cache,
        threads: 2,
        ..LoadOptions::default()
    };
    Arc::new(Model::load(path, &options).expect("the model loads"))
}

fn keep(model: &Model) -> Result<u64, PackedError> {
    model.keep_packed_weights(&AtomicBool::new(false))
}

/// Tokens and log-probabilities of a prompt and what follows, as text that tells each bit.
fn outcome(model: &Arc<Model>, steps: usize) -> String {
    let mut driver = Driver::new(model, 2, [1, 64]);
    let index = driver.add(&[0, 1, 2, 3, 1, 1, 0, 5, 20]);
    let steps = (0..steps).map(|_| driver.step(&[index], 4, &greedy()));
    let steps = steps.collect::<Result<Vec<_>, _>>();
    format!("{:?}", steps.expect("the steps run"))
}

/// Loads with what is kept: what the model says, and whether the file was good.
fn with_kept(path: &Path) -> (String, bool) {
    let model = load(path, PackedCache::Always);
    let good = model.packed_weights_to_keep().is_none();
    (outcome(&model, 8), good)
}

#[test]
fn a_model_is_the_same_from_packed_weights() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    synthetic::write(&path, 1);
    let plain = load(&path, PackedCache::Never);
    assert!(plain.packed_weights_to_keep().is_none());
    assert_eq!(keep(&plain).unwrap(), 0);
    let expected = outcome(&plain, 8);
    // Small as it is.
    assert!(
        load(&path, PackedCache::Auto)
            .packed_weights_to_keep()
            .is_none()
    );

    let first = load(&path, PackedCache::Always);
    let place = packed_file(&path);
    assert_eq!(first.packed_weights_to_keep(), Some(&*place));
    assert!(is_packed_file(
        &place.file_name().unwrap().to_string_lossy()
    ));
    assert!(!place.exists(), "loading writes nothing");
    assert_eq!(outcome(&first, 8), expected);
    let bytes = keep(&first).unwrap();
    assert_eq!(bytes, fs::metadata(&place).unwrap().len());
    assert_eq!(with_kept(&path), (expected.clone(), true));
    let again = load(&path, PackedCache::Always);
    assert_eq!(again.info(), plain.info());

    // Another model in the same place.
    synthetic::write(&path, 2);
    let other = outcome(&load(&path, PackedCache::Never), 8);
    assert_ne!(other, expected);
    assert_eq!(with_kept(&path), (other.clone(), false));
    keep(&load(&path, PackedCache::Always)).unwrap();
    assert_eq!(with_kept(&path), (other, true));
}

#[test]
fn progress_is_told_to_the_end_either_way() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    synthetic::write(&path, 1);
    let told = || {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let tell = Arc::clone(&seen);
        let options = LoadOptions {
            progress: Some(Box::new(move |progress| {
                tell.lock().unwrap().push(progress)
            })),
            packed_cache: PackedCache::Always,
            ..LoadOptions::default()
        };
        let model = Model::load(&path, &options).unwrap();
        keep(&model).unwrap();
        std::mem::take(&mut *seen.lock().unwrap())
    };
    let (packing, reading) = (told(), told());
    assert_eq!(packing, reading);
    let last = packing.last().unwrap();
    assert_eq!(last.done, last.total);
}

#[test]
fn damage_costs_a_packing_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    synthetic::write(&path, 3);
    let model = load(&path, PackedCache::Always);
    let expected = outcome(&model, 8);
    keep(&model).unwrap();
    let place = packed_file(&path);
    let whole = fs::read(&place).unwrap();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 60,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let refused = std::cell::Cell::new(0);
    runner
        .run(&(0..whole.len(), 0u8..=255), |(at, flip)| {
            // One byte is changed, or the file is cut there.
            let mut bytes = whole.clone();
            bytes[at] ^= flip;
            fs::write(&place, if flip == 0 { &whole[..at] } else { &bytes }).unwrap();
            let (now, good) = with_kept(&path);
            prop_assert_eq!(&now, &expected);
            refused.set(refused.get() + usize::from(!good));
            Ok(())
        })
        .unwrap();
    // Most of the file is numbers.
    assert!(refused.get() > 30, "{} were noticed", refused.get());
    // The last of all matrices: all others were read from the file already.
    let mut bytes = whole.clone();
    let table_at = u64::from_le_bytes(whole[16..24].try_into().unwrap()) as usize;
    bytes[table_at - 4096] ^= 1;
    fs::write(&place, &bytes).unwrap();
    assert_eq!(with_kept(&path), (expected.clone(), false));
    keep(&load(&path, PackedCache::Always)).unwrap();
    assert_eq!(with_kept(&path), (expected, true));
}

#[test]
fn a_folder_that_cannot_be_written_to_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    synthetic::write(&path, 4);
    let model = load(&path, PackedCache::Always);
    let expected = outcome(&model, 8);
    // The superuser may write everywhere, but not where there is no folder.
    folder.close().unwrap();
    assert!(matches!(keep(&model), Err(PackedError::Io(_))));
    drop(PackedWriter::start(&model).unwrap());
    assert_eq!(outcome(&model, 8), expected);
}

#[test]
fn several_loads_at_once_keep_one_good_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    synthetic::write(&path, 5);
    let expected = outcome(&load(&path, PackedCache::Never), 8);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let model = load(&path, PackedCache::Always);
                assert_eq!(outcome(&model, 8), expected);
                assert!(matches!(keep(&model), Ok(_) | Err(PackedError::Busy)));
            });
        }
    });
    assert_eq!(with_kept(&path), (expected, true));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn the_writer_writes_once_and_can_be_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    synthetic::write(&path, 6);
    let model = load(&path, PackedCache::Always);
    let writer = PackedWriter::start(&model).unwrap();
    assert!(writer.is_some());
    let until = Instant::now() + Duration::from_secs(60);
    while !packed_file(&path).exists() {
        assert!(Instant::now() < until, "nothing was written");
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(writer);
    assert!(with_kept(&path).1);
    let model = load(&path, PackedCache::Always);
    assert!(PackedWriter::start(&model).unwrap().is_none());

    // Whether it was stopped early, late or not at all, there is a whole file or none.
    fs::remove_file(packed_file(&path)).unwrap();
    let model = load(&path, PackedCache::Always);
    drop(PackedWriter::start(&model).unwrap());
    let names = fs::read_dir(folder.path()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(names.into_iter().all(|name| !name.ends_with(".tmp")));
    assert_eq!(packed_file(&path).exists(), with_kept(&path).1);
}

#[test]
fn the_real_model_is_the_same_from_packed_weights() {
    let Some(plain) = support::smollm2_path() else {
        return;
    };
    // Beside a link of its own, so that the model's folder stays as it is.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::os::unix::fs::symlink(&plain, &path).unwrap();
    let packed = load(&path, PackedCache::Always);
    let expected = outcome(&packed, 6);
    keep(&packed).unwrap();
    drop(packed);
    assert_eq!(
        with_kept(&path),
        (outcome(&load(&path, PackedCache::Never), 8), true)
    );
    assert_eq!(outcome(&load(&path, PackedCache::Always), 6), expected);
    let file = File::open(packed_file(&path)).unwrap();
    assert!(file.metadata().unwrap().len() > 50 << 20);
}
