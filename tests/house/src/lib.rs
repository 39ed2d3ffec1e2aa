//! The repository as the house rules see it: its source files and its crates.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Directories that hold nothing written by hand.
const SKIPPED: &[&str] = &["target", "dist", ".git", ".venv", "__pycache__"];

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every file with this ending under the root: path from the root, and text.
pub fn sources(extension: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut directories = vec![root()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name();
            if path.is_dir() {
                if !SKIPPED.iter().any(|skipped| name == *skipped) {
                    directories.push(path);
                }
            } else if path.extension().is_some_and(|end| end == extension) {
                let text = fs::read_to_string(&path).unwrap_or_default();
                let path = path.strip_prefix(root()).unwrap_or(&path).to_owned();
                found.push((path, text));
            }
        }
    }
    found.sort();
    found
}

/// The workspace's packages as `cargo metadata` tells them.
///
/// # Panics
/// If cargo cannot be run: there is nothing to check then.
pub fn packages() -> Vec<serde_json::Value> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ])
        .current_dir(root())
        .output()
        .expect("cargo metadata");
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("the output of cargo metadata");
    metadata["packages"].as_array().cloned().unwrap_or_default()
}
