//! Times and counts of a bench.

use std::time::{Duration, Instant};

use cpu_time::ThreadTime;
use serde_json::{Value, json};

/// Times of one kind of work.
#[derive(Default, Debug)]
pub(super) struct Times {
    nanos: Vec<u64>,
}

impl Times {
    pub(super) fn add(&mut self, time: Duration) {
        self.nanos
            .push(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(super) fn extend(&mut self, other: &Self) {
        self.nanos.extend_from_slice(&other.nanos);
    }

    pub(super) fn summary(&self) -> Summary {
        let mut sorted = self.nanos.clone();
        sorted.sort_unstable();
        let micros = |nanos: u64| nanos as f64 / 1e3;
        let at = |share: f64| {
            let last = sorted.len().saturating_sub(1);
            let index = ((sorted.len() as f64 * share).ceil() as usize).saturating_sub(1);
            micros(sorted.get(index.min(last)).copied().unwrap_or(0))
        };
        let total: u128 = sorted.iter().map(|&nanos| u128::from(nanos)).sum();
        Summary {
            count: sorted.len(),
            average: total as f64 / 1e3 / sorted.len().max(1) as f64,
            median: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            most: at(1.0),
        }
    }
}

/// Measures by the wall's clock and by the thread's, which stands still while others run.
pub(super) struct Clock {
    cpu: ThreadTime,
    wall: Instant,
}

impl Clock {
    pub(super) fn start() -> Self {
        Self {
            cpu: ThreadTime::now(),
            wall: Instant::now(),
        }
    }
}

/// Times of masks.
#[derive(Default, Debug)]
pub(super) struct MaskTimes {
    pub(super) wall: Times,
    /// Of the thread alone: what a mask takes however busy the machine is.
    pub(super) cpu: Times,
    pub(super) slowest: Slowest,
}

impl MaskTimes {
    pub(super) fn add(&mut self, clock: Clock, place: impl FnOnce() -> String) {
        let (wall, cpu) = (clock.wall.elapsed(), clock.cpu.elapsed());
        self.wall.add(wall);
        self.cpu.add(cpu);
        self.slowest.offer(cpu, place);
    }

    pub(super) fn extend(&mut self, other: &Self) {
        self.wall.extend(&other.wall);
        self.cpu.extend(&other.cpu);
        self.slowest.extend(&other.slowest);
    }
}

/// The longest times, longest first, with their places.
#[derive(Default, Debug)]
pub(super) struct Slowest(Vec<(Duration, String)>);

impl Slowest {
    const KEPT: usize = 10;

    pub(super) fn offer(&mut self, time: Duration, place: impl FnOnce() -> String) {
        let last = self.0.get(Self::KEPT - 1);
        if last.is_some_and(|(least, _)| *least >= time) {
            return;
        }
        let at = self.0.partition_point(|(other, _)| *other >= time);
        self.0.insert(at, (time, place()));
        self.0.truncate(Self::KEPT);
    }

    pub(super) fn extend(&mut self, other: &Self) {
        for (time, place) in &other.0 {
            self.offer(*time, || place.clone());
        }
    }

    /// One line each: microseconds and place.
    pub(super) fn lines(&self) -> Vec<String> {
        let line = |(time, place): &(Duration, String)| {
            format!("{:.1} µs: {place}", time.as_nanos() as f64 / 1e3)
        };
        self.0.iter().map(line).collect()
    }
}

/// Microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Summary {
    pub(super) count: usize,
    pub(super) average: f64,
    pub(super) median: f64,
    pub(super) p90: f64,
    pub(super) p99: f64,
    pub(super) p999: f64,
    pub(super) most: f64,
}

impl Summary {
    pub(super) fn json(&self) -> Value {
        json!({
            "count": self.count,
            "average_us": self.average,
            "p50_us": self.median,
            "p90_us": self.p90,
            "p99_us": self.p99,
            "p999_us": self.p999,
            "max_us": self.most,
        })
    }

    pub(super) fn cells(&self) -> Vec<String> {
        let times = [
            self.average,
            self.median,
            self.p90,
            self.p99,
            self.p999,
            self.most,
        ];
        let mut cells = vec![self.count.to_string()];
        cells.extend(times.map(|micros| format!("{micros:.1}")));
        cells
    }
}

/// Verdicts on instances.
#[derive(Default, Clone, Debug)]
pub(super) struct Verdicts {
    pub(super) valid: usize,
    pub(super) invalid: usize,
    /// Valid instances that cannot be written, or do not pass validation.
    pub(super) refused: Vec<String>,
    /// Invalid instances that can be written, and pass validation where there is some.
    pub(super) accepted: Vec<String>,
}

impl Verdicts {
    pub(super) fn add(&mut self, other: &Self) {
        self.valid += other.valid;
        self.invalid += other.invalid;
        self.refused.extend(other.refused.iter().cloned());
        self.accepted.extend(other.accepted.iter().cloned());
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "valid": self.valid,
            "valid_refused": self.refused,
            "invalid": self.invalid,
            "invalid_accepted": self.accepted,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let mut times = Times::default();
        (1..=1000)
            .rev()
            .for_each(|n| times.add(Duration::from_micros(n)));
        let summary = times.summary();
        let found = [
            summary.median,
            summary.p90,
            summary.p99,
            summary.p999,
            summary.most,
        ];
        assert_eq!(found, [500.0, 900.0, 990.0, 999.0, 1000.0]);
        assert_eq!((summary.count, summary.average), (1000, 500.5));
        assert_eq!(Times::default().summary().most, 0.0);
    }

    #[test]
    fn the_longest_times_are_kept_in_order() {
        let mut slowest = Slowest::default();
        (0..100).for_each(|n| slowest.offer(Duration::from_micros(n * 37 % 100), || n.to_string()));
        let lines = slowest.lines();
        assert_eq!(lines.len(), 10);
        assert!(lines[0].starts_with("99.0 µs: ") && lines[9].starts_with("90.0 µs: "));
        slowest.offer(Duration::from_micros(1), || unreachable!());
    }
}
