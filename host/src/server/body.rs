//! Bodies: of the right type, within their size, within their time.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body as _;
use serde_json::Value;

use crate::api::{self, ApiLimits};
use crate::errors::ApiError;

/// What a body may be.
struct Rule {
    /// The media type; `+json` types count as JSON.
    media_type: &'static str,
    /// Bytes.
    limit: usize,
    /// The bound's name.
    bound: &'static str,
    timeout: Duration,
}

/// Reads a JSON body.
///
/// # Errors
/// 400 when it is not JSON, 408, 413 and 415.
pub(super) async fn json(request: Request, limits: &ApiLimits) -> Result<Value, ApiError> {
    let rule = Rule {
        media_type: "application/json",
        limit: limits.max_body_bytes,
        bound: "max_body_bytes",
        timeout: Duration::from_millis(limits.body_timeout_ms),
    };
    api::parse_json(&read(request, &rule).await?)
}

/// Reads a component.
///
/// # Errors
/// 408, 413 and 415.
pub(super) async fn component(request: Request, limits: &ApiLimits) -> Result<Bytes, ApiError> {
    let rule = Rule {
        media_type: "application/wasm",
        limit: limits.max_plugin_bytes,
        bound: "max_plugin_bytes",
        timeout: Duration::from_millis(limits.body_timeout_ms),
    };
    read(request, &rule).await
}

async fn read(request: Request, rule: &Rule) -> Result<Bytes, ApiError> {
    let (parts, body) = request.into_parts();
    check_type(&parts.headers, rule)?;
    // The announced length: what is too long is not even begun.
    if body.size_hint().lower() > rule.limit as u64 {
        return Err(too_large(rule));
    }
    let read = tokio::time::timeout(rule.timeout, collect(body, rule)).await;
    read.unwrap_or_else(|_| {
        let message = format!(
            "the body took longer than the limit (body_timeout_ms) of {} ms",
            rule.timeout.as_millis()
        );
        Err(ApiError::new(
            StatusCode::REQUEST_TIMEOUT,
            "body_timeout",
            message,
        ))
    })
}

async fn collect(body: Body, rule: &Rule) -> Result<Bytes, ApiError> {
    match Limited::new(body, rule.limit).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large(rule)),
        Err(error) => {
            let message = format!("the body broke off: {error}");
            Err(ApiError::new(
                StatusCode::BAD_REQUEST,
                "broken_body",
                message,
            ))
        }
    }
}

fn too_large(rule: &Rule) -> ApiError {
    let message = format!(
        "the body is larger than the limit ({}) of {} bytes",
        rule.bound, rule.limit
    );
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
}

/// The type must be there: browsers let any web page post to a local server without asking first, as long
/// as the body has no type or a form's.
fn check_type(headers: &HeaderMap, rule: &Rule) -> Result<(), ApiError> {
    let value = headers.get(header::CONTENT_TYPE);
    let text = value
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let essence = text.split(';').next().unwrap_or_default().trim();
    let fits = essence.eq_ignore_ascii_case(rule.media_type)
        || (rule.media_type == "application/json" && essence.ends_with("+json"));
    if fits {
        return Ok(());
    }
    let shown: String = text.chars().take(64).collect();
    let message = format!(
        "the content type must be {}, not {shown:?}",
        rule.media_type
    );
    let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    Err(ApiError::new(status, "unsupported_media_type", message))
}
