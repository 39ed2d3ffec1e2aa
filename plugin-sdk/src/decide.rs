//! Where a template may go on in several ways: which ways, and how to tell them apart.
//!
//! The ways are found by expanding the part at the front until each begins with a literal, as in an
//! LL(1) parser whose look-ahead is a whole literal.

use crate::template::{Part, TemplateError};
use crate::{Field, Source};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

/// Ways to go on that are looked at before a template is refused as too tangled.
const MAX_WAYS: usize = 256;
/// Positions that `validate` visits; the rest is checked when it is reached.
const MAX_POSITIONS: usize = 4096;

/// One way to go on.
#[derive(Clone)]
pub(crate) struct Way {
    /// The text it begins with. Empty only for the end of the output, or where there is one way only.
    pub(crate) literal: Vec<u8>,
    pub(crate) rest: VecDeque<Part>,
}

/// All ways to go on from a position that begins with an optional, repeated or alternative part.
pub(crate) fn ways(parts: &VecDeque<Part>) -> Result<Vec<Way>, TemplateError> {
    let name = parts.front().map_or("", part_name);
    let wrong = |problem: String| TemplateError {
        part: name.to_owned(),
        problem,
    };
    let mut expansion = Expansion::default();
    expansion.expand(parts.clone()).map_err(wrong)?;
    let ways = expansion.ways;
    if ways.is_empty() {
        return Err(wrong("it has no alternative at all".into()));
    }
    for (index, way) in ways.iter().enumerate() {
        if ways.len() > 1 && way.literal.is_empty() && !way.rest.is_empty() {
            return Err(wrong(
                "the model chooses by the literals that begin each way to go on, but one of them \
                 begins with a field; put a literal before it"
                    .into(),
            ));
        }
        let clash = ways[..index].iter().find(|other| {
            let (a, b) = (&other.literal, &way.literal);
            a == b || (!a.is_empty() && !b.is_empty() && (a.starts_with(b) || b.starts_with(a)))
        });
        if let Some(other) = clash {
            return Err(wrong(format!(
                "two ways to go on cannot be told apart: one begins with {:?}, another with {:?}",
                String::from_utf8_lossy(&other.literal),
                String::from_utf8_lossy(&way.literal),
            )));
        }
        if std::str::from_utf8(&way.literal).is_err() {
            return Err(wrong(
                "a literal that begins a way to go on is not UTF-8".into(),
            ));
        }
    }
    Ok(ways)
}

/// The field by which the model chooses among several ways. Its name begins with `?`.
pub(crate) fn field(part: &Part, ways: &[Way]) -> Field {
    let text = |way: &Way| String::from_utf8_lossy(&way.literal).into_owned();
    let source = if ways.iter().any(|way| way.literal.is_empty()) {
        let literals: Vec<_> = ways
            .iter()
            .filter(|way| !way.literal.is_empty())
            .map(|way| escape(&text(way)))
            .collect();
        Source::Regex(format!("({})?", literals.join("|")))
    } else {
        Source::Choice(ways.iter().map(text).collect())
    };
    Field::of(format!("?{}", part_name(part)), source)
}

/// The text as a regex that matches it alone.
pub(crate) fn escape(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        if r"\.+*?()|[]{}^$/#&-~".contains(character) {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern
}

fn part_name(part: &Part) -> &str {
    match part {
        Part::Optional(branch) => &branch.name,
        Part::Repeat(repeat, _) => &repeat.name,
        Part::Either(either) => &either.name,
        Part::Field(field) => field.name(),
        Part::Literal(_) | Part::Then(_) => "",
    }
}

#[derive(Default)]
struct Expansion {
    ways: Vec<Way>,
    steps: usize,
}

impl Expansion {
    fn expand(&mut self, mut rest: VecDeque<Part>) -> Result<(), String> {
        self.steps += 1;
        if self.steps > MAX_WAYS {
            return Err(format!(
                "more than {MAX_WAYS} ways to go on; does a repeated item have nothing that is always there?"
            ));
        }
        let mut literal = Vec::new();
        while let Some(Part::Literal(text)) = rest.front() {
            literal.extend_from_slice(text);
            rest.pop_front();
        }
        let undecided = literal.is_empty()
            && !matches!(rest.front(), None | Some(Part::Field(_) | Part::Then(_)));
        if !undecided {
            self.ways.push(Way { literal, rest });
            return Ok(());
        }
        match rest.pop_front() {
            Some(Part::Optional(branch)) => {
                self.expand(followed(&branch.parts, &rest))?;
                self.expand(rest)
            }
            Some(Part::Repeat(repeat, count)) => {
                if count < repeat.max {
                    let mut again = followed(&repeat.item, &VecDeque::new());
                    if count > 0 && !repeat.separator.is_empty() {
                        again.push_front(Part::Literal(repeat.separator.clone()));
                    }
                    again.push_back(Part::Repeat(repeat.clone(), count + 1));
                    again.extend(rest.iter().cloned());
                    self.expand(again)?;
                }
                if count >= repeat.min {
                    self.expand(rest)?;
                }
                Ok(())
            }
            Some(Part::Either(either)) => either
                .branches
                .iter()
                .try_for_each(|branch| self.expand(followed(branch, &rest))),
            Some(Part::Literal(_) | Part::Field(_) | Part::Then(_)) | None => Ok(()),
        }
    }
}

fn followed(parts: &[Part], rest: &VecDeque<Part>) -> VecDeque<Part> {
    parts.iter().chain(rest).cloned().collect()
}

/// Visits every kind of position that a template can reach.
pub(crate) fn validate(parts: &[Part]) -> Result<(), TemplateError> {
    let mut visited = BTreeSet::new();
    let mut open = vec![parts.iter().cloned().collect::<VecDeque<_>>()];
    while let Some(mut position) = open.pop() {
        match position.front() {
            None => continue,
            Some(Part::Literal(_) | Part::Field(_) | Part::Then(_)) => {
                position.pop_front();
                open.push(position);
                continue;
            }
            Some(Part::Repeat(repeat, _)) if repeat.min > repeat.max => {
                return Err(TemplateError {
                    part: repeat.name.clone(),
                    problem: format!("at least {} but at most {}", repeat.min, repeat.max),
                });
            }
            Some(Part::Repeat(..) | Part::Optional(_) | Part::Either(_)) => {}
        }
        position.iter_mut().for_each(skip_sure_items);
        if !visited.insert(position.iter().map(identity).collect::<Vec<_>>()) {
            continue;
        }
        if visited.len() > MAX_POSITIONS {
            return Ok(());
        }
        open.extend(ways(&position)?.into_iter().map(|way| way.rest));
    }
    Ok(())
}

/// The items between the first and the last one that must be there are all alike.
fn skip_sure_items(part: &mut Part) {
    if let Part::Repeat(repeat, count) = part
        && *count > 0
    {
        *count = (*count).max(repeat.min.min(repeat.max.saturating_sub(1)));
    }
}

/// Equal for positions that go on alike.
fn identity(part: &Part) -> (usize, u8) {
    match part {
        Part::Literal(text) => (text.as_ptr() as usize, 0),
        Part::Field(field) => (Rc::as_ptr(field) as usize, 1),
        Part::Optional(branch) => (Rc::as_ptr(branch) as usize, 2),
        Part::Either(either) => (Rc::as_ptr(either) as usize, 3),
        Part::Then(part) => (Rc::as_ptr(part).cast::<()>() as usize, 4),
        Part::Repeat(repeat, count) => {
            let stage = match *count {
                0 => 5,
                count if count >= repeat.max => 6,
                count if count >= repeat.min => 7,
                _ => 8,
            };
            (Rc::as_ptr(repeat) as usize, stage)
        }
    }
}
