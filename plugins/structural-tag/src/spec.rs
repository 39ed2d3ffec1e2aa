//! The params, in both forms that are in use.

use formwork_plugin_sdk::prelude::*;

/// Params of [`StructuralTag`](crate::StructuralTag): `triggers` and `structures`, or `format`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Params {
    #[serde(default)]
    triggers: Option<Vec<String>>,
    #[serde(default)]
    structures: Option<Vec<Structure>>,
    #[serde(default)]
    format: Option<Node>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Structure {
    begin: String,
    schema: Json,
    end: String,
}

/// One format out of which a structural tag is made.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Node {
    /// This text.
    ConstString { value: String },
    /// A JSON value.
    JsonSchema { json_schema: Json },
    /// Text that matches.
    Regex { pattern: String },
    /// Free text, up to the end of the tag around it.
    AnyText {},
    /// One after the other.
    Sequence { elements: Vec<Node> },
    /// One of them.
    Or { elements: Vec<Node> },
    /// Something between two texts.
    Tag(Box<Tag>),
    /// Free text with tags in it.
    TriggeredTags(Triggered),
    /// Tags and nothing else.
    TagsWithSeparator {
        tags: Vec<TypedTag>,
        separator: String,
        #[serde(default)]
        at_least_one: bool,
        #[serde(default)]
        stop_after_first: bool,
    },
}

/// Something between two texts.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tag {
    pub(crate) begin: String,
    pub(crate) content: Node,
    pub(crate) end: String,
}

/// A tag in a list of tags, where its `type` may be left out.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TypedTag {
    #[serde(default, rename = "type")]
    _kind: TagKind,
    begin: String,
    content: Node,
    end: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum TagKind {
    #[default]
    Tag,
}

impl From<TypedTag> for Tag {
    fn from(tag: TypedTag) -> Self {
        Self {
            begin: tag.begin,
            content: tag.content,
            end: tag.end,
        }
    }
}

/// Free text with tags in it, each of which begins with a trigger.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Triggered {
    pub(crate) triggers: Vec<String>,
    pub(crate) tags: Vec<TypedTag>,
    #[serde(default)]
    pub(crate) at_least_one: bool,
    #[serde(default)]
    pub(crate) stop_after_first: bool,
}

impl Params {
    /// The format, whichever form it came in.
    pub(crate) fn node(self) -> Result<Node, Failure> {
        match (self.format, self.triggers, self.structures) {
            (Some(format), None, None) => Ok(format),
            (None, Some(triggers), Some(structures)) => {
                let tags = structures.into_iter().map(|structure| TypedTag {
                    _kind: TagKind::Tag,
                    begin: structure.begin,
                    content: Node::JsonSchema {
                        json_schema: structure.schema,
                    },
                    end: structure.end,
                });
                Ok(Node::TriggeredTags(Triggered {
                    triggers,
                    tags: tags.collect(),
                    at_least_one: false,
                    stop_after_first: false,
                }))
            }
            _ => Err(Failure::invalid_params(
                "params: give either `format`, or both `triggers` and `structures`",
            )),
        }
    }
}
