//! Plugins on a server: publish, list, delete.

use anyhow::{Context, Result};
use semver::Version;
use serde_json::Value;

use super::client::{Client, ServerArgs};
use super::progress::Progress;
use super::table::{printable, size, table};
use crate::registry::PluginName;

/// Publishes a component and says how to use it.
pub(super) fn push(
    server: &ServerArgs,
    name: &PluginName,
    version: &Version,
    bytes: &[u8],
) -> Result<()> {
    let progress = Progress::new(&format!("publishing {name}@{version}"));
    let record = upload(&Client::new(server), name, version, bytes)?;
    drop(progress);
    let digest = record["digest"].as_str().unwrap_or_default();
    println!(
        "{name}@{version} is published, sha256:{}",
        printable(digest)
    );
    println!("use it with \"plugin\": {{\"name\": \"{name}\", \"version\": \"^{version}\"}}");
    Ok(())
}

/// Uploads a component; returns the server's record of it.
pub(super) fn upload(
    client: &Client,
    name: &PluginName,
    version: &Version,
    bytes: &[u8],
) -> Result<Value> {
    let path = format!("/v1/plugins?name={name}&version={version}");
    client.post_bytes(&path, "application/wasm", bytes)
}

pub(super) fn list(server: &ServerArgs, json: bool) -> Result<()> {
    let response = Client::new(server).get("/v1/plugins")?;
    if json {
        println!("{}", serde_json::to_string_pretty(&response)?);
        return Ok(());
    }
    let heading = ["PLUGIN", "VERSION", "SIZE", "DIGEST", "SINCE", ""];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for plugin in response["data"].as_array().into_iter().flatten() {
        let text = |field: &str| printable(plugin[field].as_str().unwrap_or_default());
        let digest: String = text("digest").chars().take(12).collect();
        let stock = if plugin["stock"] == true { "stock" } else { "" };
        rows.push(vec![
            text("name"),
            text("version"),
            size(plugin["size"].as_u64().unwrap_or(0)),
            digest,
            text("uploaded_at"),
            stock.to_owned(),
        ]);
    }
    print!("{}", table(&rows));
    Ok(())
}

pub(super) fn delete(plugin: &str, server: &ServerArgs) -> Result<()> {
    let (name, version) = plugin
        .split_once('@')
        .context("say which version: NAMESPACE/NAME@VERSION")?;
    let name: PluginName = name.parse()?;
    let version = Version::parse(version).with_context(|| format!("version {version:?}"))?;
    Client::new(server).delete(&format!("/v1/plugins/{name}/{version}"))?;
    println!("{name}@{version} is deleted");
    Ok(())
}
