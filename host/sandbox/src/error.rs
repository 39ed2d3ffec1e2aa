//! Why a guest's call failed, and why a component was not admitted.

use crate::Failure;
use std::time::Duration;

/// The sandbox could not be set up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sandbox cannot be set up: {0}")]
pub struct SandboxError(pub(crate) String);

/// Why a component was not admitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionError {
    /// A bound of [`crate::SandboxLimits`] is exceeded.
    #[error("{what} is {value}, the limit ({bound}) is {limit}")]
    TooLarge {
        /// What was measured.
        what: String,
        /// How much of it there is.
        value: u64,
        /// The bound's name.
        bound: &'static str,
        /// The bound.
        limit: u64,
    },
    /// The bytes are not a component.
    #[error("this is not a WebAssembly component: {0}")]
    NotAComponent(String),
    /// The component is not valid WebAssembly, or of a kind that is not supported.
    #[error("the component is invalid: {0}")]
    Invalid(String),
    /// The component asks for what a plugin does not get.
    #[error("the import `{import}` is not allowed: {advice}")]
    Import {
        /// The import's name.
        import: String,
        /// What to do about it.
        advice: String,
    },
    /// The component was built for another version of the plugin interface.
    #[error("`{interface}` is of another version; this host serves formwork:plugin@{host}")]
    Version {
        /// The interface as the component names it.
        interface: String,
        /// The version that the host serves.
        host: &'static str,
    },
    /// An export is missing.
    #[error(
        "the component does not export `{0}`; a plugin exports the world formwork:plugin/format"
    )]
    Export(String),
    /// Imports or exports do not have the types that the interface gives them.
    #[error("the component does not fit the world formwork:plugin/format: {0}")]
    World(String),
    /// Compilation takes too long.
    #[error("compiling takes longer than the limit (compile_ms) of {limit_ms} ms")]
    CompileTime {
        /// The bound.
        limit_ms: u64,
    },
    /// A trial run failed.
    #[error("`describe` failed in a trial run: {0}")]
    Canary(GuestError),
    /// What `describe` returned does not serve.
    #[error("the plugin's description is invalid: {0}")]
    Description(String),
}

/// Why a call into a guest failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GuestError {
    /// The guest trapped, or broke the rules of the component model.
    #[error("the plugin trapped: {message}")]
    Trap {
        /// The trap with the guest's backtrace.
        message: String,
    },
    /// The call took too long.
    #[error("the plugin's call took longer than the limit ({bound}) of {limit:?}")]
    Deadline {
        /// The bound's name.
        bound: &'static str,
        /// The bound.
        limit: Duration,
    },
    /// The guest asked for more memory or tables than it gets, and then trapped.
    #[error("the plugin ran out of memory: the limit ({bound}) is {limit}")]
    Memory {
        /// The bound's name.
        bound: &'static str,
        /// The bound, in bytes or elements.
        limit: usize,
    },
    /// No room for another session now; later there may be.
    #[error("the plugin pool is full: {live} sessions are live, the limit (sessions) is {limit}")]
    Busy {
        /// Sessions live.
        live: u32,
        /// Sessions that the pool is made for.
        limit: u32,
    },
    /// The guest's answer makes no sense.
    #[error("the plugin's answer is invalid: {0}")]
    Invalid(String),
    /// The guest gave the request up.
    #[error(transparent)]
    Failure(Failure),
    /// An earlier call left the guest in an unknown state.
    #[error("the plugin's session is closed: an earlier call failed")]
    Closed,
}
