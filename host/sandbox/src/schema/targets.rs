//! The places that references lead to, after everything else is lowered.

use super::lower::Lowering;
use super::pointer::{is_resource, local_target};
use serde_json::Value;

impl Lowering<'_> {
    /// Lowers what references name outside the places where schemas usually are.
    pub(super) fn reach_targets(&mut self, schema: &mut Value) {
        while let Some(target) = self.targets.pop_first() {
            if self.visited.contains(&target) {
                continue;
            }
            let found = self.root.pointer(&target);
            let place = schema.pointer_mut(&target);
            if let (Some(original), Some(place)) = (found, place) {
                self.pointer.clone_from(&target);
                *place = self.value(original);
            }
        }
    }

    /// Takes out references to places that the lowered schema does not have.
    pub(super) fn cut_dangling(&mut self, value: &mut Value, whole: &Value, resource: String) {
        let resource = match is_resource(value) {
            true => self.pointer.clone(),
            false => resource,
        };
        match value {
            Value::Object(map) => {
                let target = map.get("$ref").and_then(Value::as_str);
                let target = target.and_then(|reference| local_target(&resource, reference));
                if target.is_some_and(|target| whole.pointer(&target).is_none()) {
                    map.remove("$ref");
                    let known = self.root.pointer(&self.pointer).is_some();
                    if known {
                        self.within("$ref", Self::unmask);
                    }
                }
                for (key, child) in map.iter_mut() {
                    if !["const", "enum"].contains(&key.as_str()) {
                        let resource = resource.clone();
                        self.within(key, |this| this.cut_dangling(child, whole, resource));
                    }
                }
            }
            Value::Array(items) => {
                for (index, child) in items.iter_mut().enumerate() {
                    let resource = resource.clone();
                    let key = index.to_string();
                    self.within(&key, |this| this.cut_dangling(child, whole, resource));
                }
            }
            _ => {}
        }
    }
}
