//! Metaschemas of the client's own: the draft they build on, and the vocabularies that they leave out.

use super::documents::Documents;
use super::draft::{self, Role};
use super::pointer::is_resource;
use super::{Formats, Refused};
use crate::Failure;
use jsonschema::Draft;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Steps from a metaschema to the one that it is written in.
const MOST_STEPS: usize = 8;

/// Vocabularies that are known, by the last step of their names.
const KNOWN: [&str; 9] = [
    "core",
    "applicator",
    "unevaluated",
    "validation",
    "meta-data",
    "format",
    "format-annotation",
    "format-assertion",
    "content",
];

/// The schema as a standard draft has it: `$schema` names one, and keywords of vocabularies that its
/// metaschema leaves out are gone. Also what formats assert then.
///
/// # Errors
/// `InvalidParams` when the metaschema requires a vocabulary that is not known.
pub(super) fn plain(
    schema: &Value,
    formats: Formats,
    documents: &Documents,
) -> Result<(Value, Formats), Refused> {
    let Value::Object(map) = schema else {
        return Ok((Value::Object(Map::new()), formats));
    };
    let uri = map.get("$schema").and_then(Value::as_str);
    let uri = uri.map(|uri| uri.trim_end_matches('#'));
    let meta = uri.filter(|_| draft::named(schema).is_none());
    let Some((uri, meta)) = meta.and_then(|uri| Some((uri, documents.get(uri)?))) else {
        return Ok((schema.clone(), formats));
    };
    let draft = base(meta, documents);
    let mut plain = schema.clone();
    let mut formats = formats;
    if let Some(list) = meta.get("$vocabulary").and_then(Value::as_object) {
        let vocabularies = known(uri, list)?;
        if vocabularies.contains("format-assertion") {
            formats = Formats::Asserted;
        }
        prune(&mut plain, draft, &vocabularies);
    }
    plain["$schema"] = draft::uri(draft).into();
    Ok((plain, formats))
}

/// The draft that a metaschema is written in, in the end; the newest where that is not said.
fn base(meta: &Value, documents: &Documents) -> Draft {
    let mut meta = meta;
    for _ in 0..MOST_STEPS {
        if let Some(draft) = draft::named(meta) {
            return draft;
        }
        let next = meta.get("$schema").and_then(Value::as_str);
        match next.and_then(|uri| documents.get(uri.trim_end_matches('#'))) {
            Some(next) => meta = next,
            None => break,
        }
    }
    Draft::Draft202012
}

fn known<'a>(meta: &str, list: &'a Map<String, Value>) -> Result<BTreeSet<&'a str>, Failure> {
    let mut found = BTreeSet::new();
    for (uri, required) in list {
        let name = uri
            .strip_prefix("https://json-schema.org/draft/2020-12/vocab/")
            .or_else(|| uri.strip_prefix("https://json-schema.org/draft/2019-09/vocab/"))
            .filter(|name| KNOWN.contains(name));
        match name {
            Some(name) => _ = found.insert(name),
            None if *required == Value::Bool(true) => {
                return Err(Failure::params(format!(
                    "JSON schema at /$schema: {meta} requires the vocabulary {uri}, which is not known here"
                )));
            }
            None => {}
        }
    }
    Ok(found)
}

/// Whether a keyword means something where these vocabularies are in use.
fn is_spoken(keyword: &str, draft: Draft, vocabularies: &BTreeSet<&str>) -> bool {
    let vocabulary = match keyword {
        "unevaluatedProperties" | "unevaluatedItems" if draft >= Draft::Draft202012 => {
            "unevaluated"
        }
        "prefixItems"
        | "items"
        | "additionalItems"
        | "contains"
        | "properties"
        | "patternProperties"
        | "additionalProperties"
        | "propertyNames"
        | "dependentSchemas"
        | "if"
        | "then"
        | "else"
        | "allOf"
        | "anyOf"
        | "oneOf"
        | "not"
        | "unevaluatedItems"
        | "unevaluatedProperties" => "applicator",
        "type" | "const" | "enum" | "multipleOf" | "maximum" | "exclusiveMaximum" | "minimum"
        | "exclusiveMinimum" | "maxLength" | "minLength" | "pattern" | "maxItems" | "minItems"
        | "uniqueItems" | "maxContains" | "minContains" | "maxProperties" | "minProperties"
        | "required" | "dependentRequired" => "validation",
        "format" => {
            return ["format", "format-annotation", "format-assertion"]
                .iter()
                .any(|name| vocabularies.contains(name));
        }
        _ => return true,
    };
    vocabularies.contains(vocabulary)
}

/// Takes out the keywords that mean nothing. A resource with a metaschema of its own is left alone.
fn prune(schema: &mut Value, draft: Draft, vocabularies: &BTreeSet<&str>) {
    let Value::Object(map) = schema else { return };
    map.retain(|keyword, _| is_spoken(keyword, draft, vocabularies));
    for (keyword, value) in map.iter_mut() {
        let by_name = match draft::role(keyword, draft) {
            Role::Subschema | Role::List => false,
            Role::Members | Role::Definitions => true,
            _ => match keyword.as_str() {
                "not"
                | "if"
                | "then"
                | "else"
                | "contains"
                | "propertyNames"
                | "unevaluatedProperties"
                | "unevaluatedItems" => false,
                "dependentSchemas" => true,
                _ => continue,
            },
        };
        let each = |child: &mut Value| {
            let stranger = is_resource(child) && child.get("$schema").is_some();
            if !stranger {
                prune(child, draft, vocabularies);
            }
        };
        match value {
            Value::Object(members) if by_name => members.values_mut().for_each(each),
            Value::Array(items) => items.iter_mut().for_each(each),
            value => each(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    fn documents(vocabulary: &Value) -> Documents {
        let meta = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema", "$vocabulary": vocabulary,
        });
        Arc::new(BTreeMap::from([(
            "https://example.org/meta".to_owned(),
            meta,
        )]))
    }

    #[test]
    fn keywords_of_vocabularies_that_are_not_in_use_are_taken_out() {
        let applicator = json!({"https://json-schema.org/draft/2020-12/vocab/applicator": true});
        let schema = json!({
            "$schema": "https://example.org/meta#", "type": "object",
            "properties": {"type": {"minimum": 3, "items": [{"const": {"type": 1}}]}},
            "$defs": {"x": {"not": {"enum": []}}, "other": {"$id": "urn:x", "$schema": "urn:y", "type": "null"}},
        });
        let Ok((plain, _)) = plain(&schema, Formats::Asserted, &documents(&applicator)) else {
            panic!("refused")
        };
        let expected = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "properties": {"type": {"items": [{}]}},
            "$defs": {"x": {"not": {}}, "other": {"$id": "urn:x", "$schema": "urn:y", "type": "null"}},
        });
        assert_eq!(plain, expected);
    }

    #[test]
    fn an_unknown_vocabulary_that_is_required_is_refused_by_name() {
        let schema = json!({"$schema": "https://example.org/meta"});
        let run = |required| {
            let unknown = json!({"https://example.org/vocab": required});
            plain(&schema, Formats::Annotated, &documents(&unknown))
        };
        assert!(run(false).is_ok());
        let Err(Refused::Failure(failure)) = run(true) else {
            panic!("accepted")
        };
        assert!(
            failure
                .message
                .contains("the vocabulary https://example.org/vocab")
        );
        let asserted =
            json!({"https://json-schema.org/draft/2020-12/vocab/format-assertion": false});
        let found = plain(&schema, Formats::Annotated, &documents(&asserted));
        assert!(found.is_ok_and(|(_, formats)| formats == Formats::Asserted));
    }
}
