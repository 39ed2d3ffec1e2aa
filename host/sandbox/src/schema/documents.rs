//! Documents that schemas may refer to by URI.

use super::draft;
use super::pointer::{escape, is_resource};
use jsonschema::{Draft, Retrieve, Uri, uri};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
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

/// The host's documents and a request's own, which come first.
pub(super) fn joined(documents: &Documents, own: &BTreeMap<String, Value>) -> Documents {
    if own.is_empty() {
        return documents.clone();
    }
    let mut all = BTreeMap::clone(documents);
    all.extend(
        own.iter()
            .map(|(uri, document)| (uri.clone(), document.clone())),
    );
    Arc::new(all)
}

/// The schema with the documents among its definitions that it refers to, if there are any.
pub(super) fn bundled(schema: &Value, draft: Draft, documents: &Documents) -> Option<Value> {
    let reached = reached(schema, documents);
    if reached.is_empty() {
        return None;
    }
    let mut bundle = schema.clone();
    let shelf = bundle
        .as_object_mut()?
        .entry(shelf(draft))
        .or_insert_with(|| json!({}));
    for uri in reached {
        let mut document = documents[uri].clone();
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
        map.insert("$id".into(), uri.into());
        shelf.as_object_mut()?.entry(uri).or_insert(document);
    }
    Some(bundle)
}

/// The documents that a schema refers to, and those that they refer to.
fn reached<'a>(schema: &Value, documents: &'a Documents) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut open = vec![(schema, None)];
    while let Some((schema, base)) = open.pop() {
        let mut visit = |_: &str, target: &str| {
            if let Some((uri, document)) = documents.get_key_value(target)
                && found.insert(uri.as_str())
            {
                open.push((document, uri::from_str(uri).ok()));
            }
        };
        references(schema, base, &mut String::new(), &mut visit);
    }
    found
}

/// Visits each reference out of the resource that it stands in: its JSON pointer and the absolute name of
/// its target, without a fragment.
fn references(
    value: &Value,
    base: Option<Uri<String>>,
    pointer: &mut String,
    visit: &mut impl FnMut(&str, &str),
) {
    let length = pointer.len();
    match value {
        Value::Object(map) => {
            let outer = base.clone();
            let base = match is_resource(value) {
                true => absolute(base.as_ref(), map).or(base),
                false => base,
            };
            for (key, child) in map {
                pointer.push('/');
                pointer.push_str(&escape(key));
                let refers = matches!(key.as_str(), "$ref" | "$dynamicRef" | "$recursiveRef");
                match child.as_str() {
                    Some(text) if refers && !text.starts_with('#') => {
                        // Before 2019-09 a name beside a reference is none.
                        for base in [&base, &outer] {
                            let target = target(base.as_ref(), text);
                            visit(pointer, target.split('#').next().unwrap_or_default());
                        }
                    }
                    _ => references(child, base.clone(), pointer, visit),
                }
                pointer.truncate(length);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                pointer.push_str(&format!("/{index}"));
                references(item, base.clone(), pointer, visit);
                pointer.truncate(length);
            }
        }
        _ => {}
    }
}

/// What a reference names, absolutely where its base is known.
fn target(base: Option<&Uri<String>>, reference: &str) -> String {
    let full = base.and_then(|base| uri::resolve_against(&base.borrow(), reference).ok());
    full.map_or_else(|| reference.to_owned(), |full| full.as_str().to_owned())
}

/// The first reference of a schema that leads to no document: where it stands and what it names.
pub(super) fn missing(schema: &Value, documents: &Documents) -> Option<String> {
    let mut own = BTreeSet::new();
    names(schema, None, &mut own);
    let mut found = None;
    let mut visit = |pointer: &str, target: &str| {
        let known = documents.contains_key(target)
            || own.contains(target)
            || target.contains("://json-schema.org/");
        if !known && found.is_none() {
            let message = format!("at {pointer}: {target} is not among the documents given");
            found = Some(message);
        }
    };
    references(schema, None, &mut String::new(), &mut visit);
    found
}

/// The absolute names of a schema's resources.
fn names(value: &Value, base: Option<&Uri<String>>, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            let own = match is_resource(value) {
                true => absolute(base, map),
                false => None,
            };
            found.extend(
                own.as_ref()
                    .map(|own| own.as_str().trim_end_matches('#').to_owned()),
            );
            let base = own.as_ref().or(base);
            map.values().for_each(|child| names(child, base, found));
        }
        Value::Array(items) => items.iter().for_each(|item| names(item, base, found)),
        _ => {}
    }
}

/// The absolute name of a resource within another.
pub(super) fn absolute(
    base: Option<&Uri<String>>,
    resource: &Map<String, Value>,
) -> Option<Uri<String>> {
    let name = ["$id", "id"]
        .iter()
        .find_map(|key| resource.get(*key)?.as_str())?;
    match base {
        Some(base) => uri::resolve_against(&base.borrow(), name).ok(),
        None => uri::from_str(name)
            .ok()
            .filter(|uri| uri.as_str().starts_with(name)),
    }
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
