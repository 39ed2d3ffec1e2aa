//! `formwork plugin new`: a crate to start from.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::registry::PluginName;

/// The files of a new plugin: where each goes, and its text with `{{…}}` to fill in.
const FILES: &[(&str, &str)] = &[
    (
        "Cargo.toml",
        include_str!("../../../plugin-sdk/template/Cargo.toml.tmpl"),
    ),
    (
        "src/lib.rs",
        include_str!("../../../plugin-sdk/template/src/lib.rs.tmpl"),
    ),
    (
        "README.md",
        include_str!("../../../plugin-sdk/template/README.md.tmpl"),
    ),
    (".gitignore", "/target\n/dist\n"),
];

#[derive(Args, Debug)]
pub(super) struct NewArgs {
    /// What the plugin is called: NAMESPACE/NAME, or NAME for the namespace `local`.
    name: String,
    /// Where to put it. Default: a directory of that name.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The plugin SDK: a directory (`plugin-sdk` of a checkout) or a git address. Default: the
    /// checkout that this command was built from.
    #[arg(long, env = "FORMWORK_SDK", value_name = "PATH|GIT")]
    sdk: Option<String>,
}

pub(super) fn run(arguments: &NewArgs) -> Result<()> {
    let name: PluginName = match arguments.name.contains('/') {
        true => arguments.name.parse()?,
        false => format!("local/{}", arguments.name).parse()?,
    };
    let starts_well = name.name().starts_with(|c: char| c.is_ascii_lowercase());
    ensure!(starts_well, "{name}: a crate's name starts with a letter");
    let default = PathBuf::from(name.name());
    let dir = arguments.dir.as_ref().unwrap_or(&default);
    if fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some()) {
        bail!("{} is not empty: nothing was written", dir.display());
    }
    let sdk = sdk_dependency(arguments.sdk.as_deref())?;
    for (path, template) in FILES {
        let path = dir.join(path);
        let parent = path.parent().unwrap_or(dir);
        fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
        fs::write(&path, fill(template, &name, &sdk))
            .with_context(|| path.display().to_string())?;
    }
    println!("{name} is in {}. Next:", dir.display());
    println!("  cd {}", dir.display());
    println!("  cargo test                 # the format, natively, against text");
    println!("  formwork plugin build      # the component");
    println!("  formwork plugin push .     # onto the server on 127.0.0.1:8080");
    Ok(())
}

fn fill(template: &str, name: &PluginName, sdk: &str) -> String {
    template
        .replace("{{namespace}}", name.namespace())
        .replace("{{name}}", name.name())
        .replace("{{type_name}}", &type_name(name.name()))
        .replace("{{sdk}}", sdk)
}

/// `support-ticket` → `SupportTicket`.
fn type_name(name: &str) -> String {
    let words = name.split('-').map(|word| {
        let mut characters = word.chars();
        let first = characters.next().map(|c| c.to_ascii_uppercase());
        first.into_iter().chain(characters).collect::<String>()
    });
    words.collect()
}

/// Where the SDK comes from, as the inside of a dependency: `path = "…"` or `git = "…"`.
fn sdk_dependency(sdk: Option<&str>) -> Result<String> {
    let built_from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugin-sdk");
    let sdk = match sdk {
        Some(sdk) if sdk.contains("://") || sdk.starts_with("git@") => {
            return Ok(format!("git = {}", toml::Value::from(sdk)));
        }
        Some(sdk) => PathBuf::from(sdk),
        None => built_from,
    };
    ensure!(
        sdk.join("Cargo.toml").is_file(),
        "no plugin SDK at {}: give --sdk PATH or --sdk GIT",
        sdk.display()
    );
    let sdk = fs::canonicalize(&sdk).with_context(|| sdk.display().to_string())?;
    let path = sdk.to_str().context("the SDK's path is not UTF-8")?;
    Ok(format!("path = {}", toml::Value::from(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(name: &str, dir: &Path) -> NewArgs {
        NewArgs {
            name: name.to_owned(),
            dir: Some(dir.to_owned()),
            sdk: None,
        }
    }

    #[test]
    fn a_new_plugin_says_its_name_and_leaves_nothing_to_fill_in() {
        let temporary = tempfile::tempdir().unwrap();
        let dir = temporary.path().join("t");
        run(&arguments("acme/support-ticket", &dir)).unwrap();
        let manifest = fs::read_to_string(dir.join("Cargo.toml")).unwrap();
        let manifest: toml::Table = manifest.parse().unwrap();
        let said = &manifest["package"]["metadata"]["formwork"]["name"];
        assert_eq!(said.as_str(), Some("acme/support-ticket"));
        let source = fs::read_to_string(dir.join("src/lib.rs")).unwrap();
        assert!(source.contains("struct SupportTicket"), "{source}");
        for (path, _) in FILES {
            let text = fs::read_to_string(dir.join(path)).unwrap();
            assert!(
                !text.contains("{{namespace}}") && !text.contains("{{name}}"),
                "{path}"
            );
            assert!(
                !text.contains("{{sdk}}") && !text.contains("{{type_name}}"),
                "{path}"
            );
        }

        let error = run(&arguments("acme/other", &dir)).unwrap_err().to_string();
        assert!(error.contains("not empty"), "{error}");
    }

    #[test]
    fn names_that_make_no_crate_are_refused() {
        let temporary = tempfile::tempdir().unwrap();
        for bad in ["Ticket", "a b", "1st", "a/b/c", "../x"] {
            let dir = temporary.path().join("t");
            assert!(run(&arguments(bad, &dir)).is_err(), "{bad} was accepted");
            assert!(!dir.exists(), "{bad} left something");
        }
    }
}
