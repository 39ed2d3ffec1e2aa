//! How a model's file is told from another one.

use super::place::{self, Owner};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io;
use std::ops::Range;

/// Bytes of each tensor that are looked at.
const SAMPLE_BYTES: u64 = 64;

/// What a model's file was when its weights were packed. Of two files of the same size, time and header, as
/// archives with fixed times and trainings of one model give them, samples of the weights differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Source {
    bytes: u64,
    /// Time of the last change: seconds since 1970, nanoseconds.
    modified: (i64, i64),
    /// SHA-256 over the header and a few bytes from the middle of each tensor, in hex.
    digest: String,
}

/// Where the tensors of a file lie.
pub(crate) struct Tensors<'a> {
    /// Everything before the first of them.
    pub(crate) header: &'a [u8],
    /// From the file's beginning; in any order.
    pub(crate) ranges: Vec<Range<u64>>,
}

/// A model's file.
pub(super) struct ModelFile {
    pub(super) source: Source,
    pub(super) owner: Owner,
}

impl ModelFile {
    /// Looks at an open file.
    pub(super) fn of(file: &File, tensors: Tensors<'_>) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let mut digest = Sha256::new();
        digest.update(tensors.header);
        let mut ranges = tensors.ranges;
        ranges.sort_unstable_by_key(|range| (range.start, range.end));
        let mut sample = [0; SAMPLE_BYTES as usize];
        for range in ranges {
            let len = range.end.min(metadata.len()).saturating_sub(range.start);
            let start = range.start + len.saturating_sub(SAMPLE_BYTES) / 2;
            let sample = &mut sample[..len.min(SAMPLE_BYTES) as usize];
            place::read_at(file, sample, start)?;
            digest.update(sample);
        }
        let digest = digest.finalize();
        Ok(Self {
            source: Source {
                bytes: metadata.len(),
                modified: place::modified(&metadata)?,
                digest: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
            },
            owner: Owner::of(&metadata),
        })
    }
}
