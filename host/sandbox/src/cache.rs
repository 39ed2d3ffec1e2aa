//! The cache of compiled grammars: bounded in bytes, one compilation per source at a time.

use crate::grammar::Grammar;
use crate::grammars::{Refusal, lock};
use crate::{Failure, Source};
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

type Key = [u8; 32];
type Outcome = Result<Arc<Grammar>, Failure>;

/// Charged per entry on top of what is counted: keys, tables, allocator overhead.
const ENTRY_BYTES: usize = 1024;

/// Bytes that the productions of a compiled grammar take per byte of its source, roughly.
const SOURCE_FACTOR: usize = 16;

/// What the cache holds and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Compiled grammars and lasting refusals held.
    pub entries: usize,
    /// Their bytes, as counted when last used.
    pub bytes: usize,
    /// Requests answered without compiling, those that joined a running compilation included.
    pub hits: u64,
    /// Compilations begun.
    pub misses: u64,
    /// Entries that had to go.
    pub evictions: u64,
}

/// What a request finds.
pub(crate) enum Slot {
    Ready(Outcome),
    /// Somebody else is compiling it.
    Pending(Arc<Flight>),
    /// The caller is to compile it.
    Claimed(Arc<Flight>),
}

enum Entry {
    Ready {
        outcome: Outcome,
        base: usize,
        used: u64,
    },
    Pending(Arc<Flight>),
}

pub(crate) struct Cache {
    entries: HashMap<Key, Entry>,
    limit: usize,
    clock: u64,
    stats: CacheStats,
}

impl Cache {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            entries: HashMap::new(),
            limit,
            clock: 0,
            stats: CacheStats::default(),
        }
    }

    pub(crate) fn stats(&self) -> CacheStats {
        let ready = self.entries.values().filter_map(Entry::bytes);
        let (entries, bytes) = ready.fold((0, 0), |(n, sum), bytes| (n + 1, sum + bytes));
        CacheStats {
            entries,
            bytes,
            ..self.stats
        }
    }

    pub(crate) fn slot(&mut self, key: Key) -> Slot {
        self.clock += 1;
        match self.entries.get_mut(&key) {
            Some(Entry::Ready { outcome, used, .. }) => {
                self.stats.hits += 1;
                *used = self.clock;
                Slot::Ready(outcome.clone())
            }
            Some(Entry::Pending(flight)) => {
                self.stats.hits += 1;
                Slot::Pending(flight.clone())
            }
            None => {
                self.stats.misses += 1;
                let flight = Arc::new(Flight::default());
                self.entries.insert(key, Entry::Pending(flight.clone()));
                Slot::Claimed(flight)
            }
        }
    }

    /// Ends a compilation: keeps what lasts, then drops the least recently used until all fits.
    pub(crate) fn settle(
        &mut self,
        key: Key,
        source: &Source,
        built: &Result<Arc<Grammar>, Refusal>,
    ) {
        self.entries.remove(&key);
        let outcome = match built {
            Ok(grammar) => Ok(grammar.clone()),
            Err(refusal) if refusal.lasting => Err(refusal.failure.clone()),
            Err(_) => return,
        };
        let message = outcome
            .as_ref()
            .err()
            .map_or(0, |failure| failure.message.len());
        let entry = Entry::Ready {
            outcome,
            base: ENTRY_BYTES + source.len() * SOURCE_FACTOR + message,
            used: self.clock,
        };
        self.entries.insert(key, entry);
        self.evict();
    }

    pub(crate) fn forget(&mut self, key: Key) {
        self.entries.remove(&key);
    }

    fn evict(&mut self) {
        let mut held: Vec<(u64, Key, usize)> = Vec::new();
        for (key, entry) in &self.entries {
            if let (Entry::Ready { used, .. }, Some(bytes)) = (entry, entry.bytes()) {
                held.push((*used, *key, bytes));
            }
        }
        let mut total: usize = held.iter().map(|(_, _, bytes)| bytes).sum();
        if total <= self.limit {
            return;
        }
        held.sort_unstable();
        for (_, key, bytes) in held {
            if total <= self.limit {
                break;
            }
            self.entries.remove(&key);
            self.stats.evictions += 1;
            total -= bytes;
        }
    }
}

impl Entry {
    fn bytes(&self) -> Option<usize> {
        match self {
            Self::Ready { outcome, base, .. } => {
                Some(base + outcome.as_ref().map_or(0, |grammar| grammar.bytes()))
            }
            Self::Pending(_) => None,
        }
    }
}

/// A compilation under way, and where its outcome is handed over.
#[derive(Default)]
pub(crate) struct Flight {
    outcome: Mutex<Option<Outcome>>,
    landed: Condvar,
}

impl Flight {
    pub(crate) fn land(&self, outcome: Outcome) {
        *lock(&self.outcome) = Some(outcome);
        self.landed.notify_all();
    }

    /// The outcome, or `None` when it takes longer than `patience`.
    pub(crate) fn wait(&self, patience: Duration) -> Option<Outcome> {
        let end = Instant::now() + patience;
        let mut outcome = lock(&self.outcome);
        while outcome.is_none() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            outcome = self
                .landed
                .wait_timeout(outcome, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        outcome.clone()
    }
}
