//! The paged cache of keys and values.

use crate::Isa;
use crate::cpu::on_isa;
use crate::shared::Shared;
use half::f16;

/// Positions that attention handles at a time; block sizes are multiples of it.
pub(crate) const RUN: usize = 16;

/// Shape of a [`KvCache`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvShape {
    /// Blocks.
    pub blocks: usize,
    /// Positions per block; a multiple of 16.
    pub block_size: usize,
    /// Heads of keys and of values.
    pub kv_heads: usize,
    /// Elements per head; a multiple of 16.
    pub head_dim: usize,
}

/// Keys and values of one layer, in half precision. A slot is one position: slot
/// `block * block_size + offset`.
///
/// Keys lie per block, head and run of 16 positions as `head_dim` rows of 16, so that scores of 16
/// positions are computed without sums across lanes. Values lie per block, head and position.
pub struct KvCache {
    shape: KvShape,
    // Bits rather than `f16`, so that the allocation is zeroed by the system, page by page, on use.
    keys: Vec<u16>,
    values: Vec<u16>,
}

impl KvCache {
    /// An empty cache.
    ///
    /// # Panics
    /// When block size or head size is no multiple of 16.
    #[must_use]
    pub fn new(shape: KvShape) -> Self {
        assert!(shape.block_size > 0 && shape.block_size.is_multiple_of(RUN));
        assert!(shape.head_dim > 0 && shape.head_dim.is_multiple_of(RUN));
        let len = shape.blocks * shape.block_size * shape.kv_heads * shape.head_dim;
        Self {
            shape,
            keys: vec![0; len],
            values: vec![0; len],
        }
    }

    /// Its shape.
    #[must_use]
    pub fn shape(&self) -> KvShape {
        self.shape
    }

    /// Stores one position. `key` and `value` hold `kv_heads * head_dim` numbers.
    ///
    /// # Panics
    /// When there is no such slot or a row has another length.
    pub fn write(&mut self, slot: usize, key: &[f32], value: &[f32]) {
        let isa = Isa::best();
        // SAFETY: nobody else writes meanwhile: `self` is borrowed mutably.
        unsafe { self.writer().write(isa, slot, key, value) }
    }

    /// Lends the cache to threads that write different slots.
    pub(crate) fn writer(&mut self) -> KvWriter<'_> {
        KvWriter {
            shape: self.shape,
            keys: Shared::new(&mut self.keys),
            values: Shared::new(&mut self.values),
        }
    }

    /// The keys of a run of 16 positions, given as block, head and run within the block: `head_dim` rows
    /// of 16.
    pub(crate) fn keys(&self, place: [usize; 3]) -> &[u16] {
        self.run(&self.keys, place)
    }

    /// The values of a run of 16 positions: 16 rows of `head_dim`.
    pub(crate) fn values(&self, place: [usize; 3]) -> &[u16] {
        self.run(&self.values, place)
    }

    fn run<'a>(&self, halves: &'a [u16], [block, head, run]: [usize; 3]) -> &'a [u16] {
        let len = self.shape.head_dim * RUN;
        &halves[self.shape.run(block, head, run) * len..][..len]
    }
}

/// Writes positions of a [`KvCache`] from several threads.
pub(crate) struct KvWriter<'a> {
    shape: KvShape,
    keys: Shared<'a, u16>,
    values: Shared<'a, u16>,
}

impl KvWriter<'_> {
    /// Stores one position; see [`KvCache::write`].
    ///
    /// # Safety
    /// No two calls at the same time may write the same slot.
    pub(crate) unsafe fn write(&self, isa: Isa, slot: usize, key: &[f32], value: &[f32]) {
        let KvShape {
            block_size,
            kv_heads,
            head_dim,
            ..
        } = self.shape;
        assert!(key.len() == kv_heads * head_dim && value.len() == key.len());
        let (block, offset) = (slot / block_size, slot % block_size);
        for (head, (key, value)) in key
            .chunks_exact(head_dim)
            .zip(value.chunks_exact(head_dim))
            .enumerate()
        {
            let run = self.shape.run(block, head, offset / RUN) * head_dim * RUN;
            // A key's elements lie sixteen apart, one in each row of the run; neighbouring positions
            // lie between them and belong to others.
            let mut narrow_key = [0u16; RUN];
            for (chunk, key) in key.chunks_exact(RUN).enumerate() {
                narrow(isa, key, &mut narrow_key);
                let first = run + chunk * RUN * RUN + offset % RUN;
                for (row, &bits) in narrow_key.iter().enumerate() {
                    // SAFETY: the element belongs to this slot alone, and nobody else writes the slot.
                    unsafe { self.keys.set(first + row * RUN, bits) };
                }
            }
            let at = run + offset % RUN * head_dim;
            // SAFETY: as above.
            narrow(isa, value, unsafe { self.values.part(at..at + head_dim) });
        }
    }
}

/// Single-precision numbers to half precision, as bits; rounds to nearest, ties to even.
fn narrow(isa: Isa, values: &[f32], out: &mut [u16]) {
    on_isa!(isa, narrow_plain(values, out), narrow_avx2(values, out));
}

fn narrow_plain(values: &[f32], out: &mut [u16]) {
    for (&value, out) in values.iter().zip(out) {
        *out = f16::from_f32(value).to_bits();
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
fn narrow_avx2(values: &[f32], out: &mut [u16]) {
    use std::arch::x86_64::{
        _MM_FROUND_TO_NEAREST_INT, _mm_storeu_si128, _mm256_cvtps_ph, _mm256_loadu_ps,
    };
    let (values, rest) = values.as_chunks::<8>();
    let (out, out_rest) = out.as_chunks_mut::<8>();
    for (values, out) in values.iter().zip(out) {
        // SAFETY: both have eight elements.
        unsafe {
            let halves =
                _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(values.as_ptr()));
            _mm_storeu_si128(out.as_mut_ptr().cast(), halves);
        }
    }
    narrow_plain(rest, out_rest);
}

/// Half-precision numbers, as bits, to single precision.
pub(crate) fn widen(isa: Isa, halves: &[u16], out: &mut [f32]) {
    on_isa!(isa, widen_plain(halves, out), widen_avx2(halves, out));
}

fn widen_plain(halves: &[u16], out: &mut [f32]) {
    for (&half, out) in halves.iter().zip(out) {
        *out = f16::from_bits(half).to_f32();
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
fn widen_avx2(halves: &[u16], out: &mut [f32]) {
    use std::arch::x86_64::{_mm_loadu_si128, _mm256_cvtph_ps, _mm256_storeu_ps};
    let (halves, rest) = halves.as_chunks::<8>();
    let (out, out_rest) = out.as_chunks_mut::<8>();
    for (halves, out) in halves.iter().zip(out) {
        // SAFETY: both have eight elements.
        unsafe {
            let halves = _mm_loadu_si128(halves.as_ptr().cast());
            _mm256_storeu_ps(out.as_mut_ptr(), _mm256_cvtph_ps(halves));
        }
    }
    widen_plain(rest, out_rest);
}

impl KvShape {
    /// Index of a run of 16 positions among all of them; the same for keys and values.
    fn run(self, block: usize, head: usize, run: usize) -> usize {
        (block * self.kv_heads + head) * (self.block_size / RUN) + run
    }
}
