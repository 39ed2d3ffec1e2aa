//! Bounds on what guests may cost. Each error names the bound that it hit.

use std::time::Duration;

/// Bounds of the pool, of each component and of each session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxLimits {
    /// Sessions live at once, for components of three core instances, one memory and two tables, which
    /// is what `wasm-tools component new` makes; larger ones count for more.
    pub sessions: u32,
    /// Bytes of a component.
    pub component_bytes: usize,
    /// Bytes of code of one function of a component: compile time grows faster than a function.
    pub function_bytes: usize,
    /// How long an upload waits for compilation.
    pub compile_ms: u64,
    /// Wall time of one `plan` or `check`.
    pub call_ms: u64,
    /// Wall time of `open` and of `describe`. What `open` and the first `plan` wait for grammars is not
    /// theirs: it has a bound of its own, `compile_ms` of the grammars' limits.
    pub open_ms: u64,
    /// Bytes of a session's linear memory; whole 64 KiB pages.
    pub memory_bytes: usize,
    /// Elements of a session's tables.
    pub table_elements: usize,
    /// Masks, grammars and matchers that a session holds at once.
    pub handles: usize,
    /// Bytes that one call of the guest may hand to the host.
    pub transfer_bytes: usize,
    /// Actions in one plan.
    pub actions: usize,
    /// Bytes of text in one plan or verdict.
    pub text_bytes: usize,
    /// Attempts at one field.
    pub attempts: u32,
    /// Lines in a session's log.
    pub log_lines: usize,
    /// Bytes in a session's log.
    pub log_bytes: usize,
}

impl Default for SandboxLimits {
    fn default() -> Self {
        Self {
            sessions: 1_024,
            component_bytes: 8 << 20,
            function_bytes: 1 << 20,
            compile_ms: 30_000,
            call_ms: 50,
            open_ms: 500,
            memory_bytes: 16 << 20,
            table_elements: 10_000,
            handles: 1_024,
            transfer_bytes: 4 << 20,
            actions: 256,
            text_bytes: 1 << 20,
            attempts: 32,
            log_lines: 256,
            log_bytes: 64 << 10,
        }
    }
}

impl SandboxLimits {
    /// Core instances that the pool holds.
    pub(crate) fn core_instances(&self) -> u32 {
        self.sessions.saturating_mul(3)
    }

    /// Tables that the pool holds.
    pub(crate) fn tables(&self) -> u32 {
        self.sessions.saturating_mul(2)
    }

    pub(crate) fn open_deadline(&self) -> Deadline {
        Deadline {
            bound: "open_ms",
            limit: Duration::from_millis(self.open_ms),
            compiling: Compiling::Apart,
        }
    }

    pub(crate) fn call_deadline(&self) -> Deadline {
        Deadline {
            bound: "call_ms",
            limit: Duration::from_millis(self.call_ms),
            compiling: Compiling::Within,
        }
    }

    /// For the first `plan`, which holds up nobody else's step.
    pub(crate) fn first_call_deadline(&self) -> Deadline {
        Deadline {
            compiling: Compiling::Apart,
            ..self.call_deadline()
        }
    }
}

/// A bound on the wall time of one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    pub(crate) bound: &'static str,
    pub(crate) limit: Duration,
    pub(crate) compiling: Compiling,
}

/// Whose time it is while the host compiles a grammar that the call asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compiling {
    /// The host's: up to [`crate::GrammarLimits::compile_ms`] for all grammars of the call.
    Apart,
    /// The call's.
    Within,
}
