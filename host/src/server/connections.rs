//! Accepts connections, each with a deadline for its headers, and lets them end in order.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::patience::Patience;
use super::router;
use crate::app::App;

/// How long accepting rests after an error such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long connections get to send the errors of requests that the drain cut off.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Why serving failed.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The listener is reachable from outside, and nobody said that this is meant.
    #[error("{0} can be reached from other machines and there are no API keys")]
    PublicWithoutKeys(IpAddr),
    /// The listener does not work.
    #[error("the listener: {0}")]
    Listener(#[from] io::Error),
}

/// Serves until `shutdown` resolves, then drains: new work gets 503, running work gets
/// `drain_timeout_ms`, what is left fails with `shutting_down`. The engine is down afterwards.
///
/// # Errors
/// When the listener's address is public without keys, or has no address.
pub async fn serve(
    app: Arc<App>,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let address = listener.local_addr()?.ip();
    if !address.is_loopback() && app.keys.is_none() && !app.insecure {
        return Err(ServeError::PublicWithoutKeys(address));
    }
    let mut house = House::new(&app);
    let mut shutdown = pin!(shutdown);
    tokio::select! {
        () = house.accept(&listener) => {}
        () = &mut shutdown => {}
    }
    app.drain();
    let bound = Duration::from_millis(app.connections.drain_timeout_ms);
    // Whoever still comes is told that the server goes down.
    let drained = tokio::select! {
        () = house.accept(&listener) => false,
        drained = tokio::time::timeout(bound, app.idle()) => drained.is_ok(),
    };
    if !drained {
        tracing::warn!("requests were still running when the drain ended: they fail");
    }
    let engine = app.engine.clone();
    // Joins a thread; the sequences left are failed, and their streams say so.
    if let Err(error) = tokio::task::spawn_blocking(move || engine.shutdown()).await {
        tracing::error!(%error, "the engine did not go down");
    }
    drop(listener);
    house.close().await;
    Ok(())
}

/// The open connections.
struct House {
    app: Arc<App>,
    router: Router,
    http: http1::Builder,
    places: Arc<Semaphore>,
    graceful: GracefulShutdown,
    tasks: JoinSet<()>,
}

impl House {
    fn new(app: &Arc<App>) -> Self {
        let limits = &app.connections;
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(Duration::from_millis(limits.header_timeout_ms));
        Self {
            app: Arc::clone(app),
            router: router(Arc::clone(app)),
            http,
            places: Arc::new(Semaphore::new(limits.max_connections)),
            graceful: GracefulShutdown::new(),
            tasks: JoinSet::new(),
        }
    }

    /// Accepts for ever. May be dropped at any point: a connection is either not accepted or has its task.
    async fn accept(&mut self, listener: &TcpListener) {
        loop {
            // A place first: who finds none waits in the system's backlog.
            let Ok(place) = Arc::clone(&self.places).acquire_owned().await else {
                return;
            };
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "accepting a connection failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            while self.tasks.try_join_next().is_some() {}
            let connection = self.connection(stream);
            let app = Arc::clone(&self.app);
            self.tasks.spawn(async move {
                let _place = place;
                app.metrics.connections(1);
                let _closed = Closed(&app);
                connection.await;
            });
        }
    }

    fn connection(&self, stream: TcpStream) -> impl Future<Output = ()> + use<> {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "no TCP_NODELAY: streamed tokens may come in bursts");
        }
        let limit = Duration::from_millis(self.app.connections.write_timeout_ms);
        let stream = Patience::new(stream, limit);
        let service = TowerToHyperService::new(self.router.clone());
        let connection = self.http.serve_connection(TokioIo::new(stream), service);
        let connection = self.graceful.watch(connection);
        async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended early");
            }
        }
    }

    /// Lets the connections send what they have; then they are closed.
    async fn close(mut self) {
        if tokio::time::timeout(LAST_WORDS, self.graceful.shutdown())
            .await
            .is_err()
        {
            self.tasks.abort_all();
        }
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Counts a connection out, also when its task is aborted.
struct Closed<'a>(&'a App);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.metrics.connections(-1);
    }
}
