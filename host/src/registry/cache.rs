//! Compiled plugins in memory: bounded, and each compiled once however many requests want it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use formwork_sandbox::Plugin;

use super::RegistryError;

/// A place for one compiled plugin. Whoever compiles holds the lock; the others wait for it.
#[derive(Default)]
struct Slot(Mutex<Option<Plugin>>);

struct Entry {
    slot: Arc<Slot>,
    last_use: u64,
}

#[derive(Default)]
struct Entries {
    by_digest: HashMap<String, Entry>,
    clock: u64,
}

/// The least recently used plugin makes room. What runs on it keeps it alive by its own handle.
pub(super) struct PluginCache {
    capacity: usize,
    entries: Mutex<Entries>,
}

impl PluginCache {
    pub(super) fn new(capacity: usize) -> PluginCache {
        PluginCache {
            capacity: capacity.max(1),
            entries: Mutex::default(),
        }
    }

    /// The plugin of this digest, made by `load` if it is not here. A failed `load` leaves nothing.
    pub(super) fn get_or_load(
        &self,
        digest: &str,
        load: impl FnOnce() -> Result<Plugin, RegistryError>,
    ) -> Result<Plugin, RegistryError> {
        let slot = self.slot(digest);
        let mut place = slot.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(plugin) = &*place {
            return Ok(plugin.clone());
        }
        match load() {
            Ok(plugin) => Ok(place.insert(plugin).clone()),
            Err(error) => {
                self.forget(digest);
                Err(error)
            }
        }
    }

    fn slot(&self, digest: &str) -> Arc<Slot> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.clock += 1;
        let now = entries.clock;
        if let Some(entry) = entries.by_digest.get_mut(digest) {
            entry.last_use = now;
            return Arc::clone(&entry.slot);
        }
        if entries.by_digest.len() >= self.capacity {
            let oldest = entries
                .by_digest
                .iter()
                .min_by_key(|(_, entry)| entry.last_use);
            if let Some(oldest) = oldest.map(|(digest, _)| digest.clone()) {
                entries.by_digest.remove(&oldest);
            }
        }
        let slot = Arc::<Slot>::default();
        let entry = Entry {
            slot: Arc::clone(&slot),
            last_use: now,
        };
        entries.by_digest.insert(digest.to_owned(), entry);
        slot
    }

    pub(super) fn forget(&self, digest: &str) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.by_digest.remove(digest);
    }
}
