//! The Wasm engine, its pool of instances, and the clock that ends late calls.

use crate::grammars::lock;
use crate::{GuestError, SandboxError, SandboxLimits};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use wasmtime::{Config, Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig};

/// How often late calls are looked for.
const TICK: Duration = Duration::from_millis(2);

/// Bytes of a memory that are reset rather than given back to the system when a session ends: a Rust
/// guest has 1 MiB of stack below its data. Where the kernel can tell which pages were written
/// (`PAGEMAP_SCAN`, Linux 6.7), only those are touched.
const KEEP_RESIDENT_BYTES: usize = 2 << 20;

/// Wasm stack of a guest.
const STACK_BYTES: usize = 512 << 10;

/// What one session of a component takes from the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    pub(crate) core_instances: u32,
    pub(crate) memories: u32,
    pub(crate) tables: u32,
}

/// An engine for plugins. Portable WebAssembly only: what is left out could tell machines apart or
/// multiply what a guest holds.
pub(crate) fn engine(limits: &SandboxLimits) -> Result<Engine, SandboxError> {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(limits.sessions)
        .total_core_instances(limits.core_instances())
        .total_memories(limits.sessions)
        .total_tables(limits.tables())
        .max_memory_size(limits.memory_bytes)
        .table_elements(limits.table_elements)
        .max_tables_per_module(4)
        .linear_memory_keep_resident(KEEP_RESIDENT_BYTES)
        .pagemap_scan(Enabled::Auto)
        .table_keep_resident(4 << 10);
    let mut config = Config::new();
    config
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool))
        .wasm_component_model(true)
        .epoch_interruption(true)
        .memory_init_cow(true)
        .max_wasm_stack(STACK_BYTES)
        .wasm_relaxed_simd(false)
        .wasm_memory64(false)
        .wasm_multi_memory(false)
        .cranelift_nan_canonicalization(true);
    Engine::new(&config).map_err(|error| SandboxError(format!("{error:#}")))
}

/// Advances the engine's epoch until it is dropped.
pub(crate) struct Ticker {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    pub(crate) fn start(engine: &Engine) -> Result<Self, SandboxError> {
        let (stop, stopped) = channel();
        let engine = engine.clone();
        let thread = std::thread::Builder::new()
            .name("plugin-epoch".into())
            .spawn(move || {
                while stopped.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                    engine.increment_epoch();
                }
            })
            .map_err(|error| SandboxError(format!("no thread for the epoch: {error}")))?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Ticks after which so much time has passed: never sooner.
pub(crate) fn ticks(time: Duration) -> u64 {
    time.as_nanos().div_ceil(TICK.as_nanos()) as u64 + 1
}

/// Counts what is taken from the pool, so that a full one is seen before the engine hits its end.
pub(crate) struct Capacity {
    limits: Needs,
    sessions: u32,
    taken: Mutex<(Needs, u32)>,
}

impl Capacity {
    pub(crate) fn new(limits: &SandboxLimits) -> Arc<Self> {
        Arc::new(Self {
            limits: Needs {
                core_instances: limits.core_instances(),
                memories: limits.sessions,
                tables: limits.tables(),
            },
            sessions: limits.sessions,
            taken: Mutex::new((Needs::default(), 0)),
        })
    }

    /// The most of each that there is.
    pub(crate) fn limits(&self) -> Needs {
        self.limits
    }

    /// Sessions live.
    pub(crate) fn live(&self) -> u32 {
        lock(&self.taken).1
    }

    /// Sets aside what a session needs until the permit is dropped.
    pub(crate) fn take(self: &Arc<Self>, needs: Needs) -> Result<Permit, GuestError> {
        let mut taken = lock(&self.taken);
        let (sum, live) = &mut *taken;
        let after = Needs {
            core_instances: sum.core_instances + needs.core_instances,
            memories: sum.memories + needs.memories,
            tables: sum.tables + needs.tables,
        };
        let limits = self.limits;
        if *live >= self.sessions
            || after.core_instances > limits.core_instances
            || after.memories > limits.memories
            || after.tables > limits.tables
        {
            return Err(GuestError::Busy {
                live: *live,
                limit: self.sessions,
            });
        }
        *sum = after;
        *live += 1;
        Ok(Permit {
            capacity: self.clone(),
            needs,
        })
    }
}

/// A session's share of the pool.
pub(crate) struct Permit {
    capacity: Arc<Capacity>,
    needs: Needs,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut taken = lock(&self.capacity.taken);
        let (sum, live) = &mut *taken;
        sum.core_instances -= self.needs.core_instances;
        sum.memories -= self.needs.memories;
        sum.tables -= self.needs.tables;
        *live -= 1;
    }
}
