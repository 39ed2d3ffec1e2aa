//! `tools`, `tool_choice` and `parallel_tool_calls`, and how they become a format.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::Fields;
use super::fields::{as_list, as_string, shown, wrong};
use super::format::FormatChoice;
use crate::errors::ApiError;
use crate::registry::Selector;

/// The stock plugin that writes calls.
const PLUGIN: &str = "formwork/tools";
/// Tools of one request.
const MAX_TOOLS: usize = 128;
/// Bytes of a function's name.
const MAX_NAME_BYTES: usize = 64;

/// Functions that the model may call.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolUse {
    /// Those that may be called, as chat templates want them: a list of
    /// `{"type": "function", "function": {"name", "description", "parameters"}}`.
    pub definitions: Value,
    /// Whether one must be called.
    pub choice: ToolChoice,
    /// Whether one answer may call several times.
    pub parallel: bool,
}

/// Whether tools are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolChoice {
    /// As the model likes.
    Auto,
    /// At least one call and nothing else.
    Required,
}

/// One function.
struct Tool {
    name: String,
    description: Option<String>,
    parameters: Option<Value>,
    strict: Option<bool>,
}

/// What `tool_choice` says.
enum Choice {
    None,
    Auto,
    Required,
    Named(String),
}

impl ToolUse {
    /// Takes the fields; `None` when no tool may be called.
    ///
    /// # Errors
    /// 400 naming the field.
    pub(super) fn take(fields: &mut Fields) -> Result<Option<(Self, FormatChoice)>, ApiError> {
        let tools = match fields.take("tools") {
            None => Vec::new(),
            Some(value) => read_all(value)?,
        };
        let choice = match fields.take("tool_choice") {
            None => None,
            Some(value) => Some(choice(value)?),
        };
        let parallel = fields.boolean("parallel_tool_calls")?.unwrap_or(true);
        if tools.is_empty() {
            return match choice {
                None | Some(Choice::None | Choice::Auto) => Ok(None),
                Some(Choice::Required | Choice::Named(_)) => {
                    let message = "`tool_choice` asks for a call, but there are no `tools`";
                    Err(ApiError::invalid("tool_choice", message))
                }
            };
        }
        let (tools, choice, parallel) = match choice.unwrap_or(Choice::Auto) {
            Choice::None => return Ok(None),
            Choice::Auto => (tools, ToolChoice::Auto, parallel),
            Choice::Required => (tools, ToolChoice::Required, parallel),
            // One function was named: one call of it.
            Choice::Named(name) => (vec![named(tools, &name)?], ToolChoice::Required, false),
        };
        let format = format(&tools, choice, parallel)?;
        let definitions = tools.iter().map(Tool::definition).collect();
        let taken = Self {
            definitions,
            choice,
            parallel,
        };
        Ok(Some((taken, format)))
    }
}

fn named(tools: Vec<Tool>, name: &str) -> Result<Tool, ApiError> {
    let found = tools.into_iter().find(|tool| tool.name == name);
    found.ok_or_else(|| {
        let message = format!(
            "`tool_choice.function.name` is {}, which is none of the `tools`",
            shown(&json!(name))
        );
        ApiError::invalid("tool_choice.function.name", message)
    })
}

fn format(tools: &[Tool], choice: ToolChoice, parallel: bool) -> Result<FormatChoice, ApiError> {
    let params = json!({
        "tools": tools.iter().map(Tool::params).collect::<Vec<_>>(),
        "choice": match choice {
            ToolChoice::Auto => "auto",
            ToolChoice::Required => "required",
        },
        "parallel": parallel,
    });
    Ok(FormatChoice {
        name: PLUGIN.parse()?,
        selector: Selector::Latest,
        params,
        param: "tools",
        params_path: "tools",
    })
}

impl Tool {
    fn read(path: String, value: Value) -> Result<Self, ApiError> {
        let mut fields = Fields::new(path, value)?;
        let type_path = fields.path("type");
        let kind = fields.required_string("type")?;
        if kind != "function" {
            let message = format!(
                "`{type_path}` is {}: this server takes tools of type \"function\" only",
                shown(&json!(kind))
            );
            return Err(ApiError::invalid(type_path, message).code("unsupported_parameter"));
        }
        let function_path = fields.path("function");
        let mut function = Fields::new(function_path, fields.required("function")?)?;
        fields.finish()?;
        let name_path = function.path("name");
        let name = function.required_string("name")?;
        check_name(&name_path, &name)?;
        let parameters_path = function.path("parameters");
        let parameters = match function.take("parameters") {
            None => None,
            Some(schema @ Value::Object(_)) => Some(schema),
            Some(other) => {
                return Err(wrong(&parameters_path, "a JSON Schema (an object)", &other));
            }
        };
        let tool = Self {
            name,
            description: function.string("description")?,
            parameters,
            strict: function.boolean("strict")?,
        };
        function.finish()?;
        Ok(tool)
    }

    /// As chat templates show it to the model.
    fn definition(&self) -> Value {
        let mut function = Map::new();
        function.insert("name".into(), json!(self.name));
        function.insert(
            "description".into(),
            json!(self.description.as_deref().unwrap_or("")),
        );
        let empty = || json!({"type": "object", "properties": {}});
        let parameters = self.parameters.clone().unwrap_or_else(empty);
        function.insert("parameters".into(), parameters);
        json!({"type": "function", "function": function})
    }

    /// As the plugin wants it.
    fn params(&self) -> Value {
        let mut params = Map::new();
        params.insert("name".into(), json!(self.name));
        if let Some(parameters) = &self.parameters {
            params.insert("parameters".into(), parameters.clone());
        }
        if let Some(strict) = self.strict {
            params.insert("strict".into(), json!(strict));
        }
        Value::Object(params)
    }
}

fn read_all(value: Value) -> Result<Vec<Tool>, ApiError> {
    let items = as_list("tools", value)?;
    if items.len() > MAX_TOOLS {
        let message = format!(
            "`tools` has {} tools, the limit is {MAX_TOOLS}",
            items.len()
        );
        return Err(ApiError::invalid("tools", message).code("out_of_range"));
    }
    let mut seen = HashSet::new();
    let mut tools = Vec::with_capacity(items.len());
    for (path, item) in items {
        let tool = Tool::read(path.clone(), item)?;
        if !seen.insert(tool.name.clone()) {
            let path = format!("{path}.function.name");
            let message = format!("`{path}`: there are two tools named {}", tool.name);
            return Err(ApiError::invalid(path, message));
        }
        tools.push(tool);
    }
    Ok(tools)
}

fn choice(value: Value) -> Result<Choice, ApiError> {
    let expected = "\"none\", \"auto\", \"required\" or a function as an object";
    match &value {
        Value::String(word) => match word.as_str() {
            "none" => Ok(Choice::None),
            "auto" => Ok(Choice::Auto),
            "required" => Ok(Choice::Required),
            _ => Err(wrong("tool_choice", expected, &value).code("invalid_value")),
        },
        Value::Object(_) => {
            let mut fields = Fields::new("tool_choice", value)?;
            let kind = fields.required_string("type")?;
            if kind != "function" {
                let message = format!(
                    "`tool_choice.type` must be \"function\", not {}",
                    shown(&json!(kind))
                );
                return Err(ApiError::invalid("tool_choice.type", message));
            }
            let function = fields.required("function")?;
            fields.finish()?;
            let mut function = Fields::new("tool_choice.function", function)?;
            let name = function.required_string("name")?;
            function.finish()?;
            Ok(Choice::Named(name))
        }
        other => Err(wrong("tool_choice", expected, other)),
    }
}

/// A call of a function in the history of a chat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// The call's id.
    pub id: String,
    /// The function.
    pub name: String,
    /// JSON text, as the model wrote it: it need not be JSON.
    pub arguments: String,
}

impl ToolCall {
    /// Reads the `tool_calls` of an assistant's message.
    ///
    /// # Errors
    /// 400 naming the field.
    pub(super) fn read_all(path: &str, value: Value) -> Result<Vec<Self>, ApiError> {
        let items = as_list(path, value)?;
        items
            .into_iter()
            .map(|(path, item)| Self::read(path, item))
            .collect()
    }

    fn read(path: String, value: Value) -> Result<Self, ApiError> {
        let mut fields = Fields::new(path, value)?;
        let type_path = fields.path("type");
        let kind = fields.string("type")?;
        if kind.is_some_and(|kind| kind != "function") {
            let message = format!("`{type_path}` must be \"function\"");
            return Err(ApiError::invalid(type_path, message));
        }
        let id = fields.required_string("id")?;
        // Clients send back the position that streams give to calls.
        fields.count("index", 0, usize::MAX)?;
        let function_path = fields.path("function");
        let mut function = Fields::new(function_path, fields.required("function")?)?;
        fields.finish()?;
        let name_path = function.path("name");
        let name = function.required_string("name")?;
        check_name(&name_path, &name)?;
        let arguments_path = function.path("arguments");
        let arguments = match function.take("arguments") {
            None => String::new(),
            Some(value) => as_string(&arguments_path, value)?,
        };
        function.finish()?;
        Ok(Self {
            id,
            name,
            arguments,
        })
    }
}

/// Names stand in prompts and grammars as they are.
fn check_name(path: &str, name: &str) -> Result<(), ApiError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    if (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(plain) {
        return Ok(());
    }
    let message = format!("`{path}` must be 1 to {MAX_NAME_BYTES} letters, digits, _, - or .");
    Err(ApiError::invalid(path, message))
}
