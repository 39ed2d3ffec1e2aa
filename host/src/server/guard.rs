//! What every request passes: a name, the key, a place in the figures, and a net under panics.

use std::fmt;
use std::future::poll_fn;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::app::App;
use crate::errors::ApiError;

/// Names a request in answers and logs.
#[derive(Clone, Debug)]
pub(super) struct RequestId(Arc<str>);

impl RequestId {
    fn new() -> Result<Self, ApiError> {
        let (high, low) = (getrandom::u64(), getrandom::u64());
        let (high, low) = (
            high.map_err(ApiError::internal)?,
            low.map_err(ApiError::internal)?,
        );
        Ok(Self(format!("{high:016x}{low:016x}").into()))
    }

    /// The one that the guard gave to `request`.
    pub(super) fn of(request: &Request) -> Self {
        let id = request.extensions().get::<Self>();
        id.cloned().unwrap_or_else(|| Self("unnamed".into()))
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Paths that answer without a key, so that a supervisor needs none.
fn is_open(path: &str) -> bool {
    matches!(path, "/health" | "/ready")
}

pub(super) async fn guard(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Response {
    let started = Instant::now();
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>();
    let route = route.map_or("unmatched".to_owned(), |path| path.as_str().to_owned());
    let id = match RequestId::new() {
        Ok(id) => id,
        Err(error) => return error.into_response(),
    };
    request.extensions_mut().insert(id.clone());
    let mut response = match admitted(&app, &request) {
        Ok(()) => answer(request, next).await,
        Err(error) => error.into_response(),
    };
    let status = response.status().as_u16();
    app.metrics.http_request(&route, known(&method), status);
    let took_ms = started.elapsed().as_millis();
    tracing::info!(%id, %method, route, status, took_ms, "request");
    if let Ok(value) = HeaderValue::try_from(id.to_string()) {
        response.headers_mut().insert("x-request-id", value);
    }
    response
}

/// Methods are free text; the figures know only the usual ones.
fn known(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::DELETE => "DELETE",
        _ => "other",
    }
}

fn admitted(app: &App, request: &Request) -> Result<(), ApiError> {
    // Anyone on this machine may ask, but no web page that a browser on it shows: a page can make its own
    // name point here, and then only the name in the request tells (DNS rebinding).
    if app.keys.is_none() && !app.insecure {
        let host = request.headers().get(header::HOST);
        if host.is_some_and(|host| !is_local(host)) {
            let message = "the Host header must name this machine (localhost, 127.0.0.1 or [::1]) unless the \
                           server has API keys or runs with --insecure";
            return Err(ApiError::new(
                StatusCode::FORBIDDEN,
                "host_not_allowed",
                message,
            ));
        }
    }
    match &app.keys {
        Some(keys) if !is_open(request.uri().path()) => {
            let key = keys.check(request.headers())?;
            tracing::debug!(key, "authorized");
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Whether a Host header names the loopback interface, with or without a port.
fn is_local(host: &HeaderValue) -> bool {
    let Ok(authority) = host.to_str().unwrap_or_default().parse::<Authority>() else {
        return false;
    };
    let name = authority.host();
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || address
            .parse()
            .is_ok_and(|address: IpAddr| address.is_loopback())
}

/// The handler's answer; a panic in it is answered with 500 and costs this request only.
async fn answer(request: Request, next: Next) -> Response {
    let mut running = pin!(next.run(request));
    poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(context)));
        polled.unwrap_or_else(|_| {
            Poll::Ready(ApiError::internal("a handler panicked").into_response())
        })
    })
    .await
}
