//! Quantised weights, repacked so that one vector instruction serves sixteen output rows.
//!
//! Sixteen rows form a panel. Along the inner dimension a panel is cut into groups of 32 or 16
//! columns that share a scale and an offset per row. A group's codes lie in lines of 64 bytes:
//! sixteen rows times four neighbouring columns (a quad). In the 4-bit layout a line holds two quads,
//! quad `p` in the low halves and quad `p + 4` in the high halves.

mod pack;
mod packed;
mod scales;

pub use packed::{PACKED_VERSION, PIECE_BYTES, PackedForm, Piece, SECTIONS};

pub(crate) use scales::{AFFINE, SYMMETRIC, SYMMETRIC_TWO_LEVEL, TWO_LEVEL, is_symmetric};
pub(crate) use scales::{Numbers, ScalesRef, TwoLevelPlace};

use crate::Cpu;
use crate::block_format::{BlockFormat, PackError};
use crate::slab::Slab;
use pack::Stored;
use scales::Scales;

/// Output rows per panel.
pub(crate) const LANES: usize = 16;

/// A weight matrix in packed form. Shape: `rows` outputs times `columns` inputs.
pub struct QuantMatrix {
    format: BlockFormat,
    rows: usize,
    columns: usize,
    layout: Layout,
    codes: Slab<u8>,
    scales: Scales,
    /// See [`ScalesRef`].
    zero: Option<f32>,
}

/// How codes lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Columns that share a scale: 32, or 16 (8-bit layout only).
    pub(crate) group: usize,
    /// The largest code there can be.
    pub(crate) largest: u8,
}

impl Layout {
    /// How codes of a format lie.
    fn of(format: BlockFormat) -> Self {
        Self {
            group: format.group_len(),
            largest: format.largest_code(),
        }
    }

    /// Four bits per code rather than eight.
    pub(crate) fn nibbles(self) -> bool {
        self.largest <= 0x0f
    }

    /// Bytes of one group of one panel.
    pub(crate) fn group_bytes(self) -> usize {
        let codes = self.group * LANES;
        if self.nibbles() { codes / 2 } else { codes }
    }

    /// Where the code of row `lane`, column `column` of a group lies: byte, shift.
    fn place(self, lane: usize, column: usize) -> (usize, u32) {
        let quad = column / 4;
        let (line, shift) = if self.nibbles() {
            (quad % 4, if quad < 4 { 0 } else { 4 })
        } else {
            (quad, 0)
        };
        (line * 64 + lane * 4 + column % 4, shift)
    }
}

/// One panel, as kernels see it.
#[derive(Clone, Copy)]
pub(crate) struct QuantPanel<'a> {
    pub(crate) layout: Layout,
    /// Groups along the inner dimension.
    pub(crate) groups: usize,
    pub(crate) codes: &'a [u8],
    pub(crate) scales: ScalesRef<'a>,
}

impl QuantPanel<'_> {
    /// The code of one weight.
    pub(crate) fn code(&self, lane: usize, column: usize) -> u8 {
        let layout = self.layout;
        let (byte, shift) = layout.place(lane, column % layout.group);
        let code = self.codes[column / layout.group * layout.group_bytes() + byte] >> shift;
        if layout.nibbles() { code & 0x0f } else { code }
    }
}

impl QuantMatrix {
    /// Packs a matrix stored row by row in a block format.
    ///
    /// # Errors
    /// When `bytes` does not fit the shape.
    pub fn pack(
        cpu: &Cpu,
        format: BlockFormat,
        [rows, columns]: [usize; 2],
        bytes: &[u8],
    ) -> Result<Self, PackError> {
        let expected = format.matrix_bytes(rows, columns)?;
        if bytes.len() != expected {
            return Err(PackError::Size {
                expected,
                got: bytes.len(),
            });
        }
        let mut matrix = Self::zeroed(cpu, PackedForm::new(format, [rows, columns])?);
        let stored = Stored {
            format,
            shape: [rows, columns],
            layout: matrix.layout,
            bytes,
        };
        stored.pack(cpu, &mut matrix.codes, &mut matrix.scales);
        Ok(matrix)
    }

    /// Outputs.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Bytes in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let [codes, scales] = self.sections();
        codes.len() + scales.len()
    }

    /// Writes row `row`, dequantised, to `out`.
    ///
    /// # Panics
    /// When there is no such row or `out` is not one row long.
    pub fn row(&self, row: usize, out: &mut [f32]) {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        assert_eq!(out.len(), self.columns);
        let panel = self.panel(row / LANES);
        let lane = row % LANES;
        for (group, out) in out.chunks_exact_mut(self.layout.group).enumerate() {
            let [scale, offset] = panel.scales.affine(group, lane);
            for (column, value) in out.iter_mut().enumerate() {
                let code = panel.code(lane, group * self.layout.group + column);
                *value = scale.mul_add(f32::from(code), offset);
            }
        }
    }

    pub(crate) fn panel(&self, index: usize) -> QuantPanel<'_> {
        let groups = self.columns / self.layout.group;
        let bytes = groups * self.layout.group_bytes();
        QuantPanel {
            layout: self.layout,
            groups,
            codes: &self.codes[index * bytes..][..bytes],
            scales: self.scales.panel(index, groups, self.zero),
        }
    }
}
