//! Quantised weights, repacked so that one vector instruction serves sixteen output rows.
//!
//! Sixteen rows form a panel. Along the inner dimension a panel is cut into groups of 32 or 16
//! columns that share a scale and an offset per row. A group's codes lie in lines of 64 bytes:
//! sixteen rows times four neighbouring columns (a quad). In the 4-bit layout a line holds two quads,
//! quad `p` in the low halves and quad `p + 4` in the high halves.

use crate::block_format::{Affine, BlockFormat, PackError};
use crate::slab::Slab;
use crate::{Cpu, shared::Shared};
use half::f16;
use std::sync::atomic::{AtomicBool, Ordering};

/// Output rows per panel.
pub(crate) const LANES: usize = 16;

/// A weight matrix in packed form. Shape: `rows` outputs times `columns` inputs.
pub struct QuantMatrix {
    rows: usize,
    columns: usize,
    layout: Layout,
    codes: Slab<u8>,
    scales: Scales,
    /// See [`ScalesRef::zero`].
    zero: Option<f32>,
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

/// Per panel and group: sixteen scales, then sixteen offsets unless these follow from the scales.
enum Scales {
    /// All of them are half-precision numbers, as in most formats.
    Half(Slab<f16>),
    Full(Slab<f32>),
}

/// One panel's part of [`Scales`].
#[derive(Clone, Copy)]
pub(crate) struct ScalesRef<'a> {
    pub(crate) numbers: Numbers<'a>,
    /// The code that stands for 0, where offsets follow from scales.
    pub(crate) zero: Option<f32>,
}

/// Scales, and offsets where there are any.
#[derive(Clone, Copy)]
pub(crate) enum Numbers<'a> {
    Half(&'a [f16]),
    Full(&'a [f32]),
}

/// Numbers per group.
pub(crate) const fn numbers_per_group(zero: Option<f32>) -> usize {
    match zero {
        Some(_) => LANES,
        None => 2 * LANES,
    }
}

impl ScalesRef<'_> {
    /// The scale and the offset of one row in one group.
    pub(crate) fn affine(self, group: usize, lane: usize) -> Affine {
        let number = |at: usize| match self.numbers {
            Numbers::Half(values) => values[at].to_f32(),
            Numbers::Full(values) => values[at],
        };
        let at = group * numbers_per_group(self.zero) + lane;
        let scale = number(at);
        match self.zero {
            Some(zero) => [scale, -zero * scale],
            None => [scale, number(at + LANES)],
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
        let mut codes = cpu.slabs().zeros(panels * groups * layout.group_bytes());
        let zero = format.zero();
        let len = panels * groups * numbers_per_group(zero);
        let stored = Stored {
            format,
            shape: [rows, columns],
            layout,
            bytes,
        };
        // Half precision where that loses nothing. Only trying tells, and it rarely fails.
        let mut halves = vec![f16::ZERO; len];
        let exact = AtomicBool::new(true);
        stored.unpack(cpu, &mut codes, &mut halves, |value| {
            let half = f16::from_f32(value);
            if half.to_f32().to_bits() != value.to_bits() {
                exact.store(false, Ordering::Relaxed);
            }
            half
        });
        let scales = if exact.into_inner() {
            let mut kept = cpu.slabs().zeros(len);
            kept.copy_from_slice(&halves);
            Scales::Half(kept)
        } else {
            drop(halves);
            let mut full = cpu.slabs().zeros(len);
            stored.unpack(cpu, &mut codes, &mut full, |value| value);
            Scales::Full(full)
        };
        Ok(Self {
            rows,
            columns,
            layout,
            codes,
            scales,
            zero,
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
        let count = groups * numbers_per_group(self.zero);
        let numbers = match &self.scales {
            Scales::Half(values) => Numbers::Half(&values[index * count..][..count]),
            Scales::Full(values) => Numbers::Full(&values[index * count..][..count]),
        };
        QuantPanel {
            layout: self.layout,
            groups,
            codes: &self.codes[index * bytes..][..bytes],
            scales: ScalesRef {
                numbers,
                zero: self.zero,
            },
        }
    }
}

/// A matrix in a block format, to be packed.
struct Stored<'a> {
    format: BlockFormat,
    shape: [usize; 2],
    layout: Layout,
    bytes: &'a [u8],
}

impl Stored<'_> {
    /// Places codes and, through `narrow`, scales and offsets in their panels.
    fn unpack<T: Send>(
        &self,
        cpu: &Cpu,
        codes: &mut [u8],
        scales: &mut [T],
        narrow: impl Fn(f32) -> T + Sync,
    ) {
        let [rows, columns] = self.shape;
        let groups = columns / self.layout.group;
        let panel_bytes = groups * self.layout.group_bytes();
        let per_group = numbers_per_group(self.format.zero());
        let panel_scales = groups * per_group;
        let row_bytes = self.bytes.len() / rows.max(1);
        let (codes, scales) = (Shared::new(codes), Shared::new(scales));
        cpu.for_ranges(rows.div_ceil(LANES), 4, |range| {
            let paired = self.format.paired_codes_at();
            let mut row_codes = vec![0u8; if paired.is_none() { columns } else { 0 }];
            let mut row_groups = vec![[0f32; 2]; groups];
            for panel in range {
                // SAFETY: each panel is visited once, so the parts are disjoint.
                let codes = unsafe { codes.part(panel * panel_bytes..(panel + 1) * panel_bytes) };
                // SAFETY: as above.
                let scales =
                    unsafe { scales.part(panel * panel_scales..(panel + 1) * panel_scales) };
                for row in panel * LANES..((panel + 1) * LANES).min(rows) {
                    let stored = &self.bytes[row * row_bytes..][..row_bytes];
                    let lane = row % LANES;
                    if let Some(at) = paired {
                        self.format.decode_scales(stored, &mut row_groups);
                        let blocks = stored.chunks_exact(self.format.block_bytes());
                        place_pairs(lane, blocks.map(|block| &block[at..]), codes);
                    } else {
                        self.format
                            .decode_row(stored, &mut row_codes, &mut row_groups);
                        place_row(self.layout, lane, &row_codes, codes);
                    }
                    let places = scales.chunks_exact_mut(per_group);
                    for (&[scale, offset], out) in row_groups.iter().zip(places) {
                        out[lane] = narrow(scale);
                        if let Some(out) = out.get_mut(lane + LANES) {
                            *out = narrow(offset);
                        }
                    }
                }
            }
        });
    }
}

/// Places a row's codes from blocks that hold them as lines of the 4-bit layout do: column `p` in the low
/// half of byte `p`, column `p + 16` in the high half.
fn place_pairs<'a>(lane: usize, blocks: impl Iterator<Item = &'a [u8]>, panel: &mut [u8]) {
    for (block, out) in blocks.zip(panel.chunks_exact_mut(16 * LANES)) {
        let (quads, _) = block.as_chunks::<4>();
        let (out, _) = out.as_chunks_mut::<4>();
        for (line, quad) in quads.iter().take(4).enumerate() {
            out[line * LANES + lane] = *quad;
        }
    }
}

/// Places a row's codes, four neighbouring columns at a time.
fn place_row(layout: Layout, lane: usize, row: &[u8], panel: &mut [u8]) {
    let quads = layout.group / 4;
    for (row, out) in row
        .chunks_exact(layout.group)
        .zip(panel.chunks_exact_mut(layout.group_bytes()))
    {
        let (row, _) = row.as_chunks::<4>();
        let (out, _) = out.as_chunks_mut::<4>();
        if layout.nibbles {
            // Two quads share a line: one in the low halves of its bytes, one in the high halves.
            for (line, (low, high)) in row.iter().zip(&row[quads / 2..]).enumerate() {
                let both = u32::from_le_bytes(*low) | u32::from_le_bytes(*high) << 4;
                out[line * LANES + lane] = both.to_le_bytes();
            }
        } else {
            for (line, quad) in row.iter().enumerate() {
                out[line * LANES + lane] = *quad;
            }
        }
    }
}
