//! vLLM's fields for structured outputs: the object `structured_outputs`, and the older `guided_*` fields.

use serde_json::{Map, Value, json};

use super::Fields;
use super::fields::{shown, wrong};
use super::format::{FormatChoice, JSON_SCHEMA};
use crate::errors::ApiError;
use crate::registry::Selector;

/// One kind of constraint: its names in both forms, the stock plugin, and the param it becomes.
struct Kind {
    guided: &'static str,
    /// Its name within `structured_outputs`.
    key: &'static str,
    /// Its path there.
    path: &'static str,
    plugin: &'static str,
    param: &'static str,
}

const KINDS: [Kind; 4] = [
    Kind {
        guided: "guided_json",
        key: "json",
        path: "structured_outputs.json",
        plugin: JSON_SCHEMA,
        param: "schema",
    },
    Kind {
        guided: "guided_regex",
        key: "regex",
        path: "structured_outputs.regex",
        plugin: "formwork/regex",
        param: "pattern",
    },
    Kind {
        guided: "guided_choice",
        key: "choice",
        path: "structured_outputs.choice",
        plugin: "formwork/choice",
        param: "choices",
    },
    Kind {
        guided: "guided_grammar",
        key: "grammar",
        path: "structured_outputs.grammar",
        plugin: "formwork/grammar",
        param: "grammar",
    },
];

/// Bytes of a pattern of white space.
const PATTERN_BYTES: usize = 256;

/// The stock plugin behind structural tags.
const STRUCTURAL_TAG: &str = "formwork/structural-tag";

/// Every format that these fields choose.
///
/// # Errors
/// 400 when `structured_outputs` is malformed or holds not exactly one constraint.
pub(super) fn take(fields: &mut Fields) -> Result<Vec<FormatChoice>, ApiError> {
    let mut chosen = Vec::new();
    let pattern = whitespace(fields, "guided_whitespace_pattern")?;
    for kind in &KINDS {
        if let Some(value) = fields.take(kind.guided) {
            chosen.push(kind.choice(value, kind.guided)?);
        }
    }
    if let Some(spacing) = pattern {
        let json = chosen
            .iter_mut()
            .find(|choice| choice.param == "guided_json");
        let json = json.ok_or_else(|| without_json("guided_whitespace_pattern", "guided_json"))?;
        spacing.apply(json);
    }
    if let Some(value) = fields.take("structured_outputs") {
        chosen.extend(structured(value)?);
    }
    // Selects among vLLM's own implementations; the output is the same.
    fields.take("guided_decoding_backend");
    Ok(chosen)
}

impl Kind {
    fn choice(&self, value: Value, field: &'static str) -> Result<FormatChoice, ApiError> {
        let value = match value {
            // A schema may come as JSON text.
            Value::String(text) if self.param == "schema" => parsed(field, &text)?,
            value => value,
        };
        choose(self.plugin, json!({ self.param: value }), field)
    }
}

fn choose(plugin: &str, params: Value, field: &'static str) -> Result<FormatChoice, ApiError> {
    Ok(FormatChoice {
        name: plugin.parse()?,
        selector: Selector::Latest,
        params,
        param: field,
        params_path: field,
    })
}

fn structured(value: Value) -> Result<Option<FormatChoice>, ApiError> {
    let mut fields = Fields::new("structured_outputs", value)?;
    let mut chosen = Vec::new();
    for kind in &KINDS {
        if let Some(value) = fields.take(kind.key) {
            chosen.push(Some(kind.choice(value, kind.path)?));
        }
    }
    if let Some(value) = fields.take("structural_tag") {
        let path = "structured_outputs.structural_tag";
        chosen.push(Some(structural_tag(value, path)?));
    }
    if let Some(wanted) = fields.boolean("json_object")? {
        let path = "structured_outputs.json_object";
        let any = wanted.then(|| choose(JSON_SCHEMA, json!({}), path));
        chosen.push(any.transpose()?);
    }
    let compact = fields.boolean("disable_any_whitespace")?;
    fields.refuse("disable_additional_properties", |value| value == false)?;
    let pattern = whitespace(&mut fields, "whitespace_pattern")?;
    fields.finish()?;
    let wanted = match compact {
        Some(true) => Some(Spacing::Compact),
        Some(false) => pattern.or(Some(Spacing::Spaced)),
        None => pattern,
    };
    let mut chosen = chosen.into_iter();
    match (chosen.next(), chosen.next()) {
        (Some(mut only), None) => {
            let json = only
                .as_mut()
                .filter(|only| only.name.to_string() == JSON_SCHEMA);
            match (json, wanted) {
                (Some(json), Some(spacing)) => spacing.apply(json),
                (None, _) if pattern.is_some() => {
                    let path = "structured_outputs.whitespace_pattern";
                    return Err(without_json(path, "json"));
                }
                // The switch comes with every constraint and speaks of JSON alone.
                _ => {}
            }
            Ok(only)
        }
        (None, _) => {
            let message = "`structured_outputs` must hold one of json, regex, choice, grammar, \
                           structural_tag and json_object";
            Err(ApiError::invalid("structured_outputs", message))
        }
        (Some(first), Some(second)) => {
            let name = |choice: Option<FormatChoice>| {
                choice.map_or("structured_outputs.json_object", |choice| choice.param)
            };
            let (first, second) = (name(first), name(second));
            let message = format!("`{first}` and `{second}` exclude each other; send one of them");
            Err(ApiError::invalid(second, message))
        }
    }
}

/// How JSON is written. vLLM lets the model choose among all white space that a pattern allows; here it is
/// one of two forms, both of which any pattern that allows them is content with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spacing {
    Compact,
    Spaced,
}

impl Spacing {
    fn apply(self, choice: &mut FormatChoice) {
        let word = match self {
            Self::Compact => "compact",
            Self::Spaced => "spaced",
        };
        choice.params["spacing"] = json!(word);
    }
}

/// Takes a pattern of the white space around a value's parts: spaced where it allows both a space and none,
/// compact where it allows none only.
fn whitespace(fields: &mut Fields, name: &'static str) -> Result<Option<Spacing>, ApiError> {
    let path = fields.path(name);
    let Some(pattern) = fields.string(name)? else {
        return Ok(None);
    };
    if pattern.len() > PATTERN_BYTES {
        let message = format!("`{path}` is longer than {PATTERN_BYTES} bytes");
        return Err(ApiError::invalid(path, message).code("out_of_range"));
    }
    let whole = json!({"pattern": format!("^(?:{pattern})$")});
    let Ok(allowed) = jsonschema::validator_for(&whole) else {
        let message = format!("`{path}` is not a regex: {}", shown(&json!(pattern)));
        return Err(ApiError::invalid(path, message));
    };
    let allows = |text: &str| allowed.is_valid(&json!(text));
    match (allows(""), allows(" ")) {
        (true, true) => Ok(Some(Spacing::Spaced)),
        (true, false) => Ok(Some(Spacing::Compact)),
        (false, _) => {
            let message = format!(
                "`{path}` must allow the empty text: JSON comes without white space, or with one space after \
                 each comma and colon"
            );
            Err(ApiError::invalid(path, message).code("unsupported_parameter"))
        }
    }
}

/// A pattern without JSON to apply it to.
fn without_json(path: &'static str, json: &str) -> ApiError {
    let message = format!("`{path}` speaks of JSON: it goes with `{json}` only");
    ApiError::invalid(path, message)
}

/// A structural tag, as an object or as JSON text; `path` is the field that brings it.
///
/// # Errors
/// 400 when it is no object or of another type.
pub(super) fn structural_tag(value: Value, path: &'static str) -> Result<FormatChoice, ApiError> {
    let value = match value {
        Value::String(text) => parsed(path, &text)?,
        value => value,
    };
    let Value::Object(mut params) = value else {
        return Err(wrong(path, "an object or its JSON text", &value));
    };
    if let Some(kind) = params.shift_remove("type")
        && kind != "structural_tag"
    {
        let message = format!(
            "`{path}.type` must be \"structural_tag\", not {}",
            shown(&kind)
        );
        return Err(ApiError::invalid(format!("{path}.type"), message));
    }
    let params: Map<String, Value> = params;
    choose(STRUCTURAL_TAG, Value::Object(params), path)
}

fn parsed(path: &str, text: &str) -> Result<Value, ApiError> {
    serde_json::from_str(text).map_err(|error| {
        let message = format!("`{path}` is a string but not JSON text: {error}");
        ApiError::invalid(path, message)
    })
}
