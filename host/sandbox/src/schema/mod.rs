//! JSON Schema: what of it the mask enforces, and what validation does.
//!
//! The grammar engine takes a part of JSON Schema. A schema is lowered to that part: equal where it can
//! be, wider where it cannot, never narrower. What is wider is named, and a finished value can be
//! validated against the schema as it was written.

mod checker;
mod claims;
mod conditions;
mod cost;
mod dialect;
mod documents;
mod draft;
mod fit;
mod formats;
mod literals;
mod lower;
mod order;
mod overlap;
mod patterns;
mod places;
pub(crate) mod pointer;
mod source;
mod special;
mod style;
mod targets;
mod weakening;
mod work;

pub(crate) use checker::Checker;
pub use checker::Invalid;
pub(crate) use documents::Documents;
pub(crate) use fit::Complaint;
pub(crate) use source::Prepared;
pub use source::{Formats, KeyOrder, Schema, Spacing};

use crate::Failure;
use jsonschema::Draft;
use serde_json::Value;

/// What enforces a schema's assertions.
pub(crate) struct Enforcement {
    /// Pointers of those that the mask enforces.
    pub(crate) masked: Vec<String>,
    /// Pointers of those that validation enforces, in part or in full.
    pub(crate) unmasked: Vec<String>,
    /// Present where something is left to validation.
    pub(crate) checker: Option<Checker>,
}

/// How a schema is to be read, and its values written.
#[derive(Clone, Copy)]
struct Terms {
    draft: Draft,
    spacing: Spacing,
    key_order: KeyOrder,
    formats: Formats,
}

/// Lowers a schema until `attempt` makes a grammar of it. `documents` are those of the host; the schema's
/// own come first. `is_cheap` says whether the masks of a lowered schema by itself are.
///
/// # Errors
/// `InvalidParams` with the place of what is malformed, `Unsatisfiable` where no value is allowed.
pub(crate) fn build<G>(
    given: &Prepared,
    documents: &Documents,
    mut attempt: impl FnMut(Value) -> Result<G, Complaint>,
    is_cheap: impl Fn(Value) -> bool,
) -> Result<(Enforcement, G), Refused> {
    let documents = &documents::joined(documents, &given.documents);
    let (schema, formats) = dialect::plain(&given.schema, given.formats, documents)?;
    let terms = Terms {
        draft: draft::detect(&schema)?,
        spacing: given.spacing,
        key_order: given.key_order,
        formats,
    };
    let draft = terms.draft;
    let bundle = documents::bundled(&schema, draft, documents);
    let whole = bundle.as_ref().unwrap_or(&schema);
    let styled = |lowered| attempt(style::decorated(lowered, terms.spacing));
    let (lowered, made) = fit::fit(whole, terms, styled, &|part| {
        is_cheap(style::decorated(part, terms.spacing))
    })
    .map_err(Refused::Complaint)?;
    let named = |pointers: Vec<String>| {
        let name = |pointer| documents::name(pointer, draft, documents);
        pointers.into_iter().map(name).collect()
    };
    let mut enforcement = Enforcement {
        masked: named(lowered.masked),
        unmasked: named(lowered.unmasked),
        checker: None,
    };
    if !enforcement.unmasked.is_empty() {
        let checker = Checker::new(&schema, draft, formats, documents).map_err(|message| {
            let message = documents::missing(&schema, documents).unwrap_or(message);
            Failure::params(format!("JSON schema {message}"))
        })?;
        enforcement.checker = Some(checker);
    }
    Ok((enforcement, made))
}

/// Why there is no grammar.
pub(crate) enum Refused {
    /// The schema is at fault in itself.
    Failure(Failure),
    /// The grammar engine's last word.
    Complaint(Complaint),
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}
