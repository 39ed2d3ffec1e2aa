//! The server under the demo: the real one, in this process, on a port of its own.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::cli::client::{Client, ServerArgs};
use crate::cli::serve;
use crate::config::ServeConfig;
use crate::server;

/// A running server. `stop` drains it.
pub(super) struct House {
    runtime: tokio::runtime::Runtime,
    serving: tokio::task::JoinHandle<Result<()>>,
    stop: oneshot::Sender<()>,
    address: SocketAddr,
    model_id: String,
    /// Uploads of the demo go with it.
    _data: TempDir,
}

impl House {
    pub(super) fn start(model: &str, plugins_dir: Option<PathBuf>, port: u16) -> Result<House> {
        let data = tempfile::tempdir().context("a directory for uploads")?;
        let config = ServeConfig {
            port,
            model: model.to_owned(),
            data_dir: data.path().to_owned(),
            plugins_dir,
            ..ServeConfig::default()
        };
        let app = serve::start(&config)?;
        let runtime = serve::runtime()?;
        let listener = runtime.block_on(TcpListener::bind(config.address()));
        let listener = listener.with_context(|| format!("listening on {}", config.address()))?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = runtime.spawn(async move {
            let stopped = async {
                // A dropped sender stops the server too.
                let _ = stopped.await;
            };
            server::serve(app, listener, stopped)
                .await
                .map_err(anyhow::Error::from)
        });
        Ok(House {
            runtime,
            serving,
            stop,
            address,
            model_id: config.served_model_id(),
            _data: data,
        })
    }

    pub(super) fn model_id(&self) -> &str {
        &self.model_id
    }

    pub(super) fn address(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn client(&self) -> Client {
        Client::new(&ServerArgs {
            server: self.address(),
            api_key: None,
        })
    }

    pub(super) fn wait_for_signal(&self) {
        self.runtime.block_on(serve::stop_signal());
    }

    /// Stops the server and waits until it is drained.
    pub(super) fn stop(self) -> Result<()> {
        // The server may have ended by itself; its result says so.
        let _ = self.stop.send(());
        let served = self.runtime.block_on(self.serving);
        served.map_err(|error| anyhow!("the server's task failed: {error}"))?
    }
}
