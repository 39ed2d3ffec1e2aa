//! Wire types: what clients may send, checked field by field. A field that is not known is refused, and
//! so is a known one that would have no effect although it promises one.

mod chat;
mod completion;
mod fields;
mod format;
mod generation;
mod limits;
mod message;
mod structured;
mod tokens;
mod tools;

#[cfg(test)]
mod tests;

pub use chat::ChatRequest;
pub use completion::{CompletionRequest, Prompt};
pub use fields::Fields;
pub use format::{FormatChoice, ModelChoice};
pub use generation::{Generation, StreamOptions};
pub use limits::ApiLimits;
pub use message::{Message, Role};
pub use tokens::{DetokenizeRequest, TokenizeRequest, TokenizeText};
pub use tools::{ToolCall, ToolChoice, ToolUse};

use serde_json::Value;

use crate::errors::ApiError;

/// Reads a JSON body.
///
/// # Errors
/// 400 with line and column when it is not JSON or nested too deeply.
pub fn parse_json(bytes: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(bytes).map_err(|error| {
        let message = format!("the body is not valid JSON: {error}");
        ApiError::new(axum::http::StatusCode::BAD_REQUEST, "invalid_json", message)
    })
}
