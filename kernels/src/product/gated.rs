//! The gate of a SwiGLU feed-forward layer, computed where its two products end: neither they nor, where the
//! next product wants codes, what comes of them is written to memory in single precision.

use super::{Input, LANES, Matrix, STRIP, Strip, TOTALS};
use crate::activation::silu_mul;
use crate::quant_rows::{BLOCK, QuantWriter};
use crate::{Cpu, QuantRows, shared::Shared};
use std::ops::Range;

/// Panels that fill a block of codes.
const PANELS: usize = BLOCK / LANES;

/// Where rows of activations go.
pub enum Gated<'a> {
    /// In single precision, row by row.
    Values(&'a mut [f32]),
    /// As codes, in place of what was there.
    Quantized(&'a mut QuantRows),
}

/// `silu(gate x) * (up x)` for each row `x` of `input` (Shazeer 2020), with the bits that
/// [`product`](super::product) and the steps after it, each by itself, would give.
///
/// # Panics
/// When shapes do not fit, or rows to quantise are no multiple of 32 long.
pub fn gated_product(cpu: &Cpu, [gate, up]: [&Matrix; 2], input: Input<'_>, out: Gated<'_>) {
    let [rows, columns] = input.shape(&[gate, up]);
    let width = gate.rows();
    assert_eq!(width, up.rows());
    let out = match out {
        Gated::Values(values) => {
            assert_eq!(values.len(), rows * width);
            Out::Values(Shared::new(values))
        }
        Gated::Quantized(quantized) => Out::Quantized(quantized.writer(rows, width)),
    };
    for first in (0..rows).step_by(STRIP) {
        let matrices = [gate, up];
        let strip = Strip {
            isa: cpu.isa(),
            matrices: &matrices,
            input,
            columns,
            width,
            rows: first..(first + STRIP).min(rows),
        };
        cpu.for_ranges(width.div_ceil(BLOCK), 1, |blocks| strip.gate(blocks, &out));
    }
}

enum Out<'a> {
    Values(Shared<'a, f32>),
    Quantized(QuantWriter<'a>),
}

/// Gates, and what they are for: sixteen of each for some rows.
type Pair<'a> = [&'a [[f32; LANES]]; 2];

impl Strip<'_> {
    /// Computes the outputs of `blocks`, 32 each.
    fn gate(&self, blocks: Range<usize>, out: &Out<'_>) {
        let [gate, up] = [self.matrices[0], self.matrices[1]];
        TOTALS.with_borrow_mut(|totals| {
            let totals = totals.each_mut().map(|pair| {
                let rows = self.rows.len();
                pair.each_mut().map(|totals| &mut totals[..rows])
            });
            let [[gates, ups], [more_gates, more_ups]] = totals;
            for block in blocks {
                let panel = block * PANELS;
                let width = BLOCK.min(self.width - block * BLOCK);
                self.totals(gate.panel(panel), gates, &|_, _| {});
                if width <= LANES {
                    self.totals(up.panel(panel), ups, &|row, ups| {
                        self.finish(out, [row, block, width], &[[&gates[row..], ups]]);
                    });
                    continue;
                }
                self.totals(up.panel(panel), ups, &|_, _| {});
                self.totals(gate.panel(panel + 1), more_gates, &|_, _| {});
                self.totals(up.panel(panel + 1), more_ups, &|row, more_ups| {
                    let pairs = [[&gates[row..], &ups[row..]], [&more_gates[row..], more_ups]];
                    self.finish(out, [row, block, width], &pairs);
                });
            }
        });
    }

    /// Gates a block of `width` outputs, for the rows of the last pair from `first` within the strip on.
    fn finish(&self, out: &Out<'_>, [first, block, width]: [usize; 3], pairs: &[Pair<'_>]) {
        let rows = pairs.last().map_or(0, |[_, ups]| ups.len());
        for index in 0..rows {
            let row = self.rows.start + first + index;
            let mut values = [0f32; BLOCK];
            let (halves, _) = values.as_chunks_mut::<LANES>();
            for (values, [gates, ups]) in halves.iter_mut().zip(pairs) {
                silu_mul(self.isa, &gates[index], &ups[index], values);
            }
            match out {
                Out::Values(out) => {
                    let start = row * self.width + block * BLOCK;
                    // SAFETY: a block of a row is in one range only.
                    let out = unsafe { out.part(start..start + width) };
                    out.copy_from_slice(&values[..width]);
                }
                // SAFETY: as above.
                Out::Quantized(writer) => unsafe {
                    writer.write_block(self.isa, [row, block], &values);
                },
            }
        }
    }
}
