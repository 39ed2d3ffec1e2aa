//! What the registry hands out.

use std::sync::Arc;

use formwork_sandbox::{LatePolicy, Plugin};
use semver::Version;
use serde::Serialize;

use super::uses::Use;
use super::{PluginName, STOCK_NAMESPACE};

/// One published version of a plugin.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PluginRecord {
    /// `namespace/name`.
    pub name: PluginName,
    /// The version; it never changes what it holds.
    pub version: Version,
    /// SHA-256 of the component, in hex.
    pub digest: String,
    /// Size of the component in bytes.
    pub size: u64,
    /// JSON Schema of a request's params, as the plugin describes them.
    pub params: serde_json::Value,
    /// `hold` or `fail`: what happens to a row whose plugin missed the step deadline.
    pub on_late: String,
    /// When it was published, RFC 3339; for stock plugins, when they were loaded.
    pub uploaded_at: String,
    /// Whether it came with the server.
    pub stock: bool,
}

impl PluginRecord {
    pub(super) fn new(
        name: &PluginName,
        version: &Version,
        plugin: &Plugin,
        uploaded_at: String,
    ) -> Self {
        let description = plugin.description();
        let on_late = match description.on_late {
            LatePolicy::Hold => "hold",
            LatePolicy::Fail => "fail",
        };
        PluginRecord {
            name: name.clone(),
            version: version.clone(),
            digest: plugin.digest().to_owned(),
            size: plugin.size() as u64,
            params: description.params.clone(),
            on_late: on_late.to_owned(),
            uploaded_at,
            stock: name.namespace() == STOCK_NAMESPACE,
        }
    }
}

/// A plugin that a request is pinned to. While it or a clone of it lives, the version is in use.
#[derive(Clone)]
pub struct Resolved {
    /// What was resolved.
    pub record: PluginRecord,
    /// The compiled plugin.
    pub plugin: Plugin,
    _use: Arc<Use>,
}

impl Resolved {
    pub(super) fn new(record: PluginRecord, plugin: Plugin, in_use: Use) -> Resolved {
        Resolved {
            record,
            plugin,
            _use: Arc::new(in_use),
        }
    }
}
