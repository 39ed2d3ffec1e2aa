//! Many rows of activations and 4-bit codes: what rows share is done once. A panel's codes are spread to a
//! byte each and its scales made single precision, some groups at a time so that both stay in the
//! first-level cache. Of four rows all dot products are taken first and scaled afterwards, which leaves each
//! of the two loops enough registers. The arithmetic, and so each bit, is that of the narrow kernels.
//!
//! 8-bit codes gain nothing this way: what they wait for is multiplications.

use super::super::Done;
use super::{AFFINE, SYMMETRIC, TWO_LEVEL};
use super::{Factors, LANES, Numbers, QuantPanel, Scaled, TILE, TileInput};
use super::{broadcast_quad, load_affine, load_codes, pin, pin_numbers, store_eight};
use std::arch::x86_64::*;
use std::cell::RefCell;
use std::ops::Range;

/// Rows from which on spreading a panel pays.
pub(in crate::product) const FROM: usize = 6 * TILE;

/// Columns that share a scale.
const GROUP: usize = 32;
/// Groups that are spread at a time: 12 KiB of codes. A multiple of eight, which may share factors of scales.
const GROUPS: usize = 24;

/// One thread's memory.
#[repr(C, align(64))]
struct Scratch {
    /// Per group, quad by quad: the codes of sixteen rows.
    codes: [[u8; GROUP * LANES]; GROUPS],
    /// Per group: sixteen scales and sixteen offsets, or zeros where offsets follow from scales.
    affine: [[f32; 2 * LANES]; GROUPS],
    /// Per group and row: sixteen dot products, each as two 16-bit sums.
    dots: [[[[i16; 2]; LANES]; TILE]; GROUPS],
}

thread_local! {
    static SCRATCH: RefCell<Box<Scratch>> = RefCell::new(Box::new(Scratch {
        codes: [[0; GROUP * LANES]; GROUPS],
        affine: [[0.0; 2 * LANES]; GROUPS],
        dots: [[[[0; 2]; LANES]; TILE]; GROUPS],
    }));
}

/// Computes the outputs of a panel with 4-bit codes for `rows`, whose number is a multiple of [`TILE`] and
/// the length of `totals`. Calls `done` as soon as a tile is ready.
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::product) fn nibbles(
    panel: QuantPanel<'_>,
    rows: TileInput<'_>,
    totals: &mut [[f32; LANES]],
    done: &Done<'_>,
) {
    assert!(panel.layout.nibbles() && panel.layout.group == GROUP);
    SCRATCH.with_borrow_mut(|scratch| match panel.scales.kind() {
        AFFINE => walk::<AFFINE>(panel, rows, (totals, done), scratch),
        SYMMETRIC => walk::<SYMMETRIC>(panel, rows, (totals, done), scratch),
        _ => walk::<TWO_LEVEL>(panel, rows, (totals, done), scratch),
    });
}

#[target_feature(enable = "avx2,fma,f16c")]
fn walk<const KIND: u8>(
    panel: QuantPanel<'_>,
    rows: TileInput<'_>,
    (totals, done): (&mut [[f32; LANES]], &Done<'_>),
    scratch: &mut Scratch,
) {
    let (tiles, rest) = totals.as_chunks_mut::<TILE>();
    assert!(rest.is_empty() && rows.count == tiles.len() * TILE);
    let x = rows.input.quantized.span(rows.first, rows.count, GROUP);
    let zero = panel.scales.zero.unwrap_or_default();
    let blocks = panel.groups.div_ceil(GROUPS);
    for block in 0..blocks {
        let at = block * GROUPS..panel.groups.min((block + 1) * GROUPS);
        scratch.spread::<KIND>(panel, at.clone());
        let (ahead, parts) = (Ahead::of(panel, at.clone()), tiles.len());
        for (index, totals) in tiles.iter_mut().enumerate() {
            ahead.iter().for_each(|ahead| ahead.fetch(index, parts));
            let first = index * TILE * panel.groups + at.start;
            let tile = XTile {
                codes: &x.codes[first * GROUP..],
                pairs: &x.pairs[first..],
                stride: panel.groups,
                groups: at.len(),
            };
            scratch.dot(tile);
            scratch.scale::<KIND>(tile, zero, block == 0, totals);
            if block + 1 == blocks {
                done(index * TILE, totals);
            }
        }
    }
}

/// Memory that is read next. Spreading does nothing but read and write, so it would wait for each line; tiles
/// compute long enough for all of them to arrive.
struct Ahead {
    start: *const u8,
    bytes: usize,
}

impl Ahead {
    /// The codes, and the scales, behind those of the groups `range`: they belong to the groups, or the panel,
    /// that come next.
    fn of(panel: QuantPanel<'_>, range: Range<usize>) -> [Self; 2] {
        let scales = match panel.scales.numbers {
            Numbers::Half(values) => (values.as_ptr().cast::<u8>(), size_of_val(values)),
            Numbers::TwoLevel(bytes) => (bytes.as_ptr(), bytes.len()),
        };
        [(panel.codes.as_ptr(), panel.codes.len()), scales].map(|(start, bytes)| {
            let per_group = bytes / panel.groups;
            Self {
                // Where the last panel ends there may be nothing: such a pointer is never followed.
                start: start.wrapping_add(per_group * range.end),
                bytes: per_group * range.len(),
            }
        })
    }

    /// Fetches one of `parts` parts to the second-level cache.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn fetch(&self, part: usize, parts: usize) {
        for at in (self.bytes * part / parts..self.bytes * (part + 1) / parts).step_by(64) {
            _mm_prefetch::<_MM_HINT_T1>(self.start.wrapping_add(at).cast());
        }
    }
}

/// Some groups of four rows of activations.
#[derive(Clone, Copy)]
struct XTile<'a> {
    /// From the first row's first of these groups on.
    codes: &'a [i8],
    /// As `codes`.
    pairs: &'a [[f32; 2]],
    /// Groups from a row to the next.
    stride: usize,
    groups: usize,
}

impl<'a> XTile<'a> {
    #[inline]
    fn codes(self) -> [&'a [i8]; TILE] {
        let (len, stride) = (self.groups * GROUP, self.stride * GROUP);
        std::array::from_fn(|r| &self.codes[r * stride..][..len])
    }

    #[inline]
    fn pairs(self) -> [&'a [[f32; 2]]; TILE] {
        std::array::from_fn(|r| &self.pairs[r * self.stride..][..self.groups])
    }
}

// Each loop is a function of its own, so that registers are allotted to it alone.
impl Scratch {
    /// Spreads the groups `range`.
    #[inline(never)]
    #[target_feature(enable = "avx2,f16c")]
    fn spread<const KIND: u8>(&mut self, panel: QuantPanel<'_>, range: Range<usize>) {
        let mask = _mm256_set1_epi8(0x0f);
        let bytes = panel.layout.group_bytes();
        let stored = &panel.codes[range.start * bytes..range.end * bytes];
        for (stored, codes) in stored.chunks_exact(bytes).zip(&mut self.codes) {
            // A line holds two quads: its own, and the fourth after it in the high halves.
            for line in 0..4 {
                for half in [0, 32] {
                    let both = load_codes(stored, line * 64 + half);
                    let low = _mm256_and_si256(both, mask);
                    let high = _mm256_and_si256(_mm256_srli_epi16::<4>(both), mask);
                    store_codes(low, codes, line * 64 + half);
                    store_codes(high, codes, (line + 4) * 64 + half);
                }
            }
        }
        let mut factors = Factors::NONE;
        for (group, out) in range.zip(&mut self.affine) {
            for half in 0..2 {
                // SAFETY: this function is for machines with AVX2 and F16C.
                let (scale, offset) =
                    unsafe { load_affine::<KIND>(panel.scales, &mut factors, group, half) };
                store_eight(scale, &mut out[half * 8..]);
                store_eight(offset, &mut out[LANES + half * 8..]);
            }
        }
    }

    /// Dot products of a tile with the codes that were spread.
    #[inline(never)]
    #[target_feature(enable = "avx2")]
    fn dot(&mut self, x: XTile<'_>) {
        let (groups, x) = (x.groups, x.codes());
        let (codes, dots) = (&self.codes[..groups], &mut self.dots[..groups]);
        for group in 0..groups {
            let codes = &codes[group];
            // Eight products of at most 2 * 15 * 127 each stay below 2^15.
            let mut sums = [[_mm256_setzero_si256(); 2]; TILE];
            // Written out: a loop keeps fewer of the sums in registers.
            macro_rules! add_quads {
                ($($quad:literal)*) => {$(
                    let pair = [load_codes(codes, $quad * 64), load_codes(codes, $quad * 64 + 32)];
                    for (sums, x) in sums.iter_mut().zip(x) {
                        let quad = broadcast_quad(x, group * GROUP + $quad * 4);
                        for half in 0..2 {
                            let product = _mm256_maddubs_epi16(pair[half], quad);
                            sums[half] = _mm256_add_epi16(sums[half], product);
                        }
                        pin(sums);
                    }
                )*};
            }
            add_quads!(0 1 2 3 4 5 6 7);
            for (sums, dots) in sums.into_iter().zip(&mut dots[group]) {
                store_dots(sums[0], dots, 0);
                store_dots(sums[1], dots, 8);
            }
        }
    }

    /// Scales dot products and adds them to `totals`, or begins these where they are the `first`.
    #[inline(never)]
    #[target_feature(enable = "avx2,fma")]
    fn scale<const KIND: u8>(
        &self,
        x: XTile<'_>,
        zero: f32,
        first: bool,
        totals: &mut [[f32; LANES]; TILE],
    ) {
        let (groups, x) = (x.groups, x.pairs());
        let ones = _mm256_set1_epi16(1);
        let mut sums = [[_mm256_setzero_ps(); 2]; TILE];
        if !first {
            for (sums, totals) in sums.iter_mut().zip(&*totals) {
                *sums = [load_eight(totals), load_eight(&totals[8..])];
            }
        }
        let (dots, affine) = (&self.dots[..groups], &self.affine[..groups]);
        assert!(groups > 0);
        let mut group = 0;
        // Tested at its end, the loop needs no second set of registers for sums.
        loop {
            let affine = &affine[group];
            let scales = [load_eight(affine), load_eight(&affine[8..])];
            // Written out, for the same reason as above.
            macro_rules! add_rows {
                ($($r:literal)*) => {$(
                    let row = Scaled::<KIND>::of(x[$r], group, zero);
                    for half in 0..2 {
                        let dot = _mm256_madd_epi16(load_dots(&dots[group][$r], half * 8), ones);
                        let offset = load_eight(&affine[LANES + half * 8..]);
                        sums[$r][half] = row.add(sums[$r][half], dot, scales[half], offset);
                    }
                    pin_numbers(&mut sums[$r]);
                )*};
            }
            add_rows!(0 1 2 3);
            group += 1;
            if group == groups {
                break;
            }
        }
        for (sums, totals) in sums.into_iter().zip(totals) {
            store_eight(sums[0], totals);
            store_eight(sums[1], &mut totals[8..]);
        }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store_codes(codes: __m256i, to: &mut [u8], at: usize) {
    let to = &mut to[at..at + 32];
    // SAFETY: the slice has 32 elements.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), codes) }
}

/// The first eight elements.
#[inline]
#[target_feature(enable = "avx2")]
fn load_eight(from: &[f32]) -> __m256 {
    let from = &from[..8];
    // SAFETY: the slice has eight elements.
    unsafe { _mm256_loadu_ps(from.as_ptr()) }
}

/// The eight dot products from `at` on.
#[inline]
#[target_feature(enable = "avx2")]
fn load_dots(from: &[[i16; 2]; LANES], at: usize) -> __m256i {
    let from = &from[at..at + 8];
    // SAFETY: the slice has eight pairs.
    unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store_dots(dots: __m256i, to: &mut [[i16; 2]; LANES], at: usize) {
    let to = &mut to[at..at + 8];
    // SAFETY: the slice has eight pairs.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), dots) }
}
