//! The registry: published plugins, by name and version.
//!
//! Under its directory lie a catalogue (`catalogue.sqlite`) and the components, named by digest
//! (`blobs/<sha256>.wasm`). A publication writes the blob first and the catalogue's row last, so a
//! name never points at something that cannot be used; what a crash leaves in between is swept when
//! the registry is opened. Blobs are hashed again whenever they are read. One process at a time has
//! the directory. Stock plugins are loaded from files of their own and live in memory only.

mod blobs;
mod cache;
mod catalogue;
mod error;
mod name;
mod near;
mod record;
mod uses;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use formwork_sandbox::{Plugin, Sandbox};
use semver::Version;

pub use blobs::digest;
pub(crate) use blobs::{hex, temporary_in, write_durably};
pub use error::RegistryError;
pub use name::{MAX_PART_BYTES, PluginName, STOCK_NAMESPACE, Selector};
pub use record::{PluginRecord, Resolved};

use blobs::Blobs;
use cache::PluginCache;
use catalogue::Catalogue;
use near::near;
use uses::Uses;

/// Compiled uploads kept in memory; one is about ten times its component's size.
const CACHED_PLUGINS: usize = 64;

struct Stock {
    record: PluginRecord,
    plugin: Plugin,
}

/// The registry. All methods block (disk, compilation): call them off the async threads.
pub struct Registry {
    sandbox: Arc<Sandbox>,
    blobs: Blobs,
    catalogue: Mutex<Catalogue>,
    /// Held from a blob's write to its row's, and by deletions: a blob never goes between the two.
    publishing: Mutex<()>,
    cache: PluginCache,
    uses: Uses,
    stock: RwLock<BTreeMap<(PluginName, Version), Stock>>,
    /// Locked for as long as the registry is open.
    _lock: File,
}

impl Registry {
    /// Opens the registry under `dir`, making it if needed, and sweeps what a crash left.
    ///
    /// # Errors
    /// [`RegistryError::Locked`] if another process has it, [`RegistryError::Schema`] if a newer
    /// version wrote it, I/O and SQLite errors.
    pub fn open(dir: &Path, sandbox: Arc<Sandbox>) -> Result<Registry, RegistryError> {
        fs::create_dir_all(dir).map_err(RegistryError::io(dir))?;
        let lock = lock(dir)?;
        let catalogue = Catalogue::open(dir)?;
        let blobs = Blobs::open(dir.join("blobs"))?;
        let swept = blobs.sweep(&catalogue.digests()?)?;
        if swept > 0 {
            tracing::info!(swept, "removed unfinished uploads");
        }
        Ok(Registry {
            sandbox,
            blobs,
            catalogue: Mutex::new(catalogue),
            publishing: Mutex::new(()),
            cache: PluginCache::new(CACHED_PLUGINS),
            uses: Uses::default(),
            stock: RwLock::default(),
            _lock: lock,
        })
    }

    fn catalogue(&self) -> MutexGuard<'_, Catalogue> {
        self.catalogue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads every `formwork--NAME@VERSION.wasm` of `dir` as a stock plugin.
    ///
    /// # Errors
    /// A file that is named otherwise or that the sandbox does not admit: a server without one of
    /// its formats should not start.
    pub fn load_stock(&self, dir: &Path) -> Result<Vec<PluginRecord>, RegistryError> {
        let mut paths = Vec::new();
        for entry in fs::read_dir(dir).map_err(RegistryError::io(dir))? {
            let path = entry.map_err(RegistryError::io(dir))?.path();
            if path
                .extension()
                .is_some_and(|extension| extension == "wasm")
            {
                paths.push(path);
            }
        }
        paths.sort();
        let mut records = Vec::new();
        for path in paths {
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            let parsed = PluginName::from_file_name(&file);
            // Uploads cannot have this namespace, so the two never compete for a name.
            let stock = parsed.filter(|(name, _)| name.namespace() == STOCK_NAMESPACE);
            let Some((name, version)) = stock else {
                return Err(RegistryError::StockFileName(path));
            };
            let bytes = fs::read(&path).map_err(RegistryError::io(&path))?;
            let plugin = self.sandbox.admit(&bytes)?;
            let loaded_at = self.catalogue().now()?;
            let record = PluginRecord::new(&name, &version, &plugin, loaded_at);
            records.push(record.clone());
            let mut stock = self.stock.write().unwrap_or_else(PoisonError::into_inner);
            stock.insert((name, version), Stock { record, plugin });
        }
        Ok(records)
    }

    /// Publishes `bytes` as `name@version`. Doing it again with the same bytes changes nothing.
    ///
    /// # Errors
    /// [`RegistryError::Reserved`], [`RegistryError::VersionTaken`], [`RegistryError::Admission`],
    /// and a version with build metadata (versions that differ only there would be equal).
    pub fn upload(
        &self,
        name: &PluginName,
        version: &Version,
        bytes: &[u8],
    ) -> Result<PluginRecord, RegistryError> {
        if name.namespace() == STOCK_NAMESPACE {
            return Err(RegistryError::Reserved(STOCK_NAMESPACE.to_owned()));
        }
        if !version.build.is_empty() {
            return Err(RegistryError::BadVersion {
                version: version.to_string(),
                reason: "build metadata (after +) does not tell versions apart".to_owned(),
            });
        }
        let digest = digest(bytes);
        // Fails before the costly part; asked again under the lock.
        self.published(name, version, &digest)?;
        let plugin = self
            .cache
            .get_or_load(&digest, || Ok(self.sandbox.admit(bytes)?))?;
        let _publishing = self
            .publishing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let published = self.published(name, version, &digest)?;
        // Where the row is there already, this mends a damaged blob.
        self.blobs.put(&digest, bytes)?;
        if let Some(record) = published {
            return Ok(record);
        }
        let mut catalogue = self.catalogue();
        let record = PluginRecord::new(name, version, &plugin, catalogue.now()?);
        catalogue.insert(&record)?;
        Ok(record)
    }

    /// The record if `name@version` holds `digest` already; an error if it holds another.
    fn published(
        &self,
        name: &PluginName,
        version: &Version,
        digest: &str,
    ) -> Result<Option<PluginRecord>, RegistryError> {
        match self.catalogue().get(name, version)? {
            Some(record) if record.digest != digest => Err(RegistryError::VersionTaken {
                name: name.to_string(),
                version: version.clone(),
                digest: record.digest,
            }),
            record => Ok(record),
        }
    }

    /// The highest version of `name` that `selector` matches, compiled and marked as in use.
    ///
    /// # Errors
    /// [`RegistryError::UnknownPlugin`] with near names, [`RegistryError::NoVersion`] with the
    /// versions that there are, [`RegistryError::Damaged`] if the stored bytes changed.
    pub fn resolve(
        &self,
        name: &PluginName,
        selector: &Selector,
    ) -> Result<Resolved, RegistryError> {
        let (record, stock, in_use) = {
            // Found and marked under one lock: a deletion sees the use or was there before.
            let catalogue = self.catalogue();
            let records = self.versions(&catalogue, name)?;
            let Some(version) = selector.select(records.iter().map(|record| &record.version))
            else {
                return Err(self.not_found(&catalogue, name, selector, &records));
            };
            let in_use = self.uses.begin(name, version);
            let stock = self.stock_plugin(name, version);
            let found = records.iter().find(|record| record.version == *version);
            match found.cloned() {
                Some(record) => (record, stock, in_use),
                None => return Err(self.not_found(&catalogue, name, selector, &records)),
            }
        };
        let plugin = match stock {
            Some(plugin) => plugin,
            None => self.cache.get_or_load(&record.digest, || {
                let bytes = self.blobs.get(&record.digest)?;
                Ok(self.sandbox.admit(&bytes)?)
            })?,
        };
        Ok(Resolved::new(record, plugin, in_use))
    }

    fn stock_plugin(&self, name: &PluginName, version: &Version) -> Option<Plugin> {
        let stock = self.stock.read().unwrap_or_else(PoisonError::into_inner);
        let stock = stock.get(&(name.clone(), version.clone()))?;
        Some(stock.plugin.clone())
    }

    fn stock_records(&self) -> Vec<PluginRecord> {
        let stock = self.stock.read().unwrap_or_else(PoisonError::into_inner);
        stock.values().map(|stock| stock.record.clone()).collect()
    }

    /// Uploaded and stock versions of `name`, highest first.
    fn versions(
        &self,
        catalogue: &Catalogue,
        name: &PluginName,
    ) -> Result<Vec<PluginRecord>, RegistryError> {
        let mut records = catalogue.versions(name)?;
        let stock = self.stock.read().unwrap_or_else(PoisonError::into_inner);
        let of_name = stock.values().filter(|stock| stock.record.name == *name);
        records.extend(of_name.map(|stock| stock.record.clone()));
        records.sort_by(|a, b| b.version.cmp(&a.version));
        Ok(records)
    }

    fn not_found(
        &self,
        catalogue: &Catalogue,
        name: &PluginName,
        selector: &Selector,
        records: &[PluginRecord],
    ) -> RegistryError {
        if !records.is_empty() {
            return RegistryError::NoVersion {
                name: name.to_string(),
                selector: selector.to_string(),
                versions: records.iter().map(|r| r.version.to_string()).collect(),
            };
        }
        // The suggestion is a courtesy: without a catalogue there is none.
        let mut known = catalogue.all().unwrap_or_default();
        known.extend(self.stock_records());
        let known = known.iter().map(|record| record.name.as_str());
        RegistryError::UnknownPlugin {
            name: name.to_string(),
            near: near(name.as_str(), known),
        }
    }

    /// Every version of every plugin, by name, highest version first.
    ///
    /// # Errors
    /// SQLite's.
    pub fn list(&self) -> Result<Vec<PluginRecord>, RegistryError> {
        let mut records = self.catalogue().all()?;
        records.extend(self.stock_records());
        records.sort_by(|a, b| (&a.name, &b.version).cmp(&(&b.name, &a.version)));
        Ok(records)
    }

    /// The versions of one plugin, highest first; never empty.
    ///
    /// # Errors
    /// [`RegistryError::UnknownPlugin`].
    pub fn show(&self, name: &PluginName) -> Result<Vec<PluginRecord>, RegistryError> {
        let catalogue = self.catalogue();
        let records = self.versions(&catalogue, name)?;
        if records.is_empty() {
            return Err(self.not_found(&catalogue, name, &Selector::Latest, &records));
        }
        Ok(records)
    }

    /// Deletes one version, and its component if no other version holds the same.
    ///
    /// # Errors
    /// [`RegistryError::InUse`] while a [`Resolved`] of it lives, [`RegistryError::Reserved`] for
    /// stock plugins, [`RegistryError::UnknownPlugin`] and [`RegistryError::NoVersion`].
    pub fn delete(&self, name: &PluginName, version: &Version) -> Result<(), RegistryError> {
        if name.namespace() == STOCK_NAMESPACE {
            return Err(RegistryError::Reserved(STOCK_NAMESPACE.to_owned()));
        }
        let _publishing = self
            .publishing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut catalogue = self.catalogue();
        let Some(record) = catalogue.get(name, version)? else {
            let records = self.versions(&catalogue, name)?;
            let exact = format!("={version}").parse()?;
            return Err(self.not_found(&catalogue, name, &exact, &records));
        };
        let uses = self.uses.count(name, version);
        if uses > 0 {
            return Err(RegistryError::InUse {
                name: name.to_string(),
                version: version.clone(),
                uses,
            });
        }
        if catalogue.delete(name, &record)? {
            self.cache.forget(&record.digest);
            self.blobs.remove(&record.digest)?;
        }
        Ok(())
    }
}

/// Takes the directory for this process; the lock goes with the file handle.
fn lock(dir: &Path) -> Result<File, RegistryError> {
    let path = dir.join("lock");
    let file = File::create(&path).map_err(RegistryError::io(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(RegistryError::Locked(dir.to_owned())),
        Err(TryLockError::Error(source)) => Err(RegistryError::Io { path, source }),
    }
}
