//! Which path leads where.

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};

use super::{generate, guard, ops, plugins, tokens};
use crate::app::App;

/// All routes, behind the guard.
pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(generate::chat))
        .route("/v1/completions", post(generate::completions))
        .route("/v1/models", get(ops::models))
        // A model's name may hold a plugin's, slash included.
        .route("/v1/models/{*id}", get(ops::model))
        .route("/v1/plugins", get(plugins::list).post(plugins::upload))
        .route("/v1/plugins/{namespace}/{name}", get(plugins::show))
        .route(
            "/v1/plugins/{namespace}/{name}/{version}",
            get(plugins::show_version).delete(plugins::delete),
        )
        .route("/tokenize", post(tokens::tokenize))
        .route("/detokenize", post(tokens::detokenize))
        .route("/health", get(ops::health))
        .route("/ready", get(ops::ready))
        .route("/metrics", get(ops::metrics))
        .fallback(ops::not_found)
        .method_not_allowed_fallback(ops::wrong_method)
        .layer(from_fn_with_state(Arc::clone(&app), guard::guard))
        .with_state(app)
}
