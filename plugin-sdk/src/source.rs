//! What grammars are compiled from.

/// A grammar as text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// A JSON Schema.
    JsonSchema(Schema),
    /// A regex.
    Regex(String),
    /// Lark, in llguidance's dialect.
    Lark(String),
    /// One of these texts.
    Choice(Vec<String>),
}

impl Source {
    /// A JSON Schema as JSON text, or a [`Schema`] that says how values are written.
    pub fn json_schema(schema: impl Into<Schema>) -> Self {
        Self::JsonSchema(schema.into())
    }
}

/// A JSON Schema, and how values are written under it.
///
/// ```
/// use formwork_plugin_sdk::{KeyOrder, Schema, Source, Spacing};
///
/// let schema = Schema::new(r#"{"$ref": "https://example.com/point"}"#)
///     .spacing(Spacing::Spaced)
///     .key_order(KeyOrder::Any)
///     .document("https://example.com/point", r#"{"required": ["x", "y"]}"#);
/// let source = Source::json_schema(schema);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Schema {
    pub(crate) text: String,
    pub(crate) spacing: Spacing,
    pub(crate) key_order: KeyOrder,
    pub(crate) formats: Formats,
    pub(crate) documents: Vec<(String, String)>,
}

/// White space within a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spacing {
    /// None.
    #[default]
    Compact,
    /// One space after each comma and colon.
    Spaced,
}

/// The order in which an object's properties are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyOrder {
    /// As the schema has them.
    #[default]
    Schema,
    /// Any.
    Any,
}

/// What the keyword `format` does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Formats {
    /// Values have the format.
    #[default]
    Asserted,
    /// It only describes.
    Annotated,
}

impl Schema {
    /// A schema as JSON text; values are compact, keys in its order, formats asserted.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }

    /// Sets the white space within values.
    #[must_use]
    pub fn spacing(mut self, spacing: Spacing) -> Self {
        self.spacing = spacing;
        self
    }

    /// Sets the order of properties.
    #[must_use]
    pub fn key_order(mut self, order: KeyOrder) -> Self {
        self.key_order = order;
        self
    }

    /// Sets what formats do.
    #[must_use]
    pub fn formats(mut self, formats: Formats) -> Self {
        self.formats = formats;
        self
    }

    /// Adds a document that references may lead to: its absolute URI and its JSON text.
    #[must_use]
    pub fn document(mut self, uri: impl Into<String>, text: impl Into<String>) -> Self {
        self.documents.push((uri.into(), text.into()));
        self
    }

    /// The schema as it was given.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl From<&str> for Schema {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Schema {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}
