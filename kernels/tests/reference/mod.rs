//! Slow and simple versions in double precision.

use formwork_kernels::{BlockFormat, KvDtype};
use half::f16;

/// A counter-based stream of numbers (SplitMix64).
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Between -1 and 1.
    pub(crate) fn take(&mut self, count: usize) -> Vec<f32> {
        (0..count)
            .map(|_| (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0)
            .collect()
    }
}

/// Fails unless each number is right up to `tolerance`, relative to the largest.
pub(crate) fn close(got: &[f32], want: &[f64], tolerance: f64, name: &str) {
    assert_eq!(got.len(), want.len(), "{name}");
    let largest = want.iter().fold(1e-6f64, |a, b| a.max(b.abs()));
    for (index, (&got, &want)) in got.iter().zip(want).enumerate() {
        let error = (f64::from(got) - want).abs();
        assert!(
            error <= tolerance * largest,
            "{name}: element {index} is {got}, should be {want}"
        );
    }
}

pub(crate) fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&value| f64::from(value)).collect()
}

/// Where half-precision scales lie in a block.
fn scales_at(format: BlockFormat) -> &'static [usize] {
    match format {
        BlockFormat::Q4_0 | BlockFormat::Q5_0 | BlockFormat::Q8_0 => &[0],
        BlockFormat::Q6K => &[208],
        _ => &[0, 2],
    }
}

pub(crate) fn set_scales(format: BlockFormat, bytes: &mut [u8], scale: f32) {
    for block in bytes.chunks_exact_mut(format.block_bytes()) {
        for &at in scales_at(format) {
            block[at..at + 2].copy_from_slice(&f16::from_f32(scale).to_le_bytes());
        }
    }
}

/// Random blocks with sensible scales.
pub(crate) fn blocks(format: BlockFormat, [rows, columns]: [usize; 2], seed: u64) -> Vec<u8> {
    let mut numbers = Numbers::new(seed);
    let len = format.matrix_bytes(rows, columns).expect("the shape fits");
    let mut bytes: Vec<u8> = (0..len).map(|_| numbers.next() as u8).collect();
    for block in bytes.chunks_exact_mut(format.block_bytes()) {
        let scale = 0.01 + (numbers.next() % 100) as f32 / 1000.0;
        set_scales(format, block, scale);
    }
    bytes
}

/// Weights of stored blocks, one at a time, after ggml's description of each format.
pub(crate) fn dequantize(format: BlockFormat, bytes: &[u8]) -> Vec<f64> {
    bytes
        .chunks_exact(format.block_bytes())
        .flat_map(|block| (0..format.block_len()).map(|index| weight(format, block, index)))
        .collect()
}

fn weight(format: BlockFormat, block: &[u8], index: usize) -> f64 {
    let half = |at: usize| f64::from(f16::from_le_bytes([block[at], block[at + 1]]).to_f32());
    let nibble =
        |at: usize, high: bool| f64::from(if high { block[at] >> 4 } else { block[at] & 15 });
    let bit = |at: usize, bit: usize| f64::from(block[at + bit / 8] >> (bit % 8) & 1);
    let (low16, high16) = (index % 16, index >= 16);
    match format {
        BlockFormat::Q4_0 => half(0) * (nibble(2 + low16, high16) - 8.0),
        BlockFormat::Q4_1 => half(0) * nibble(4 + low16, high16) + half(2),
        BlockFormat::Q5_0 => half(0) * (nibble(6 + low16, high16) + 16.0 * bit(2, index) - 16.0),
        BlockFormat::Q5_1 => half(0) * (nibble(8 + low16, high16) + 16.0 * bit(4, index)) + half(2),
        BlockFormat::Q8_0 => half(0) * f64::from(block[2 + index] as i8),
        BlockFormat::Q4K | BlockFormat::Q5K => {
            let group = index / 32;
            let (scale, min) = k_scale(&block[4..16], group);
            let (codes, fifth) = if format == BlockFormat::Q4K {
                (16, 0.0)
            } else {
                (48, f64::from(block[16 + index % 32] >> group & 1))
            };
            let code = nibble(codes + group / 2 * 32 + index % 32, group % 2 == 1) + 16.0 * fifth;
            half(0) * scale * code - half(2) * min
        }
        BlockFormat::Q6K => {
            let (part, quarter, at) = (index / 128, index % 128 / 32, index % 32);
            let low = nibble(part * 64 + quarter % 2 * 32 + at, quarter >= 2);
            let high = f64::from(block[128 + part * 32 + at] >> (2 * quarter) & 3);
            let scale = f64::from(block[192 + index / 16] as i8);
            half(208) * scale * (low + 16.0 * high - 32.0)
        }
    }
}

/// The 6-bit scale and minimum of a group: the first four groups have theirs in the low bits of bytes
/// 0 to 7; of the others, the low four bits lie in bytes 8 to 11 and the high two above the first.
fn k_scale(packed: &[u8], group: usize) -> (f64, f64) {
    let (scale, min) = if group < 4 {
        (packed[group] & 63, packed[group + 4] & 63)
    } else {
        let both = packed[group + 4];
        let (scale_top, min_top) = (packed[group - 4] >> 6, packed[group] >> 6);
        (both & 15 | scale_top << 4, both >> 4 | min_top << 4)
    };
    (f64::from(scale), f64::from(min))
}

/// What 8-bit codes with a scale per 32 numbers keep of `x`.
pub(crate) fn round_to_codes(x: &[f32]) -> Vec<f64> {
    x.chunks(32)
        .flat_map(|block| {
            let largest = block.iter().fold(0f32, |a, b| a.max(b.abs()));
            let scale = largest / 127.0;
            block.iter().map(move |value| {
                f64::from((value * (127.0 / largest)).round_ties_even()) * f64::from(scale)
            })
        })
        .collect()
}

pub(crate) fn product(weights: &[f64], x: &[f64], columns: usize) -> Vec<f64> {
    x.chunks_exact(columns)
        .flat_map(|x| {
            weights
                .chunks_exact(columns)
                .map(move |row| row.iter().zip(x).map(|(w, x)| w * x).sum())
        })
        .collect()
}

pub(crate) fn rms_norm(x: &[f32], weight: &[f32], epsilon: f64) -> Vec<f64> {
    wide(x)
        .chunks_exact(weight.len())
        .flat_map(|row| {
            let mean = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
            let scale = 1.0 / (mean + epsilon).sqrt();
            row.iter()
                .zip(weight)
                .map(|(x, &weight)| x * scale * f64::from(weight))
                .collect::<Vec<_>>()
        })
        .collect()
}

pub(crate) fn silu_mul(gate_up: &[f32], n: usize) -> Vec<f64> {
    wide(gate_up)
        .chunks_exact(2 * n)
        .flat_map(|row| {
            let (gate, up) = row.split_at(n);
            let products = gate.iter().zip(up).map(|(g, u)| g / (1.0 + (-g).exp()) * u);
            products.collect::<Vec<_>>()
        })
        .collect()
}

/// Keys and values of one sequence as the cache keeps them; heads are `dim` long.
pub(crate) fn context(
    numbers: &mut Numbers,
    length: usize,
    [width, dim]: [usize; 2],
    dtype: KvDtype,
) -> Vec<[Vec<f64>; 2]> {
    let mut row = || {
        let values = numbers.take(width);
        let heads = values.chunks_exact(dim);
        heads.flat_map(|head| stored(head, dtype)).collect()
    };
    (0..length).map(|_| [row(), row()]).collect()
}

fn stored(head: &[f32], dtype: KvDtype) -> Vec<f64> {
    let half = |value: f32| f64::from(f16::from_f32(value).to_f32());
    let largest = head.iter().fold(0f32, |a, b| a.max(b.abs()));
    let scale = half(largest / 127.0);
    let values = head.iter().map(|&value| match dtype {
        KvDtype::F16 => half(value),
        KvDtype::Int8 => (f64::from(value) / scale).round_ties_even() * scale,
    });
    values.collect()
}

/// Attention of one query row over a context.
pub(crate) fn attend(query: &[f32], context: &[[Vec<f64>; 2]], dim: usize, scale: f64) -> Vec<f64> {
    let group = query.len() / context[0][0].len();
    let heads = query.chunks_exact(dim).enumerate();
    heads
        .flat_map(|(head, query)| {
            let at = head / group * dim;
            let scores: Vec<f64> = context
                .iter()
                .map(|[key, _]| {
                    let key = &key[at..at + dim];
                    scale
                        * key
                            .iter()
                            .zip(query)
                            .map(|(k, &q)| k * f64::from(q))
                            .sum::<f64>()
                })
                .collect();
            let largest = scores.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(b));
            let weights: Vec<f64> = scores.iter().map(|s| (s - largest).exp()).collect();
            let total: f64 = weights.iter().sum();
            let sum = |d: usize| {
                let terms = weights.iter().zip(context);
                terms.map(|(w, [_, value])| w * value[at + d]).sum::<f64>() / total
            };
            (0..dim).map(sum).collect::<Vec<_>>()
        })
        .collect()
}
