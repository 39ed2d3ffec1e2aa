//! `formwork serve`.

use std::io::Write;
use std::sync::Arc;

use anyhow::{Context, Result};
use formwork_model::PackedWriter;
use tokio::net::TcpListener;

use super::model;
use super::progress::Progress;
use crate::app::{self, App};
use crate::config::ServeConfig;
use crate::server;

pub(super) fn run(config: &ServeConfig) -> Result<()> {
    super::start_logging("info");
    let app = start(config)?;
    let runtime = runtime()?;
    runtime.block_on(async {
        let address = config.address();
        let listener = TcpListener::bind(address).await;
        let listener = listener.with_context(|| format!("listening on {address}"))?;
        announce(config, &listener)?;
        // Only now: a first start is as quick as any without a file. It goes on until the server stops.
        let _writer = PackedWriter::start(&app.model).context("starting threads")?;
        server::serve(app, listener, stop_signal()).await?;
        Ok(())
    })
}

/// Loads the model and starts everything behind the API.
pub(super) fn start(config: &ServeConfig) -> Result<Arc<App>> {
    let model = model::load(&config.model, &config.engine, config.packed_cache)?;
    let model = Arc::new(model);
    let progress = Progress::new("loading plugins");
    let app = app::start(config, model)?;
    drop(progress);
    Ok(app)
}

/// The threads of the HTTP side; the engine has its own.
pub(super) fn runtime() -> Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).thread_name("formwork-http");
    runtime.enable_all().build().context("starting threads")
}

/// Says where the server is, on stdout: with `--port 0` this is how a script finds it.
fn announce(config: &ServeConfig, listener: &TcpListener) -> Result<()> {
    let address = listener.local_addr()?;
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "serving {} on http://{address}",
        config.served_model_id()
    )?;
    out.flush()?;
    Ok(())
}

/// Resolves at SIGINT or SIGTERM. A second one ends the process at once.
pub(super) async fn stop_signal() {
    stop_once().await;
    eprintln!("stopping: running requests may finish; once more to stop at once");
    tokio::spawn(async {
        stop_once().await;
        std::process::exit(130);
    });
}

#[cfg(unix)]
async fn stop_once() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        let _ = tokio::signal::ctrl_c().await;
        return;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}

#[cfg(not(unix))]
async fn stop_once() {
    let _ = tokio::signal::ctrl_c().await;
}
