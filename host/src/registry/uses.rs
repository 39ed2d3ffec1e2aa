//! Which versions are in use, so that none is deleted under a running request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use semver::Version;

use super::PluginName;

type Key = (PluginName, Version);

/// Counts of the living [`Use`]s. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Uses(Arc<Mutex<HashMap<Key, usize>>>);

/// One use of a version; dropping it ends the use.
pub(super) struct Use {
    uses: Uses,
    key: Key,
}

impl Uses {
    pub(super) fn begin(&self, name: &PluginName, version: &Version) -> Use {
        let key = (name.clone(), version.clone());
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(key.clone()).or_default() += 1;
        let uses = self.clone();
        Use { uses, key }
    }

    pub(super) fn count(&self, name: &PluginName, version: &Version) -> usize {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (name.clone(), version.clone());
        counts.get(&key).copied().unwrap_or(0)
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        let mut counts = self.uses.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.key);
            }
        }
    }
}
