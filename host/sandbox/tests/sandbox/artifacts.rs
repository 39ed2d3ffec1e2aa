//! Compiled plugins that outlive the process.

use crate::guest::Guest;
use crate::world::{few, open, sandbox};
use formwork_sandbox::{AdmissionError, Sandbox, SandboxLimits};
use std::path::{Path, PathBuf};

/// A sandbox that keeps what it compiles in `dir`. With `compile_ms` of 0 it cannot compile.
fn keeping(dir: &Path, compile_ms: u64) -> Sandbox {
    let limits = SandboxLimits {
        compile_ms,
        ..few(2)
    };
    sandbox(limits).keep_compiled(dir).unwrap()
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

fn only_file(dir: &Path) -> PathBuf {
    let files = files(dir);
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].clone()
}

#[test]
fn what_was_compiled_is_not_compiled_again() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("compiled");
    let component = Guest::default().component();
    let refused = keeping(&dir, 0).admit(&component).unwrap_err();
    assert!(matches!(refused, AdmissionError::CompileTime { .. }));
    assert!(files(&dir).is_empty());
    let first = keeping(&dir, 60_000).admit(&component).unwrap();
    let kept = only_file(&dir);
    let later = keeping(&dir, 0);
    let again = later.admit(&component).unwrap();
    assert_eq!(again.digest(), first.digest());
    assert_eq!(again.description(), first.description());
    drop(open(&again));
    assert_eq!(only_file(&dir), kept);
    // Another component is another matter.
    let other = Guest {
        params: r#"{"type":"object"}"#,
        ..Guest::default()
    };
    assert!(later.admit(&other.component()).is_err());
}

#[test]
fn broken_files_and_those_of_other_versions_are_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("compiled");
    let component = Guest::default().component();
    keeping(&dir, 60_000).admit(&component).unwrap();
    let kept = only_file(&dir);
    let whole = std::fs::read(&kept).unwrap();
    let mut changed = whole.clone();
    changed[whole.len() / 2] ^= 1;
    for broken in [&changed[..], &whole[..whole.len() - 1], b""] {
        std::fs::write(&kept, broken).unwrap();
        assert!(keeping(&dir, 0).admit(&component).is_err());
        assert!(files(&dir).is_empty(), "a broken file stays");
        let plugin = keeping(&dir, 60_000).admit(&component).unwrap();
        drop(open(&plugin));
        assert_eq!(std::fs::read(only_file(&dir)).unwrap(), whole);
    }
    // Of an engine of other settings, unfinished, or not ours: gone at the next start.
    let name = kept.file_name().unwrap().to_str().unwrap();
    let mut parts: Vec<&str> = name.split('.').collect();
    parts[1] = "0";
    std::fs::rename(&kept, dir.join(parts.join("."))).unwrap();
    std::fs::write(dir.join("1-0.part"), b"x").unwrap();
    assert!(keeping(&dir, 0).admit(&component).is_err());
    assert!(files(&dir).is_empty());
}

#[cfg(unix)]
#[test]
fn a_directory_that_others_may_write_to_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let all = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(dir.path(), all).unwrap();
    let error = sandbox(few(1)).keep_compiled(dir.path()).unwrap_err();
    assert!(error.to_string().contains("chmod go-w"), "{error}");
}
