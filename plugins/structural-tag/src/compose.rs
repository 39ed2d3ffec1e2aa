//! From formats to a template.

use crate::spec::{Node, Tag, Triggered};
use formwork_plugin_sdk::prelude::*;
use std::rc::Rc;

/// Free text between tags; names that begin with `?` stay out of reports.
const TEXT: &str = "?text";
/// Tags of one list.
const MOST_TAGS: u32 = 1024;

/// Where a node stands.
#[derive(Clone, Copy)]
struct Place<'a> {
    /// The name of fields there.
    name: &'a str,
    /// Whether the output ends after it.
    last: bool,
}

/// A template for the whole output.
pub(crate) fn compose(node: Node) -> Result<Template, Failure> {
    let place = Place {
        name: "value",
        last: true,
    };
    let template = node_template(node, place)?;
    let told_apart = template.validate();
    told_apart.map_err(|error| invalid(format!("the alternatives: {error}")))?;
    Ok(template)
}

fn invalid(message: String) -> Failure {
    Failure::invalid_params(format!("params.format: {message}"))
}

fn node_template(node: Node, place: Place<'_>) -> Result<Template, Failure> {
    let template = Template::new();
    Ok(match node {
        Node::ConstString { value } => template.literal(value),
        Node::JsonSchema { json_schema } => {
            let text = json_schema.to_string();
            template.field(checked(Source::json_schema(text), place)?)
        }
        Node::Regex { pattern } => template.field(checked(Source::Regex(pattern), place)?),
        Node::AnyText {} if place.last => {
            template.field(Field::text_until(place.name, [] as [&str; 0]))
        }
        Node::AnyText {} => {
            let message = "any_text must be the content of a tag or the end of the output";
            return Err(invalid(message.to_owned()));
        }
        Node::Sequence { elements } => {
            let count = elements.len();
            let mut whole = template;
            for (index, element) in elements.into_iter().enumerate() {
                let last = place.last && index + 1 == count;
                whole = whole.append(node_template(element, Place { last, ..place })?);
            }
            whole
        }
        Node::Or { elements } => {
            let elements = elements.into_iter();
            let branches = elements.map(|element| node_template(element, place));
            template.either("or", branches.collect::<Result<Vec<_>, _>>()?)
        }
        Node::Tag(tag) => tag_template(*tag, "")?,
        Node::TriggeredTags(triggered) => {
            if !place.last {
                let message =
                    "triggered_tags must be the end of the output: free text follows them";
                return Err(invalid(message.to_owned()));
            }
            Branches::of(triggered)?.template(Turn::First)
        }
        Node::TagsWithSeparator {
            tags,
            separator,
            at_least_one,
            stop_after_first,
        } => {
            let tags = tags.into_iter().map(|tag| tag_template(tag.into(), ""));
            let item = Template::new().either("tag", tags.collect::<Result<Vec<_>, _>>()?);
            let most = if stop_after_first { 1 } else { MOST_TAGS };
            template.repeat("tags", u32::from(at_least_one)..=most, separator, item)
        }
    })
}

/// A field whose grammar compiles, also where it is only reached later.
fn checked(source: Source, place: Place<'_>) -> Result<Field, Failure> {
    let name = place.name.trim_start_matches('?').trim();
    let name = if name.is_empty() { "value" } else { name };
    let grammar = Grammar::compile(&source).map_err(|failure| Failure {
        message: format!("params, the format in `{name}`: {}", failure.message),
        ..failure
    })?;
    Ok(Field::validated(name, &grammar))
}

/// A tag of which `written` stands already.
fn tag_template(tag: Tag, written: &str) -> Result<Template, Failure> {
    let begin = Template::new().literal(tag.begin.strip_prefix(written).unwrap_or(&tag.begin));
    if let Node::AnyText {} = tag.content {
        if tag.end.is_empty() {
            return Err(invalid("any_text in a tag needs an `end`".to_owned()));
        }
        return Ok(begin.field(Field::text_through(TEXT, [&tag.end])));
    }
    let place = Place {
        name: &tag.begin,
        last: false,
    };
    let content = node_template(tag.content, place)?;
    Ok(begin.append(content).literal(&tag.end))
}

/// Free text with tags in it.
struct Branches {
    triggers: Vec<String>,
    /// What follows each trigger.
    after: Vec<Template>,
    at_least_one: bool,
    stop_after_first: bool,
}

/// Which tag comes next.
#[derive(Clone, Copy, PartialEq)]
enum Turn {
    First,
    Later,
}

impl Branches {
    fn of(triggered: Triggered) -> Result<Rc<Self>, Failure> {
        let triggers = triggered.triggers;
        if triggers.is_empty() || triggers.iter().any(String::is_empty) {
            return Err(invalid("`triggers` must be texts, at least one".to_owned()));
        }
        let mut by_trigger: Vec<Vec<Template>> = triggers.iter().map(|_| Vec::new()).collect();
        for tag in triggered.tags {
            let tag = Tag::from(tag);
            // The shortest one is complete first.
            let first = (0..triggers.len())
                .filter(|&index| tag.begin.starts_with(&triggers[index]))
                .min_by_key(|&index| triggers[index].len());
            let Some(index) = first else {
                let message = format!("the tag that begins with {:?} has no trigger", tag.begin);
                return Err(invalid(message));
            };
            by_trigger[index].push(tag_template(tag, &triggers[index])?);
        }
        let mut after = Vec::new();
        for (trigger, mut tags) in triggers.iter().zip(by_trigger) {
            let template = match (tags.pop(), tags.is_empty()) {
                (None, _) => {
                    let message = format!("no tag begins with the trigger {trigger:?}");
                    return Err(invalid(message));
                }
                (Some(only), true) => only,
                (Some(last), false) => {
                    tags.push(last);
                    Template::new().either("tag", tags)
                }
            };
            template.validate().map_err(|error| {
                invalid(format!("the tags after the trigger {trigger:?}: {error}"))
            })?;
            after.push(template);
        }
        Ok(Rc::new(Self {
            triggers,
            after,
            at_least_one: triggered.at_least_one,
            stop_after_first: triggered.stop_after_first,
        }))
    }

    /// Free text and what its trigger begins, again and again.
    fn template(self: &Rc<Self>, turn: Turn) -> Template {
        let field = match self.at_least_one && turn == Turn::First {
            true => Field::text_through(TEXT, &self.triggers),
            false => Field::text_until(TEXT, &self.triggers),
        };
        let this = Rc::clone(self);
        Template::new().field(field).then(move |values| {
            let text = values.text(TEXT);
            let ends = |trigger: &String| text.ends_with(trigger.as_str());
            let Some(index) = this.triggers.iter().position(ends) else {
                return Template::new();
            };
            let tag = this.after[index].clone();
            if this.stop_after_first {
                return tag;
            }
            // Decided once the tag is written, so that the rest is not made up front.
            let next = Rc::clone(&this);
            tag.then(move |_| next.template(Turn::Later))
        })
    }
}
