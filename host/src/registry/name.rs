//! How plugins are called: `namespace/name`, and which version is meant.

use std::fmt;
use std::str::FromStr;

use semver::{Version, VersionReq};
use serde::Serialize;

use super::RegistryError;

/// Longest namespace and longest name, in bytes.
pub const MAX_PART_BYTES: usize = 64;

/// The namespace of the plugins that come with the server; uploads cannot use it.
pub const STOCK_NAMESPACE: &str = "formwork";

/// A plugin's name, `namespace/name`: each part 1 to 64 of `a-z`, `0-9` and `-`, with no `-` at an
/// end and no `--` (which separates the two in file names).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PluginName {
    text: String,
    slash: usize,
}

impl PluginName {
    /// The part before the slash.
    pub fn namespace(&self) -> &str {
        &self.text[..self.slash]
    }

    /// The part after the slash.
    pub fn name(&self) -> &str {
        &self.text[self.slash + 1..]
    }

    /// `namespace/name`.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The file name of a component of this name: `namespace--name@version.wasm`.
    pub fn file_name(&self, version: &Version) -> String {
        format!("{}--{}@{version}.wasm", self.namespace(), self.name())
    }

    /// Reads [`PluginName::file_name`] back; `None` if `file` has another shape.
    pub fn from_file_name(file: &str) -> Option<(PluginName, Version)> {
        let (name, version) = file.strip_suffix(".wasm")?.split_once('@')?;
        let (namespace, name) = name.split_once("--")?;
        let name = format!("{namespace}/{name}").parse().ok()?;
        Some((name, Version::parse(version).ok()?))
    }
}

fn check_part(part: &str) -> Result<(), String> {
    if part.is_empty() {
        return Err("a part is empty".to_owned());
    }
    if part.len() > MAX_PART_BYTES {
        return Err(format!("a part is longer than {MAX_PART_BYTES} bytes"));
    }
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if let Some(c) = part.chars().find(|&c| !allowed(c)) {
        return Err(format!("{c:?} is not one of a-z, 0-9 and -"));
    }
    if part.starts_with('-') || part.ends_with('-') || part.contains("--") {
        return Err("a hyphen may only stand between two letters or digits".to_owned());
    }
    Ok(())
}

impl FromStr for PluginName {
    type Err = RegistryError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = |reason: String| RegistryError::BadName {
            // What came in may be large; the start is enough to recognise it.
            name: text.chars().take(2 * MAX_PART_BYTES + 1).collect(),
            reason,
        };
        let Some((namespace, name)) = text.split_once('/') else {
            return Err(bad("it has no /".to_owned()));
        };
        check_part(namespace)
            .and_then(|()| check_part(name))
            .map_err(bad)?;
        Ok(PluginName {
            text: text.to_owned(),
            slash: namespace.len(),
        })
    }
}

impl fmt::Display for PluginName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for PluginName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

/// Which version of a plugin is meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Selector {
    /// The highest version that is not a pre-release. Written `latest`.
    #[default]
    Latest,
    /// The highest version that matches: `1` and `^1` (any 1.x.y), `~1.2`, `=1.2.3`, `>=1, <3`.
    /// A pre-release matches only a requirement that names one of the same version.
    Requirement(VersionReq),
}

impl Selector {
    /// The best of `versions`, by the rules above.
    pub fn select<'a>(
        &self,
        versions: impl IntoIterator<Item = &'a Version>,
    ) -> Option<&'a Version> {
        let matches = |version: &&Version| match self {
            Selector::Latest => version.pre.is_empty(),
            Selector::Requirement(requirement) => requirement.matches(version),
        };
        versions.into_iter().filter(matches).max()
    }
}

impl FromStr for Selector {
    type Err = RegistryError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "latest" {
            return Ok(Selector::Latest);
        }
        match VersionReq::parse(text) {
            Ok(requirement) => Ok(Selector::Requirement(requirement)),
            Err(error) => Err(RegistryError::BadVersion {
                version: text.chars().take(64).collect(),
                reason: error.to_string(),
            }),
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Selector::Latest => f.write_str("latest"),
            Selector::Requirement(requirement) => requirement.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names() {
        for good in ["acme/ticket", "a/b", "formwork/json-schema", "a1/2-b"] {
            let name: PluginName = good.parse().unwrap();
            assert_eq!(name.to_string(), good);
            assert_eq!(format!("{}/{}", name.namespace(), name.name()), good);
        }
        for (bad, reason) in [
            ("ticket", "no /"),
            ("/ticket", "empty"),
            ("acme/", "empty"),
            ("acme/a/b", "'/'"),
            ("Acme/ticket", "'A'"),
            ("acme/ticket@1", "'@'"),
            ("../x", "'.'"),
            ("a--b/c", "hyphen"),
            ("-a/c", "hyphen"),
        ] {
            let error = bad.parse::<PluginName>().unwrap_err().to_string();
            assert!(error.contains(reason), "{bad}: {error}");
        }
        assert!(
            format!("a/{}", "b".repeat(65))
                .parse::<PluginName>()
                .is_err()
        );
        assert!(
            format!("a/{}", "b".repeat(64))
                .parse::<PluginName>()
                .is_ok()
        );
    }

    #[test]
    fn selectors() {
        let versions: Vec<Version> = ["0.9.0", "1.0.0", "1.2.0", "2.0.0-rc.1", "2.0.0-rc.2"]
            .map(|v| v.parse().unwrap())
            .into();
        for (selector, expected) in [
            ("latest", Some("1.2.0")),
            ("1", Some("1.2.0")),
            ("^1", Some("1.2.0")),
            ("~1.0", Some("1.0.0")),
            ("=1.0.0", Some("1.0.0")),
            ("<1", Some("0.9.0")),
            ("*", Some("1.2.0")),
            ("2", None),
            ("=2.0.0-rc.1", Some("2.0.0-rc.1")),
            ("2.0.0-rc.1", Some("2.0.0-rc.2")),
        ] {
            let selector: Selector = selector.parse().unwrap();
            let got = selector.select(&versions).map(Version::to_string);
            assert_eq!(got.as_deref(), expected, "{selector}");
        }
        for bad in ["", "v1", "newest", "1.2.3.4", "^^1"] {
            let error = bad.parse::<Selector>().unwrap_err().to_string();
            assert!(error.contains("version"), "{bad}: {error}");
        }
    }

    proptest! {
        #[test]
        fn file_names_read_back(ns in "[a-z0-9]{1,9}(-[a-z0-9]{1,9}){0,2}", name in "[a-z0-9]{1,9}(-[a-z0-9]{1,9}){0,2}", v in (0u64..99, 0u64..99, 0u64..99)) {
            let name: PluginName = format!("{ns}/{name}").parse().unwrap();
            let version = Version::new(v.0, v.1, v.2);
            let file = name.file_name(&version);
            prop_assert_eq!(PluginName::from_file_name(&file), Some((name, version)));
        }

        #[test]
        fn parsing_any_text_ends(text in ".{0,200}") {
            let _ = text.parse::<PluginName>();
            let _ = text.parse::<Selector>();
            let _ = PluginName::from_file_name(&text);
        }
    }
}
