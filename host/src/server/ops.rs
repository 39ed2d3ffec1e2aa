//! Models, health, readiness and figures.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::api::ModelChoice;
use crate::app::App;
use crate::errors::ApiError;

/// A JSON answer.
pub(super) struct Json(pub(super) Value);

impl IntoResponse for Json {
    fn into_response(self) -> Response {
        let headers = [(header::CONTENT_TYPE, "application/json")];
        (headers, self.0.to_string()).into_response()
    }
}

fn described(app: &App) -> Value {
    json!({
        "id": app.limits.model_id,
        "object": "model",
        "created": app.started_at,
        "owned_by": "formwork",
        "max_model_len": app.limits.max_context,
        "formwork": app.model.info(),
    })
}

/// `GET /v1/models`.
pub(super) async fn models(State(app): State<Arc<App>>) -> Json {
    Json(json!({"object": "list", "data": [described(&app)]}))
}

/// `GET /v1/models/{id}`; a name with a plugin is described as what it stands on.
pub(super) async fn model(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
) -> Result<Json, ApiError> {
    ModelChoice::parse(&id, &app.limits)?;
    let mut model = described(&app);
    model["id"] = json!(id);
    Ok(Json(model))
}

/// `GET /health`: the process answers.
pub(super) async fn health() -> Json {
    Json(json!({"status": "ok"}))
}

/// `GET /ready`: whether requests should be sent here. A server that answers has its model loaded.
pub(super) async fn ready(State(app): State<Arc<App>>) -> Result<Json, ApiError> {
    match app.is_draining() {
        true => Err(ApiError::unavailable(
            "shutting_down",
            "the server is shutting down",
        )),
        false => Ok(Json(json!({"status": "ready"}))),
    }
}

/// `GET /metrics`.
pub(super) async fn metrics(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let text = app.metrics.encode().map_err(ApiError::internal)?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

/// No such route.
pub(super) async fn not_found(request: axum::extract::Request) -> ApiError {
    let path: String = request.uri().path().chars().take(128).collect();
    let message = format!("there is nothing at {} {path}", request.method());
    ApiError::new(StatusCode::NOT_FOUND, "not_found", message)
}

/// The route is there, the method is not.
pub(super) async fn wrong_method(request: axum::extract::Request) -> ApiError {
    let path: String = request.uri().path().chars().take(128).collect();
    let message = format!("{path} does not take {}", request.method());
    ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        message,
    )
}
