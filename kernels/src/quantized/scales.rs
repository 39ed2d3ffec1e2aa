//! Scales of packed weights.

use super::LANES;
use crate::block_format::{Affine, BlockFormat};
use crate::slab::{Slab, Slabs};
use half::f16;

/// Per panel: scales, and offsets unless these follow from the scales.
pub(super) enum Scales {
    /// Per group: sixteen scales, then sixteen offsets.
    Half(Slab<f16>),
    /// Of formats with scales in two levels: see [`TwoLevelPlace`].
    TwoLevel(Slab<u8>),
}

/// One panel's part of [`Scales`].
#[derive(Clone, Copy)]
pub(crate) struct ScalesRef<'a> {
    pub(crate) numbers: Numbers<'a>,
    /// The code that stands for 0, where offsets follow from scales.
    pub(crate) zero: Option<f32>,
}

/// See [`Scales`].
#[derive(Clone, Copy)]
pub(crate) enum Numbers<'a> {
    Half(&'a [f16]),
    TwoLevel(&'a [u8]),
}

impl Scales {
    /// Zeros, for so many groups of sixteen rows each.
    pub(super) fn zeros(slabs: &Slabs, format: BlockFormat, groups: usize) -> Self {
        let bytes = Self::bytes_of(format, groups);
        if format.is_two_level() {
            Self::TwoLevel(slabs.zeros(bytes))
        } else {
            Self::Half(slabs.zeros(bytes / size_of::<f16>()))
        }
    }

    /// Bytes of so many groups, which are whole blocks of the format.
    pub(super) fn bytes_of(format: BlockFormat, groups: usize) -> usize {
        match (format.is_two_level(), format.zero().is_some()) {
            (true, true) => TwoLevelPlace::of::<true>(groups).factors,
            (true, false) => TwoLevelPlace::of::<false>(groups).factors,
            (false, _) => groups * numbers_per_group(format.zero()) * size_of::<f16>(),
        }
    }

    /// Those of a panel of so many groups.
    pub(super) fn panel(&self, index: usize, groups: usize, zero: Option<f32>) -> ScalesRef<'_> {
        let numbers = match self {
            Self::Half(values) => {
                let count = groups * numbers_per_group(zero);
                Numbers::Half(&values[index * count..][..count])
            }
            Self::TwoLevel(bytes) => {
                let count = match zero {
                    Some(_) => TwoLevelPlace::of::<true>(groups).factors,
                    None => TwoLevelPlace::of::<false>(groups).factors,
                };
                Numbers::TwoLevel(&bytes[index * count..][..count])
            }
        };
        ScalesRef { numbers, zero }
    }
}

/// Numbers per group.
pub(crate) const fn numbers_per_group(zero: Option<f32>) -> usize {
    match zero {
        Some(_) => LANES,
        None => 2 * LANES,
    }
}

/// Where a group's numbers lie in a panel whose scales come in two levels. A block of groups begins with
/// sixteen factors of scales in half precision, and sixteen of offsets unless these follow from the scales.
/// Then each group has as many signed bytes.
#[derive(Clone, Copy)]
pub(crate) struct TwoLevelPlace {
    /// Byte at which the block's factors begin.
    pub(crate) factors: usize,
    /// Byte at which the group's numbers begin.
    pub(crate) numbers: usize,
}

impl TwoLevelPlace {
    /// Of a group; `SYMMETRIC` panels have sixteen to a block and no offsets, others eight.
    #[inline]
    pub(crate) const fn of<const SYMMETRIC: bool>(group: usize) -> Self {
        let (per_block, count) = if SYMMETRIC {
            (16, LANES)
        } else {
            (8, 2 * LANES)
        };
        let factors = group / per_block * (2 + per_block) * count;
        Self {
            factors,
            numbers: factors + (2 + group % per_block) * count,
        }
    }
}

/// [`ScalesRef::kind`]: half-precision scales and offsets.
pub(crate) const AFFINE: u8 = 0;
/// Half-precision scales, from which offsets follow.
pub(crate) const SYMMETRIC: u8 = 1;
/// Scales and offsets in two levels.
pub(crate) const TWO_LEVEL: u8 = 2;
/// Scales in two levels, from which offsets follow.
pub(crate) const SYMMETRIC_TWO_LEVEL: u8 = 3;

/// Whether offsets follow from scales.
pub(crate) const fn is_symmetric(kind: u8) -> bool {
    matches!(kind, SYMMETRIC | SYMMETRIC_TWO_LEVEL)
}

impl ScalesRef<'_> {
    /// One of four kinds, as a number that kernels can be generic over.
    pub(crate) fn kind(self) -> u8 {
        match (self.numbers, self.zero) {
            (Numbers::Half(_), None) => AFFINE,
            (Numbers::Half(_), Some(_)) => SYMMETRIC,
            (Numbers::TwoLevel(_), None) => TWO_LEVEL,
            (Numbers::TwoLevel(_), Some(_)) => SYMMETRIC_TWO_LEVEL,
        }
    }

    /// The scale and the offset of one row in one group.
    pub(crate) fn affine(self, group: usize, lane: usize) -> Affine {
        let number = |which: usize| match self.numbers {
            Numbers::Half(values) => {
                values[group * numbers_per_group(self.zero) + which * LANES + lane].to_f32()
            }
            Numbers::TwoLevel(bytes) => {
                let place = match self.zero {
                    Some(_) => TwoLevelPlace::of::<true>(group),
                    None => TwoLevelPlace::of::<false>(group),
                };
                let lane = which * LANES + lane;
                let factor = &bytes[place.factors + lane * 2..][..2];
                let factor = f16::from_ne_bytes([factor[0], factor[1]]);
                factor.to_f32() * f32::from(bytes[place.numbers + lane] as i8)
            }
        };
        let scale = number(0);
        match self.zero {
            Some(zero) => [scale, -zero * scale],
            None => [scale, number(1)],
        }
    }
}
