//! Finds an order of keys in which a grammar lets an instance be written.

use formwork_sandbox::Matcher;
use serde_json::Value;

use super::spelling::{Numbers, plain};

/// Members that a search may try to put next.
const MOST_TRIES: usize = 50_000;

/// The instance's text in an order of keys that the matcher lets pass. The matcher stands at the start of
/// a grammar over single bytes, whose tokens are the bytes.
///
/// Each object is settled by itself, in the first order that goes. Where that leads nowhere later on,
/// another order to begin with is tried: the instance's own, that of the alphabet, and both backwards.
pub(super) fn find(matcher: &Matcher, instance: &Value, numbers: Numbers) -> Option<String> {
    let begin = |own: &Value| {
        let mut search = Search {
            text: String::new(),
            tries: 0,
            numbers,
        };
        let mut end = search.value(matcher.fork(), own)?;
        end.accepting().then_some(search.text)
    };
    let mut sorted = instance.clone();
    sorted.sort_all_objects();
    begin(instance)
        .or_else(|| begin(&backwards(instance)))
        .or_else(|| begin(&sorted))
        .or_else(|| begin(&backwards(&sorted)))
}

/// The value with the keys of each object in the opposite order.
fn backwards(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let turned = map.iter().rev();
            Value::Object(
                turned
                    .map(|(key, value)| (key.clone(), backwards(value)))
                    .collect(),
            )
        }
        Value::Array(items) => items.iter().map(backwards).collect(),
        other => other.clone(),
    }
}

struct Search {
    text: String,
    tries: usize,
    numbers: Numbers,
}

impl Search {
    /// The matcher after the value, whose text is appended.
    fn value(&mut self, matcher: Matcher, value: &Value) -> Option<Matcher> {
        match value {
            Value::Array(items) => {
                let mut matcher = self.feed(matcher, "[")?;
                for (index, item) in items.iter().enumerate() {
                    matcher = self.feed(matcher, if index > 0 { "," } else { "" })?;
                    matcher = self.value(matcher, item)?;
                }
                self.feed(matcher, "]")
            }
            Value::Object(map) => {
                let members: Vec<_> = map.iter().collect();
                let matcher = self.feed(matcher, "{")?;
                self.members(matcher, &members, "")
            }
            Value::Number(number) => self.feed(matcher, &plain(number, self.numbers)),
            other => self.feed(matcher, &other.to_string()),
        }
    }

    /// Writes the members that are left, in whichever order goes, and closes the object.
    fn members(
        &mut self,
        matcher: Matcher,
        left: &[(&String, &Value)],
        comma: &str,
    ) -> Option<Matcher> {
        if left.is_empty() {
            return self.feed(matcher, "}");
        }
        let length = self.text.len();
        for (index, (key, value)) in left.iter().enumerate() {
            self.tries += 1;
            if self.tries > MOST_TRIES {
                return None;
            }
            let head = format!("{comma}{}:", Value::from(key.as_str()));
            let mut rest = left.to_vec();
            rest.remove(index);
            let found = self
                .feed(matcher.fork(), &head)
                .and_then(|matcher| self.value(matcher, value))
                .and_then(|matcher| self.members(matcher, &rest, ","));
            if found.is_some() {
                return found;
            }
            self.text.truncate(length);
        }
        None
    }

    fn feed(&mut self, mut matcher: Matcher, text: &str) -> Option<Matcher> {
        let mut bytes = text.bytes();
        bytes.try_for_each(|byte| matcher.commit(byte.into()).ok())?;
        self.text.push_str(text);
        Some(matcher)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use formwork_sandbox::{GrammarLimits, Grammars, Source, Vocabulary};
    use serde_json::json;
    use std::sync::Arc;

    #[test]
    fn an_order_is_found_where_there_is_one() {
        let env = toktrie::ApproximateTokEnv::single_byte_env();
        let vocabulary = Vocabulary::new("bytes", env, 262, vec![261]).unwrap();
        let grammars = Grammars::new(Arc::new(vocabulary), GrammarLimits::default()).unwrap();
        let schema = json!({
            "properties": {"c": {"properties": {"y": {}, "x": {}}}, "a": {"type": "integer"}},
            "additionalProperties": false,
        });
        let grammar = grammars
            .compile(&Source::JsonSchema(schema.to_string().into()))
            .unwrap();
        let check = |instance: Value, text: Option<&str>| {
            let found = find(&grammar.start(), &instance, Numbers::Plain);
            assert_eq!(found.as_deref(), text);
        };
        check(
            json!({"a": 1.0, "c": {"z": [], "x": 1, "y": 2}}),
            Some(r#"{"c":{"y":2,"x":1,"z":[]},"a":1}"#),
        );
        check(json!({"a": "1"}), None);
    }
}
