//! `POST /tokenize` and `POST /detokenize`, in vLLM's shapes.

use formwork_engine::TokenId;
use serde_json::{Map, Value};

use super::completion::token_ids;
use super::fields::wrong;
use super::{ApiLimits, Fields, Message, ModelChoice};
use crate::errors::ApiError;

/// What to tokenize.
#[derive(Clone, Debug)]
pub enum TokenizeText {
    /// A prompt of `/v1/completions`.
    Prompt {
        /// The text.
        text: String,
        /// Whether the model's BOS is put in front, where it has one.
        add_special_tokens: bool,
    },
    /// A conversation, as `/v1/chat/completions` would render it.
    Messages {
        /// The conversation.
        messages: Vec<Message>,
        /// Whether the assistant's turn is opened.
        add_generation_prompt: bool,
        /// More variables for the chat template.
        template_variables: Map<String, Value>,
    },
}

/// A request to tokenize.
#[derive(Clone, Debug)]
pub struct TokenizeRequest {
    /// What.
    pub text: TokenizeText,
    /// Whether the answer brings each token's text.
    pub return_token_strs: bool,
}

impl TokenizeRequest {
    /// Reads a body.
    ///
    /// # Errors
    /// 400 naming the field, 404 for another model.
    pub fn read(body: Value, limits: &ApiLimits) -> Result<Self, ApiError> {
        let mut fields = Fields::new("", body)?;
        model(&mut fields, limits)?;
        let return_token_strs = fields.boolean("return_token_strs")?.unwrap_or(false);
        let prompt = fields.string("prompt")?;
        let messages = fields.take("messages");
        let text = match (prompt, messages) {
            (Some(text), None) => TokenizeText::Prompt {
                text,
                add_special_tokens: fields.boolean("add_special_tokens")?.unwrap_or(true),
            },
            (None, Some(messages)) => {
                fields.refuse("add_special_tokens", |value| value == false)?;
                TokenizeText::Messages {
                    messages: Message::read_all(messages)?,
                    add_generation_prompt: fields.boolean("add_generation_prompt")?.unwrap_or(true),
                    template_variables: match fields.take("chat_template_kwargs") {
                        None => Map::new(),
                        Some(Value::Object(variables)) => variables,
                        Some(other) => {
                            return Err(wrong("chat_template_kwargs", "an object", &other));
                        }
                    },
                }
            }
            _ => {
                let message = "exactly one of `prompt` and `messages` is needed";
                return Err(ApiError::invalid("prompt", message));
            }
        };
        fields.finish()?;
        Ok(Self {
            text,
            return_token_strs,
        })
    }
}

/// A request to turn tokens into text.
#[derive(Clone, Debug)]
pub struct DetokenizeRequest {
    /// The tokens, all of them below the vocabulary's size.
    pub tokens: Vec<TokenId>,
}

impl DetokenizeRequest {
    /// Reads a body.
    ///
    /// # Errors
    /// 400 naming the field, 404 for another model.
    pub fn read(body: Value, limits: &ApiLimits) -> Result<Self, ApiError> {
        let mut fields = Fields::new("", body)?;
        model(&mut fields, limits)?;
        let tokens = token_ids("tokens", fields.required("tokens")?, limits)?;
        fields.finish()?;
        Ok(Self { tokens })
    }
}

/// These endpoints take the served model when none is named.
fn model(fields: &mut Fields, limits: &ApiLimits) -> Result<(), ApiError> {
    if let Some(model) = fields.string("model")? {
        ModelChoice::parse(&model, limits)?;
    }
    Ok(())
}
