//! What requests are checked against.

use crate::config::LimitArgs;

/// Bounds on requests. Each is named in the error that it causes.
#[derive(Clone, Debug)]
pub struct ApiLimits {
    /// The model's name in the API.
    pub model_id: String,
    /// Tokens of the tokenizer: every id is below this.
    pub vocab_size: usize,
    /// Longest prompt plus output, in tokens.
    pub max_context: usize,
    /// Output tokens of a chat request that does not say.
    pub default_max_tokens: usize,
    /// Sequences of one request: `n` times its prompts.
    pub max_choices: usize,
    /// Bytes of a JSON body.
    pub max_body_bytes: usize,
    /// Bytes of an uploaded component.
    pub max_plugin_bytes: usize,
    /// Stop strings of one request.
    pub max_stops: usize,
    /// Bytes of one stop string: text of that length is held back from streams.
    pub max_stop_bytes: usize,
    /// Likeliest tokens reported per position.
    pub max_logprobs: usize,
    /// Entries of `logit_bias`.
    pub max_logit_bias: usize,
    /// Time to read a body, milliseconds.
    pub body_timeout_ms: u64,
}

impl ApiLimits {
    /// The configured bounds for a model.
    pub fn new(
        config: &LimitArgs,
        model_id: String,
        vocab_size: usize,
        max_context: usize,
    ) -> Self {
        Self {
            model_id,
            vocab_size,
            max_context,
            default_max_tokens: config.default_max_tokens,
            max_choices: config.max_choices,
            max_body_bytes: config.max_body_bytes,
            max_plugin_bytes: config.max_plugin_bytes,
            max_stops: 16,
            max_stop_bytes: 1024,
            max_logprobs: 20,
            max_logit_bias: 1024,
            body_timeout_ms: config.body_timeout_ms,
        }
    }
}
