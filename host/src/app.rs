//! Everything behind the API, and how it is put together.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use aho_corasick::BuildError;
use formwork_engine::{Engine, EngineConfig};
use formwork_model::{CpuBackend, CpuConfig, Model, ModelError, release_freed_memory};
use formwork_sandbox::{
    GrammarLimits, Grammars, GrammarsError, Sandbox, SandboxError, SandboxLimits, Vocabulary,
    VocabularyError,
};
use sha2::{Digest, Sha256};
use tokio::sync::{Semaphore, watch};

use crate::admission::{Specials, Validators, thinks_by_itself};
use crate::api::ApiLimits;
use crate::config::{LimitArgs, ServeConfig};
use crate::errors::ApiError;
use crate::metrics::Metrics;
use crate::registry::{Registry, RegistryError};
use crate::server::{ApiKeys, KeyFileError};

/// Positions per block of the KV cache.
const BLOCK_SIZE: usize = 16;

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address is reachable from outside, and nobody said that this is meant.
    #[error(
        "{0} can be reached from other machines: give --api-key-file, or --insecure to serve anyone"
    )]
    PublicWithoutKeys(std::net::IpAddr),
    /// The file of API keys.
    #[error(transparent)]
    Keys(#[from] KeyFileError),
    /// The model does not fit the settings.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The cache holds less than one block.
    #[error("--kv-cache-mib {mib} holds no block of {block_bytes} bytes; give it more")]
    CacheTooSmall {
        /// The setting.
        mib: usize,
        /// Bytes of one block of this model.
        block_bytes: usize,
    },
    /// The model's vocabulary cannot be served.
    #[error(transparent)]
    Vocabulary(#[from] VocabularyError),
    /// The grammar engine.
    #[error(transparent)]
    Grammars(#[from] GrammarsError),
    /// The sandbox.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The registry or a stock plugin.
    #[error("plugins ({dir}): {source}")]
    Registry {
        /// Where they lie.
        dir: PathBuf,
        /// What is wrong.
        source: RegistryError,
    },
    /// The special tokens cannot be searched for.
    #[error("special tokens: {0}")]
    Specials(#[from] BuildError),
    /// The operating system gives no thread.
    #[error("the engine's thread: {0}")]
    Thread(#[from] std::io::Error),
}

/// The parts behind the API.
pub struct App {
    /// The model.
    pub model: Arc<Model>,
    /// Its vocabulary as plugins see it.
    pub vocabulary: Arc<Vocabulary>,
    /// What runs sequences.
    pub engine: Engine,
    /// Compiles grammars, those of plugins among them.
    pub grammars: Arc<Grammars>,
    /// Plugins by name.
    pub registry: Arc<Registry>,
    /// Bounds on requests.
    pub limits: ApiLimits,
    /// Bounds on connections.
    pub connections: LimitArgs,
    /// Who may ask; `None` lets anyone.
    pub keys: Option<ApiKeys>,
    /// Whether a public address without keys is wanted.
    pub insecure: bool,
    /// Figures.
    pub metrics: Arc<Metrics>,
    /// Compiled schemas of params.
    pub validators: Validators,
    /// Spellings of special tokens.
    pub specials: Specials,
    /// Whether the model reasons before it answers unless told not to.
    pub thinks_by_itself: bool,
    /// Unix time of the start, seconds.
    pub started_at: u64,
    /// Tells models and versions of the server apart in answers.
    pub fingerprint: String,
    /// Work that occupies a core, such as opening sessions: more at once would only make each of it
    /// late by its deadline.
    blocking: Arc<Semaphore>,
    /// Compilation of uploads takes seconds and its own threads: one at a time, apart from the rest.
    uploads: Arc<Semaphore>,
    draining: AtomicBool,
    in_flight: watch::Sender<usize>,
}

/// A generation request that is being served; dropping it says that it is done.
pub struct InFlight {
    app: Arc<App>,
    since: Instant,
}

impl InFlight {
    /// When it came in.
    pub fn since(&self) -> Instant {
        self.since
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.app.in_flight.send_modify(|count| *count -= 1);
    }
}

impl App {
    /// Notes a request that is to be served.
    ///
    /// # Errors
    /// 503 once the server drains.
    pub fn enter(self: &Arc<Self>) -> Result<InFlight, ApiError> {
        self.in_flight.send_modify(|count| *count += 1);
        let entered = InFlight {
            app: Arc::clone(self),
            since: Instant::now(),
        };
        // Counted before the flag is read: a drain that missed the count has set the flag.
        match self.is_draining() {
            true => Err(ApiError::unavailable(
                "shutting_down",
                "the server is shutting down",
            )),
            false => Ok(entered),
        }
    }

    /// Whether the server goes down.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// From now on no generation is taken in.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::SeqCst);
    }

    /// Resolves when no generation is being served.
    pub async fn idle(&self) {
        let mut count = self.in_flight.subscribe();
        // The sender lives as long as `self`.
        let _ = count.wait_for(|&count| count == 0).await;
    }

    /// Runs `work` where blocking is allowed, as much at once as there are cores.
    ///
    /// # Errors
    /// What `work` fails with; 500 if it panics.
    pub async fn blocking<T, F>(self: &Arc<Self>, work: F) -> Result<T, ApiError>
    where
        T: Send + 'static,
        F: FnOnce(&App) -> Result<T, ApiError> + Send + 'static,
    {
        self.blocking_on(&self.blocking, work).await
    }

    /// Runs the compilation of an upload, one at a time.
    ///
    /// # Errors
    /// What `work` fails with; 500 if it panics.
    pub async fn compiling<T, F>(self: &Arc<Self>, work: F) -> Result<T, ApiError>
    where
        T: Send + 'static,
        F: FnOnce(&App) -> Result<T, ApiError> + Send + 'static,
    {
        self.blocking_on(&self.uploads, work).await
    }

    async fn blocking_on<T, F>(
        self: &Arc<Self>,
        places: &Arc<Semaphore>,
        work: F,
    ) -> Result<T, ApiError>
    where
        T: Send + 'static,
        F: FnOnce(&App) -> Result<T, ApiError> + Send + 'static,
    {
        let permit = Arc::clone(places).acquire_owned().await;
        let permit = permit.map_err(ApiError::internal)?;
        let app = Arc::clone(self);
        let task = tokio::task::spawn_blocking(move || {
            // Kept until the work ends, even when nobody waits for it any more.
            let _permit = permit;
            work(&app)
        });
        task.await.map_err(ApiError::internal)?
    }
}

/// Puts everything together: backend, engine, sandbox, registry, stock plugins.
///
/// # Errors
/// [`StartError`] says what is missing and how to mend it.
pub fn start(config: &ServeConfig, model: Arc<Model>) -> Result<Arc<App>, StartError> {
    let keys = config
        .api_key_file
        .as_deref()
        .map(ApiKeys::read)
        .transpose()?;
    if !config.host.is_loopback() && keys.is_none() && !config.insecure {
        return Err(StartError::PublicWithoutKeys(config.host));
    }
    let info = model.info();
    let tokenizer = Arc::clone(model.tokenizer());
    let rows = u32::try_from(info.vocab_size).unwrap_or(u32::MAX);
    let end = tokenizer.end_tokens().to_vec();
    let vocabulary = Arc::new(Vocabulary::new(&info.name, tokenizer.tok_env(), rows, end)?);
    let engine = engine(config, &model)?;
    let grammars = Grammars::new(Arc::clone(&vocabulary), GrammarLimits::default())?;
    let registry = registry(config, &grammars)?;
    release_freed_memory();
    let model_id = config.served_model_id();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let limits = ApiLimits::new(
        &config.limits,
        model_id,
        tokenizer.vocab_size(),
        engine.max_context(),
    );
    Ok(Arc::new(App {
        metrics: Arc::new(Metrics::new(engine.clone())),
        specials: Specials::of(&tokenizer)?,
        thinks_by_itself: model.chat_template().is_some_and(thinks_by_itself),
        fingerprint: fingerprint(&model, &vocabulary),
        model,
        vocabulary,
        engine,
        grammars,
        registry: Arc::new(registry),
        limits,
        connections: config.limits.clone(),
        keys,
        insecure: config.insecure,
        validators: Validators::default(),
        started_at: unix_time(),
        blocking: Arc::new(Semaphore::new(cores.max(2))),
        uploads: Arc::new(Semaphore::new(1)),
        draining: AtomicBool::new(false),
        in_flight: watch::Sender::new(0),
    }))
}

fn engine(config: &ServeConfig, model: &Arc<Model>) -> Result<Engine, StartError> {
    let arguments = &config.engine;
    let token_bytes = model.kv_bytes_per_token(arguments.kv_dtype);
    let block_bytes = token_bytes.saturating_mul(BLOCK_SIZE);
    let kv_blocks = (arguments.kv_cache_mib << 20) / block_bytes.max(1);
    if kv_blocks == 0 {
        return Err(StartError::CacheTooSmall {
            mib: arguments.kv_cache_mib,
            block_bytes,
        });
    }
    let trained = model.info().context_length;
    let max_context = arguments.max_context.unwrap_or(trained).min(trained);
    let threads = arguments.thread_count();
    let backend = CpuBackend::new(
        Arc::clone(model),
        CpuConfig {
            kv_blocks,
            block_size: BLOCK_SIZE,
            kv_dtype: arguments.kv_dtype,
            threads,
            max_context,
        },
    )?;
    let engine = EngineConfig {
        max_rows: arguments.max_rows,
        token_budget: arguments.token_budget,
        queue_limit: arguments.queue_limit,
        workers: threads,
        ..EngineConfig::default()
    };
    Ok(Engine::start(
        Box::new(backend),
        model.tokenizer().tok_env(),
        engine,
    )?)
}

fn registry(config: &ServeConfig, grammars: &Arc<Grammars>) -> Result<Registry, StartError> {
    let limits = SandboxLimits {
        component_bytes: config.limits.max_plugin_bytes,
        ..SandboxLimits::default()
    };
    let sandbox = Sandbox::new(Arc::clone(grammars), limits)?;
    let sandbox = Arc::new(sandbox.keep_compiled(&config.data_dir.join("compiled"))?);
    let at = |dir: &std::path::Path| {
        let dir = dir.to_owned();
        move |source| StartError::Registry { dir, source }
    };
    let registry = Registry::open(&config.data_dir, sandbox).map_err(at(&config.data_dir))?;
    match config.stock_plugins_dir() {
        Some(dir) => {
            let stock = registry.load_stock(&dir).map_err(at(&dir))?;
            tracing::info!(plugins = stock.len(), dir = %dir.display(), "loaded the stock plugins");
        }
        None => tracing::warn!("no stock plugins: response_format will find none (make plugins)"),
    }
    Ok(registry)
}

/// Seconds since 1970.
pub fn unix_time() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}

fn fingerprint(model: &Model, vocabulary: &Vocabulary) -> String {
    let info = model.info();
    let mut hash = Sha256::new();
    for part in [
        env!("CARGO_PKG_VERSION"),
        &info.name,
        &info.quantization,
        &info.parameters.to_string(),
        vocabulary.digest(),
    ] {
        hash.update(part);
        hash.update([0]);
    }
    let digest = hash.finalize();
    format!(
        "fw_{:016x}",
        u64::from_be_bytes(digest.first_chunk().copied().unwrap_or_default())
    )
}
