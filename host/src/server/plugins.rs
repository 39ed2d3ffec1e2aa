//! `/v1/plugins`: publish, list, show, delete.

use std::sync::Arc;

use axum::extract::{Path, Query, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use semver::Version;
use serde_json::{Value, json};

use super::body;
use super::ops::Json;
use crate::api::Fields;
use crate::app::App;
use crate::errors::ApiError;
use crate::registry::{PluginName, PluginRecord, RegistryError};

/// `POST /v1/plugins?name=ns/name&version=1.0.0`, the component as body.
pub(super) async fn upload(
    State(app): State<Arc<App>>,
    Query(query): Query<Vec<(String, String)>>,
    request: Request,
) -> Result<Response, ApiError> {
    let mut map = serde_json::Map::new();
    for (key, value) in query {
        map.insert(key, Value::String(value));
    }
    let mut fields = Fields::new("", Value::Object(map))?;
    let name = plugin_name(&fields.required_string("name")?)?;
    let version = version(&fields.required_string("version")?)?;
    fields.finish()?;
    let bytes = body::component(request, &app.limits).await?;
    let record = app
        .compiling(move |app| Ok(app.registry.upload(&name, &version, &bytes)?))
        .await?;
    Ok((StatusCode::CREATED, Json(json!(record))).into_response())
}

/// `GET /v1/plugins`.
pub(super) async fn list(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let records = app.blocking(|app| Ok(app.registry.list()?)).await?;
    Ok(listed(&records))
}

/// `GET /v1/plugins/{ns}/{name}`: all versions, highest first.
pub(super) async fn show(
    State(app): State<Arc<App>>,
    Path((namespace, name)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let name = plugin_name(&format!("{namespace}/{name}"))?;
    let records = app
        .blocking(move |app| Ok(app.registry.show(&name)?))
        .await?;
    Ok(listed(&records))
}

/// `GET /v1/plugins/{ns}/{name}/{version}`.
pub(super) async fn show_version(
    State(app): State<Arc<App>>,
    Path((namespace, name, wanted)): Path<(String, String, String)>,
) -> Result<Response, ApiError> {
    let name = plugin_name(&format!("{namespace}/{name}"))?;
    let wanted = version(&wanted)?;
    let record = app
        .blocking(move |app| {
            let records = app.registry.show(&name)?;
            let versions = records
                .iter()
                .map(|record| record.version.to_string())
                .collect();
            let found = records.into_iter().find(|record| record.version == wanted);
            Ok(found.ok_or_else(|| RegistryError::NoVersion {
                name: name.to_string(),
                selector: format!("={wanted}"),
                versions,
            })?)
        })
        .await?;
    Ok(Json(json!(record)).into_response())
}

/// `DELETE /v1/plugins/{ns}/{name}/{version}`.
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    Path((namespace, name, wanted)): Path<(String, String, String)>,
) -> Result<Response, ApiError> {
    let name = plugin_name(&format!("{namespace}/{name}"))?;
    let wanted = version(&wanted)?;
    let answer = json!({"name": name, "version": wanted, "deleted": true});
    app.blocking(move |app| Ok(app.registry.delete(&name, &wanted)?))
        .await?;
    Ok(Json(answer).into_response())
}

fn listed(records: &[PluginRecord]) -> Response {
    Json(json!({"object": "list", "data": records})).into_response()
}

fn plugin_name(text: &str) -> Result<PluginName, ApiError> {
    Ok(text.parse::<PluginName>()?)
}

fn version(text: &str) -> Result<Version, ApiError> {
    Version::parse(text).map_err(|error| {
        let shown: String = text.chars().take(64).collect();
        ApiError::invalid(
            "version",
            format!("{shown:?} is not a version like 1.0.0: {error}"),
        )
    })
}
