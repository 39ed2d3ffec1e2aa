//! Rotary embedding of a step's queries and keys, and storing keys and values, in one pass.

use crate::norm::norm_heads;
use crate::{Cpu, KvCache, RopeTable, shared::Shared};

/// Where the rows of a step stand.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    positions: Vec<usize>,
    slots: Vec<usize>,
    sorted: Vec<usize>,
}

impl Placement {
    /// From each row's position in its sequence and its slot in the cache.
    ///
    /// # Panics
    /// When two rows have the same slot.
    #[must_use]
    pub fn new(rows: impl Iterator<Item = (usize, usize)>) -> Self {
        let mut placement = Self::default();
        placement.set(rows);
        placement
    }

    /// [`Self::new`] in place of what was there, in the same memory.
    ///
    /// # Panics
    /// When two rows have the same slot.
    pub fn set(&mut self, rows: impl Iterator<Item = (usize, usize)>) {
        self.positions.clear();
        self.slots.clear();
        for (position, slot) in rows {
            self.positions.push(position);
            self.slots.push(slot);
        }
        self.sorted.clone_from(&self.slots);
        self.sorted.sort_unstable();
        let twice = self.sorted.windows(2).find(|pair| pair[0] == pair[1]);
        assert!(twice.is_none(), "two rows write the same slot: {twice:?}");
    }

    /// Rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

/// Turns queries and keys and fills the cache.
pub struct RotateAndStore<'a> {
    /// Angles.
    pub rope: &'a RopeTable,
    /// Query heads.
    pub heads: usize,
    /// Weights of the norms of each head's queries and keys, and their epsilon.
    pub norms: Option<([&'a [f32]; 2], f32)>,
}

impl RotateAndStore<'_> {
    /// Each row of `qkv` holds the query heads, the key heads and the value heads. Queries and keys are
    /// normalised where wanted and rotated in place; keys and values are stored.
    ///
    /// # Panics
    /// When lengths do not fit, or a position or slot is outside the table or the cache.
    pub fn run(&self, cpu: &Cpu, placement: &Placement, qkv: &mut [f32], cache: &mut KvCache) {
        let kv = cache.shape();
        let dim = kv.head_dim;
        let (queries, keys) = (self.heads * dim, kv.kv_heads * dim);
        let stride = queries + 2 * keys;
        assert_eq!(qkv.len(), placement.len() * stride);
        let isa = cpu.isa();
        let (rows, writer) = (Shared::new(qkv), cache.writer());
        cpu.for_ranges(placement.len(), 4, |range| {
            for index in range {
                // SAFETY: each row is visited once.
                let row = unsafe { rows.part(index * stride..(index + 1) * stride) };
                let (rotated, value) = row.split_at_mut(queries + keys);
                if let Some(([query_norm, key_norm], epsilon)) = self.norms {
                    let (query, key) = rotated.split_at_mut(queries);
                    norm_heads(isa, (query_norm, epsilon), query);
                    norm_heads(isa, (key_norm, epsilon), key);
                }
                let position = placement.positions[index];
                self.rope.apply_on(isa, position, (dim, rotated));
                // SAFETY: a placement's slots are different.
                unsafe {
                    writer.write(isa, placement.slots[index], &rotated[queries..], value);
                }
            }
        });
    }
}
