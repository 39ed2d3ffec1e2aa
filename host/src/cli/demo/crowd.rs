//! Many requests at one time, each answer checked.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use serde_json::{Value, json};

use super::answers::{Answer, ask};
use super::requests::Probe;
use crate::cli::client::Client;
use crate::cli::demo::{ms, rate};

/// What many requests at one time brought.
#[derive(Debug)]
pub(super) struct Crowd {
    /// What they were: `mixed`, `free`, `constrained`.
    pub(super) kind: &'static str,
    /// How many.
    pub(super) requests: usize,
    /// From the first request to the last answer's end.
    wall: Duration,
    tokens: u64,
    /// Kind and text of each answer.
    pub(super) answers: Vec<(&'static str, String)>,
}

impl Crowd {
    /// Sends all `probes` at once, each over a connection of its own.
    pub(super) fn run(kind: &'static str, client: &Client, probes: &[Probe]) -> Result<Crowd> {
        let started = Instant::now();
        let answers: Vec<Result<Answer>> = std::thread::scope(|scope| {
            let threads: Vec<_> = probes
                .iter()
                .map(|probe| scope.spawn(|| ask(client, &probe.body, &mut |_| {})))
                .collect();
            let joined = threads.into_iter().map(|thread| thread.join());
            joined
                .map(|joined| joined.unwrap_or_else(|_| Err(anyhow!("a client failed"))))
                .collect()
        });
        let mut crowd = Crowd {
            kind,
            requests: probes.len(),
            wall: started.elapsed(),
            tokens: 0,
            answers: Vec::new(),
        };
        for (probe, answer) in probes.iter().zip(answers) {
            let answer = answer.with_context(|| format!("a {} request", probe.kind))?;
            (probe.check)(&answer.text).with_context(|| format!("a {} request", probe.kind))?;
            crowd.tokens += answer.tokens;
            crowd.answers.push((probe.kind, answer.text));
        }
        Ok(crowd)
    }

    /// Tokens of all answers per second, prompts included in the time.
    pub(super) fn rate(&self) -> f64 {
        rate(self.tokens, self.wall)
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "kind": self.kind,
            "requests": self.requests,
            "wall_ms": ms(Some(self.wall)),
            "tokens": self.tokens,
            "tokens_per_s": (self.rate() * 10.0).round() / 10.0,
        })
    }

    /// One line per answer.
    pub(super) fn summary(&self) -> Vec<String> {
        const SHOWN: usize = 90;
        let line = |(kind, text): &(&str, String)| {
            let text = text.replace('\n', " ");
            let mut short: String = text.chars().take(SHOWN).collect();
            if short.len() < text.len() {
                short.push('…');
            }
            format!("  {kind:<12} {}", crate::cli::table::printable(&short))
        };
        self.answers.iter().map(line).collect()
    }
}
