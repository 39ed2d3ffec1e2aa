//! Ready-made fields: free text up to a marker.

use crate::{Field, Source};
use std::fmt::Write;

impl Field {
    /// Free text up to and including the first of these markers, or to the end of the model's turn where
    /// none comes. `value.text().ends_with(marker)` tells which.
    pub fn text_until<I>(name: impl Into<String>, markers: I) -> Self
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        let marker = alternatives(markers);
        let grammar = match marker {
            None => "start: REST\nREST: /(?s:.*)/".to_owned(),
            // The lazy rule is complete with the first marker. `REST` is text that has none yet.
            Some(marker) => format!(
                "start: through | REST\nthrough[lazy]: /(?s:.*)({marker})/\n\
                 REST: /(?s:.*)/ & ~/(?s:.*({marker}).*)/"
            ),
        };
        Self::of(name, Source::Lark(grammar))
    }

    /// Free text up to and including the first of these markers, of which there is at least one. Unlike
    /// with [`text_until`](Field::text_until), the model cannot end its turn before it.
    pub fn text_through<I>(name: impl Into<String>, markers: I) -> Self
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        // Of no marker at all nothing matches, and the field is refused as unsatisfiable.
        let marker = alternatives(markers).unwrap_or_else(|| "[^\\x00-\\x{10ffff}]".to_owned());
        let grammar = format!("start: through\nthrough[lazy]: /(?s:.*)({marker})/");
        Self::of(name, Source::Lark(grammar))
    }
}

/// A regex for one of these texts; `None` where there is none.
fn alternatives<I>(markers: I) -> Option<String>
where
    I: IntoIterator,
    I::Item: AsRef<str>,
{
    let spelled: Vec<String> = markers
        .into_iter()
        .filter(|marker| !marker.as_ref().is_empty())
        .map(|marker| spelled(marker.as_ref()))
        .collect();
    (!spelled.is_empty()).then(|| spelled.join("|"))
}

/// A regex for this text alone, with nothing in it that means something in Lark.
fn spelled(text: &str) -> String {
    let mut pattern = String::new();
    for character in text.chars() {
        match character {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => pattern.push(character),
            other => {
                let _ = write!(pattern, "\\x{{{:x}}}", u32::from(other));
            }
        }
    }
    pattern
}
