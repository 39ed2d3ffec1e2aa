//! Quantised weights, repacked so that one vector instruction serves sixteen output rows.
//!
//! Sixteen rows form a panel. Along the inner dimension a panel is cut into groups of 32 or 16
//! columns that share a scale and an offset per row. A group's codes lie in lines of 64 bytes:
//! sixteen rows times four neighbouring columns (a quad). In the 4-bit layout a line holds two quads,
//! quad `p` in the low halves and quad `p + 4` in the high halves.

use crate::block_format::{Affine, BlockFormat, PackError};
use crate::{Cpu, shared::Shared};
use half::f16;
use half::slice::HalfFloatSliceExt;

/// Output rows per panel.
pub(crate) const LANES: usize = 16;

/// A weight matrix in packed form. Shape: `rows` outputs times `columns` inputs.
pub struct QuantMatrix {
    rows: usize,
    columns: usize,
    layout: Layout,
    codes: Vec<u8>,
    scales: Scales,
}

/// How codes lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Four bits per code rather than eight.
    pub(crate) nibbles: bool,
    /// Columns that share a scale: 32, or 16 (8-bit layout only).
    pub(crate) group: usize,
}

impl Layout {
    /// Bytes of one group of one panel.
    pub(crate) fn group_bytes(self) -> usize {
        let codes = self.group * LANES;
        if self.nibbles { codes / 2 } else { codes }
    }

    /// Where the code of row `lane`, column `column` of a group lies: byte, shift.
    fn place(self, lane: usize, column: usize) -> (usize, u32) {
        let quad = column / 4;
        let (line, shift) = if self.nibbles {
            (quad % 4, if quad < 4 { 0 } else { 4 })
        } else {
            (quad, 0)
        };
        (line * 64 + lane * 4 + column % 4, shift)
    }
}

/// Per panel and group: sixteen scales, then sixteen offsets.
enum Scales {
    /// All of them are half-precision numbers, as in most formats.
    Half(Vec<f16>),
    Full(Vec<f32>),
}

/// One panel's part of [`Scales`].
#[derive(Clone, Copy)]
pub(crate) enum ScalesRef<'a> {
    Half(&'a [f16]),
    Full(&'a [f32]),
}

impl ScalesRef<'_> {
    /// The scale and the offset of one row in one group.
    pub(crate) fn affine(self, group: usize, lane: usize) -> Affine {
        let at = group * 2 * LANES + lane;
        match self {
            Self::Half(values) => [values[at].to_f32(), values[at + LANES].to_f32()],
            Self::Full(values) => [values[at], values[at + LANES]],
        }
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
        if layout.nibbles { code & 0x0f } else { code }
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
        let layout = Layout {
            nibbles: format.is_nibble(),
            group: format.group_len(),
        };
        let groups = columns / layout.group;
        let panels = rows.div_ceil(LANES);
        let panel_bytes = groups * layout.group_bytes();
        let panel_scales = groups * 2 * LANES;
        let mut codes = vec![0u8; panels * panel_bytes];
        let mut scales = vec![0f32; panels * panel_scales];
        let (shared_codes, shared_scales) = (Shared::new(&mut codes), Shared::new(&mut scales));
        let row_bytes = expected / rows.max(1);
        cpu.for_ranges(panels, 4, |range| {
            let mut row_codes = vec![0u8; columns];
            let mut row_groups = vec![[0f32; 2]; groups];
            for panel in range {
                // SAFETY: each panel is visited once, so the parts are disjoint.
                let codes =
                    unsafe { shared_codes.part(panel * panel_bytes..(panel + 1) * panel_bytes) };
                // SAFETY: as above.
                let scales =
                    unsafe { shared_scales.part(panel * panel_scales..(panel + 1) * panel_scales) };
                for row in panel * LANES..((panel + 1) * LANES).min(rows) {
                    let stored = &bytes[row * row_bytes..][..row_bytes];
                    format.decode_row(stored, &mut row_codes, &mut row_groups);
                    place_row(layout, row % LANES, &row_codes, codes);
                    place_scales(row % LANES, &row_groups, scales);
                }
            }
        });
        Ok(Self {
            rows,
            columns,
            layout,
            codes,
            scales: compress(scales),
        })
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
        let scales = match &self.scales {
            Scales::Half(values) => values.len() * 2,
            Scales::Full(values) => values.len() * 4,
        };
        self.codes.len() + scales
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
        let count = groups * 2 * LANES;
        QuantPanel {
            layout: self.layout,
            groups,
            codes: &self.codes[index * bytes..][..bytes],
            scales: match &self.scales {
                Scales::Half(values) => ScalesRef::Half(&values[index * count..][..count]),
                Scales::Full(values) => ScalesRef::Full(&values[index * count..][..count]),
            },
        }
    }
}

fn place_row(layout: Layout, lane: usize, row: &[u8], panel: &mut [u8]) {
    for (row, out) in row
        .chunks_exact(layout.group)
        .zip(panel.chunks_exact_mut(layout.group_bytes()))
    {
        for (column, &code) in row.iter().enumerate() {
            let (byte, shift) = layout.place(lane, column);
            out[byte] |= code << shift;
        }
    }
}

fn place_scales(lane: usize, groups: &[Affine], panel: &mut [f32]) {
    for (&[scale, offset], out) in groups.iter().zip(panel.chunks_exact_mut(2 * LANES)) {
        out[lane] = scale;
        out[lane + LANES] = offset;
    }
}

/// Keeps scales in half precision where that loses nothing.
fn compress(scales: Vec<f32>) -> Scales {
    let mut halves = vec![f16::ZERO; scales.len()];
    halves.convert_from_f32_slice(&scales);
    let exact = halves
        .iter()
        .zip(&scales)
        .all(|(half, full)| half.to_f32().to_bits() == full.to_bits());
    if exact {
        Scales::Half(halves)
    } else {
        Scales::Full(scales)
    }
}
