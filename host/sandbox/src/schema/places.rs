//! Where in a JSON text its values stand, and where the text can be begun again for the sake of one of them.

use super::pointer::escape;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

/// A value, its span in the text, and what it is made of.
pub(super) struct Node {
    span: Range<usize>,
    parts: Vec<Part>,
}

/// An item of an array, or a member of an object.
struct Part {
    /// A member's name; an item's index.
    step: Step,
    /// Where it begins: a member with its key.
    start: usize,
    value: Node,
}

enum Step {
    Key(String),
    Index(usize),
}

impl Step {
    /// As a pointer has it.
    fn escaped(&self) -> String {
        match self {
            Self::Key(key) => escape(key),
            Self::Index(index) => index.to_string(),
        }
    }
}

impl Node {
    /// Reads a text that is known to be JSON, at most as deep as `serde_json` parses.
    ///
    /// # Errors
    /// Where it is no JSON after all.
    pub(super) fn read(text: &str) -> Result<Self, serde_json::Error> {
        let start = text.len() - text.trim_start().len();
        let raw: &RawValue = serde_json::from_str(text)?;
        Self::parse(raw, start)
    }

    /// `start` is the offset of the raw value in the whole text.
    fn parse(raw: &RawValue, start: usize) -> Result<Self, serde_json::Error> {
        let text = raw.get();
        // Children are slices of their parent: the distance between the two is an offset.
        let offset =
            |child: &RawValue| start + (child.get().as_ptr() as usize - text.as_ptr() as usize);
        let mut parts = Vec::new();
        match text.as_bytes().first() {
            Some(b'[') => {
                let items: Vec<&RawValue> = serde_json::from_str(text)?;
                for (index, item) in items.into_iter().enumerate() {
                    parts.push(Part {
                        step: Step::Index(index),
                        start: offset(item),
                        value: Self::parse(item, offset(item))?,
                    });
                }
            }
            Some(b'{') => {
                let Members(members) = serde_json::from_str(text)?;
                for (key, value) in members {
                    parts.push(Part {
                        step: Step::Key(serde_json::from_str(key.get())?),
                        start: offset(key),
                        value: Self::parse(value, offset(value))?,
                    });
                }
            }
            _ => {}
        }
        let span = start..start + text.len();
        Ok(Self { span, parts })
    }

    /// The value at a pointer, after the values around it, from the outside in; what is missing is left out.
    fn along(&self, pointer: &str) -> Vec<&Self> {
        let mut found = vec![self];
        let mut node = self;
        for step in pointer.split('/').skip(1) {
            let Some(index) = node.at(step) else { break };
            node = &node.parts[index].value;
            found.push(node);
        }
        found
    }

    /// Where the text can be begun again for the value at `pointer`: there, then at the values around it from
    /// the inside out. `part` picks one of its items or members that is in the way; it is the first place then.
    pub(super) fn places(
        &self,
        text: &[u8],
        pointer: &str,
        part: impl FnOnce(&Self) -> Option<usize>,
    ) -> Vec<usize> {
        let along = self.along(pointer);
        let inner = along.last().and_then(|node| node.before(part(node)?, text));
        let around = along.iter().rev().map(|node| node.span.start);
        let mut places: Vec<usize> = inner.into_iter().chain(around).chain([0]).collect();
        places.dedup();
        places
    }

    /// Where the text is begun again so that another part, or none, comes in the place of this one. Where
    /// the part before has an end of its own that is before the comma, so that the list may end there.
    fn before(&self, index: usize, text: &[u8]) -> Option<usize> {
        let part = self.parts.get(index)?;
        let previous = index.checked_sub(1).and_then(|index| self.parts.get(index));
        Some(match previous {
            // More digits would make another number of it.
            Some(previous) if !text[previous.value.span.end - 1].is_ascii_digit() => {
                previous.value.span.end
            }
            _ => part.start,
        })
    }

    /// The first member that has one of these names.
    pub(super) fn named(&self, names: &[String]) -> Option<usize> {
        let known = |part: &Part| matches!(&part.step, Step::Key(key) if names.contains(key));
        self.parts.iter().position(known)
    }

    /// The item or member that a step of a pointer leads to. Of a name that is there twice the parser keeps
    /// the last.
    pub(super) fn at(&self, step: &str) -> Option<usize> {
        self.parts
            .iter()
            .rposition(|part| part.step.escaped() == step)
    }

    /// Pointer of the object, name and position of the first member whose name is there before it.
    pub(super) fn first_duplicate(&self) -> Option<(String, String, usize)> {
        let mut stack = vec![(String::new(), self)];
        let mut first: Option<(usize, (String, String, usize))> = None;
        while let Some((pointer, node)) = stack.pop() {
            let mut seen = HashSet::new();
            for (index, part) in node.parts.iter().enumerate() {
                if let Step::Key(key) = &part.step
                    && !seen.insert(key)
                    && first.as_ref().is_none_or(|(start, _)| part.start < *start)
                {
                    first = Some((part.start, (pointer.clone(), key.clone(), index)));
                }
                if !part.value.parts.is_empty() {
                    let pointer = format!("{pointer}/{}", part.step.escaped());
                    stack.push((pointer, &part.value));
                }
            }
        }
        first.map(|(_, found)| found)
    }
}

/// The members of an object in their order, as they are written.
struct Members<'a>(Vec<(&'a RawValue, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Members<'de>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#" {"a/b": [10, "\"]", {"é": {}}], "c~":true,"d":1,"e":{"c~":0,"c~":1}}"#;

    /// What stands at each place.
    fn places(pointer: &str, part: Option<usize>) -> Vec<&'static str> {
        let root = Node::read(TEXT).unwrap();
        let places = root.places(TEXT.as_bytes(), pointer, |_| part);
        let shown = places
            .into_iter()
            .map(|at| &TEXT[at..(at + 4).min(TEXT.len())]);
        shown.collect()
    }

    #[test]
    fn a_value_and_those_around_it_are_found() {
        let root = [&TEXT[1..5], &TEXT[..4]];
        let then = |inner: &[&'static str]| [inner, &root].concat();
        assert_eq!(places("", None), root);
        assert_eq!(places("/a~1b/0", None), then(&["10, ", "[10,"]));
        assert_eq!(places("/a~1b/1", None), then(&["\"\\\"]", "[10,"]));
        assert_eq!(places("/a~1b/2/é", None), then(&["{}}]", "{\"é", "[10,"]));
        assert_eq!(places("/c~0", None), then(&["true"]));
        // The parser's value is the last of a name.
        assert_eq!(places("/e/c~0", None), then(&["1}}", "{\"c~"]));
        // What is not there is looked for as far as it goes.
        assert_eq!(places("/a~1b/7/x", None), then(&["[10,"]));
    }

    #[test]
    fn a_part_in_the_way_is_left_out_with_its_comma_where_that_can_be() {
        let root = [&TEXT[1..5], &TEXT[..4]];
        let then = |inner: &[&'static str]| [inner, &root].concat();
        assert_eq!(places("", Some(0)), then(&["\"a/b"]));
        assert_eq!(places("", Some(1)), then(&[", \"c"]));
        assert_eq!(places("", Some(2)), then(&[",\"d\""]));
        // After a number the comma has to stay.
        assert_eq!(places("", Some(3)), then(&["\"e\":"]));
        assert_eq!(places("/a~1b", Some(1)), then(&["\"\\\"]", "[10,"]));
        assert_eq!(places("/a~1b", Some(2)), then(&[", {\"", "[10,"]));
        assert_eq!(places("/a~1b", Some(9)), then(&["[10,"]));
    }

    #[test]
    fn the_first_name_that_is_there_twice_is_found() {
        let root = Node::read(TEXT).unwrap();
        let found = root.first_duplicate().unwrap();
        assert_eq!(found, ("/e".to_owned(), "c~".to_owned(), 1));
        let text = r#"[{"x":{"y":0,"y":1},"x":2},{"z":1},{"z":1}]"#;
        let found = Node::read(text).unwrap().first_duplicate().unwrap();
        assert_eq!(found, ("/0/x".to_owned(), "y".to_owned(), 1));
        assert!(
            Node::read(r#"[{"z":1},{"z":1}]"#)
                .unwrap()
                .first_duplicate()
                .is_none()
        );
    }
}
