//! The form of a file with packed weights.
//!
//! A frame of 40 bytes, then the sections of all matrices, each at a multiple of 4096, then a table in JSON that
//! says what lies where. Numbers are little-endian. The frame says where the table is and has its checksum; the
//! table has one for each piece of each section. Nothing that the file says is believed before its checksum was
//! right, and no length or place is used before it was compared with what must be there.

use super::place::read_at;
use super::source::Source;
use super::{PackedError, Wanted};
use formwork_kernels::{PACKED_VERSION, PIECE_BYTES, PackedForm, SECTIONS};
use serde::{Deserialize, Serialize};
use std::fs::File;

const MAGIC: [u8; 8] = *b"FWPACKED";
/// Version of what this module describes; that of the sections is [`PACKED_VERSION`].
const FILE_VERSION: u32 = 1;
const FRAME_BYTES: usize = 40;
/// Sections begin at multiples of this.
pub(super) const ALIGN: u64 = 4096;
/// More than the table of a model of a terabyte.
const MOST_TABLE_BYTES: u64 = 64 << 20;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    pub(super) source: Source,
    pub(super) tensors: Vec<Tensor>,
}

/// A packed matrix.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tensor {
    pub(super) name: String,
    pub(super) format: String,
    pub(super) shape: [usize; 2],
    pub(super) sections: Vec<Section>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Section {
    /// From the file's beginning, in bytes.
    pub(super) at: u64,
    pub(super) bytes: u64,
    /// CRC-32 of each piece of [`PIECE_BYTES`].
    pub(super) checksums: Vec<u32>,
}

/// The file's beginning.
pub(super) struct Frame {
    table_at: u64,
    table_bytes: u64,
    table_checksum: u32,
}

impl Frame {
    pub(super) fn of(table_at: u64, table: &[u8]) -> Self {
        Self {
            table_at,
            table_bytes: table.len() as u64,
            table_checksum: crc32fast::hash(table),
        }
    }

    pub(super) fn to_bytes(&self) -> [u8; FRAME_BYTES] {
        let mut bytes = [0; FRAME_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&FILE_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&PACKED_VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.table_at.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.table_bytes.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.table_checksum.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..36]);
        bytes[36..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    fn parse(bytes: &[u8; FRAME_BYTES]) -> Result<Self, PackedError> {
        let half = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| bytes[at + byte]));
        let whole = |at: usize| u64::from(half(at)) | u64::from(half(at + 4)) << 32;
        if bytes[..8] != MAGIC {
            return Err(PackedError::damaged("it does not begin as such files do"));
        }
        if half(36) != crc32fast::hash(&bytes[..36]) {
            return Err(PackedError::damaged("the checksum of its frame differs"));
        }
        let (found, expected) = ([half(8), half(12)], [FILE_VERSION, PACKED_VERSION]);
        if found != expected {
            let text = |[file, packed]: [u32; 2]| format!("{file}.{packed}");
            return Err(PackedError::Version {
                found: text(found),
                expected: text(expected),
            });
        }
        Ok(Self {
            table_at: whole(16),
            table_bytes: whole(24),
            table_checksum: half(32),
        })
    }
}

impl Table {
    /// Reads and checks the table of a file of `len` bytes.
    pub(super) fn read(file: &File, len: u64) -> Result<Self, PackedError> {
        if len < FRAME_BYTES as u64 {
            return Err(PackedError::damaged("it is too short"));
        }
        let mut frame = [0; FRAME_BYTES];
        read_at(file, &mut frame, 0)?;
        let frame = Frame::parse(&frame)?;
        if frame.table_at.checked_add(frame.table_bytes) != Some(len) {
            return Err(PackedError::damaged(
                "it is cut short, or longer than it was",
            ));
        }
        if frame.table_bytes > MOST_TABLE_BYTES {
            return Err(PackedError::damaged("its table is too long"));
        }
        let mut table = vec![0; frame.table_bytes as usize];
        read_at(file, &mut table, frame.table_at)?;
        if crc32fast::hash(&table) != frame.table_checksum {
            return Err(PackedError::damaged("the checksum of its table differs"));
        }
        let table: Self = serde_json::from_slice(&table)
            .map_err(|error| PackedError::damaged(format!("its table: {error}")))?;
        for tensor in &table.tensors {
            tensor.check(frame.table_at)?;
        }
        Ok(table)
    }
}

impl Tensor {
    /// Whether its sections lie before `end` and have a checksum for each piece.
    fn check(&self, end: u64) -> Result<(), PackedError> {
        let fits = |section: &Section| {
            let within = section.at.checked_add(section.bytes);
            let pieces = section.bytes.div_ceil(PIECE_BYTES as u64);
            within.is_some_and(|within| within <= end) && section.checksums.len() as u64 == pieces
        };
        if self.sections.len() == SECTIONS && self.sections.iter().all(fits) {
            return Ok(());
        }
        Err(PackedError::damaged(format!(
            "{} has impossible sections",
            self.name
        )))
    }

    /// The form of the matrix, if this is the one that is wanted and its sections have the lengths of that form.
    pub(super) fn form(&self, wanted: Wanted<'_>) -> Option<PackedForm> {
        if self.shape != wanted.shape || self.format != format!("{:?}", wanted.format) {
            return None;
        }
        let form = PackedForm::new(wanted.format, wanted.shape).ok()?;
        let lens = form.section_bytes().into_iter();
        let fits = lens.eq(self.sections.iter().map(|section| section.bytes as usize));
        fits.then_some(form)
    }
}
