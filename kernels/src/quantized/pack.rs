//! From the formats of files to the packed form.

use super::scales::{Scales, TwoLevelPlace, numbers_per_group};
use super::{LANES, Layout};
use crate::block_format::{Affine, BlockFormat};
use crate::{Cpu, shared::Shared};
use half::f16;

/// A matrix in a block format, to be packed.
pub(super) struct Stored<'a> {
    pub(super) format: BlockFormat,
    pub(super) shape: [usize; 2],
    pub(super) layout: Layout,
    pub(super) bytes: &'a [u8],
}

/// A row of it.
struct StoredRow<'a> {
    bytes: &'a [u8],
    /// Which row of its panel.
    lane: usize,
    groups: &'a [Affine],
}

impl Stored<'_> {
    /// Places codes and scales in their panels.
    pub(super) fn pack(&self, cpu: &Cpu, codes: &mut [u8], scales: &mut Scales) {
        let format = self.format;
        match scales {
            Scales::Half(scales) => self.place(cpu, codes, scales, |row, out| {
                let places = out.chunks_exact_mut(numbers_per_group(format.zero()));
                for (&[scale, offset], out) in row.groups.iter().zip(places) {
                    // In these formats they are half-precision numbers.
                    out[row.lane] = f16::from_f32(scale);
                    if let Some(out) = out.get_mut(row.lane + LANES) {
                        *out = f16::from_f32(offset);
                    }
                }
            }),
            Scales::TwoLevel(scales) => self.place(cpu, codes, scales, |row, out| {
                let blocks = row.bytes.chunks_exact(format.block_bytes());
                let per_block = format.block_len() / format.group_len();
                let places = out.chunks_exact_mut(Scales::bytes_of(format, per_block));
                for (block, out) in blocks.zip(places) {
                    if format.zero().is_some() {
                        place_levels::<true>(format, block, row.lane, out);
                    } else {
                        place_levels::<false>(format, block, row.lane, out);
                    }
                }
            }),
        }
    }

    /// Places codes and, through `place`, the scales of a row in those of its panel.
    fn place<T: Send>(
        &self,
        cpu: &Cpu,
        codes: &mut [u8],
        scales: &mut [T],
        place: impl Fn(StoredRow<'_>, &mut [T]) + Sync,
    ) {
        let [rows, columns] = self.shape;
        let groups = columns / self.layout.group;
        let panels = rows.div_ceil(LANES);
        let panel_bytes = groups * self.layout.group_bytes();
        let panel_scales = scales.len() / panels.max(1);
        let row_bytes = self.bytes.len() / rows.max(1);
        let (codes, scales) = (Shared::new(codes), Shared::new(scales));
        cpu.for_ranges(panels, 4, |range| {
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
                    let bytes = &self.bytes[row * row_bytes..][..row_bytes];
                    let lane = row % LANES;
                    if let Some(at) = paired {
                        self.format.decode_scales(bytes, &mut row_groups);
                        let blocks = bytes.chunks_exact(self.format.block_bytes());
                        place_pairs(lane, blocks.map(|block| &block[at..]), codes);
                    } else {
                        self.format
                            .decode_row(bytes, &mut row_codes, &mut row_groups);
                        place_row(self.layout, lane, &row_codes, codes);
                    }
                    let groups = &row_groups[..];
                    place(
                        StoredRow {
                            bytes,
                            lane,
                            groups,
                        },
                        scales,
                    );
                }
            }
        });
    }
}

/// Places the factors and numbers of a block of one row.
fn place_levels<const SYMMETRIC: bool>(
    format: BlockFormat,
    block: &[u8],
    lane: usize,
    out: &mut [u8],
) {
    let levels = format.two_level(block);
    let kinds = if SYMMETRIC { 1 } else { 2 };
    for (kind, factor) in levels.factors.iter().enumerate().take(kinds) {
        let lane = kind * LANES + lane;
        let place = TwoLevelPlace::of::<SYMMETRIC>(0);
        out[place.factors + lane * 2..][..2].copy_from_slice(&factor.to_ne_bytes());
        for group in 0..format.block_len() / format.group_len() {
            let place = TwoLevelPlace::of::<SYMMETRIC>(group);
            out[place.numbers + lane] = levels.numbers[group][kind] as u8;
        }
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
        if layout.nibbles() {
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
