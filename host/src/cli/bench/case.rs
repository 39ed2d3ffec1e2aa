//! MaskBench files.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result};
use flate2::read::MultiGzDecoder;
use serde::Deserialize;
use serde_json::Value;

/// One schema with its instances.
#[derive(Deserialize, Debug)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) schema: Value,
    pub(super) tests: Vec<Instance>,
}

/// A value that a schema allows or does not.
#[derive(Deserialize, Debug)]
pub(super) struct Instance {
    pub(super) valid: bool,
    pub(super) data: Value,
}

impl Case {
    /// What the name begins with: the collection that the schema is from.
    pub(super) fn split(&self) -> &str {
        match self.name.split_once("---") {
            Some((split, _)) => split,
            None => self.name.split('_').next().unwrap_or(&self.name),
        }
    }
}

/// Calls `each` with every case of a file, in order.
pub(super) fn read(path: &Path, mut each: impl FnMut(Case) -> Result<()>) -> Result<()> {
    let shown = path.display();
    let file = std::fs::File::open(path).with_context(|| shown.to_string())?;
    if path.extension().is_some_and(|extension| extension == "gz") {
        let unzipped = MultiGzDecoder::new(file);
        return lines(unzipped, &mut each).with_context(|| shown.to_string());
    }
    lines(file, &mut each).with_context(|| shown.to_string())
}

fn lines(input: impl Read, each: &mut impl FnMut(Case) -> Result<()>) -> Result<()> {
    for (number, line) in BufReader::new(input).lines().enumerate() {
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        let place = || format!("line {}", number + 1);
        let case: Case = serde_json::from_str(&line).with_context(place)?;
        each(case)?;
    }
    Ok(())
}
