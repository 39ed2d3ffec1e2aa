//! `formwork plugin …`: the commands and what they take.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use semver::Version;

use super::client::ServerArgs;
use super::table::size;
use super::{check, new, remote};
use crate::build::{self, Built, STOCK_SIZE_LIMIT};
use crate::registry::PluginName;

#[derive(Subcommand, Debug)]
pub(super) enum PluginCommand {
    /// Start a plugin: a crate with one format, a test, and nothing else to set up.
    #[command(after_help = "Example, from nothing to a request:
  formwork plugin new acme/ticket
  cd ticket && cargo test             # runs the plugin natively, against text
  formwork plugin build               # dist/acme--ticket@0.1.0.wasm
  formwork plugin check dist/*.wasm   # would a server take it?
  formwork plugin push .              # to the server on 127.0.0.1:8080")]
    New(new::NewArgs),
    /// Compile plugin crates to components.
    #[command(after_help = "Examples:
  formwork plugin build                          the crate in this directory, into dist/
  formwork plugin build plugins/* --out dist/plugins

The crate's Cargo.toml says what the plugin is called; its version is the package's, unless said:
  [package.metadata.formwork]
  name = \"acme/ticket\"
  version = \"1.0.0\"")]
    Build(BuildArgs),
    /// Ask the sandbox whether a server would take a component, and show what is in it.
    #[command(after_help = "Examples:
  formwork plugin check dist/acme--ticket@0.1.0.wasm
  formwork plugin check dist/acme--ticket@0.1.0.wasm --params '{\"language\": \"en\"}'")]
    Check(check::CheckArgs),
    /// Publish a component, or a crate (which is built first), on a server.
    #[command(after_help = "Examples:
  formwork plugin push .                                         build and publish this crate
  formwork plugin push ticket.wasm --name acme/ticket --version 1.0.0
  formwork plugin push . --server https://llm.example --api-key \"$KEY\"

A file named acme--ticket@1.0.0.wasm says its name and version itself. Versions never change:
publishing other bytes under the same version is refused.")]
    Push(PushArgs),
    /// List the plugins of a server.
    List {
        #[command(flatten)]
        server: ServerArgs,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Delete one version of a plugin from a server; refused while requests run on it.
    #[command(after_help = "Example:
  formwork plugin delete acme/ticket@1.0.0")]
    Delete {
        /// NAMESPACE/NAME@VERSION.
        plugin: String,
        #[command(flatten)]
        server: ServerArgs,
    },
}

#[derive(Args, Debug)]
pub(super) struct BuildArgs {
    /// Crate directories.
    #[arg(default_value = ".", value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Where components go. Default: `dist` in each crate's directory.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Fail on a component above 400 KiB, the limit of a stock plugin, where otherwise a warning is
    /// printed.
    #[arg(long)]
    stock: bool,
}

#[derive(Args, Debug)]
pub(super) struct PushArgs {
    /// A component (.wasm) or a crate's directory.
    path: PathBuf,
    /// NAMESPACE/NAME. Default: from the file's name or the crate.
    #[arg(long)]
    name: Option<PluginName>,
    /// The version. Default: from the file's name or the crate.
    #[arg(long)]
    version: Option<Version>,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) fn run(command: PluginCommand) -> Result<()> {
    match command {
        PluginCommand::New(arguments) => new::run(&arguments),
        PluginCommand::Build(arguments) => run_build(&arguments),
        PluginCommand::Check(arguments) => check::run(&arguments),
        PluginCommand::Push(arguments) => push(&arguments),
        PluginCommand::List { server, json } => remote::list(&server, json),
        PluginCommand::Delete { plugin, server } => remote::delete(&plugin, &server),
    }
}

fn run_build(arguments: &BuildArgs) -> Result<()> {
    let built = build::build(&arguments.paths, arguments.out.as_deref())?;
    for plugin in &built {
        show(plugin);
        if plugin.size <= STOCK_SIZE_LIMIT {
            continue;
        }
        if arguments.stock {
            bail!(build::BuildError::TooLarge {
                name: plugin.name.clone(),
                size: plugin.size,
            });
        }
        let limit = size(STOCK_SIZE_LIMIT as u64);
        eprintln!(
            "warning: {} is above {limit}; each server compiles all of it",
            plugin.name
        );
    }
    Ok(())
}

fn show(plugin: &Built) {
    println!(
        "{}@{}  {}  sha256:{}  {}",
        plugin.name,
        plugin.version,
        size(plugin.size as u64),
        plugin.digest,
        plugin.path.display()
    );
}

fn push(arguments: &PushArgs) -> Result<()> {
    let (path, named) = component(&arguments.path)?;
    let (name, version) = named.unzip();
    let missing = |what: &str| format!("{} does not say its {what}: give --{what}", path.display());
    let name = arguments.name.clone().or(name);
    let name = name.with_context(|| missing("name"))?;
    let version = arguments.version.clone().or(version);
    let version = version.with_context(|| missing("version"))?;
    let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
    remote::push(&arguments.server, &name, &version, &bytes)
}

/// The component to push and what it calls itself. A crate is built first.
fn component(path: &Path) -> Result<(PathBuf, Option<(PluginName, Version)>)> {
    if path.is_dir() {
        let built = build::build(&[path.to_owned()], None)?.remove(0);
        show(&built);
        return Ok((built.path, Some((built.name, built.version))));
    }
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    Ok((path.to_owned(), PluginName::from_file_name(&file)))
}
