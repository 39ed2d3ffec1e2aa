//! JSON Schema: what of it the mask enforces, and what validation does.
//!
//! The grammar engine takes a part of JSON Schema. A schema is lowered to that part: equal where it can
//! be, wider where it cannot, never narrower. What is wider is named, and a finished value can be
//! validated against the schema as it was written.

mod checker;
mod documents;
mod draft;
mod fit;
mod formats;
mod literals;
mod lower;
mod patterns;
pub(crate) mod pointer;
mod special;
mod weakening;
mod work;

pub(crate) use checker::Checker;
pub(crate) use documents::Documents;
pub(crate) use fit::Complaint;

use crate::Failure;
use llguidance::api::ParserLimits;
use serde_json::{Value, json};

/// What enforces a schema's assertions.
pub(crate) struct Enforcement {
    /// Pointers of those that the mask enforces.
    pub(crate) masked: Vec<String>,
    /// Pointers of those that validation enforces, in part or in full.
    pub(crate) unmasked: Vec<String>,
    /// Present where something is left to validation.
    pub(crate) checker: Option<Checker>,
}

/// Lowers a schema until `attempt` makes a grammar of it.
///
/// # Errors
/// `InvalidParams` with the place of what is malformed, `Unsatisfiable` where no value is allowed.
pub(crate) fn build<G>(
    schema: &Value,
    documents: &Documents,
    limits: &ParserLimits,
    attempt: impl FnMut(Value) -> Result<G, Complaint>,
) -> Result<(Enforcement, G), Refused> {
    let schema = match schema {
        Value::Bool(true) => json!({}),
        other => other.clone(),
    };
    let draft = draft::detect(&schema).map_err(Refused::Failure)?;
    let bundle = documents::bundled(&schema, draft, documents);
    let whole = bundle.as_ref().unwrap_or(&schema);
    let (lowered, made) = fit::fit(whole, draft, limits, attempt).map_err(Refused::Complaint)?;
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
        let checker = Checker::new(&schema, draft, documents).map_err(|message| {
            Refused::Failure(Failure::params(format!("JSON schema {message}")))
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
