//! The sandbox: takes components in.

use crate::artifacts::Artifacts;
use crate::bindings::{Format, FormatPre};
use crate::guest::Guest;
use crate::pool::{Capacity, Needs, Ticker, engine};
use crate::scan::{Census, scan, within};
use crate::session::Run;
use crate::vocabulary::hex;
use crate::{
    AdmissionError, Description, Grammars, GuestError, LatePolicy, Plugin, SandboxError,
    SandboxLimits,
};
use sha2::{Digest, Sha256};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;
use wasmtime::Engine;
use wasmtime::component::{Component, HasSelf, Linker};

/// Runs untrusted plugins.
pub struct Sandbox {
    house: Arc<House>,
    /// `None`: what is compiled is not kept.
    artifacts: Option<Artifacts>,
}

/// What sandbox, plugins and sessions share.
pub(crate) struct House {
    pub(crate) engine: Engine,
    linker: Linker<Guest>,
    pub(crate) grammars: Arc<Grammars>,
    pub(crate) limits: SandboxLimits,
    pub(crate) capacity: Arc<Capacity>,
    _ticker: Ticker,
}

impl Sandbox {
    /// A sandbox whose plugins see the vocabulary of `grammars`. Reserves address space for the pool and
    /// starts the thread that ends late calls.
    ///
    /// # Errors
    /// When the engine refuses the limits, or the system the address space or the thread.
    pub fn new(grammars: Arc<Grammars>, limits: SandboxLimits) -> Result<Self, SandboxError> {
        let engine = engine(&limits)?;
        let mut linker = Linker::new(&engine);
        Format::add_to_linker::<Guest, HasSelf<Guest>>(&mut linker, |guest| guest)
            .map_err(|error| SandboxError(format!("{error:#}")))?;
        Ok(Self {
            house: Arc::new(House {
                _ticker: Ticker::start(&engine)?,
                capacity: Capacity::new(&limits),
                engine,
                linker,
                grammars,
                limits,
            }),
            artifacts: None,
        })
    }

    /// Keeps compiled plugins in `dir`, which is made if needed, and takes them from there: admitting the same
    /// bytes again is then a matter of milliseconds, in this process or the next one.
    ///
    /// # Errors
    /// When the directory cannot be used, or others than its owner may write to it.
    pub fn keep_compiled(mut self, dir: &Path) -> Result<Self, SandboxError> {
        let artifacts = Artifacts::open(dir, &self.house.engine)
            .map_err(|error| SandboxError(format!("{}: {error}", dir.display())))?;
        self.artifacts = Some(artifacts);
        Ok(self)
    }

    /// The bounds in force.
    pub fn limits(&self) -> &SandboxLimits {
        &self.house.limits
    }

    /// Sessions live now.
    pub fn live_sessions(&self) -> u32 {
        self.house.capacity.live()
    }

    /// Checks, compiles and tries out a component. Takes as long as compiling does (tens of milliseconds
    /// and up), on two threads or more.
    ///
    /// # Errors
    /// Says what is wrong with the component and, for bounds, which one it exceeds.
    pub fn admit(&self, bytes: &[u8]) -> Result<Plugin, AdmissionError> {
        let census = scan(bytes, &self.house.limits)?;
        let digest = hex(&Sha256::digest(bytes));
        let component = self.compiled(bytes, &digest)?;
        let needs = self.needs(&component, census)?;
        let world = |error: wasmtime::Error| AdmissionError::World(format!("{error:#}"));
        let pre = self
            .house
            .linker
            .instantiate_pre(&component)
            .map_err(world)?;
        let pre = FormatPre::new(pre).map_err(world)?;
        let description = self.describe(&pre, needs)?;
        Ok(Plugin::new(
            self.house.clone(),
            pre,
            crate::plugin::Facts {
                digest,
                size: bytes.len(),
                description,
                needs,
            },
        ))
    }

    fn compiled(&self, bytes: &[u8], digest: &str) -> Result<Component, AdmissionError> {
        let Some(artifacts) = &self.artifacts else {
            return self.compile(bytes);
        };
        if let Some(component) = artifacts.load(&self.house.engine, digest) {
            return Ok(component);
        }
        let component = self.compile(bytes)?;
        artifacts.store(digest, &component);
        Ok(component)
    }

    /// Compiles on another thread, so that the caller can give up.
    fn compile(&self, bytes: &[u8]) -> Result<Component, AdmissionError> {
        let limit_ms = self.house.limits.compile_ms;
        let (engine, bytes) = (self.house.engine.clone(), bytes.to_vec());
        let (done, result) = channel();
        std::thread::Builder::new()
            .name("plugin-compile".into())
            .stack_size(16 << 20)
            .spawn(move || {
                // A caller that gave up no longer listens.
                let _ = done.send(Component::from_binary(&engine, &bytes));
            })
            .map_err(|error| AdmissionError::Invalid(format!("no thread to compile: {error}")))?;
        match result.recv_timeout(Duration::from_millis(limit_ms)) {
            Ok(component) => {
                component.map_err(|error| AdmissionError::Invalid(format!("{error:#}")))
            }
            Err(_) => Err(AdmissionError::CompileTime { limit_ms }),
        }
    }

    /// What a session takes from the pool; an error when an empty pool could not give it.
    fn needs(&self, component: &Component, census: Census) -> Result<Needs, AdmissionError> {
        let resources = component.resources_required().ok_or_else(|| {
            AdmissionError::Invalid("it imports core modules, which the pool cannot count".into())
        })?;
        let memories = resources.num_memories as usize;
        within("the number of memories", memories, "memories", 1)?;
        let needs = Needs {
            core_instances: census.core_instances,
            memories: resources.num_memories,
            tables: resources.num_tables,
        };
        let most = self.house.capacity.limits();
        let count =
            |what, value: u32, limit: u32| within(what, value as usize, "sessions", limit as usize);
        count(
            "the number of core instances",
            needs.core_instances,
            most.core_instances,
        )?;
        count("the number of tables", needs.tables, most.tables)?;
        Ok(needs)
    }

    /// The trial run.
    fn describe(
        &self,
        pre: &FormatPre<Guest>,
        needs: Needs,
    ) -> Result<Description, AdmissionError> {
        let permit = self
            .house
            .capacity
            .take(needs)
            .map_err(AdmissionError::Canary)?;
        let deadline = self.house.limits.open_deadline();
        let mut run =
            Run::start(&self.house, pre, permit, deadline).map_err(|error| match error {
                // Not the guest's doing: the exports do not have the world's types.
                GuestError::Trap { message } if !message.contains("wasm trap") => {
                    AdmissionError::World(message)
                }
                error => AdmissionError::Canary(error),
            })?;
        let described = run
            .call(deadline, |format, store| {
                format.formwork_plugin_plugin().call_describe(store)
            })
            .map_err(AdmissionError::Canary)?;
        let params: serde_json::Value =
            serde_json::from_str(&described.params).map_err(|error| {
                AdmissionError::Description(format!("`params` is not JSON: {error}"))
            })?;
        if !params.is_object() && !params.is_boolean() {
            return Err(AdmissionError::Description(
                "`params` is not a JSON Schema: that is an object or a boolean".into(),
            ));
        }
        Ok(Description {
            params,
            on_late: LatePolicy::from(described.on_late),
        })
    }
}

impl std::fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sandbox")
            .field("live_sessions", &self.live_sessions())
            .finish_non_exhaustive()
    }
}
