//! The paged cache of keys and values.

use half::f16;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};

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
    scratch: Vec<f16>,
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
            scratch: vec![f16::ZERO; shape.kv_heads * shape.head_dim],
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
        let KvShape {
            block_size,
            kv_heads,
            head_dim,
            ..
        } = self.shape;
        let (block, offset) = (slot / block_size, slot % block_size);
        self.scratch.convert_from_f32_slice(key);
        for (head, key) in self.scratch.chunks_exact(head_dim).enumerate() {
            let run = self.shape.run(block, head, offset / RUN);
            let keys = &mut self.keys[run * head_dim * RUN..][..head_dim * RUN];
            for (keys, key) in keys.chunks_exact_mut(RUN).zip(key) {
                keys[offset % RUN] = key.to_bits();
            }
        }
        self.scratch.convert_from_f32_slice(value);
        for (head, value) in self.scratch.chunks_exact(head_dim).enumerate() {
            let at = ((block * kv_heads + head) * block_size + offset) * head_dim;
            self.values[at..at + head_dim].copy_from_slice(value.reinterpret_cast());
        }
    }

    /// Reads the keys (`head_dim` rows of 16) and values (16 rows of `head_dim`) of one run of 16
    /// positions.
    pub(crate) fn read(
        &self,
        [block, head, run]: [usize; 3],
        keys: &mut [f32],
        values: &mut [f32],
    ) {
        let len = self.shape.head_dim * RUN;
        let at = self.shape.run(block, head, run) * len;
        let half_keys: &[f16] = self.keys[at..at + len].reinterpret_cast();
        let half_values: &[f16] = self.values[at..at + len].reinterpret_cast();
        half_keys.convert_to_f32_slice(keys);
        half_values.convert_to_f32_slice(values);
    }
}

impl KvShape {
    /// Index of a run of 16 positions among all of them; the same for keys and values.
    fn run(self, block: usize, head: usize, run: usize) -> usize {
        (block * self.kv_heads + head) * (self.block_size / RUN) + run
    }
}
