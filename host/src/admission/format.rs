//! The plugin of a request: resolved, its params checked, its sessions opened and measured.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use formwork_sandbox::{
    Action, GuestError, LatePolicy, LogLevel, LogLine, Observed, OpenRequest, Session,
    Value as FieldValue, Verdict,
};
use jsonschema::Validator;
use serde_json::Value;

use crate::api::FormatChoice;
use crate::app::App;
use crate::constrain::Planner;
use crate::errors::{self, ApiError, PluginRef};
use crate::metrics::{Metrics, PluginCall};
use crate::registry::Resolved;

/// Validators kept; past that all are dropped and made again as needed.
const CACHED_VALIDATORS: usize = 256;
/// Errors in params that one answer lists.
const SHOWN_ERRORS: usize = 5;
/// Bytes of one of them: they repeat the value.
const SHOWN_BYTES: usize = 300;

/// Compiled schemas of params, by the plugin's digest.
#[derive(Default)]
pub struct Validators(Mutex<HashMap<String, Arc<Validator>>>);

impl Validators {
    /// The validator of a plugin's params.
    fn get(&self, digest: &str, schema: &Value) -> Result<Arc<Validator>, String> {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(validator) = lock().get(digest) {
            return Ok(Arc::clone(validator));
        }
        let made = jsonschema::validator_for(schema).map_err(|error| error.to_string())?;
        let made = Arc::new(made);
        let mut validators = lock();
        if validators.len() >= CACHED_VALIDATORS {
            validators.clear();
        }
        validators.insert(digest.to_owned(), Arc::clone(&made));
        Ok(made)
    }
}

/// A plugin that a request is pinned to, with params that its schema accepts.
pub struct PinnedFormat {
    /// The plugin, for errors and answers.
    pub reference: PluginRef,
    resolved: Resolved,
    params: String,
    params_path: &'static str,
}

impl PinnedFormat {
    /// Finds the plugin and checks the params.
    pub(super) fn resolve(app: &App, choice: &FormatChoice) -> Result<Self, ApiError> {
        let resolved = app
            .registry
            .resolve(&choice.name, &choice.selector)
            .map_err(|error| ApiError::from(error).param(choice.param))?;
        let reference = PluginRef::new(&resolved.record);
        check(app, &resolved, choice).map_err(|error| error.plugin(reference.at(0)))?;
        Ok(Self {
            reference,
            resolved,
            params: choice.params.to_string(),
            params_path: choice.params_path,
        })
    }

    /// What the plugin wants when it misses a step's deadline.
    pub(super) fn on_late(&self) -> LatePolicy {
        self.resolved.plugin.description().on_late
    }

    /// Opens a session; `open.params` is filled in here.
    pub(super) fn open(&self, app: &App, mut open: OpenRequest) -> Result<Session, ApiError> {
        open.params.clone_from(&self.params);
        let started = Instant::now();
        let opened = self.resolved.plugin.open(&open);
        app.metrics.plugin_call(PluginCall::Open, started.elapsed());
        opened.map_err(|error| {
            app.metrics.session_failed(&error);
            errors::guest(error, self.reference.at(0), self.params_path)
        })
    }
}

fn check(app: &App, resolved: &Resolved, choice: &FormatChoice) -> Result<(), ApiError> {
    let schema = &resolved.plugin.description().params;
    let validator = app
        .validators
        .get(resolved.plugin.digest(), schema)
        .map_err(|error| {
            let message = format!("the plugin's schema of its params is invalid: {error}");
            let status = axum::http::StatusCode::BAD_GATEWAY;
            ApiError::new(status, "plugin_failed", message)
        })?;
    let mut wrong = Vec::new();
    for error in validator.iter_errors(&choice.params).take(SHOWN_ERRORS) {
        let mut text = error.to_string();
        text.truncate(text.floor_char_boundary(SHOWN_BYTES));
        wrong.push(format!(
            "at {}{}: {text}",
            choice.params_path,
            error.instance_path()
        ));
    }
    if wrong.is_empty() {
        return Ok(());
    }
    let message = format!(
        "the plugin does not take these params: {}",
        wrong.join("; ")
    );
    Err(ApiError::invalid(choice.params_path, message).code("invalid_params"))
}

/// A session whose calls are timed, counted and logged.
pub(super) struct Metered {
    session: Session,
    metrics: Arc<Metrics>,
    plugin: PluginRef,
}

impl Metered {
    pub(super) fn new(session: Session, metrics: Arc<Metrics>, plugin: PluginRef) -> Self {
        Self {
            session,
            metrics,
            plugin,
        }
    }

    fn call<T>(
        &mut self,
        kind: PluginCall,
        act: impl FnOnce(&mut Session) -> Result<T, GuestError>,
    ) -> Result<T, GuestError> {
        let started = Instant::now();
        let result = act(&mut self.session);
        self.metrics.plugin_call(kind, started.elapsed());
        if let Err(error) = &result {
            self.metrics.session_failed(error);
        }
        result
    }
}

impl Planner for Metered {
    fn plan(&mut self, observed: Observed) -> Result<Vec<Action>, GuestError> {
        self.call(PluginCall::Plan, |session| session.plan(observed))
    }

    fn check(&mut self, value: &FieldValue) -> Result<Verdict, GuestError> {
        self.call(PluginCall::Check, |session| session.check(value))
    }

    fn take_log(&mut self) -> Vec<LogLine> {
        let lines = self.session.take_log();
        for LogLine {
            level,
            message,
            call,
        } in &lines
        {
            let (plugin, request) = (&self.plugin.name, self.session.request_id());
            let version = &self.plugin.version;
            match level {
                LogLevel::Debug => {
                    tracing::debug!(plugin, version, request, step = call, "{message}")
                }
                LogLevel::Info => {
                    tracing::info!(plugin, version, request, step = call, "{message}")
                }
                LogLevel::Warn => {
                    tracing::warn!(plugin, version, request, step = call, "{message}")
                }
                LogLevel::Error => {
                    tracing::error!(plugin, version, request, step = call, "{message}")
                }
            }
        }
        lines
    }
}
