//! A small client of the HTTP API, for the commands that talk to a server.

use std::io::{BufRead, BufReader};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use serde_json::Value;
use ureq::http::Response;
use ureq::{Agent, Body};

use super::table::printable;

/// Longest time without a byte from the server before it counts as gone.
const READ_TIMEOUT: Duration = Duration::from_secs(300);

/// Longest response that is read whole, in bytes.
const MAX_RESPONSE_BYTES: u64 = 64 << 20;

/// Which server to talk to.
#[derive(Args, Clone, Debug)]
pub(super) struct ServerArgs {
    /// The server's address.
    #[arg(
        long,
        env = "FORMWORK_SERVER",
        default_value = "http://127.0.0.1:8080",
        value_name = "URL"
    )]
    pub(super) server: String,
    /// API key, where the server asks for one.
    #[arg(
        long,
        env = "FORMWORK_API_KEY",
        value_name = "KEY",
        hide_env_values = true
    )]
    pub(super) api_key: Option<String>,
}

/// A connection to one server. Clones share its pool.
#[derive(Clone)]
pub(super) struct Client {
    agent: Agent,
    base: String,
    bearer: Option<String>,
}

impl Client {
    pub(super) fn new(server: &ServerArgs) -> Client {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(Duration::from_secs(10)))
            .timeout_per_read(Some(READ_TIMEOUT))
            .build();
        Client {
            agent: config.into(),
            base: server.server.trim_end_matches('/').to_owned(),
            bearer: server.api_key.as_ref().map(|key| format!("Bearer {key}")),
        }
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    fn unreachable(&self) -> String {
        format!(
            "no answer from {}: is `formwork serve` running there?",
            self.base
        )
    }

    pub(super) fn get(&self, path: &str) -> Result<Value> {
        let mut request = self.agent.get(self.url(path));
        if let Some(bearer) = &self.bearer {
            request = request.header("authorization", bearer);
        }
        json(request.call().with_context(|| self.unreachable())?)
    }

    /// The body of a text endpoint, such as `/metrics`.
    pub(super) fn get_text(&self, path: &str) -> Result<String> {
        let mut request = self.agent.get(self.url(path));
        if let Some(bearer) = &self.bearer {
            request = request.header("authorization", bearer);
        }
        let mut response = request.call().with_context(|| self.unreachable())?;
        Ok(response.body_mut().read_to_string()?)
    }

    pub(super) fn delete(&self, path: &str) -> Result<Value> {
        let mut request = self.agent.delete(self.url(path));
        if let Some(bearer) = &self.bearer {
            request = request.header("authorization", bearer);
        }
        json(request.call().with_context(|| self.unreachable())?)
    }

    pub(super) fn post_bytes(&self, path: &str, kind: &str, bytes: &[u8]) -> Result<Value> {
        json(self.send(path, kind, bytes)?)
    }

    /// Posts a streaming request and hands each event's JSON to `on_event`, until `[DONE]`.
    pub(super) fn stream(
        &self,
        path: &str,
        body: &Value,
        mut on_event: impl FnMut(&Value) -> Result<()>,
    ) -> Result<()> {
        let response = self.send(path, "application/json", body.to_string().as_bytes())?;
        if !response.status().is_success() {
            json(response)?;
            bail!("the server streamed nothing");
        }
        for line in BufReader::new(response.into_body().into_reader()).lines() {
            let line = line.context("the stream broke")?;
            let Some(data) = line.strip_prefix("data:").map(str::trim) else {
                continue;
            };
            if data == "[DONE]" {
                return Ok(());
            }
            let event: Value = serde_json::from_str(data)
                .with_context(|| format!("an event is no JSON: {}", printable(data)))?;
            if let Some(error) = event.get("error") {
                bail!("{}", describe(error));
            }
            on_event(&event)?;
        }
        bail!("the stream ended without [DONE]")
    }

    fn send(&self, path: &str, kind: &str, bytes: &[u8]) -> Result<Response<Body>> {
        let mut request = self.agent.post(self.url(path)).header("content-type", kind);
        if let Some(bearer) = &self.bearer {
            request = request.header("authorization", bearer);
        }
        request.send(bytes).with_context(|| self.unreachable())
    }
}

/// The body as JSON; a status other than 2xx becomes an error with the server's own message.
fn json(mut response: Response<Body>) -> Result<Value> {
    let status = response.status();
    let text = response
        .body_mut()
        .with_config()
        .limit(MAX_RESPONSE_BYTES)
        .read_to_string()?;
    let body: Value = match text.is_empty() {
        true => Value::Null,
        false => serde_json::from_str(&text).unwrap_or(Value::String(text)),
    };
    if status.is_success() {
        return Ok(body);
    }
    let said = match (&body["error"], &body) {
        (Value::Object(_), _) => describe(&body["error"]),
        (_, Value::String(text)) => printable(text),
        _ => printable(&body.to_string()),
    };
    Err(anyhow!("{said} (HTTP {})", status.as_u16()))
}

/// An error object of the API as one line.
fn describe(error: &Value) -> String {
    let message = error["message"]
        .as_str()
        .unwrap_or("the server gives no reason");
    let mut text = printable(message);
    if let Some(param) = error["param"].as_str() {
        text += &format!(" [{}]", printable(param));
    }
    text
}
