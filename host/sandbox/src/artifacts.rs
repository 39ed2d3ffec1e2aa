//! Compiled plugins on disk, so that a start does not compile what an earlier one has compiled.
//!
//! An artifact is machine code, and whoever can write one can run anything in this process. So the
//! directory is made for its owner alone, one that others can write to is not used, and each file's name
//! carries the SHA-256 of its content, which is checked before the file is loaded: that guards against
//! broken files, not against an owner who wants to be fooled.

use crate::vocabulary::hex;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs::{self, File};
use std::hash::{Hash, Hasher};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use wasmtime::Engine;
use wasmtime::component::Component;

/// Files kept. One is a few megabytes.
const MOST_FILES: usize = 128;
const ENDING: &str = "cwasm";

/// A directory of artifacts for one configuration of the engine. Files are called
/// `COMPONENT.ENGINE.CONTENT.cwasm`, three digests.
pub(crate) struct Artifacts {
    dir: PathBuf,
    /// Digest of all that an artifact must have been compiled for.
    engine: String,
    /// By the component's digest: the content's.
    known: Mutex<HashMap<String, String>>,
}

impl Artifacts {
    /// Opens the directory, making it if needed. What another version left there is removed.
    ///
    /// # Errors
    /// What the system says, and that others may write to the directory.
    pub(crate) fn open(dir: &Path, engine: &Engine) -> std::io::Result<Self> {
        make_private(dir)?;
        let mut digest = HashInto(Sha256::new());
        engine.precompile_compatibility_hash().hash(&mut digest);
        let engine = hex(&digest.0.finalize());
        let mut known = HashMap::new();
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let parts: Vec<&str> = name.split('.').collect();
            match parts[..] {
                [component, of, content, ENDING] if of == engine && known.len() < MOST_FILES => {
                    known.insert(component.to_owned(), content.to_owned());
                }
                // Unfinished ones among them: their names end otherwise.
                _ => remove(&path),
            }
        }
        Ok(Self {
            dir: dir.to_owned(),
            engine,
            known: Mutex::new(known),
        })
    }

    fn path(&self, component: &str, content: &str) -> PathBuf {
        let name = format!("{component}.{}.{content}.{ENDING}", self.engine);
        self.dir.join(name)
    }

    /// The compiled form of the component with this digest, if it is here and intact.
    pub(crate) fn load(&self, engine: &Engine, component: &str) -> Option<Component> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let content = known.get(component)?.clone();
        drop(known);
        let path = self.path(component, &content);
        let loaded = match digest_of(&path) {
            Ok(found) if found == content => load_file(engine, &path),
            Ok(_) => Err("its content is not what was written".into()),
            Err(error) => Err(error.to_string()),
        };
        match loaded {
            Ok(loaded) => Some(loaded),
            Err(reason) => {
                tracing::warn!(path = %path.display(), reason, "a compiled plugin is made anew");
                self.forget(component);
                remove(&path);
                None
            }
        }
    }

    /// Keeps a compiled component. That it cannot be kept is no reason to fail.
    pub(crate) fn store(&self, component: &str, compiled: &Component) {
        if let Err(reason) = self.try_store(component, compiled) {
            tracing::warn!(dir = %self.dir.display(), reason, "a compiled plugin is not kept");
        }
    }

    fn try_store(&self, component: &str, compiled: &Component) -> Result<(), String> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let bytes = compiled.serialize().map_err(|error| format!("{error:#}"))?;
        let content = hex(&Sha256::digest(&bytes));
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let unfinished = self
            .dir
            .join(format!("{}-{number}.part", std::process::id()));
        let path = self.path(component, &content);
        let written = fs::write(&unfinished, &bytes).and_then(|()| fs::rename(&unfinished, &path));
        if let Err(error) = written {
            remove(&unfinished);
            return Err(error.to_string());
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_FILES
            && let Some(other) = known.keys().next().cloned()
            && let Some(content) = known.remove(&other)
        {
            remove(&self.path(&other, &content));
        }
        known.insert(component.to_owned(), content);
        Ok(())
    }

    fn forget(&self, component: &str) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.remove(component);
    }
}

/// Maps the file: its pages are read on use and are not counted as this process's own.
#[allow(unsafe_code)]
fn load_file(engine: &Engine, path: &Path) -> Result<Component, String> {
    // SAFETY: the file holds what `Component::serialize` gave for an engine of the same settings and version:
    // its name says so, and its digest was just checked. It lies in a directory that only its owner writes
    // to, where files are replaced by renaming and never changed in place.
    let loaded = unsafe { Component::deserialize_file(engine, path) };
    loaded.map_err(|error| format!("{error:#}"))
}

fn digest_of(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let (mut digest, mut buffer) = (Sha256::new(), vec![0; 64 << 10]);
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok(hex(&digest.finalize()));
        }
        digest.update(&buffer[..read]);
    }
}

fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        tracing::debug!(path = %path.display(), %error, "a file could not be removed");
    }
}

#[cfg(unix)]
fn make_private(dir: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};
    if let Some(parent) = dir.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)?;
    if fs::metadata(dir)?.mode() & 0o022 != 0 {
        let reason = "others than its owner may write to it (chmod go-w)";
        return Err(std::io::Error::other(reason));
    }
    Ok(())
}

#[cfg(not(unix))]
fn make_private(dir: &Path) -> std::io::Result<()> {
    fs::create_dir_all(dir)
}

/// Lets what knows how to be hashed be hashed by SHA-256.
struct HashInto(Sha256);

impl Hasher for HashInto {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let digest = self.0.clone().finalize();
        u64::from_be_bytes(digest.first_chunk().copied().unwrap_or_default())
    }
}
