//! Plain Rust. The order of its floating-point operations is the one all paths keep.

use super::{Tile, TileInput};
use crate::dense::DensePanel;
use crate::quantized::{LANES, QuantPanel};

pub(super) fn quant(panel: QuantPanel<'_>, rows: TileInput<'_>, tile: &mut Tile) {
    let group_len = panel.layout.group;
    for (r, tile) in tile.iter_mut().take(rows.count).enumerate() {
        let [row] = TileInput {
            first: rows.first + r,
            ..rows
        }
        .quantized(group_len);
        *tile = [0.0; LANES];
        for group in 0..panel.groups {
            let columns = group * group_len..(group + 1) * group_len;
            let [scale, sum] = row.pairs[group];
            for (lane, total) in tile.iter_mut().enumerate() {
                let dot: i32 = columns
                    .clone()
                    .map(|column| {
                        i32::from(panel.code(lane, column)) * i32::from(row.codes[column])
                    })
                    .sum();
                let [weight_scale, offset] = panel.scales.affine(group, lane);
                let dot = dot as f32;
                *total = match panel.scales.zero {
                    Some(zero) => weight_scale.mul_add(dot.mul_add(scale, -zero * sum), *total),
                    None => offset.mul_add(sum, (weight_scale * scale).mul_add(dot, *total)),
                };
            }
        }
    }
}

pub(super) fn dense(panel: DensePanel<'_>, rows: TileInput<'_>, tile: &mut Tile) {
    for (r, tile) in tile.iter_mut().take(rows.count).enumerate() {
        *tile = [0.0; LANES];
        for (column, &x) in rows.values(r).iter().enumerate() {
            for (lane, total) in tile.iter_mut().enumerate() {
                let weight = match panel {
                    DensePanel::F32(weights) => weights[column * LANES + lane],
                    DensePanel::Bf16(weights) => weights[column * LANES + lane].to_f32(),
                };
                *total = weight.mul_add(x, *total);
            }
        }
    }
}
