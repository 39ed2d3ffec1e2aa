//! Messages of a chat.

use serde_json::{Value, json};

use super::fields::{as_list, as_string, shown, wrong};
use super::{Fields, ToolCall};
use crate::errors::ApiError;

/// Bytes of a participant's name.
const MAX_NAME_BYTES: usize = 64;

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The operator; OpenAI's newer name `developer` means the same.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// A tool that was called.
    Tool,
}

impl Role {
    /// The name that chat templates know it by.
    pub fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who says it.
    pub role: Role,
    /// What is said: text, never control.
    pub content: String,
    /// The participant's name, of letters, digits, `_` and `-`.
    pub name: Option<String>,
    /// What the assistant thought aloud, for templates that show it again.
    pub reasoning: Option<String>,
    /// Functions that the assistant called.
    pub tool_calls: Vec<ToolCall>,
    /// Which call a tool's message answers.
    pub tool_call_id: Option<String>,
}

impl Message {
    /// Reads the `messages` field.
    ///
    /// # Errors
    /// 400 naming the message and its field.
    pub(super) fn read_all(value: Value) -> Result<Vec<Self>, ApiError> {
        let items = as_list("messages", value)?;
        if items.is_empty() {
            let message = "`messages` must have at least one message";
            return Err(ApiError::invalid("messages", message));
        }
        items
            .into_iter()
            .map(|(path, item)| Self::read(path, item))
            .collect()
    }

    fn read(path: String, value: Value) -> Result<Self, ApiError> {
        let mut fields = Fields::new(path, value)?;
        let role_path = fields.path("role");
        let role = match fields.required_string("role")?.as_str() {
            "system" | "developer" => Role::System,
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "tool" => Role::Tool,
            other => {
                let message = format!(
                    "`{role_path}` must be system, developer, user, assistant or tool, not {}",
                    shown(&json!(other))
                );
                return Err(ApiError::invalid(role_path, message));
            }
        };
        let tool_calls = tool_calls(&mut fields, role)?;
        let content_path = fields.path("content");
        // A message that is all calls has none.
        let content = match tool_calls.is_empty() {
            true => content(&content_path, fields.required("content")?)?,
            false => match fields.take("content") {
                None => String::new(),
                Some(value) => content(&content_path, value)?,
            },
        };
        let name_path = fields.path("name");
        let name = fields.string("name")?;
        if name.as_deref().is_some_and(|name| !is_plain(name)) {
            let message =
                format!("`{name_path}` must be 1 to {MAX_NAME_BYTES} letters, digits, _ or -");
            return Err(ApiError::invalid(name_path, message));
        }
        let tool_call_id = match role {
            Role::Tool => fields.string("tool_call_id")?,
            _ => None,
        };
        let reasoning = match role {
            Role::Assistant => fields.string("reasoning_content")?,
            _ => None,
        };
        // Clients send answers back with the fields that they came with.
        for unsupported in ["function_call", "refusal", "audio", "annotations"] {
            fields.refuse(unsupported, is_empty_list)?;
        }
        fields.finish()?;
        Ok(Self {
            role,
            content,
            name,
            reasoning,
            tool_calls,
            tool_call_id,
        })
    }
}

fn is_empty_list(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
}

fn tool_calls(fields: &mut Fields, role: Role) -> Result<Vec<ToolCall>, ApiError> {
    if role != Role::Assistant {
        fields.refuse("tool_calls", is_empty_list)?;
        return Ok(Vec::new());
    }
    let path = fields.path("tool_calls");
    match fields.take("tool_calls") {
        None => Ok(Vec::new()),
        Some(value) => ToolCall::read_all(&path, value),
    }
}

/// Templates put the name into the prompt as it is: nothing in it may look like control.
fn is_plain(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(plain)
}

/// A string, or parts of which all are text.
fn content(path: &str, value: Value) -> Result<String, ApiError> {
    let parts = match value {
        Value::String(text) => return Ok(text),
        value @ Value::Array(_) => as_list(path, value)?,
        other => return Err(wrong(path, "a string or an array of parts", &other)),
    };
    let mut text = String::new();
    for (path, part) in parts {
        let mut fields = Fields::new(path, part)?;
        let type_path = fields.path("type");
        let kind = fields.required_string("type")?;
        if kind != "text" {
            let message = format!(
                "`{type_path}` is {}: this server takes parts of type \"text\" only",
                shown(&json!(kind))
            );
            return Err(ApiError::invalid(type_path, message).code("unsupported_parameter"));
        }
        let text_path = fields.path("text");
        text += &as_string(&text_path, fields.required("text")?)?;
        fields.finish()?;
    }
    Ok(text)
}
