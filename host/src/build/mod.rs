//! `formwork plugin build`: from a crate to a component, and what can be said about one.
//!
//! Cargo compiles the crate to a core module for `wasm32-unknown-unknown`; the module carries the
//! WIT world that it was written against, from which the component is encoded.

mod crates;
mod describe;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use semver::Version;
use wit_component::ComponentEncoder;

pub use crates::{PluginCrate, Profile};
pub use describe::{Interfaces, interfaces};

use crate::registry::{PluginName, digest, write_durably};

/// The compilation target of plugins: no system interface, so that a plugin imports nothing but
/// Formwork's world.
pub const TARGET: &str = "wasm32-unknown-unknown";

/// Largest stock plugin, in bytes; larger ones are a warning for anyone else.
pub const STOCK_SIZE_LIMIT: usize = 400 << 10;

/// Why a plugin could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// Cargo could not be run at all.
    #[error("cargo cannot be run ({0}): install Rust, then `rustup target add {TARGET}`")]
    NoCargo(std::io::Error),
    /// Cargo failed; it has said why.
    #[error("cargo failed on {crates}{hint}")]
    Cargo {
        /// The crates.
        crates: String,
        /// What might help.
        hint: String,
    },
    /// The directory holds no plugin crate.
    #[error("{dir}: {reason}")]
    NotAPlugin {
        /// The directory.
        dir: PathBuf,
        /// What is missing.
        reason: String,
    },
    /// The module could not be made a component.
    #[error("{package} compiles, but is no plugin: {reason}")]
    Component {
        /// The package.
        package: String,
        /// What the encoder says.
        reason: String,
    },
    /// A stock plugin above the limit.
    #[error("{name} is {size} bytes, above the {STOCK_SIZE_LIMIT} bytes of a stock plugin")]
    TooLarge {
        /// The plugin.
        name: PluginName,
        /// Its size.
        size: usize,
    },
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
}

/// A plugin that was built.
#[derive(Clone, Debug)]
pub struct Built {
    /// The component's file.
    pub path: PathBuf,
    /// What the crate calls the plugin.
    pub name: PluginName,
    /// The plugin's version.
    pub version: Version,
    /// Size of the component in bytes.
    pub size: usize,
    /// SHA-256 of the component in hex.
    pub digest: String,
}

/// Builds the crates in `dirs`; components go to `out`, or, without one, to `dist` beside each
/// crate's manifest. Crates of one workspace are compiled together. Cargo's output goes to stderr.
///
/// # Errors
/// See [`BuildError`].
pub fn build(dirs: &[PathBuf], out: Option<&Path>) -> Result<Vec<Built>, BuildError> {
    let mut by_workspace: BTreeMap<PathBuf, Vec<PluginCrate>> = BTreeMap::new();
    for dir in dirs {
        let plugin = PluginCrate::read(dir)?;
        let group = by_workspace.entry(plugin.workspace_root.clone());
        group.or_default().push(plugin);
    }
    let mut built = Vec::new();
    for plugins in by_workspace.values() {
        let modules = compile(plugins)?;
        for plugin in plugins {
            let Some(module) = modules.get(&plugin.package) else {
                return Err(plugin.not_a_plugin(
                    "its library has no `crate-type = [\"cdylib\"]`, so no module came out",
                ));
            };
            built.push(encode(plugin, module, out)?);
        }
    }
    Ok(built)
}

/// Compiles crates of one workspace; returns the module of each package.
fn compile(plugins: &[PluginCrate]) -> Result<BTreeMap<String, PathBuf>, BuildError> {
    let mut cargo = Command::new("cargo");
    // Where the caller's RUSTFLAGS are for native code (say, `-C target-cpu`), they do not fit here.
    cargo
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS");
    cargo.args(["build", "--lib", "--target", TARGET]);
    cargo.args([
        "--message-format",
        "json-render-diagnostics",
        "--manifest-path",
    ]);
    cargo.arg(plugins[0].workspace_root.join("Cargo.toml"));
    match plugins[0].profile {
        Profile::Plugin => cargo.args(["--profile", "plugin"]),
        Profile::Release => cargo.arg("--release"),
    };
    for plugin in plugins {
        cargo.args(["--package", &plugin.package]);
    }
    let output = cargo
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(BuildError::NoCargo)?;
    if !output.status.success() {
        let crates: Vec<_> = plugins.iter().map(|plugin| &*plugin.package).collect();
        return Err(BuildError::Cargo {
            crates: crates.join(", "),
            hint: target_hint(),
        });
    }
    Ok(modules(&String::from_utf8_lossy(&output.stdout)))
}

/// Where the target is not installed, the error says how to get it.
fn target_hint() -> String {
    let rustc = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", TARGET])
        .output();
    let libraries = rustc
        .ok()
        .map(|out| String::from_utf8_lossy(&out.stdout).trim().to_owned());
    match libraries.is_some_and(|dir| Path::new(&dir).is_dir()) {
        true => String::new(),
        false => format!(": the target is missing, run `rustup target add {TARGET}`"),
    }
}

/// Reads the .wasm files out of cargo's messages: package name → file.
fn modules(messages: &str) -> BTreeMap<String, PathBuf> {
    let mut modules = BTreeMap::new();
    for line in messages.lines() {
        let Ok(message) = serde_json::from_str::<serde_json::Value>(line) else {
            continue;
        };
        if message["reason"] != "compiler-artifact" {
            continue;
        }
        let files = message["filenames"].as_array().into_iter().flatten();
        let wasm = files
            .filter_map(|file| file.as_str())
            .find(|file| file.ends_with(".wasm"));
        let package = message["package_id"].as_str().map(package_of);
        if let (Some(wasm), Some(package)) = (wasm, package) {
            modules.insert(package, PathBuf::from(wasm));
        }
    }
    modules
}

/// The package's name in a package id: `path+file:///dir/name#0.1.0` or `…/dir#name@0.1.0`.
fn package_of(id: &str) -> String {
    let (source, fragment) = id.rsplit_once('#').unwrap_or((id, ""));
    match fragment.split_once('@') {
        Some((name, _)) => name.to_owned(),
        None => source.rsplit('/').next().unwrap_or_default().to_owned(),
    }
}

fn encode(plugin: &PluginCrate, module: &Path, out: Option<&Path>) -> Result<Built, BuildError> {
    let io = |path: &Path| {
        let path = path.to_owned();
        move |source| BuildError::Io { path, source }
    };
    let bytes = fs::read(module).map_err(io(module))?;
    let component = ComponentEncoder::default()
        .validate(true)
        .module(&bytes)
        .and_then(|mut encoder| encoder.encode())
        .map_err(|error| BuildError::Component {
            package: plugin.package.clone(),
            reason: format!("{error:#}"),
        })?;
    let dir = out.map_or_else(|| plugin.dir.join("dist"), Path::to_owned);
    fs::create_dir_all(&dir).map_err(io(&dir))?;
    let path = dir.join(plugin.name.file_name(&plugin.version));
    write_durably(&path, &component).map_err(io(&path))?;
    Ok(Built {
        path,
        name: plugin.name.clone(),
        version: plugin.version.clone(),
        size: component.len(),
        digest: digest(&component),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_read_out_of_both_forms_of_an_id() {
        for (id, package) in [
            (
                "path+file:///w/plugins/regex#formwork-plugin-regex@0.1.0",
                "formwork-plugin-regex",
            ),
            ("path+file:///w/ticket#0.1.0", "ticket"),
        ] {
            assert_eq!(package_of(id), package);
        }
    }

    #[test]
    fn modules_are_read_out_of_messages() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","package_id":"path+file:///w/a#a@1.0.0","filenames":["/t/a.rlib"]}"#,
            "\nnot json\n",
            r#"{"reason":"compiler-artifact","package_id":"path+file:///w/b#b@1.0.0","filenames":["/t/b.rlib","/t/b.wasm"]}"#,
            "\n",
            r#"{"reason":"build-finished","success":true}"#,
        );
        let expected = BTreeMap::from([("b".to_owned(), PathBuf::from("/t/b.wasm"))]);
        assert_eq!(modules(messages), expected);
    }
}
