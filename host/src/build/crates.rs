//! Plugin crates: what cargo knows about one, and what it is called as a plugin.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use semver::Version;
use serde_json::Value;

use super::BuildError;
use crate::registry::PluginName;

/// Which cargo profile builds a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// `[profile.plugin]` of the crate's workspace.
    Plugin,
    /// `release`: the workspace has no profile of that name.
    Release,
}

/// A crate that holds a plugin.
#[derive(Clone, Debug)]
pub struct PluginCrate {
    /// The crate's directory.
    pub dir: PathBuf,
    /// The package's name for cargo.
    pub package: String,
    /// What the plugin is published as: `[package.metadata.formwork] name`.
    pub name: PluginName,
    /// The plugin's version: `[package.metadata.formwork] version`, else the package's.
    pub version: Version,
    /// The directory of the workspace's manifest; the crate's own where it is in none.
    pub workspace_root: PathBuf,
    /// The profile to build with.
    pub profile: Profile,
}

impl PluginCrate {
    /// Reads the crate in `dir` (or of the manifest `dir`) through `cargo metadata`.
    ///
    /// # Errors
    /// [`BuildError::NotAPlugin`] says what is missing.
    pub fn read(dir: &Path) -> Result<PluginCrate, BuildError> {
        let dir = match dir.ends_with("Cargo.toml") {
            true => dir.parent().unwrap_or(Path::new(".")),
            false => dir,
        };
        let not_a_plugin = |reason: String| BuildError::NotAPlugin {
            dir: dir.to_owned(),
            reason,
        };
        let manifest = dir.join("Cargo.toml");
        let manifest = fs::canonicalize(&manifest)
            .map_err(|error| not_a_plugin(format!("no crate is here: Cargo.toml: {error}")))?;
        let output = Command::new("cargo")
            .args([
                "metadata",
                "--no-deps",
                "--format-version",
                "1",
                "--manifest-path",
            ])
            .arg(&manifest)
            .stdin(Stdio::null())
            .output()
            .map_err(BuildError::NoCargo)?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(not_a_plugin(said.trim().to_owned()));
        }
        let metadata: Value = serde_json::from_slice(&output.stdout)
            .map_err(|error| not_a_plugin(format!("cargo metadata: {error}")))?;
        let packages = metadata["packages"].as_array().into_iter().flatten();
        let path = manifest.to_string_lossy();
        let package = packages
            .into_iter()
            .find(|package| package["manifest_path"] == *path)
            .ok_or_else(|| not_a_plugin("it is a workspace, not a crate".to_owned()))?;
        let (name, version) = identity(package).map_err(not_a_plugin)?;
        let root = metadata["workspace_root"].as_str().map(PathBuf::from);
        let workspace_root = root.unwrap_or_else(|| dir.to_owned());
        Ok(PluginCrate {
            dir: dir.to_owned(),
            package: package["name"].as_str().unwrap_or_default().to_owned(),
            name,
            version,
            profile: profile(&workspace_root),
            workspace_root,
        })
    }

    pub(super) fn not_a_plugin(&self, reason: &str) -> BuildError {
        BuildError::NotAPlugin {
            dir: self.dir.clone(),
            reason: reason.to_owned(),
        }
    }
}

/// The plugin's name and version out of one package of `cargo metadata`.
fn identity(package: &Value) -> Result<(PluginName, Version), String> {
    let formwork = &package["metadata"]["formwork"];
    let Some(name) = formwork["name"].as_str() else {
        return Err(
            "its Cargo.toml does not say what the plugin is called; add\n\n    \
             [package.metadata.formwork]\n    name = \"your-namespace/your-plugin\"\n"
                .to_owned(),
        );
    };
    let name = name
        .parse()
        .map_err(|error| format!("[package.metadata.formwork] name: {error}"))?;
    let version = formwork["version"].as_str().or(package["version"].as_str());
    let version = Version::parse(version.unwrap_or_default())
        .map_err(|error| format!("[package.metadata.formwork] version: {error}"))?;
    Ok((name, version))
}

fn profile(workspace_root: &Path) -> Profile {
    let manifest = fs::read_to_string(workspace_root.join("Cargo.toml")).unwrap_or_default();
    let manifest = manifest.parse::<toml::Table>().unwrap_or_default();
    match manifest
        .get("profile")
        .and_then(|profiles| profiles.get("plugin"))
    {
        Some(_) => Profile::Plugin,
        None => Profile::Release,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_crate_says_what_its_plugin_is_called() {
        let package = json!({"name": "t", "version": "0.3.0", "metadata": {"formwork": {"name": "acme/ticket"}}});
        let (name, version) = identity(&package).unwrap();
        assert_eq!(
            (name.as_str(), version),
            ("acme/ticket", Version::new(0, 3, 0))
        );

        let package = json!({"version": "0.3.0", "metadata": {"formwork": {"name": "acme/ticket", "version": "1.0.0"}}});
        assert_eq!(identity(&package).unwrap().1, Version::new(1, 0, 0));
    }

    #[test]
    fn what_is_missing_is_said() {
        for (package, expected) in [
            (
                json!({"version": "1.0.0", "metadata": null}),
                "[package.metadata.formwork]",
            ),
            (
                json!({"version": "1.0.0", "metadata": {"formwork": {"name": "ticket"}}}),
                "no /",
            ),
            (
                json!({"version": "1", "metadata": {"formwork": {"name": "a/b"}}}),
                "version",
            ),
        ] {
            let error = identity(&package).unwrap_err();
            assert!(error.contains(expected), "{package}: {error}");
        }
        let error = PluginCrate::read(Path::new("no/such/dir"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("no crate is here"), "{error}");
    }
}
