//! Every error that a client can see, and the one mapping of the crates' errors to HTTP.
//!
//! The body has OpenAI's shape, `{"error": {"message", "type", "param", "code"}}`, with `plugin` beside
//! them where a plugin is involved.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use formwork_engine::{FailureKind, SequenceError, SubmitError};
use formwork_sandbox::{AdmissionError, FailureKind as GuestFailureKind, GuestError};
use serde::Serialize;
use serde_json::{Value, json};

use crate::registry::{PluginRecord, RegistryError};

/// Seconds after which a refused client may try again: a queue of short answers moves about that fast.
const RETRY_AFTER_S: u32 = 1;

/// The plugin that an error or an answer comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PluginRef {
    /// `namespace/name`.
    pub name: String,
    /// The version that the request is pinned to.
    pub version: String,
    /// SHA-256 of the component, in hex.
    pub digest: String,
    /// Calls into the plugin's session before the error; absent where none is meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
}

impl PluginRef {
    /// The plugin of `record`, without a step.
    pub fn new(record: &PluginRecord) -> Self {
        Self {
            name: record.name.to_string(),
            version: record.version.to_string(),
            digest: record.digest.clone(),
            step: None,
        }
    }

    /// The same at `step`.
    pub fn at(&self, step: u64) -> Self {
        Self {
            step: Some(step),
            ..self.clone()
        }
    }
}

/// An error as the client gets it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", .0.message)]
pub struct ApiError(Box<Inner>);

#[derive(Clone, Debug)]
struct Inner {
    status: StatusCode,
    message: String,
    param: Option<String>,
    code: &'static str,
    plugin: Option<PluginRef>,
    retry_after_s: Option<u32>,
}

impl ApiError {
    /// An error with the given status and machine-readable code.
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            status,
            message: message.into(),
            param: None,
            code,
            plugin: None,
            retry_after_s: None,
        }))
    }

    /// 400 about the parameter `param`.
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_value", message).param(param)
    }

    /// 503: not now.
    pub fn unavailable(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, code, message).retry_after(RETRY_AFTER_S)
    }

    /// 500. The reason goes to the log; the client is told only that there is one.
    pub fn internal(reason: impl std::fmt::Display) -> Self {
        tracing::error!(%reason, "a request failed through a fault of the server");
        let message = "the server failed at this request; its log says why";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", message)
    }

    /// The same with the parameter at fault.
    #[must_use]
    pub fn param(mut self, param: impl Into<String>) -> Self {
        self.0.param = Some(param.into());
        self
    }

    /// The same with another code.
    #[must_use]
    pub fn code(mut self, code: &'static str) -> Self {
        self.0.code = code;
        self
    }

    /// The same with the plugin involved.
    #[must_use]
    pub fn plugin(mut self, plugin: PluginRef) -> Self {
        self.0.plugin = Some(plugin);
        self
    }

    /// The same with a `Retry-After` header.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.0.retry_after_s = Some(seconds);
        self
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        self.0.status
    }

    /// The machine-readable code.
    pub fn code_name(&self) -> &'static str {
        self.0.code
    }

    /// The body: `{"error": {…}}`.
    pub fn body(&self) -> Value {
        let inner = &self.0;
        let mut error = json!({
            "message": inner.message,
            "type": type_of(inner.status),
            "param": inner.param,
            "code": inner.code,
        });
        if let Some(plugin) = &inner.plugin {
            error["plugin"] = json!(plugin);
        }
        json!({ "error": error })
    }
}

fn type_of(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        408 => "timeout_error",
        429 => "rate_limit_error",
        502 => "plugin_error",
        503 => "overloaded_error",
        500.. => "server_error",
        _ => "invalid_request_error",
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (
            self.0.status,
            [(header::CONTENT_TYPE, "application/json")],
            self.body().to_string(),
        )
            .into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.0.retry_after_s {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.0.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<SubmitError> for ApiError {
    fn from(error: SubmitError) -> Self {
        let message = error.to_string();
        match error {
            SubmitError::QueueFull { .. } => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "queue_full", message)
                    .retry_after(RETRY_AFTER_S)
            }
            SubmitError::PromptTooLong { .. } => {
                Self::invalid("prompt", message).code("context_length_exceeded")
            }
            SubmitError::EmptyPrompt => Self::invalid("prompt", message),
            SubmitError::ShuttingDown => Self::unavailable("shutting_down", message),
        }
    }
}

/// A sequence's failure while it was decoded; `plugin` is the one that constrained it.
pub fn sequence(error: &SequenceError, plugin: Option<PluginRef>) -> ApiError {
    let message = error.to_string();
    let mapped = match error {
        SequenceError::Constraint(failure) => given_up(failure.kind, message),
        SequenceError::Late { .. } => {
            ApiError::new(StatusCode::BAD_GATEWAY, "plugin_late", message)
        }
        SequenceError::EmptyMask { .. } => {
            ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "empty_mask", message)
        }
        SequenceError::ShuttingDown => ApiError::unavailable("shutting_down", message),
        SequenceError::Unmasked { .. }
        | SequenceError::Diverged { .. }
        | SequenceError::Backend(_) => ApiError::internal(message),
    };
    match plugin {
        Some(plugin) => mapped.plugin(plugin),
        None => mapped,
    }
}

fn given_up(kind: FailureKind, message: String) -> ApiError {
    match kind {
        FailureKind::InvalidParams => {
            ApiError::invalid("plugin.params", message).code("invalid_params")
        }
        FailureKind::Unsatisfiable => {
            ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "unsatisfiable", message)
        }
        FailureKind::Exhausted => {
            ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "exhausted", message)
        }
        FailureKind::Internal => ApiError::new(StatusCode::BAD_GATEWAY, "plugin_failed", message),
    }
}

/// A failure of a plugin's session before decoding began; `param` is where the request chose the plugin.
pub fn guest(error: GuestError, plugin: PluginRef, param: &str) -> ApiError {
    let fault = |code| ApiError::new(StatusCode::BAD_GATEWAY, code, error.to_string());
    let mapped = match &error {
        GuestError::Failure(failure) => {
            let kind = match failure.kind {
                GuestFailureKind::InvalidParams => FailureKind::InvalidParams,
                GuestFailureKind::Unsatisfiable => FailureKind::Unsatisfiable,
                GuestFailureKind::Exhausted => FailureKind::Exhausted,
                GuestFailureKind::Internal => FailureKind::Internal,
            };
            given_up(kind, failure.message.clone()).param(param)
        }
        GuestError::Busy { .. } => ApiError::unavailable("plugin_pool_full", error.to_string()),
        GuestError::Trap { .. } => fault("plugin_trap"),
        GuestError::Deadline { .. } => fault("plugin_deadline"),
        GuestError::Memory { .. } => fault("plugin_memory"),
        GuestError::Invalid(_) | GuestError::Closed => fault("plugin_failed"),
    };
    mapped.plugin(plugin)
}

impl From<AdmissionError> for ApiError {
    fn from(error: AdmissionError) -> Self {
        let message = error.to_string();
        match error {
            AdmissionError::TooLarge {
                bound: "component_bytes",
                ..
            } => Self::new(StatusCode::PAYLOAD_TOO_LARGE, "plugin_too_large", message),
            AdmissionError::Canary(GuestError::Busy { .. }) => {
                Self::unavailable("plugin_pool_full", message)
            }
            _ => Self::new(StatusCode::BAD_REQUEST, "plugin_rejected", message),
        }
    }
}

impl From<RegistryError> for ApiError {
    fn from(error: RegistryError) -> Self {
        let message = error.to_string();
        match error {
            RegistryError::BadName { .. } => Self::invalid("name", message),
            RegistryError::BadVersion { .. } => Self::invalid("version", message),
            RegistryError::UnknownPlugin { .. } => {
                Self::new(StatusCode::NOT_FOUND, "plugin_not_found", message)
            }
            RegistryError::NoVersion { .. } => {
                Self::new(StatusCode::NOT_FOUND, "plugin_version_not_found", message)
            }
            RegistryError::VersionTaken { .. } => {
                Self::new(StatusCode::CONFLICT, "version_taken", message)
            }
            RegistryError::Reserved(_) => {
                Self::new(StatusCode::FORBIDDEN, "reserved_namespace", message)
            }
            RegistryError::InUse { .. } => {
                Self::new(StatusCode::CONFLICT, "plugin_in_use", message)
            }
            RegistryError::Admission(error) => error.into(),
            _ => Self::internal(message),
        }
    }
}
