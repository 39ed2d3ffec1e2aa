//! Bounds on what clients may do.

use clap::Args;

/// Bounds on requests. Each is named in the error that it causes.
#[derive(Args, Clone, Debug)]
pub struct LimitArgs {
    /// Tokens a chat request may produce when it does not say.
    #[arg(
        long,
        env = "FORMWORK_DEFAULT_MAX_TOKENS",
        default_value_t = 1024,
        value_name = "TOKENS",
        help_heading = "Limits"
    )]
    pub default_max_tokens: usize,

    /// Choices (`n`) of one request: each takes a row of the batch.
    #[arg(
        long,
        env = "FORMWORK_MAX_CHOICES",
        default_value_t = 16,
        value_name = "N",
        help_heading = "Limits"
    )]
    pub max_choices: usize,

    /// Largest JSON body, in bytes. The default is far above what fits a context.
    #[arg(
        long,
        env = "FORMWORK_MAX_BODY_BYTES",
        default_value_t = 2 << 20,
        value_name = "BYTES",
        help_heading = "Limits"
    )]
    pub max_body_bytes: usize,

    /// Largest plugin upload, in bytes. The stock plugins are below 400 KiB.
    #[arg(
        long,
        env = "FORMWORK_MAX_PLUGIN_BYTES",
        default_value_t = 8 << 20,
        value_name = "BYTES",
        help_heading = "Limits"
    )]
    pub max_plugin_bytes: usize,

    /// Open connections at one time; more wait to be accepted.
    #[arg(
        long,
        env = "FORMWORK_MAX_CONNECTIONS",
        default_value_t = 1024,
        value_name = "N",
        help_heading = "Limits"
    )]
    pub max_connections: usize,

    /// Time a client has to send its request line and headers.
    #[arg(
        long,
        env = "FORMWORK_HEADER_TIMEOUT_MS",
        default_value_t = 10_000,
        value_name = "MS",
        help_heading = "Limits"
    )]
    pub header_timeout_ms: u64,

    /// Time a client has to send its body.
    #[arg(
        long,
        env = "FORMWORK_BODY_TIMEOUT_MS",
        default_value_t = 30_000,
        value_name = "MS",
        help_heading = "Limits"
    )]
    pub body_timeout_ms: u64,

    /// Time that a client may leave what it is sent unread; then its connection and its request end.
    #[arg(
        long,
        env = "FORMWORK_WRITE_TIMEOUT_MS",
        default_value_t = 30_000,
        value_name = "MS",
        help_heading = "Limits"
    )]
    pub write_timeout_ms: u64,

    /// Time that running requests get to finish after SIGINT or SIGTERM; then they are failed.
    #[arg(
        long,
        env = "FORMWORK_DRAIN_TIMEOUT_MS",
        default_value_t = 30_000,
        value_name = "MS",
        help_heading = "Limits"
    )]
    pub drain_timeout_ms: u64,
}

impl Default for LimitArgs {
    fn default() -> Self {
        LimitArgs {
            default_max_tokens: 1024,
            max_choices: 16,
            max_body_bytes: 2 << 20,
            max_plugin_bytes: 8 << 20,
            max_connections: 1024,
            header_timeout_ms: 10_000,
            body_timeout_ms: 30_000,
            write_timeout_ms: 30_000,
            drain_timeout_ms: 30_000,
        }
    }
}
