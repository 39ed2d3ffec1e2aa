//! Writing packed weights.

use super::PackedError;
use super::place;
use super::source::ModelFile;
use super::table::{ALIGN, Frame, Section, Table, Tensor};
use formwork_kernels::{PIECE_BYTES, QuantMatrix};
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes that may wait in memory for the disk.
const UNSYNCED_BYTES: u64 = 64 << 20;
/// Bytes of the disk that are left to others.
const KEPT_FREE_BYTES: u64 = 1 << 30;

/// Writes everything to an empty file; returns its size.
pub(super) fn write(
    file: &File,
    model: &ModelFile,
    matrices: &[(String, &QuantMatrix)],
    stop: &AtomicBool,
) -> Result<u64, PackedError> {
    let sections = matrices.iter().flat_map(|(_, matrix)| matrix.sections());
    let needed = sections
        .map(|bytes| (bytes.len() as u64).next_multiple_of(ALIGN))
        .sum();
    room(needed, place::free_bytes(file))?;
    let mut output = Output {
        file,
        at: 0,
        unsynced: 0,
        stop,
    };
    output.all(model, matrices)
}

/// Whether so many bytes leave enough of the free ones. Where nobody knows how many these are, it is tried.
fn room(needed: u64, free: Option<u64>) -> Result<(), PackedError> {
    match free {
        Some(free) if free < KEPT_FREE_BYTES.saturating_add(needed) => Err(PackedError::Room {
            needed,
            free,
            kept: KEPT_FREE_BYTES,
        }),
        _ => Ok(()),
    }
}

/// A file written from its beginning to its end.
struct Output<'a> {
    file: &'a File,
    /// Bytes so far.
    at: u64,
    /// Bytes of these that may not be on the disk.
    unsynced: u64,
    stop: &'a AtomicBool,
}

impl Output<'_> {
    fn all(
        &mut self,
        model: &ModelFile,
        matrices: &[(String, &QuantMatrix)],
    ) -> Result<u64, PackedError> {
        // The frame's place.
        self.put(&[0; ALIGN as usize])?;
        let mut tensors = Vec::with_capacity(matrices.len());
        for (name, matrix) in matrices {
            let form = matrix.form();
            let sections = matrix.sections().into_iter();
            tensors.push(Tensor {
                name: name.clone(),
                format: format!("{:?}", form.format()),
                shape: form.shape(),
                sections: sections
                    .map(|bytes| self.section(bytes))
                    .collect::<Result<_, _>>()?,
            });
        }
        let table = Table {
            source: model.source.clone(),
            tensors,
        };
        let table = serde_json::to_vec(&table)
            .map_err(|error| PackedError::damaged(format!("its table: {error}")))?;
        let frame = Frame::of(self.at, &table);
        self.put(&table)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(&frame.to_bytes())?;
        self.file.sync_all()?;
        Ok(self.at)
    }

    fn section(&mut self, bytes: &[u8]) -> Result<Section, PackedError> {
        let at = self.at;
        let mut checksums = Vec::with_capacity(bytes.len().div_ceil(PIECE_BYTES));
        for piece in bytes.chunks(PIECE_BYTES) {
            checksums.push(crc32fast::hash(piece));
            self.put(piece)?;
        }
        let rest = self.at.next_multiple_of(ALIGN) - self.at;
        self.put(&[0; ALIGN as usize][..rest as usize])?;
        Ok(Section {
            at,
            bytes: bytes.len() as u64,
            checksums,
        })
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), PackedError> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(PackedError::Stopped);
        }
        self.file.write_all(bytes)?;
        self.at += bytes.len() as u64;
        self.unsynced += bytes.len() as u64;
        if self.unsynced >= UNSYNCED_BYTES {
            // So that the system never has more of it to hold, nor to write at once.
            self.file.sync_data()?;
            self.unsynced = 0;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_not_filled_further() {
        let gib = 1 << 30;
        for (needed, free, fits) in [
            (5, None, true),
            (5, Some(gib + 5), true),
            (5, Some(gib + 4), false),
            (u64::MAX, Some(u64::MAX), true),
            (u64::MAX, Some(u64::MAX - 1), false),
        ] {
            assert_eq!(room(needed, free).is_ok(), fits, "{needed} of {free:?}");
        }
    }
}
