//! Rewrites a schema into one that the grammar engine takes: equal where it can be, and wider where it
//! cannot, never narrower. Subschemas stay where they are, so that references keep their meaning.

use super::conditions::Around;
use super::documents::absolute;
use super::draft::{self, Role};
use super::order::{self, Orders};
use super::pointer::{escape, is_resource, local_target};
use super::weakening::{Weakening, Weakenings};
use super::{Formats, KeyOrder, Terms};
use jsonschema::{Draft, Uri, uri};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// A schema for the grammar engine, and what of the original it enforces.
#[derive(Clone, Debug)]
pub(crate) struct Lowered {
    pub(crate) schema: Value,
    /// Pointers of the assertions that the mask enforces in full.
    pub(crate) masked: Vec<String>,
    /// Pointers of those that it does not.
    pub(crate) unmasked: Vec<String>,
}

impl Lowered {
    /// Whether the schema as it was written asserts something at a pointer.
    pub(super) fn is_asserted(&self, pointer: &String) -> bool {
        self.masked.binary_search(pointer).is_ok() || self.unmasked.binary_search(pointer).is_ok()
    }

    /// The mask does not enforce these assertions in full after all.
    pub(super) fn leave_to_validation(&mut self, pointers: Vec<String>) {
        self.unmasked.extend(pointers);
        self.unmasked.sort();
        self.unmasked.dedup();
        let unmasked = &self.unmasked;
        self.masked
            .retain(|pointer| unmasked.binary_search(pointer).is_err());
    }
}

/// One walk through a schema.
pub(super) struct Lowering<'a> {
    pub(super) root: &'a Value,
    pub(super) weak: &'a Weakenings,
    pub(super) draft: Draft,
    formats: Formats,
    pub(super) key_order: KeyOrder,
    pub(super) orders: Orders,
    pub(super) around: Around<'a>,
    /// Whether keywords of the schema join conditions.
    pub(super) joins: bool,
    /// Where the walk is.
    pub(super) pointer: String,
    /// The root of the resource that it is in.
    pub(super) resource: String,
    /// That resource's absolute name, if it has one.
    pub(super) base: Option<Uri<String>>,
    asserted: BTreeSet<String>,
    unmasked: BTreeSet<String>,
    pub(super) visited: BTreeSet<String>,
    pub(super) targets: BTreeSet<String>,
    /// How often each name is given as an anchor, dynamic or not.
    anchors: BTreeMap<&'a str, usize>,
}

/// One object of the schema: what it says, and what becomes of it.
pub(super) struct Node<'a> {
    pub(super) from: &'a Map<String, Value>,
    pub(super) out: Map<String, Value>,
    /// Further conditions, to be met as well.
    pub(super) extras: Vec<Value>,
    /// Nothing may be said of additional properties: it is not known which they are.
    pub(super) open: bool,
}

/// Lowers a schema of a draft. Its depth is bounded by the caller.
pub(super) fn lower(root: &Value, terms: Terms, weak: &Weakenings) -> Lowered {
    let mut lowering = Lowering {
        root,
        weak,
        draft: terms.draft,
        formats: terms.formats,
        key_order: terms.key_order,
        orders: Orders::default(),
        around: Around::default(),
        joins: terms.key_order == KeyOrder::Any && order::joins(root),
        pointer: String::new(),
        resource: String::new(),
        base: None,
        asserted: BTreeSet::new(),
        unmasked: BTreeSet::new(),
        visited: BTreeSet::new(),
        targets: BTreeSet::new(),
        anchors: BTreeMap::new(),
    };
    count_anchors(root, &mut lowering.anchors);
    let mut schema = lowering.value(root);
    if lowering.is_weak(Weakening::Everything) {
        schema = match root.get("type") {
            Some(kind) => json!({"type": kind}),
            None => json!({}),
        };
    }
    lowering.reach_targets(&mut schema);
    lowering.share(&mut schema);
    let whole = schema.clone();
    lowering.pointer.clear();
    lowering.cut_dangling(&mut schema, &whole, String::new());
    if let Value::Object(map) = &mut schema {
        map.insert("$schema".into(), draft::uri(terms.draft).into());
    }
    let masked = lowering.asserted.difference(&lowering.unmasked);
    Lowered {
        schema,
        masked: masked.cloned().collect(),
        unmasked: lowering.unmasked.iter().cloned().collect(),
    }
}

/// Brings keywords together that mean nothing without each other: the grammar engine reads an object in
/// pieces, cut wherever `allOf` or the like stands.
fn neighbourly(mut map: Map<String, Value>) -> Map<String, Value> {
    const PAIRS: [(&str, &str); 4] = [
        ("additionalProperties", "patternProperties"),
        ("items", "additionalItems"),
        ("minimum", "exclusiveMinimum"),
        ("maximum", "exclusiveMaximum"),
    ];
    for (first, second) in PAIRS {
        if map.contains_key(first)
            && let Some(value) = map.shift_remove(second)
        {
            let mut together = Map::new();
            for (key, other) in std::mem::take(&mut map) {
                let here = key == first;
                together.insert(key, other);
                if here {
                    together.insert(second.to_owned(), value.clone());
                }
            }
            map = together;
        }
    }
    map
}

fn count_anchors<'a>(value: &'a Value, anchors: &mut BTreeMap<&'a str, usize>) {
    match value {
        Value::Object(map) => {
            for key in ["$anchor", "$dynamicAnchor"] {
                if let Some(name) = map.get(key).and_then(Value::as_str) {
                    *anchors.entry(name).or_default() += 1;
                }
            }
            map.values().for_each(|child| count_anchors(child, anchors));
        }
        Value::Array(items) => items.iter().for_each(|item| count_anchors(item, anchors)),
        _ => {}
    }
}

impl<'a> Lowering<'a> {
    /// Lowers the subschema at the current pointer.
    pub(super) fn value(&mut self, value: &'a Value) -> Value {
        self.visited.insert(self.pointer.clone());
        let Value::Object(map) = value else {
            return value.clone();
        };
        let outer = (self.draft, self.resource.clone(), self.base.clone());
        if is_resource(value) && !self.is_bare(map) {
            self.resource.clone_from(&self.pointer);
            self.draft = draft::named(value).unwrap_or(self.draft);
            self.base = absolute(self.base.as_ref(), map);
        }
        let lowered = self.object(map);
        (self.draft, self.resource, self.base) = outer;
        lowered
    }

    /// Does something one step further down.
    pub(super) fn within<T>(&mut self, key: &str, act: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.pointer.len();
        self.pointer.push('/');
        self.pointer.push_str(&escape(key));
        let result = act(self);
        self.pointer.truncate(length);
        result
    }

    /// Does something at a neighbour of the keyword at the current pointer.
    pub(super) fn beside<T>(&mut self, key: &str, act: impl FnOnce(&mut Self) -> T) -> T {
        let here = self.pointer.clone();
        self.pointer.truncate(here.rfind('/').unwrap_or(0));
        let result = self.within(key, act);
        self.pointer = here;
        result
    }

    /// The assertion at the current pointer counts.
    pub(super) fn assert(&mut self) {
        self.asserted.insert(self.pointer.clone());
    }

    /// The assertion at the current pointer is left to validation, in part or in full.
    pub(super) fn unmask(&mut self) {
        self.assert();
        self.unmasked.insert(self.pointer.clone());
    }

    pub(super) fn is_weak(&self, weakening: Weakening) -> bool {
        self.weak.contains(&weakening)
    }

    /// Whether exactly one place is called so.
    pub(super) fn is_only_anchor(&self, name: &str) -> bool {
        self.anchors.get(name) == Some(&1)
    }

    /// Whether a reference is all that counts: before 2019-09 nothing beside one does, not even a name.
    fn is_bare(&self, map: &Map<String, Value>) -> bool {
        self.draft <= Draft::Draft7 && map.get("$ref").is_some_and(Value::is_string)
    }

    fn object(&mut self, from: &'a Map<String, Value>) -> Value {
        let mut node = Node {
            from,
            out: Map::new(),
            extras: Vec::new(),
            open: false,
        };
        let alone = self.is_bare(from);
        for (key, value) in from {
            let ignored = alone
                && !matches!(
                    draft::role(key, self.draft),
                    Role::Reference | Role::Definitions
                );
            let named = ["$id", "id", "$schema"].contains(&key.as_str());
            if ignored && !(named && self.pointer.is_empty()) {
                continue;
            }
            self.around(key, from, |lowering| {
                lowering.within(key, |lowering| lowering.keyword(&mut node, key, value));
            });
        }
        if node.open {
            node.out.insert("additionalProperties".into(), true.into());
        }
        self.reorder(&mut node);
        if self.is_weak(Weakening::ReferenceSiblings) && node.out.contains_key("$ref") {
            self.leave_reference_alone(&mut node);
        }
        if !node.extras.is_empty() {
            let all = node.out.entry("allOf").or_insert_with(|| json!([]));
            if let Value::Array(all) = all {
                all.append(&mut node.extras);
            }
        }
        Value::Object(neighbourly(node.out))
    }

    fn keyword(&mut self, node: &mut Node<'a>, key: &'a str, value: &'a Value) {
        let role = match key {
            "format" if self.formats == Formats::Annotated => Role::Foreign,
            _ => draft::role(key, self.draft),
        };
        let standing = matches!(role, Role::Annotation | Role::Foreign | Role::Definitions);
        if self.weak.drops(key) && !standing {
            return self.unmask();
        }
        match role {
            Role::Annotation => {
                node.out.insert(key.to_owned(), value.clone());
            }
            Role::Foreign => {}
            Role::Assertion => {
                self.assert();
                node.out.insert(key.to_owned(), value.clone());
            }
            Role::Unmaskable => {
                if value.as_object().is_none_or(|map| !map.is_empty()) {
                    self.unmask();
                }
            }
            Role::Subschema | Role::List | Role::Members | Role::Definitions => {
                if role != Role::Definitions {
                    self.assert();
                }
                let lowered = self.children(value, role);
                node.out.insert(key.to_owned(), lowered);
            }
            Role::Reference => self.reference(node, value),
            Role::Special => self.special(node, key, value),
        }
        if key == "patternProperties" {
            self.pattern_properties(node);
        }
    }

    /// Lowers what a keyword holds.
    fn children(&mut self, value: &'a Value, role: Role) -> Value {
        match value {
            Value::Array(items) => {
                let lower = |(index, item): (usize, &'a Value)| {
                    self.within(&index.to_string(), |lowering| lowering.value(item))
                };
                Value::Array(items.iter().enumerate().map(lower).collect())
            }
            Value::Object(map) if matches!(role, Role::Members | Role::Definitions) => {
                let lower = |(name, member): (&'a String, &'a Value)| {
                    let lowered = self.within(name, |lowering| lowering.value(member));
                    (name.clone(), lowered)
                };
                Value::Object(map.iter().map(lower).collect())
            }
            other => self.value(other),
        }
    }

    fn reference(&mut self, node: &mut Node<'a>, value: &'a Value) {
        self.assert();
        let target = value
            .as_str()
            .and_then(|reference| local_target(&self.resource, reference));
        let foreign = target.is_none() || self.base.is_some();
        let cut = value.as_str().is_some_and(|text| self.weak.cuts(text));
        if cut || foreign && self.is_weak(Weakening::ForeignReferences) {
            return self.unmask();
        }
        self.targets.extend(target);
        node.out.insert("$ref".into(), self.full_name(value));
    }

    /// A reference by its full name: the grammar engine takes one in a resource that it came to by
    /// reference to be relative to where it came from.
    pub(super) fn full_name(&self, reference: &Value) -> Value {
        let full = match (&self.base, reference.as_str()) {
            (Some(base), Some(text)) => uri::resolve_against(&base.borrow(), text).ok(),
            _ => None,
        };
        full.map_or_else(|| reference.clone(), |full| full.as_str().into())
    }

    /// Keeps the reference; its neighbours are left to validation.
    fn leave_reference_alone(&mut self, node: &mut Node<'a>) {
        for key in node.from.keys() {
            let role = draft::role(key, self.draft);
            let kept = matches!(
                role,
                Role::Reference | Role::Definitions | Role::Annotation | Role::Foreign
            );
            if !kept && node.out.remove(key).is_some() {
                self.within(key, Self::unmask);
            }
        }
        node.extras.clear();
        node.out.remove("allOf");
    }
}
