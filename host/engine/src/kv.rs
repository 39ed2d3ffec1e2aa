//! The block pool: who leases which block of the KV cache, and which blocks can be hit again.
//!
//! A block is free (holds nothing), leased (by one or more sequences) or cached (leased by none, its
//! content known by hash). `free + cached + leased == total` always. Only full blocks are published, so
//! only full blocks are ever shared; a partly filled block has exactly one owner. Of a published block that
//! only begins as wanted, a copy is taken.

use crate::{BlockId, TokenId};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

/// Identifies the content of a full block together with everything before it. Cryptographic, since a
/// collision would show one client's context to another.
pub(crate) type BlockHash = [u8; 16];

/// Hash of a full block, given the hash of the block before it.
pub(crate) fn block_hash(parent: Option<&BlockHash>, tokens: &[TokenId]) -> BlockHash {
    let mut hasher = Sha256::new();
    hasher.update(parent.unwrap_or(&NO_PARENT));
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

/// The content of a full block: the hash of the block before it, and its tokens.
type Content = (BlockHash, Vec<TokenId>);

/// Stands for the block before the first.
const NO_PARENT: BlockHash = [0; 16];

#[derive(Clone, Debug, Default)]
struct Meta {
    leases: u32,
    /// Of a published block.
    known: Option<(BlockHash, Content)>,
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
    /// The same blocks, ordered so that those that begin alike are neighbours.
    contents: BTreeMap<Content, BlockId>,
    clock: u64,
}

impl BlockPool {
    pub(crate) fn new(blocks: usize) -> Self {
        Self {
            meta: vec![Meta::default(); blocks],
            free: (0..blocks as BlockId).rev().collect(),
            lru: BTreeMap::new(),
            index: HashMap::new(),
            contents: BTreeMap::new(),
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
                self.withdraw(block);
                block
            }
        };
        self.meta[block as usize].leases = 1;
        Some(block)
    }

    /// Makes a full, computed block known by its tokens and the hash of the block before it; returns its own
    /// hash. A second block of the same content stays private.
    pub(crate) fn publish(
        &mut self,
        block: BlockId,
        parent: Option<&BlockHash>,
        tokens: &[TokenId],
    ) -> BlockHash {
        let hash = block_hash(parent, tokens);
        if let std::collections::hash_map::Entry::Vacant(entry) = self.index.entry(hash) {
            entry.insert(block);
            let content = (*parent.unwrap_or(&NO_PARENT), tokens.to_vec());
            self.contents.insert(content.clone(), block);
            self.meta[block as usize].known = Some((hash, content));
        }
        hash
    }

    fn withdraw(&mut self, block: BlockId) {
        if let Some((hash, content)) = self.meta[block as usize].known.take() {
            self.index.remove(&hash);
            self.contents.remove(&content);
        }
    }

    /// A published block after the block `parent` that begins like `tokens`, and how many of them it has; the
    /// one that has most.
    pub(crate) fn begins_like(
        &self,
        parent: Option<&BlockHash>,
        tokens: &[TokenId],
    ) -> Option<(BlockId, usize)> {
        let parent = *parent.unwrap_or(&NO_PARENT);
        let wanted = (parent, tokens.to_vec());
        // In this order nothing shares more with what is wanted than what stands next to it.
        let before = self.contents.range(..&wanted).next_back();
        let from = (Bound::Included(&wanted), Bound::Unbounded);
        let after = self.contents.range::<Content, _>(from).next();
        let shared = |(content, &block): (&Content, &BlockId)| {
            let alike = content.1.iter().zip(tokens).take_while(|(a, b)| a == b);
            let count = (content.0 == parent).then(|| alike.count())?;
            (count > 0).then_some((block, count))
        };
        let found = [before, after].into_iter().flatten().filter_map(shared);
        found.max_by_key(|&(_, count)| count)
    }

    /// Asks to write into a leased block. `true`: it is the caller's alone now, and no longer published.
    /// `false`: others hold it too, so the caller must release it and take another.
    pub(crate) fn claim(&mut self, block: BlockId) -> bool {
        if self.meta[block as usize].leases > 1 {
            return false;
        }
        self.withdraw(block);
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
        if meta.known.is_some() {
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
            let block = block as BlockId;
            if let Some((hash, content)) = &meta.known
                && (self.index.get(hash) != Some(&block)
                    || self.contents.get(content) != Some(&block))
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
        let published = self.meta.iter().filter(|meta| meta.known.is_some());
        if [self.index.len(), self.contents.len()] != [published.count(); 2] {
            return Err("the index and the published blocks differ".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Of any published blocks the one is found that begins most like what is wanted.
        #[test]
        fn what_begins_most_alike_is_found(
            published in prop::collection::vec((0_u8..2, prop::collection::vec(0_u32..3, 4)), 0..12),
            withdrawn in prop::collection::vec(any::<bool>(), 12),
            parent in 0_u8..2,
            wanted in prop::collection::vec(0_u32..3, 0..5),
        ) {
            let parent_of = |number: u8| (number > 0).then_some([number; 16]);
            let mut pool = BlockPool::new(published.len());
            let mut left: Vec<(u8, Vec<TokenId>)> = Vec::new();
            let mut leases = Vec::new();
            for ((number, tokens), withdrawn) in published.into_iter().zip(withdrawn) {
                let block = pool.lease_empty().unwrap();
                leases.push(block);
                pool.publish(block, parent_of(number).as_ref(), &tokens);
                let claimed = withdrawn && pool.claim(block);
                if !claimed {
                    left.push((number, tokens));
                }
            }
            prop_assert_eq!(pool.audit(leases.into_iter()), Ok(()));
            let alike = |tokens: &[TokenId]| {
                tokens.iter().zip(&wanted).take_while(|(a, b)| a == b).count()
            };
            let best = left.iter().filter(|(number, _)| *number == parent);
            let best = best.map(|(_, tokens)| alike(tokens)).max().unwrap_or(0);
            let found = pool.begins_like(parent_of(parent).as_ref(), &wanted);
            prop_assert_eq!(found.map_or(0, |(_, count)| count), best);
            if let Some((block, count)) = found {
                let known = pool.meta[block as usize].known.as_ref();
                prop_assert_eq!(alike(&known.unwrap().1.1), count);
            }
        }
    }
}
