//! Packed matrices taken apart into bytes and put together again, so that they can be kept in files.
//!
//! The bytes are those in memory: read on a machine of the other byte order they mean something else.

use super::{BlockFormat, LANES, Layout, PackError, QuantMatrix, Scales};
use crate::Cpu;
use crate::shared::Shared;
use std::sync::{Mutex, PoisonError};

/// Version of the packed form. It must grow whenever packing puts any bit elsewhere: packed matrices are
/// kept in files, and this is how a file from before is told from one of now.
pub const PACKED_VERSION: u32 = 1;

/// Runs of bytes that a packed matrix consists of.
pub const SECTIONS: usize = 2;

/// Bytes of a section that are read at once. A piece stays in a core's cache while it is looked at again.
pub const PIECE_BYTES: usize = 256 << 10;

/// What a packed matrix looks like in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedForm {
    format: BlockFormat,
    shape: [usize; 2],
}

/// Part of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Which section.
    pub section: usize,
    /// Which piece of it.
    pub index: usize,
}

impl Piece {
    /// Where in its section it begins, in bytes.
    #[must_use]
    pub fn start(self) -> usize {
        self.index * PIECE_BYTES
    }
}

impl PackedForm {
    /// The form of a matrix of `[rows, columns]`.
    ///
    /// # Errors
    /// When rows are no whole number of blocks, or the matrix does not fit into the address space.
    pub fn new(format: BlockFormat, shape: [usize; 2]) -> Result<Self, PackError> {
        format.matrix_bytes(0, shape[1])?;
        // No form has as many bytes as this per weight of a whole panel.
        let weights = shape[0].checked_next_multiple_of(LANES);
        let weights = weights.and_then(|rows| rows.checked_mul(shape[1]));
        match weights.and_then(|weights| weights.checked_mul(8)) {
            Some(bytes) if bytes <= isize::MAX as usize => Ok(Self { format, shape }),
            _ => Err(PackError::Size {
                expected: usize::MAX,
                got: 0,
            }),
        }
    }

    /// The format that the matrix was packed from.
    #[must_use]
    pub fn format(self) -> BlockFormat {
        self.format
    }

    /// Outputs and inputs.
    #[must_use]
    pub fn shape(self) -> [usize; 2] {
        self.shape
    }

    /// Bytes of each section.
    #[must_use]
    pub fn section_bytes(self) -> [usize; SECTIONS] {
        let layout = Layout::of(self.format);
        let groups = self.shape[0].div_ceil(LANES) * (self.shape[1] / layout.group);
        [
            groups * layout.group_bytes(),
            Scales::bytes_of(self.format, groups),
        ]
    }
}

impl QuantMatrix {
    /// How the matrix is packed.
    #[must_use]
    pub fn form(&self) -> PackedForm {
        PackedForm {
            format: self.format,
            shape: [self.rows, self.columns],
        }
    }

    /// The bytes that the matrix consists of. [`Self::read`] makes the same matrix of them.
    #[must_use]
    pub fn sections(&self) -> [&[u8]; SECTIONS] {
        let scales = match &self.scales {
            Scales::Half(values) => values.as_bytes(),
            Scales::TwoLevel(bytes) => bytes.as_bytes(),
        };
        [self.codes.as_bytes(), scales]
    }

    /// Makes a matrix of a known form from bytes that `fill` knows. It is called once for each [`Piece`], in
    /// any order and in parallel, with the memory that the piece belongs in, which is zeroed.
    ///
    /// # Errors
    /// One that `fill` failed with; it is not called any more then.
    pub fn read<E: Send>(
        cpu: &Cpu,
        form: PackedForm,
        fill: impl Fn(Piece, &mut [u8]) -> Result<(), E> + Sync,
    ) -> Result<Self, E> {
        let mut matrix = Self::zeroed(cpu, form);
        let lens = form.section_bytes();
        let pieces: Vec<Piece> = lens
            .iter()
            .enumerate()
            .flat_map(|(section, len)| {
                (0..len.div_ceil(PIECE_BYTES)).map(move |index| Piece { section, index })
            })
            .collect();
        let sections = matrix.sections_mut().map(Shared::new);
        let failed = Mutex::new(None);
        cpu.for_each(pieces.len(), |at| {
            let piece = pieces[at];
            if failed
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .is_some()
            {
                return;
            }
            let (start, len) = (piece.start(), lens[piece.section]);
            // SAFETY: each piece is visited once, so the parts are disjoint.
            let bytes =
                unsafe { sections[piece.section].part(start..(start + PIECE_BYTES).min(len)) };
            if let Err(error) = fill(piece, bytes) {
                *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            }
        });
        match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(matrix),
        }
    }

    /// A matrix of that form whose bytes are 0.
    pub(super) fn zeroed(cpu: &Cpu, form: PackedForm) -> Self {
        let [codes, _] = form.section_bytes();
        let PackedForm { format, shape } = form;
        let layout = Layout::of(format);
        let groups = shape[0].div_ceil(LANES) * (shape[1] / layout.group);
        Self {
            format,
            rows: shape[0],
            columns: shape[1],
            layout,
            codes: cpu.slabs().zeros(codes),
            scales: Scales::zeros(cpu.slabs(), format, groups),
            zero: format.zero(),
        }
    }

    fn sections_mut(&mut self) -> [&mut [u8]; SECTIONS] {
        let scales = match &mut self.scales {
            Scales::Half(values) => values.as_bytes_mut(),
            Scales::TwoLevel(bytes) => bytes.as_bytes_mut(),
        };
        [self.codes.as_bytes_mut(), scales]
    }
}
