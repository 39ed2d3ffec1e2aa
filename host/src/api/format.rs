//! The ways to choose an output format: `plugin`, `response_format`, vLLM's `structured_outputs` and
//! `guided_*` fields, and a suffix of the model's name.

use serde_json::{Map, Value, json};

use super::fields::{as_string, wrong};
use super::{ApiLimits, Fields, structured};
use crate::errors::ApiError;
use crate::registry::{PluginName, RegistryError, Selector};

/// The stock plugin behind `response_format`.
pub(super) const JSON_SCHEMA: &str = "formwork/json-schema";

/// Most attempts at one field that the sandbox allows.
const MAX_ATTEMPTS: usize = 32;
/// Characters of a document's URI that an error repeats.
const SHOWN_URI: usize = 80;

/// The plugin that a request asks for.
#[derive(Clone, Debug)]
pub struct FormatChoice {
    /// Its name.
    pub name: PluginName,
    /// Which version.
    pub selector: Selector,
    /// Its params, not yet checked against its schema.
    pub params: Value,
    /// The field of the request that chose it.
    pub param: &'static str,
    /// The field of the request that its params come from, for errors in them.
    pub params_path: &'static str,
}

/// The model's name, with a plugin if the name brings one: `smollm2:acme/ticket@1`.
#[derive(Clone, Debug)]
pub struct ModelChoice {
    plugin: Option<(PluginName, Selector)>,
}

impl ModelChoice {
    /// Reads the `model` field.
    ///
    /// # Errors
    /// 404 for another model than the one served, 400 for a malformed suffix.
    pub fn parse(model: &str, limits: &ApiLimits) -> Result<Self, ApiError> {
        let rest = match model.strip_prefix(limits.model_id.as_str()) {
            Some("") => return Ok(Self { plugin: None }),
            Some(rest) => rest.strip_prefix(':'),
            None => None,
        };
        let Some(suffix) = rest else {
            let shown: String = model.chars().take(64).collect();
            let message = format!(
                "the model `{shown}` does not exist; this server has `{}`",
                limits.model_id
            );
            let status = axum::http::StatusCode::NOT_FOUND;
            return Err(ApiError::new(status, "model_not_found", message).param("model"));
        };
        let (name, selector) = match suffix.split_once('@') {
            Some((name, selector)) => (name, selector),
            None => (suffix, "latest"),
        };
        let bad = |error: RegistryError| ApiError::from(error).param("model");
        Ok(Self {
            plugin: Some((name.parse().map_err(bad)?, selector.parse().map_err(bad)?)),
        })
    }
}

impl FormatChoice {
    /// Takes `plugin` and `response_format` and puts them together with the model's suffix.
    ///
    /// # Errors
    /// 400 when they are malformed or more than one of them chooses a format.
    pub(super) fn take(fields: &mut Fields, model: ModelChoice) -> Result<Option<Self>, ApiError> {
        let by_model = model.plugin.map(|(name, selector)| Self {
            name,
            selector,
            params: Value::Object(Map::new()),
            param: "model",
            params_path: "plugin.params",
        });
        let by_plugin = fields.take("plugin").map(plugin).transpose()?;
        let response_format = fields.take("response_format");
        let by_format = match response_format {
            Some(value) => self::response_format(value)?,
            None => None,
        };
        let vllm = structured::take(fields)?;
        let chosen = [by_model, by_plugin, by_format].into_iter().flatten();
        let mut chosen = chosen.chain(vllm);
        let (first, second) = (chosen.next(), chosen.next());
        if let (Some(first), Some(second)) = (&first, &second) {
            return Err(first.conflict(second.param));
        }
        Ok(first)
    }

    /// The error for a second field, `other`, that chooses a format too.
    pub(super) fn conflict(&self, other: &'static str) -> ApiError {
        let message = format!(
            "`{}` and `{other}` both choose an output format; send one of them",
            self.param
        );
        ApiError::invalid(other, message)
    }
}

fn plugin(value: Value) -> Result<FormatChoice, ApiError> {
    let mut fields = Fields::new("plugin", value)?;
    let name = fields.required_string("name")?;
    let version = fields.string("version")?;
    let params = fields.take("params");
    fields.finish()?;
    let name: PluginName = name
        .parse()
        .map_err(|error: RegistryError| ApiError::from(error).param("plugin.name"))?;
    let selector = version.as_deref().unwrap_or("latest");
    let selector: Selector = selector
        .parse()
        .map_err(|error: RegistryError| ApiError::from(error).param("plugin.version"))?;
    let params = match params {
        None => Value::Object(Map::new()),
        Some(params @ Value::Object(_)) => params,
        Some(other) => return Err(wrong("plugin.params", "an object", &other)),
    };
    Ok(FormatChoice {
        name,
        selector,
        params,
        param: "plugin",
        params_path: "plugin.params",
    })
}

/// OpenAI's `response_format`: `text`, `json_object` or `json_schema`; and `structural_tag`, as vLLM and
/// SGLang have it.
fn response_format(value: Value) -> Result<Option<FormatChoice>, ApiError> {
    if value
        .get("type")
        .is_some_and(|kind| kind == "structural_tag")
    {
        return structured::structural_tag(value, "response_format").map(Some);
    }
    let mut fields = Fields::new("response_format", value)?;
    let kind = fields.required_string("type")?;
    let params = match kind.as_str() {
        "text" => None,
        "json_object" => Some(json!({})),
        "json_schema" => Some(json_schema(fields.required("json_schema")?)?),
        other => {
            let message = format!(
                "`response_format.type` must be \"text\", \"json_object\", \"json_schema\" or \
                 \"structural_tag\", not {}",
                super::fields::shown(&json!(other))
            );
            return Err(ApiError::invalid("response_format.type", message));
        }
    };
    fields.finish()?;
    let Some(params) = params else {
        return Ok(None);
    };
    Ok(Some(FormatChoice {
        name: JSON_SCHEMA.parse()?,
        selector: Selector::Latest,
        params,
        param: "response_format",
        params_path: "response_format.json_schema",
    }))
}

fn json_schema(value: Value) -> Result<Value, ApiError> {
    let mut fields = Fields::new("response_format.json_schema", value)?;
    // Names and describes the schema for its author; the output is the same.
    as_string(
        "response_format.json_schema.name",
        fields.take("name").unwrap_or_else(|| json!("")),
    )?;
    fields.string("description")?;
    let mut params = Map::new();
    match fields.take("schema") {
        None => {}
        Some(schema @ (Value::Object(_) | Value::Bool(_))) => {
            params.insert("schema".to_owned(), schema);
        }
        Some(other) => {
            let path = "response_format.json_schema.schema";
            return Err(wrong(path, "a JSON Schema (an object)", &other));
        }
    }
    if let Some(strict) = fields.boolean("strict")? {
        params.insert("strict".to_owned(), Value::Bool(strict));
    }
    extensions(&mut fields, &mut params)?;
    fields.finish()?;
    Ok(Value::Object(params))
}

/// What Formwork adds to OpenAI's fields: how values are written, and what references lead to.
fn extensions(fields: &mut Fields, params: &mut Map<String, Value>) -> Result<(), ApiError> {
    for (name, words) in [
        ("spacing", ["compact", "spaced"]),
        ("key_order", ["schema", "any"]),
        ("formats", ["asserted", "annotated"]),
    ] {
        let path = fields.path(name);
        match fields.string(name)? {
            Some(word) if words.contains(&word.as_str()) => {
                params.insert(name.to_owned(), Value::String(word));
            }
            Some(other) => {
                let expected = format!("\"{}\" or \"{}\"", words[0], words[1]);
                return Err(wrong(&path, &expected, &json!(other)).code("invalid_value"));
            }
            None => {}
        }
    }
    if let Some(attempts) = fields.count("attempts", 1, MAX_ATTEMPTS)? {
        params.insert("attempts".to_owned(), attempts.into());
    }
    let path = fields.path("documents");
    match fields.take("documents") {
        None => {}
        Some(Value::Object(documents)) => {
            let wrong_one = documents
                .iter()
                .find(|(_, document)| !matches!(document, Value::Object(_) | Value::Bool(_)));
            if let Some((uri, other)) = wrong_one {
                let uri: String = uri.chars().take(SHOWN_URI).collect();
                let at = format!("{path}[\"{uri}\"]");
                return Err(wrong(&at, "a JSON Schema (an object)", other));
            }
            params.insert("documents".to_owned(), Value::Object(documents));
        }
        Some(other) => return Err(wrong(&path, "an object of JSON Schemas by URI", &other)),
    }
    Ok(())
}
