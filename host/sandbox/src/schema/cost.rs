//! Patterns whose masks would cost too much: a bound that is counted beside another one, a count at the end
//! of a text whose beginning is open. What is too dear for the mask is left to validation.

use super::lower::Lowered;
use super::pointer::escape;
use regex_syntax::hir::{Hir, HirKind, Look};
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// Parts of one schema that are tried out; further ones are taken to be cheap.
const MOST_PROBES: usize = 24;
/// Counts below these make no mask dear.
const SMALL_COUNT: u32 = 8;
const SMALL_KEY: u32 = 64;

/// Finds out what is dear, by trying.
pub(super) struct Cost<'a> {
    /// Whether masks of a schema, by itself, are cheap.
    is_cheap: &'a dyn Fn(Value) -> bool,
    known: HashMap<String, bool>,
}

impl<'a> Cost<'a> {
    pub(super) fn new(is_cheap: &'a dyn Fn(Value) -> bool) -> Self {
        Self {
            is_cheap,
            known: HashMap::new(),
        }
    }

    /// Takes out what is dear among what the schema as it was written asserts.
    pub(super) fn lighten(&mut self, lowered: &mut Lowered) {
        let mut dear = Vec::new();
        let mut schema = std::mem::take(&mut lowered.schema);
        self.visit(&mut schema, &mut String::new(), lowered, &mut dear);
        lowered.schema = schema;
        lowered.leave_to_validation(dear);
    }

    fn visit(
        &mut self,
        value: &mut Value,
        pointer: &mut String,
        lowered: &Lowered,
        dear: &mut Vec<String>,
    ) {
        let length = pointer.len();
        match value {
            Value::Object(map) => {
                let asserted = |key: &str| lowered.is_asserted(&format!("{pointer}/{key}"));
                let keywords = self.dear_keywords(map);
                // The first one names the place; what the lowering put there itself has no other.
                if keywords.first().is_some_and(|key| asserted(key)) {
                    for key in keywords {
                        map.shift_remove(key);
                        if asserted(key) {
                            dear.push(format!("{pointer}/{key}"));
                        }
                    }
                }
                for (key, child) in map {
                    if key != "const" && key != "enum" {
                        pointer.push('/');
                        pointer.push_str(&escape(key));
                        self.visit(child, pointer, lowered, dear);
                        pointer.truncate(length);
                    }
                }
            }
            Value::Array(items) => {
                for (index, child) in items.iter_mut().enumerate() {
                    pointer.push_str(&format!("/{index}"));
                    self.visit(child, pointer, lowered, dear);
                    pointer.truncate(length);
                }
            }
            _ => {}
        }
    }

    /// Keywords of an object of the schema without which its masks are cheap.
    fn dear_keywords(&mut self, map: &Map<String, Value>) -> Vec<&'static str> {
        const LENGTHS: [&str; 2] = ["minLength", "maxLength"];
        let mut found = Vec::new();
        if let Some(pattern) = map.get("pattern").and_then(Value::as_str) {
            let bounds = LENGTHS
                .iter()
                .filter_map(|key| Some((*key, map.get(*key)?)));
            let bounded: Vec<_> = bounds.collect();
            let shape = Shape::of(pattern);
            let doubtful = (!bounded.is_empty() && shape.counts_groups)
                || (!shape.is_anchored && shape.longest >= SMALL_COUNT);
            let mut probe = json!({"type": "string", "pattern": pattern});
            if doubtful {
                let alone = probe.clone();
                for (key, bound) in &bounded {
                    probe[*key] = (*bound).clone();
                }
                if !self.cheap(&probe) {
                    match !bounded.is_empty() && self.cheap(&alone) {
                        true => found.extend(bounded.iter().map(|(key, _)| *key)),
                        false => found.push("pattern"),
                    }
                }
            }
        }
        if let Some(patterns) = map.get("patternProperties").and_then(Value::as_object) {
            let open = map.get("additionalProperties") != Some(&Value::Bool(false));
            let mut keys = patterns.keys();
            if open && keys.any(|key| Shape::of(key).longest >= SMALL_KEY) {
                let names = patterns
                    .keys()
                    .map(|key| (key.clone(), json!({"type": "null"})));
                let names: Map<String, Value> = names.collect();
                if !self.cheap(&json!({"type": "object", "patternProperties": names})) {
                    // Which properties are additional is not known then.
                    found.extend(["patternProperties", "additionalProperties"]);
                    found.push("unevaluatedProperties");
                }
            }
        }
        found
    }

    fn cheap(&mut self, schema: &Value) -> bool {
        let key = schema.to_string();
        if let Some(&known) = self.known.get(&key) {
            return known;
        }
        let cheap = self.known.len() >= MOST_PROBES || (self.is_cheap)(schema.clone());
        self.known.insert(key, cheap);
        cheap
    }
}

/// What of a pattern tells whether it is worth a try.
struct Shape {
    is_anchored: bool,
    /// It counts repetitions of more than one character.
    counts_groups: bool,
    /// The highest count in it.
    longest: u32,
}

impl Shape {
    fn of(pattern: &str) -> Self {
        match regex_syntax::parse(&llguidance::regex_to_lark(pattern, "dw")) {
            Ok(hir) => {
                let mut shape = Self {
                    is_anchored: hir.properties().look_set_prefix().contains(Look::Start),
                    counts_groups: false,
                    longest: 0,
                };
                shape.look(&hir);
                shape
            }
            // The engine may still take it.
            Err(_) => Self {
                is_anchored: false,
                counts_groups: true,
                longest: u32::MAX,
            },
        }
    }

    /// The depth of a pattern is bounded by the checks before.
    fn look(&mut self, hir: &Hir) {
        match hir.kind() {
            HirKind::Repetition(repetition) => {
                let count = repetition.max.unwrap_or(0).max(repetition.min);
                self.longest = self.longest.max(count);
                let one = matches!(repetition.sub.kind(), HirKind::Class(_));
                self.counts_groups |= count > 1 && !one;
                self.look(&repetition.sub);
            }
            HirKind::Capture(capture) => self.look(&capture.sub),
            HirKind::Concat(parts) | HirKind::Alternation(parts) => {
                parts.iter().for_each(|part| self.look(part));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_of_patterns() {
        let check = |pattern: &str, anchored: bool, groups: bool, longest: u32| {
            let shape = Shape::of(pattern);
            assert_eq!(
                (shape.is_anchored, shape.counts_groups, shape.longest),
                (anchored, groups, longest),
                "{pattern}"
            );
        };
        check("^[a-z]{1,63}$", true, false, 63);
        check(r"^(?:\S+\s+){0,29}\S+$", true, true, 29);
        check("[a-z]{30}$", false, false, 30);
        check("^(?:ab|c)?$", true, false, 1);
        check("x", false, false, 0);
    }
}
