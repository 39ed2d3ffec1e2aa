//! Which draft a schema is written for, and what its keywords do there.

use crate::Failure;
use jsonschema::Draft;
use serde_json::Value;

/// What a keyword means to the lowering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// An assertion that the grammar takes as it is.
    Assertion,
    /// One subschema, or (`items` of old) a list of them.
    Subschema,
    /// A list of subschemas.
    List,
    /// Subschemas by name or pattern.
    Members,
    /// Subschemas that count only where they are referred to.
    Definitions,
    /// A reference.
    Reference,
    /// Needs a look at its value and its neighbours.
    Special,
    /// Only validation knows it.
    Unmaskable,
    /// Means nothing in this draft, though the grammar engine might think otherwise.
    Foreign,
    /// Describes, identifies or is unknown.
    Annotation,
}

/// The role of a keyword in a draft.
pub(super) fn role(keyword: &str, draft: Draft) -> Role {
    use Draft::{Draft6, Draft7, Draft201909, Draft202012};
    let since = |first: Draft, role: Role| if draft >= first { role } else { Role::Foreign };
    match keyword {
        "type" | "required" | "minItems" | "maxItems" | "minLength" | "maxLength"
        | "multipleOf" => Role::Assertion,
        "items" | "additionalProperties" => Role::Subschema,
        "additionalItems" if draft < Draft202012 => Role::Subschema,
        "additionalItems" => Role::Foreign,
        "allOf" | "anyOf" | "oneOf" => Role::List,
        "prefixItems" => since(Draft202012, Role::List),
        "properties" | "patternProperties" => Role::Members,
        "$defs" | "definitions" => Role::Definitions,
        "$ref" => Role::Reference,
        "enum" | "pattern" | "format" | "minimum" | "maximum" | "exclusiveMinimum"
        | "exclusiveMaximum" | "minProperties" | "maxProperties" | "not" | "uniqueItems" => {
            Role::Special
        }
        "const" | "contains" | "propertyNames" => since(Draft6, Role::Special),
        "if" => since(Draft7, Role::Special),
        // Their neighbours `if` and `contains` speak for them.
        "then" | "else" | "minContains" | "maxContains" => Role::Foreign,
        "unevaluatedProperties" | "unevaluatedItems" => since(Draft201909, Role::Special),
        "$dynamicRef" => since(Draft202012, Role::Special),
        "dependencies" => Role::Special,
        "dependentRequired" | "dependentSchemas" => since(Draft201909, Role::Special),
        "$recursiveRef" if draft == Draft201909 => Role::Unmaskable,
        "contentEncoding" | "contentMediaType" if draft == Draft6 || draft == Draft7 => {
            Role::Unmaskable
        }
        "$recursiveRef" | "contentEncoding" | "contentMediaType" | "x-guidance" => Role::Foreign,
        _ => Role::Annotation,
    }
}

/// The draft that `$schema` names.
pub(super) fn named(schema: &Value) -> Option<Draft> {
    let uri = schema.get("$schema")?.as_str()?;
    Some(match uri.trim_end_matches('#') {
        "https://json-schema.org/draft/2020-12/schema" => Draft::Draft202012,
        "https://json-schema.org/draft/2019-09/schema" => Draft::Draft201909,
        "http://json-schema.org/draft-07/schema" => Draft::Draft7,
        "http://json-schema.org/draft-06/schema" => Draft::Draft6,
        "http://json-schema.org/draft-04/schema" => Draft::Draft4,
        _ => return None,
    })
}

/// The URI that names a draft.
pub(super) fn uri(draft: Draft) -> &'static str {
    match draft {
        Draft::Draft4 => "http://json-schema.org/draft-04/schema#",
        Draft::Draft6 => "http://json-schema.org/draft-06/schema#",
        Draft::Draft7 => "http://json-schema.org/draft-07/schema#",
        Draft::Draft201909 => "https://json-schema.org/draft/2019-09/schema",
        _ => "https://json-schema.org/draft/2020-12/schema",
    }
}

/// The draft of a schema: the one it names, else the newest under whose rules it is well formed.
///
/// # Errors
/// `InvalidParams` with the JSON pointer of what is malformed.
pub(super) fn detect(schema: &Value) -> Result<Draft, Failure> {
    use Draft::{Draft4, Draft7, Draft202012};
    let candidates = match named(schema) {
        Some(draft) => vec![draft],
        None => vec![Draft202012, Draft7, Draft4],
    };
    let mut first = None;
    for draft in candidates {
        match malformed(schema, draft) {
            None => return Ok(draft),
            Some(message) => first = first.or(Some(message)),
        }
    }
    Err(Failure::params(first.unwrap_or_default()))
}

/// What is wrong with a schema by a draft's own rules, and where.
fn malformed(schema: &Value, draft: Draft) -> Option<String> {
    let checked = match draft {
        Draft::Draft4 => jsonschema::draft4::meta::validate(schema),
        Draft::Draft6 => jsonschema::draft6::meta::validate(schema),
        Draft::Draft7 => jsonschema::draft7::meta::validate(schema),
        Draft::Draft201909 => jsonschema::draft201909::meta::validate(schema),
        _ => jsonschema::draft202012::meta::validate(schema),
    };
    let error = checked.err()?;
    let at = match error.instance_path().as_str() {
        "" => "its root",
        pointer => pointer,
    };
    let mut message = error.to_string();
    if message.len() > 200 {
        message = error.masked_with("what stands there").to_string();
        crate::failure::truncate(&mut message, 300);
    }
    Some(format!("the JSON schema is malformed at {at}: {message}"))
}
