//! The block pool: who leases which block of the KV cache, and which blocks can be hit again.
//!
//! A block is free (holds nothing), leased (by one or more sequences) or cached (leased by none, its
//! content known by hash). `free + cached + leased == total` always. Only full blocks are published, so
//! only full blocks are ever shared; a partly filled block has exactly one owner.

use crate::{BlockId, TokenId};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};

/// Identifies the content of a full block together with everything before it. Cryptographic, since a
/// collision would show one client's context to another.
pub(crate) type BlockHash = [u8; 16];

/// Hash of a full block, given the hash of the block before it.
pub(crate) fn block_hash(parent: Option<&BlockHash>, tokens: &[TokenId]) -> BlockHash {
    let mut hasher = Sha256::new();
    hasher.update(parent.unwrap_or(&[0; 16]));
    for token in tokens {
        hasher.update(token.to_le_bytes());
    }
    let mut hash = [0; 16];
    hash.copy_from_slice(&hasher.finalize()[..16]);
    hash
}

/// Hashes of the full blocks of `tokens`, in order.
pub(crate) fn chain(tokens: &[TokenId], block_size: usize) -> Vec<BlockHash> {
    let mut hashes: Vec<BlockHash> = Vec::with_capacity(tokens.len() / block_size);
    for block in tokens.chunks_exact(block_size) {
        hashes.push(block_hash(hashes.last(), block));
    }
    hashes
}

#[derive(Clone, Debug, Default)]
struct Meta {
    leases: u32,
    hash: Option<BlockHash>,
    /// Key in `lru` while cached.
    age: u64,
}

/// All blocks of one backend.
#[derive(Debug)]
pub(crate) struct BlockPool {
    meta: Vec<Meta>,
    free: Vec<BlockId>,
    /// Cached blocks, least recently released first.
    lru: BTreeMap<u64, BlockId>,
    index: HashMap<BlockHash, BlockId>,
    clock: u64,
}

impl BlockPool {
    pub(crate) fn new(blocks: usize) -> Self {
        Self {
            meta: vec![Meta::default(); blocks],
            free: (0..blocks as BlockId).rev().collect(),
            lru: BTreeMap::new(),
            index: HashMap::new(),
            clock: 0,
        }
    }

    pub(crate) fn total(&self) -> usize {
        self.meta.len()
    }

    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    pub(crate) fn cached(&self) -> usize {
        self.lru.len()
    }

    pub(crate) fn leased(&self) -> usize {
        self.total() - self.free() - self.cached()
    }

    /// Blocks that a lease could take now.
    pub(crate) fn available(&self) -> usize {
        self.free() + self.cached()
    }

    /// Leases the cached or shared blocks that hold the longest prefix of `hashes`.
    pub(crate) fn lease_prefix(&mut self, hashes: &[BlockHash]) -> Vec<BlockId> {
        let hit: Vec<BlockId> = hashes
            .iter()
            .map_while(|hash| self.index.get(hash).copied())
            .collect();
        for &block in &hit {
            let meta = &mut self.meta[block as usize];
            if meta.leases == 0 {
                self.lru.remove(&meta.age);
            }
            meta.leases += 1;
        }
        hit
    }

    /// Leases one block with nothing in it, evicting the least recently used cached one if need be.
    pub(crate) fn lease_empty(&mut self) -> Option<BlockId> {
        let block = match self.free.pop() {
            Some(block) => block,
            None => {
                let (_, block) = self.lru.pop_first()?;
                if let Some(hash) = self.meta[block as usize].hash.take() {
                    self.index.remove(&hash);
                }
                block
            }
        };
        self.meta[block as usize].leases = 1;
        Some(block)
    }

    /// Makes a full, computed block known by its content. A second block of the same content stays private.
    pub(crate) fn publish(&mut self, block: BlockId, hash: BlockHash) {
        if let std::collections::hash_map::Entry::Vacant(entry) = self.index.entry(hash) {
            entry.insert(block);
            self.meta[block as usize].hash = Some(hash);
        }
    }

    /// Asks to write into a leased block. `true`: it is the caller's alone now, and no longer published.
    /// `false`: others hold it too, so the caller must release it and take another.
    pub(crate) fn claim(&mut self, block: BlockId) -> bool {
        let meta = &mut self.meta[block as usize];
        if meta.leases > 1 {
            return false;
        }
        if let Some(hash) = meta.hash.take() {
            self.index.remove(&hash);
        }
        true
    }

    /// Whether a block with this content exists.
    pub(crate) fn knows(&self, hash: &BlockHash) -> bool {
        self.index.contains_key(hash)
    }

    /// Gives one lease back.
    pub(crate) fn release(&mut self, block: BlockId) {
        let meta = &mut self.meta[block as usize];
        debug_assert!(meta.leases > 0, "block {block} released twice");
        meta.leases = meta.leases.saturating_sub(1);
        if meta.leases > 0 {
            return;
        }
        if meta.hash.is_some() {
            self.clock += 1;
            meta.age = self.clock;
            self.lru.insert(self.clock, block);
        } else {
            self.free.push(block);
        }
    }

    /// Checks the books against the leases that sequences hold, given as one entry per lease.
    ///
    /// # Errors
    /// Says which block is wrong and how.
    pub(crate) fn audit(&self, leases: impl Iterator<Item = BlockId>) -> Result<(), String> {
        let mut counted = vec![0u32; self.total()];
        for block in leases {
            counted[block as usize] += 1;
        }
        for (block, (meta, &held)) in self.meta.iter().zip(&counted).enumerate() {
            if meta.leases != held {
                return Err(format!(
                    "block {block}: {} leases on the books, {held} held",
                    meta.leases
                ));
            }
            if let Some(hash) = &meta.hash
                && self.index.get(hash) != Some(&(block as BlockId))
            {
                return Err(format!("block {block} is published but not indexed"));
            }
        }
        let idle = counted.iter().filter(|&&held| held == 0).count();
        if idle != self.available() {
            return Err(format!(
                "{idle} blocks unleased, {} available",
                self.available()
            ));
        }
        if self.index.len() != self.meta.iter().filter(|m| m.hash.is_some()).count() {
            return Err("the index and the published blocks differ".into());
        }
        Ok(())
    }
}
