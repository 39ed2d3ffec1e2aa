//! The demo's figures.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use super::answers::{Answer, ask};
use super::crowd::Crowd;
use super::{ms, rate, requests};
use crate::cli::client::Client;
use crate::cli::table::table;
use crate::registry::PluginName;

/// What was measured; `None` where it was not.
#[derive(Debug)]
pub(super) struct Figures {
    model: String,
    /// From the start of the upload to the first token that came through the plugin.
    pub(super) upload_to_first_use: Option<Duration>,
    /// Forced ÷ all tokens of the shown ticket.
    pub(super) forced_share: Option<f64>,
    /// `formwork_unmasked_tokens_total`.
    pub(super) unmasked_tokens: Option<u64>,
    free: Option<Answer>,
    constrained: Option<Answer>,
    /// Many requests at one time.
    pub(super) crowds: Vec<Crowd>,
    plan: Option<PlanCalls>,
}

/// The server's own histogram of `plan` calls.
#[derive(Debug)]
struct PlanCalls {
    count: u64,
    /// The bounds of the buckets in which the quantiles lie.
    median_at_most: Duration,
    p99_at_most: Duration,
}

fn micros(duration: Duration) -> f64 {
    rounded(duration.as_secs_f64() * 1e6)
}

fn rounded(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

impl Figures {
    pub(super) fn new(model: &str) -> Figures {
        Figures {
            model: model.to_owned(),
            upload_to_first_use: None,
            forced_share: None,
            unmasked_tokens: None,
            free: None,
            constrained: None,
            crowds: Vec::new(),
            plan: None,
        }
    }

    /// Takes what the server counted itself.
    pub(super) fn read_metrics(&mut self, metrics: &str) {
        let unmasked = sample(metrics, "formwork_unmasked_tokens_total");
        self.unmasked_tokens = unmasked.map(|count| count as u64);
        let count = sample(metrics, "formwork_plan_seconds_count").unwrap_or(0.0);
        let quantile = |share| bucket(metrics, "formwork_plan_seconds", share * count);
        if let (Some(median_at_most), Some(p99_at_most)) = (quantile(0.5), quantile(0.99)) {
            self.plan = Some(PlanCalls {
                count: count as u64,
                median_at_most,
                p99_at_most,
            });
        }
    }

    pub(super) fn json(&self) -> Value {
        let stream = |answer: &Option<Answer>| match answer {
            None => Value::Null,
            Some(answer) => json!({
                "first_token_ms": ms(answer.first_token),
                "tokens": answer.tokens,
                "tokens_per_s": rounded(rate(answer.tokens, answer.total)),
                "forced_share": answer.forced_share().map(|share| (share * 1e3).round() / 1e3),
            }),
        };
        let crowds: Vec<Value> = self.crowds.iter().map(Crowd::json).collect();
        json!({
            "model": self.model,
            "free": stream(&self.free),
            "constrained": stream(&self.constrained),
            "at_once": crowds,
            "upload_to_first_use_ms": ms(self.upload_to_first_use),
            "plan_calls": self.plan.as_ref().map(|plan| json!({
                "count": plan.count,
                "median_at_most_us": micros(plan.median_at_most),
                "p99_at_most_us": micros(plan.p99_at_most),
            })),
            "unmasked_tokens": self.unmasked_tokens,
        })
    }

    pub(super) fn print(&self) {
        let mut rows = Vec::new();
        let mut row = |name: &str, value: String| rows.push(vec![format!("  {name}"), value]);
        for (name, answer) in [
            ("free", &self.free),
            ("through the plugin", &self.constrained),
        ] {
            let Some(answer) = answer else { continue };
            let first = answer.first_token.unwrap_or_default().as_secs_f64() * 1e3;
            let rate = rate(answer.tokens, answer.total);
            let text = format!("{rate:.1} tokens/s, first after {first:.0} ms");
            row(&format!("one stream, {name}"), text);
        }
        for crowd in &self.crowds {
            let name = format!("{} at once, {}", crowd.requests, crowd.kind);
            row(&name, format!("{:.1} tokens/s", crowd.rate()));
        }
        if let Some(share) = self.forced_share {
            row(
                "ticket tokens never sampled",
                format!("{:.0} %", share * 100.0),
            );
        }
        if let Some(time) = self.upload_to_first_use {
            row(
                "upload to first use",
                format!("{:.0} ms", time.as_secs_f64() * 1e3),
            );
        }
        if let Some(plan) = &self.plan {
            let (median, p99) = (micros(plan.median_at_most), micros(plan.p99_at_most));
            let text = format!("median ≤ {median} µs, p99 ≤ {p99} µs, {} calls", plan.count);
            row("one plan call", text);
        }
        if let Some(count) = self.unmasked_tokens {
            row("tokens sampled unmasked", count.to_string());
        }
        println!("\n── figures");
        print!("{}", table(&rows));
    }
}

/// The value of a metric without labels, or the sum over its labels.
fn sample(metrics: &str, name: &str) -> Option<f64> {
    let values = metrics.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        rest.starts_with([' ', '{']).then_some(())?;
        rest.rsplit(' ').next()?.parse::<f64>().ok()
    });
    let values: Vec<f64> = values.collect();
    (!values.is_empty()).then(|| values.iter().sum())
}

/// The upper bound of the first bucket of a histogram that holds `rank` observations or more.
fn bucket(metrics: &str, name: &str, rank: f64) -> Option<Duration> {
    let prefix = format!("{name}_bucket{{le=\"");
    let mut buckets = metrics.lines().filter_map(|line| {
        let (bound, count) = line.strip_prefix(&prefix)?.split_once("\"} ")?;
        Some((bound.parse::<f64>().ok()?, count.parse::<f64>().ok()?))
    });
    let (bound, _) = buckets.find(|(_, count)| *count >= rank && *count > 0.0)?;
    Duration::try_from_secs_f64(bound).ok()
}

/// One stream after another: free, then through the ticket plugin.
pub(super) fn single_streams(
    client: &Client,
    model: &str,
    ticket: &PluginName,
    figures: &mut Figures,
) -> Result<()> {
    let free = requests::story(0, model).body;
    figures.free = Some(ask(client, &free, &mut |_| {})?);
    let body = requests::ticket(model, ticket, requests::MESSAGES[2]);
    let answer = ask(client, &body, &mut |_| {})?;
    requests::check_ticket(&answer.text)?;
    figures.constrained = Some(answer);
    Ok(())
}

/// `count` requests at one time: mixed, then free ones only, then tickets only.
pub(super) fn crowds(
    client: &Client,
    model: &str,
    ticket: &PluginName,
    count: usize,
    figures: &mut Figures,
) -> Result<()> {
    type Pick = fn(usize, &str, &PluginName) -> requests::Probe;
    let kinds: [(&'static str, Pick); 3] = [
        ("mixed", requests::mixed),
        ("free", |index, model, _| requests::story(index, model)),
        ("constrained", requests::ticket_probe),
    ];
    for (kind, pick) in kinds {
        let probes: Vec<_> = (0..count).map(|index| pick(index, model, ticket)).collect();
        figures.crowds.push(Crowd::run(kind, client, &probes)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_read_by_their_whole_name() {
        let metrics = "# HELP a b\nformwork_x_total 3\nformwork_x_total_more 9\nformwork_y{k=\"v 1\"} 1.5\nformwork_y{k=\"w\"} 2\n";
        assert_eq!(sample(metrics, "formwork_x_total"), Some(3.0));
        assert_eq!(sample(metrics, "formwork_y"), Some(3.5));
        assert_eq!(sample(metrics, "formwork_z"), None);
    }

    #[test]
    fn quantiles_are_the_bounds_of_buckets() {
        let metrics = "h_bucket{le=\"0.001\"} 0\nh_bucket{le=\"0.002\"} 6\nh_bucket{le=\"0.004\"} 9\nh_bucket{le=\"+Inf\"} 10\n";
        let at = |share: f64| bucket(metrics, "h", share * 10.0);
        assert_eq!(at(0.5), Some(Duration::from_millis(2)));
        assert_eq!(at(0.9), Some(Duration::from_millis(4)));
        assert_eq!(at(0.99), None, "above every bound");
    }
}
