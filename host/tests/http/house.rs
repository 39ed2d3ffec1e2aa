//! A server on a port of its own, and a client that shows the bytes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use formwork::app::{self, App};
use formwork::config::{EngineArgs, ServeConfig};
use formwork::server::{self, ServeError};
use formwork_model::Model;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// The model's name in every test.
pub(crate) const MODEL: &str = "tiny";

/// A running server. Dropping it checks that nothing is left behind.
pub(crate) struct House {
    pub(crate) app: Arc<App>,
    pub(crate) address: SocketAddr,
    runtime: tokio::runtime::Runtime,
    stop: Option<oneshot::Sender<()>>,
    serving: Option<tokio::task::JoinHandle<Result<(), ServeError>>>,
    _data: TempDir,
}

/// An answer as it came over the wire.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) text: String,
}

impl Reply {
    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {:?}", self.text))
    }

    /// A header's value.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// Status, code and param of an error.
    pub(crate) fn error(&self) -> (u16, String, String) {
        let body = self.json();
        let text = |name: &str| body["error"][name].as_str().unwrap_or("null").to_owned();
        assert!(!text("message").is_empty(), "{body}");
        (self.status, text("code"), text("param"))
    }

    /// The events of a stream and whether `[DONE]` ended it.
    pub(crate) fn events(&self) -> (Vec<Value>, bool) {
        assert_eq!(self.status, 200, "{}", self.text);
        let mut events = Vec::new();
        let mut done = false;
        for block in self.text.split_terminator("\n\n") {
            let data = block.strip_prefix("data: ").expect("only data lines");
            assert!(!done, "an event after [DONE]: {data}");
            match data {
                "[DONE]" => done = true,
                data => events.push(serde_json::from_str(data).unwrap()),
            }
        }
        (events, done)
    }
}

/// Where `make plugins` puts the stock plugins; `None`, with a line that says so, before it ran.
pub(crate) fn stock_plugins() -> Option<PathBuf> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../dist/plugins");
    let found = dir.join("formwork--json-schema@1.0.0.wasm").is_file();
    if !found {
        eprintln!("skipped: no stock plugins in dist/plugins; `make plugins` builds them");
    }
    found.then_some(dir)
}

impl House {
    pub(crate) fn new() -> Self {
        Self::with(|_| ())
    }

    /// A server whose settings `change` has changed.
    pub(crate) fn with(change: impl FnOnce(&mut ServeConfig)) -> Self {
        let data = tempfile::tempdir().unwrap();
        let no_stock = data.path().join("none");
        std::fs::create_dir(&no_stock).unwrap();
        let mut config = ServeConfig {
            port: 0,
            model_id: Some(MODEL.to_owned()),
            data_dir: data.path().join("data"),
            plugins_dir: Some(no_stock),
            engine: EngineArgs {
                kv_cache_mib: 8,
                ..EngineArgs::default()
            },
            ..ServeConfig::default()
        };
        change(&mut config);
        let app = app::start(&config, Arc::new(Model::tiny(7))).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime
            .block_on(TcpListener::bind(config.address()))
            .unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = runtime.spawn(server::serve(Arc::clone(&app), listener, async {
            let _ = stopped.await;
        }));
        Self {
            app,
            address,
            runtime,
            stop: Some(stop),
            serving: Some(serving),
            _data: data,
        }
    }

    /// Opens a connection and sends `bytes`.
    pub(crate) fn send(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        stream.write_all(bytes).unwrap();
        stream
    }

    /// Sends a request as it is and reads until the connection closes.
    pub(crate) fn raw(&self, head: &str, body: &[u8]) -> Reply {
        let mut request =
            format!("{head}\r\nhost: localhost\r\nconnection: close\r\n").into_bytes();
        if !body.is_empty() {
            request.extend(format!("content-length: {}\r\n", body.len()).bytes());
        }
        request.extend(b"\r\n");
        request.extend(body);
        read(self.send(&request))
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.raw(&format!("GET {path} HTTP/1.1"), b"")
    }

    pub(crate) fn delete(&self, path: &str) -> Reply {
        self.raw(&format!("DELETE {path} HTTP/1.1"), b"")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Reply {
        let head = format!("POST {path} HTTP/1.1\r\ncontent-type: application/json");
        self.raw(&head, body.to_string().as_bytes())
    }

    /// A chat request: one message, `change` on top.
    pub(crate) fn chat(&self, change: Value) -> Reply {
        self.post("/v1/chat/completions", &chat_body(change))
    }

    /// A completion request with `change` on top.
    pub(crate) fn complete(&self, change: Value) -> Reply {
        let base = json!({"model": MODEL, "prompt": "Once", "max_tokens": 8, "seed": 1});
        self.post("/v1/completions", &merged(base, change))
    }

    pub(crate) fn upload(&self, name: &str, version: &str, bytes: &[u8]) -> Reply {
        let head = format!(
            "POST /v1/plugins?name={name}&version={version} HTTP/1.1\r\ncontent-type: application/wasm"
        );
        self.raw(&head, bytes)
    }

    /// Waits until the engine runs nothing and no block is leased.
    pub(crate) fn settle(&self) {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let stats = self.app.engine.stats();
            let left = (stats.running, stats.waiting, stats.blocks_leased);
            if left == (0, 0, 0) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "left running, waiting, leased: {left:?}"
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until `condition` holds.
    pub(crate) fn wait(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !condition(self) {
            assert!(Instant::now() < deadline, "waited in vain for {what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Asks the server to stop; it drains.
    pub(crate) fn ask_to_stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }

    /// Waits until it has stopped.
    pub(crate) fn join(&mut self) {
        self.ask_to_stop();
        if let Some(serving) = self.serving.take() {
            let ended = self
                .runtime
                .block_on(async { tokio::time::timeout(Duration::from_secs(20), serving).await });
            ended.expect("the server stops in time").unwrap().unwrap();
        }
    }
}

impl Drop for House {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        if self.serving.is_some() {
            self.settle();
        }
        self.join();
        assert_eq!(self.app.engine.stats().unmasked_tokens, 0);
    }
}

pub(crate) fn chat_body(change: Value) -> Value {
    let base = json!({
        "model": MODEL, "max_tokens": 8, "seed": 1,
        "messages": [{"role": "user", "content": "Hello"}],
    });
    merged(base, change)
}

/// `base` with the fields of `change` on top.
pub(crate) fn merged(mut base: Value, change: Value) -> Value {
    if let Value::Object(change) = change {
        for (key, value) in change {
            base[key] = value;
        }
    }
    base
}

/// Reads one answer until the connection closes.
pub(crate) fn read(mut stream: TcpStream) -> Reply {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("the answer");
    let split = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let split = split.unwrap_or_else(|| panic!("no head: {:?}", String::from_utf8_lossy(&bytes)));
    let head = String::from_utf8_lossy(&bytes[..split]).into_owned();
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .unwrap();
    let body = &bytes[split + 4..];
    let chunked = head
        .to_ascii_lowercase()
        .contains("transfer-encoding: chunked");
    let body = if chunked {
        unchunk(body)
    } else {
        body.to_vec()
    };
    let text = String::from_utf8(body).unwrap();
    Reply { status, head, text }
}

/// Undoes the chunked transfer coding (RFC 9112, section 7.1); what was cut off is left as it is.
fn unchunk(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") {
        let size = std::str::from_utf8(&bytes[..end]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            break;
        }
        body.extend(&bytes[end + 2..end + 2 + size]);
        bytes = &bytes[end + 4 + size..];
    }
    body
}
