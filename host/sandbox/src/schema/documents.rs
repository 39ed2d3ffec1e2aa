//! Documents that schemas may refer to by URI.

use super::draft;
use super::pointer::escape;
use jsonschema::{Draft, Retrieve, Uri};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Schemas by absolute URI. No other document is ever fetched.
pub(crate) type Documents = Arc<BTreeMap<String, Value>>;

/// Where bundled documents are kept.
fn shelf(draft: Draft) -> &'static str {
    if draft >= Draft::Draft201909 {
        "$defs"
    } else {
        "definitions"
    }
}

/// The schema with the documents among its definitions, if it refers to anything outside itself.
pub(super) fn bundled(schema: &Value, draft: Draft, documents: &Documents) -> Option<Value> {
    if documents.is_empty() || !refers_outside(schema) {
        return None;
    }
    let mut bundle = schema.clone();
    let shelf = bundle
        .as_object_mut()?
        .entry(shelf(draft))
        .or_insert_with(|| json!({}));
    for (uri, document) in documents.iter() {
        let mut document = document.clone();
        let named = draft::named(&document);
        let Some(map) = document.as_object_mut() else {
            continue;
        };
        // Left to the validator: drafts that the grammar engine does not know, and documents that go
        // by another name than they are fetched by.
        let stranger = map.contains_key("$schema") && named.is_none();
        let own = ["$id", "id"].iter().find_map(|key| map.get(*key)?.as_str());
        if stranger || own.is_some_and(|own| own.trim_end_matches('#') != uri) {
            continue;
        }
        map.entry("$schema")
            .or_insert_with(|| draft::uri(draft).into());
        map.insert("$id".into(), uri.as_str().into());
        shelf
            .as_object_mut()?
            .entry(uri.as_str())
            .or_insert(document);
    }
    Some(bundle)
}

/// The name of a pointer into a bundle: bundled documents are named by their URI.
pub(super) fn name(pointer: String, draft: Draft, documents: &Documents) -> String {
    for uri in documents.keys() {
        let place = format!("/{}/{}", shelf(draft), escape(uri));
        match pointer.strip_prefix(&place) {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => {
                return format!("{uri}#{rest}");
            }
            _ => {}
        }
    }
    pointer
}

fn refers_outside(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.iter().any(|(key, child)| {
            let outside = |text: &str| !text.starts_with('#');
            let refers = matches!(key.as_str(), "$ref" | "$dynamicRef");
            (refers && child.as_str().is_some_and(outside)) || refers_outside(child)
        }),
        Value::Array(items) => items.iter().any(refers_outside),
        _ => false,
    }
}

/// Hands the documents to the validator.
pub(super) struct Shelf(pub(super) Documents);

impl Retrieve for Shelf {
    fn retrieve(
        &self,
        uri: &Uri<String>,
    ) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        let name = uri.as_str().trim_end_matches('#');
        let found = self.0.get(name).cloned();
        found.ok_or_else(|| format!("{name} is not among the documents given").into())
    }
}
