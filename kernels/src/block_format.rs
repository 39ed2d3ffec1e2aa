//! The block formats of GGUF weights, taken apart into codes, scales and offsets.
//!
//! Every format here stores a weight as `scale * code + offset`, where codes are unsigned and a
//! (scale, offset) pair serves 16 or 32 neighbouring weights of a row. The layouts are those of
//! ggml's `block_q*` structures.

use half::f16;

/// Why weights cannot be packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PackError {
    /// The number of bytes does not fit the shape.
    Size {
        /// Bytes the shape needs.
        expected: usize,
        /// Bytes given.
        got: usize,
    },
    /// The row length is no multiple of the format's block.
    Columns {
        /// Weights per row.
        columns: usize,
        /// Weights per block.
        block: usize,
    },
}

impl std::fmt::Display for PackError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Size { expected, got } => {
                write!(f, "the shape needs {expected} bytes, there are {got}")
            }
            Self::Columns { columns, block } => {
                write!(
                    f,
                    "rows of {columns} weights are no multiple of the block of {block}"
                )
            }
        }
    }
}

impl std::error::Error for PackError {}

/// A GGUF block format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockFormat {
    /// 4 bits, scale per 32.
    Q4_0,
    /// 4 bits, scale and offset per 32.
    Q4_1,
    /// 5 bits, scale per 32.
    Q5_0,
    /// 5 bits, scale and offset per 32.
    Q5_1,
    /// 8 bits, scale per 32.
    Q8_0,
    /// 4 bits, 6-bit scales and offsets per 32 in blocks of 256.
    Q4K,
    /// 5 bits, 6-bit scales and offsets per 32 in blocks of 256.
    Q5K,
    /// 6 bits, 8-bit scales per 16 in blocks of 256.
    Q6K,
}

/// Scale and offset of one group.
pub(crate) type Affine = [f32; 2];

impl BlockFormat {
    /// Weights per stored block.
    #[must_use]
    pub fn block_len(self) -> usize {
        match self {
            Self::Q4K | Self::Q5K | Self::Q6K => 256,
            _ => 32,
        }
    }

    /// Bytes per stored block.
    #[must_use]
    pub fn block_bytes(self) -> usize {
        match self {
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
            Self::Q4K => 144,
            Self::Q5K => 176,
            Self::Q6K => 210,
        }
    }

    /// Weights that share a scale.
    pub(crate) fn group_len(self) -> usize {
        if self == Self::Q6K { 16 } else { 32 }
    }

    /// The code that stands for 0, in formats whose offsets follow from their scales.
    pub(crate) fn zero(self) -> Option<f32> {
        match self {
            Self::Q4_0 => Some(8.0),
            Self::Q5_0 => Some(16.0),
            Self::Q8_0 => Some(128.0),
            Self::Q6K => Some(32.0),
            Self::Q4_1 | Self::Q5_1 | Self::Q4K | Self::Q5K => None,
        }
    }

    /// The largest code.
    pub(crate) fn largest_code(self) -> u8 {
        match self {
            Self::Q4_0 | Self::Q4_1 | Self::Q4K => 15,
            Self::Q5_0 | Self::Q5_1 | Self::Q5K => 31,
            Self::Q6K => 63,
            Self::Q8_0 => 255,
        }
    }

    /// Bytes of a matrix.
    ///
    /// # Errors
    /// When rows of `columns` weights are no whole number of blocks.
    pub fn matrix_bytes(self, rows: usize, columns: usize) -> Result<usize, PackError> {
        if columns == 0 || !columns.is_multiple_of(self.block_len()) {
            return Err(PackError::Columns {
                columns,
                block: self.block_len(),
            });
        }
        Ok(rows * (columns / self.block_len()) * self.block_bytes())
    }

    /// Where a block's codes begin, in formats that store column `p` of 32 in the low half of a byte and column
    /// `p + 16` in its high half: packing then moves bytes as they are.
    pub(crate) fn paired_codes_at(self) -> Option<usize> {
        match self {
            Self::Q4_0 => Some(2),
            Self::Q4_1 => Some(4),
            _ => None,
        }
    }

    /// Whether scales come in two levels.
    pub(crate) fn is_two_level(self) -> bool {
        matches!(self, Self::Q4K | Self::Q5K | Self::Q6K)
    }

    /// The scales of a block of a format that has them in two levels.
    pub(crate) fn two_level(self, block: &[u8]) -> TwoLevel {
        match self {
            Self::Q6K => TwoLevel::of_q6k(block),
            _ => TwoLevel::of_k(block),
        }
    }

    /// The [`Affine`]s of a row of one of these formats.
    pub(crate) fn decode_scales(self, bytes: &[u8], groups: &mut [Affine]) {
        for (bytes, group) in bytes.chunks_exact(self.block_bytes()).zip(groups) {
            *group = match self {
                Self::Q4_0 => symmetric(half_at(bytes, 0), 8.0),
                _ => [half_at(bytes, 0), half_at(bytes, 2)],
            };
        }
    }

    /// Takes one row apart: a code per weight, an [`Affine`] per group.
    pub(crate) fn decode_row(self, bytes: &[u8], codes: &mut [u8], groups: &mut [Affine]) {
        let per_block = self.block_len() / self.group_len();
        for ((bytes, codes), groups) in bytes
            .chunks_exact(self.block_bytes())
            .zip(codes.chunks_exact_mut(self.block_len()))
            .zip(groups.chunks_exact_mut(per_block))
        {
            match self {
                Self::Q4_0 => {
                    self.decode_scales(bytes, groups);
                    nibbles(&bytes[2..], codes);
                }
                Self::Q4_1 => {
                    self.decode_scales(bytes, groups);
                    nibbles(&bytes[4..], codes);
                }
                Self::Q5_0 => {
                    groups[0] = symmetric(half_at(bytes, 0), 16.0);
                    nibbles(&bytes[6..], codes);
                    fifth_bits(&bytes[2..6], codes);
                }
                Self::Q5_1 => {
                    groups[0] = [half_at(bytes, 0), half_at(bytes, 2)];
                    nibbles(&bytes[8..], codes);
                    fifth_bits(&bytes[4..8], codes);
                }
                Self::Q8_0 => {
                    groups[0] = symmetric(half_at(bytes, 0), 128.0);
                    for (code, &byte) in codes.iter_mut().zip(&bytes[2..]) {
                        // Two's complement to offset binary.
                        *code = byte ^ 0x80;
                    }
                }
                Self::Q4K => decode_q4k(bytes, codes, groups),
                Self::Q5K => decode_q5k(bytes, codes, groups),
                Self::Q6K => decode_q6k(bytes, codes, groups),
            }
        }
    }
}

fn f16_at(bytes: &[u8], at: usize) -> f16 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn half_at(bytes: &[u8], at: usize) -> f32 {
    f16_at(bytes, at).to_f32()
}

/// A format whose codes are signed numbers stored with `zero` added.
fn symmetric(scale: f32, zero: f32) -> Affine {
    [scale, -zero * scale]
}

/// Sixteen bytes to 32 codes: the low halves come first, then the high halves.
fn nibbles(bytes: &[u8], codes: &mut [u8]) {
    for (j, &byte) in bytes.iter().take(16).enumerate() {
        codes[j] = byte & 0x0f;
        codes[j + 16] = byte >> 4;
    }
}

fn fifth_bits(bytes: &[u8], codes: &mut [u8]) {
    for (j, code) in codes.iter_mut().enumerate() {
        *code |= (bytes[j / 8] >> (j % 8) & 1) << 4;
    }
}

/// The scales and offsets of a block of 256 weights that has them in two levels: a factor for the block times
/// a small whole number for each group.
pub(crate) struct TwoLevel {
    /// Of scales, of offsets. The latter is 0 where offsets follow from scales.
    pub(crate) factors: [f16; 2],
    /// Per group, of which there are eight or sixteen: of the scale, of the offset.
    pub(crate) numbers: [[i8; 2]; 16],
}

impl TwoLevel {
    /// From a `Q4_K` or `Q5_K` block, whose 6-bit numbers lie in 12 bytes.
    fn of_k(bytes: &[u8]) -> Self {
        let packed = &bytes[4..16];
        let number = |j: usize| {
            let [scale, offset] = if j < 4 {
                [packed[j] & 63, packed[j + 4] & 63]
            } else {
                [
                    (packed[j + 4] & 0x0f) | (packed[j - 4] >> 6) << 4,
                    (packed[j + 4] >> 4) | (packed[j] >> 6) << 4,
                ]
            };
            [scale as i8, offset as i8]
        };
        Self {
            factors: [f16_at(bytes, 0), -f16_at(bytes, 2)],
            numbers: std::array::from_fn(|j| if j < 8 { number(j) } else { [0, 0] }),
        }
    }

    fn of_q6k(bytes: &[u8]) -> Self {
        Self {
            factors: [f16_at(bytes, 208), f16::ZERO],
            numbers: std::array::from_fn(|j| [bytes[192 + j] as i8, 0]),
        }
    }

    fn number(&self, group: usize, which: usize) -> f32 {
        self.factors[which].to_f32() * f32::from(self.numbers[group][which])
    }
}

fn k_groups(bytes: &[u8], groups: &mut [Affine]) {
    let levels = TwoLevel::of_k(bytes);
    for (j, group) in groups.iter_mut().enumerate() {
        *group = [levels.number(j, 0), levels.number(j, 1)];
    }
}

fn decode_q4k(bytes: &[u8], codes: &mut [u8], groups: &mut [Affine]) {
    k_groups(bytes, groups);
    for (bytes, codes) in bytes[16..].chunks_exact(32).zip(codes.chunks_exact_mut(64)) {
        for (j, &byte) in bytes.iter().enumerate() {
            codes[j] = byte & 0x0f;
            codes[j + 32] = byte >> 4;
        }
    }
}

fn decode_q5k(bytes: &[u8], codes: &mut [u8], groups: &mut [Affine]) {
    k_groups(bytes, groups);
    let high = &bytes[16..48];
    for (pair, (bytes, codes)) in bytes[48..]
        .chunks_exact(32)
        .zip(codes.chunks_exact_mut(64))
        .enumerate()
    {
        for (j, &byte) in bytes.iter().enumerate() {
            codes[j] = (byte & 0x0f) | (high[j] >> (2 * pair) & 1) << 4;
            codes[j + 32] = (byte >> 4) | (high[j] >> (2 * pair + 1) & 1) << 4;
        }
    }
}

fn decode_q6k(bytes: &[u8], codes: &mut [u8], groups: &mut [Affine]) {
    let levels = TwoLevel::of_q6k(bytes);
    for (j, group) in groups.iter_mut().enumerate() {
        *group = symmetric(levels.number(j, 0), 32.0);
    }
    for (half, codes) in codes.chunks_exact_mut(128).enumerate() {
        let low = &bytes[half * 64..][..64];
        let high = &bytes[128 + half * 32..][..32];
        for j in 0..32 {
            codes[j] = (low[j] & 0x0f) | (high[j] & 3) << 4;
            codes[j + 32] = (low[j + 32] & 0x0f) | (high[j] >> 2 & 3) << 4;
            codes[j + 64] = (low[j] >> 4) | (high[j] >> 4 & 3) << 4;
            codes[j + 96] = (low[j + 32] >> 4) | (high[j] >> 6) << 4;
        }
    }
}
