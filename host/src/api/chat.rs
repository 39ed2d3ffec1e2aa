//! `POST /v1/chat/completions`.

use serde_json::{Map, Value};

use super::fields::wrong;
use super::generation::{Generation, top_logprobs};
use super::{ApiLimits, Fields, Message, ToolUse};
use crate::errors::ApiError;

/// A chat request.
#[derive(Clone, Debug)]
pub struct ChatRequest {
    /// The conversation; at least one message.
    pub messages: Vec<Message>,
    /// Functions that the model may call, if any.
    pub tools: Option<ToolUse>,
    /// More variables for the chat template, such as `enable_thinking`.
    pub template_variables: Map<String, Value>,
    /// The rest.
    pub generation: Generation,
}

impl ChatRequest {
    /// Reads a body.
    ///
    /// # Errors
    /// 400 naming the field, 404 for another model.
    pub fn read(body: Value, limits: &ApiLimits) -> Result<Self, ApiError> {
        let mut fields = Fields::new("", body)?;
        let mut generation = Generation::take(&mut fields, "messages", limits)?;
        let messages = Message::read_all(fields.required("messages")?)?;
        let newer = fields.count("max_completion_tokens", 1, usize::MAX)?;
        if newer.is_some()
            && generation
                .max_tokens
                .is_some_and(|older| Some(older) != newer)
        {
            let message = "`max_tokens` and `max_completion_tokens` differ; send one of them";
            return Err(ApiError::invalid("max_completion_tokens", message));
        }
        generation.max_tokens = newer.or(generation.max_tokens);
        generation.sampling.logprobs = logprobs(&mut fields, limits)?;
        let template_variables = match fields.take("chat_template_kwargs") {
            None => Map::new(),
            Some(Value::Object(variables)) => variables,
            Some(other) => return Err(wrong("chat_template_kwargs", "an object", &other)),
        };
        let tools = tools(&mut fields, &mut generation)?;
        refuse_unsupported(&mut fields)?;
        fields.finish()?;
        Ok(Self {
            messages,
            tools,
            template_variables,
            generation,
        })
    }
}

/// Tools choose the format, so nothing else may.
fn tools(fields: &mut Fields, generation: &mut Generation) -> Result<Option<ToolUse>, ApiError> {
    let Some((tools, format)) = ToolUse::take(fields)? else {
        return Ok(None);
    };
    if let Some(other) = &generation.format {
        return Err(format.conflict(other.param));
    }
    generation.format = Some(format);
    generation.calls_tools = true;
    Ok(Some(tools))
}

/// Chat's form: `logprobs` is a switch, `top_logprobs` a number.
fn logprobs(fields: &mut Fields, limits: &ApiLimits) -> Result<Option<usize>, ApiError> {
    let wanted = fields.boolean("logprobs")?.unwrap_or(false);
    let top = match fields.take("top_logprobs") {
        None => None,
        Some(value) => Some(top_logprobs("top_logprobs", &value, limits)?),
    };
    match (wanted, top) {
        (true, top) => Ok(Some(top.unwrap_or(0))),
        (false, None | Some(0)) => Ok(None),
        (false, Some(_)) => {
            let message = "`top_logprobs` is only allowed when `logprobs` is true";
            Err(ApiError::invalid("top_logprobs", message))
        }
    }
}

fn refuse_unsupported(fields: &mut Fields) -> Result<(), ApiError> {
    let empty = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
    fields.refuse("functions", empty)?;
    fields.refuse("function_call", |value| value == "none")?;
    fields.refuse("modalities", |value| *value == serde_json::json!(["text"]))?;
    fields.refuse("store", |value| value == false)?;
    for name in [
        "audio",
        "prediction",
        "reasoning_effort",
        "verbosity",
        "web_search_options",
    ] {
        fields.refuse(name, |_| false)?;
    }
    Ok(())
}
