//! Figures for `/metrics`, in OpenMetrics text. The engine's are read when they are asked for.

use std::fmt;
use std::time::Duration;

use formwork_engine::{Engine, Stats};
use formwork_sandbox::GuestError;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// Calls into a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PluginCall {
    /// A session is opened: an instance from the pool and the guest's `open`.
    Open,
    /// `plan`.
    Plan,
    /// `check`.
    Check,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HttpLabels {
    route: String,
    method: String,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct One {
    kind: &'static str,
}

/// All figures of one server.
pub struct Metrics {
    registry: Registry,
    http_requests: Family<HttpLabels, Counter>,
    connections: Gauge,
    first_token: Histogram,
    inter_token: Histogram,
    answers: Family<One, Counter>,
    failures: Family<One, Counter>,
    open: Histogram,
    plan: Histogram,
    check: Histogram,
    session_failures: Family<One, Counter>,
}

impl Metrics {
    /// Figures of a server around `engine`.
    pub fn new(engine: Engine) -> Self {
        // 1 ms to 65 s; 1 µs to 1 s.
        let waits = || Histogram::new(exponential_buckets(0.001, 2.0, 17));
        let calls = || Histogram::new(exponential_buckets(0.000_001, 2.0, 21));
        let mut metrics = Self {
            registry: Registry::with_prefix("formwork"),
            http_requests: Family::default(),
            connections: Gauge::default(),
            first_token: waits(),
            inter_token: waits(),
            answers: Family::default(),
            failures: Family::default(),
            open: calls(),
            plan: calls(),
            check: calls(),
            session_failures: Family::default(),
        };
        metrics.register(engine);
        metrics
    }

    fn register(&mut self, engine: Engine) {
        let registry = &mut self.registry;
        let http = self.http_requests.clone();
        registry.register("http_requests", "Requests answered", http);
        let help = "Open connections";
        registry.register("connections", help, self.connections.clone());
        let help = "From a request's arrival to its first token, seconds";
        registry.register("first_token_seconds", help, self.first_token.clone());
        let help = "Between tokens of one request, seconds";
        registry.register("inter_token_seconds", help, self.inter_token.clone());
        let help = "Answers that ended well, by finish reason";
        registry.register("answers", help, self.answers.clone());
        let help = "Requests that failed while they ran, by error code";
        registry.register("answer_failures", help, self.failures.clone());
        let help = "Opening a plugin's session, seconds";
        registry.register("session_open_seconds", help, self.open.clone());
        let help = "Calls of plan, seconds";
        registry.register("plan_seconds", help, self.plan.clone());
        let help = "Calls of check, seconds";
        registry.register("check_seconds", help, self.check.clone());
        let help = "Plugin sessions that failed, by kind";
        registry.register("session_failures", help, self.session_failures.clone());
        registry.register_collector(Box::new(EngineFigures(engine)));
    }

    /// A request was answered.
    pub fn http_request(&self, route: &str, method: &str, status: u16) {
        let labels = HttpLabels {
            route: route.to_owned(),
            method: method.to_owned(),
            status,
        };
        self.http_requests.get_or_create(&labels).inc();
    }

    /// A connection was opened or closed.
    pub fn connections(&self, change: i64) {
        self.connections.inc_by(change);
    }

    /// A request got its first token.
    pub fn first_token(&self, after: Duration) {
        self.first_token.observe(after.as_secs_f64());
    }

    /// A request got a further token.
    pub fn inter_token(&self, after: Duration) {
        self.inter_token.observe(after.as_secs_f64());
    }

    /// An answer ended well.
    pub fn answer_finished(&self, kind: &'static str) {
        self.answers.get_or_create(&One { kind }).inc();
    }

    /// A request failed while it ran.
    pub fn answer_failed(&self, kind: &'static str) {
        self.failures.get_or_create(&One { kind }).inc();
    }

    /// A call into a plugin returned.
    pub fn plugin_call(&self, call: PluginCall, took: Duration) {
        let histogram = match call {
            PluginCall::Open => &self.open,
            PluginCall::Plan => &self.plan,
            PluginCall::Check => &self.check,
        };
        histogram.observe(took.as_secs_f64());
    }

    /// A plugin's session failed.
    pub fn session_failed(&self, error: &GuestError) {
        let kind = match error {
            GuestError::Trap { .. } => "trap",
            GuestError::Deadline { .. } => "deadline",
            GuestError::Memory { .. } => "memory",
            GuestError::Busy { .. } => "busy",
            GuestError::Invalid(_) => "invalid",
            GuestError::Failure(_) => "refused",
            GuestError::Closed => "closed",
        };
        self.session_failures.get_or_create(&One { kind }).inc();
    }

    /// Everything, as OpenMetrics text.
    ///
    /// # Errors
    /// When a figure cannot be written; a fault of this server.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// Reads the engine's figures at each scrape.
struct EngineFigures(Engine);

impl fmt::Debug for EngineFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EngineFigures")
    }
}

impl Collector for EngineFigures {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let stats = self.0.stats();
        for (name, help, value) in counters(&stats) {
            let counter = ConstCounter::new(value);
            let metric = encoder.encode_descriptor(name, help, None, counter.metric_type())?;
            counter.encode(metric)?;
        }
        for (name, help, label, values) in gauges(&stats) {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for &(kind, value) in &values {
                let labels = [(label, kind)];
                let value = i64::try_from(value).unwrap_or(i64::MAX);
                ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
            }
        }
        let phases = [
            ("forward", stats.forward_us),
            ("mask_wait", stats.mask_wait_us),
            ("plan_wait", stats.plan_wait_us),
            ("sample", stats.sample_us),
        ];
        let help = "Time of the engine's thread, by phase of its step";
        let name = "step_phase_seconds";
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (phase, micros) in phases {
            let labels = [("phase", phase)];
            ConstCounter::new(micros as f64 / 1e6).encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// Name, help and value; `_total` is put after the name.
fn counters(stats: &Stats) -> [(&'static str, &'static str, u64); 10] {
    [
        ("steps", "Steps of the engine", stats.steps),
        (
            "computed_tokens",
            "Positions run through the model",
            stats.tokens_computed,
        ),
        ("sampled_tokens", "Tokens sampled", stats.tokens_sampled),
        (
            "forced_tokens",
            "Tokens put in without sampling",
            stats.tokens_forced,
        ),
        (
            "retracted_tokens",
            "Tokens taken away by formats",
            stats.tokens_retracted,
        ),
        (
            "prefix_hit_tokens",
            "Prompt tokens found in the cache",
            stats.prefix_hit_tokens,
        ),
        (
            "preemptions",
            "Sequences that lost their blocks",
            stats.preemptions,
        ),
        (
            "unmasked_tokens",
            "Sampled tokens found outside their mask, which must be 0",
            stats.unmasked_tokens,
        ),
        (
            "late_masks",
            "Rows that sat a step out for a late mask",
            stats.late_masks,
        ),
        (
            "failed_sequences",
            "Sequences that failed",
            stats.sequences_failed,
        ),
    ]
}

type GaugeFamily = (
    &'static str,
    &'static str,
    &'static str,
    Vec<(&'static str, usize)>,
);

/// Name, help, the label's name, and values by label.
fn gauges(stats: &Stats) -> [GaugeFamily; 2] {
    let sequences = vec![("running", stats.running), ("waiting", stats.waiting)];
    let blocks = vec![
        ("free", stats.blocks_free),
        ("cached", stats.blocks_cached),
        ("leased", stats.blocks_leased),
    ];
    [
        (
            "sequences",
            "Sequences in the engine, by state",
            "state",
            sequences,
        ),
        (
            "kv_blocks",
            "Blocks of the KV cache, by state",
            "state",
            blocks,
        ),
    ]
}
