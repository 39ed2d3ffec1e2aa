//! What `formwork bench mask` prints.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Value, json};

use super::case::Case;
use super::figures::{MaskTimes, Slowest, Summary, Times, Verdicts};
use crate::cli::table::table;

/// Names that the text shows of a list; the JSON has all.
const SHOWN: usize = 12;

/// The figures of one split.
#[derive(Default, Debug)]
pub(super) struct Split {
    pub(super) schemas: usize,
    /// Schemas of which something is left to validation.
    pub(super) validated: usize,
    /// Schemas that no value satisfies, with the reason.
    pub(super) unsatisfiable: Vec<String>,
    /// Schemas that are not handled, with the reason.
    pub(super) refused: Vec<String>,
    /// Compiling, natively.
    pub(super) compile: Times,
    /// Opening a session of the plugin, which compiles.
    pub(super) open: Times,
    /// Masks by the native matcher and by the one of a plugin's session.
    pub(super) native: MaskTimes,
    pub(super) plugin: MaskTimes,
    pub(super) slow_compiles: Slowest,
    /// Instances on which the two do not agree.
    pub(super) disagreements: Vec<String>,
    /// Valid instances that go only in an order of keys that had to be searched for.
    pub(super) reordered: usize,
    masked_alone: Verdicts,
    with_validation: Verdicts,
}

impl Split {
    pub(super) fn verdicts(&mut self, validated: bool) -> &mut Verdicts {
        match validated {
            true => &mut self.with_validation,
            false => &mut self.masked_alone,
        }
    }

    /// The schema allows no value at all.
    pub(super) fn none_allowed(&mut self, case: &Case) {
        for (index, instance) in case.tests.iter().enumerate() {
            match instance.valid {
                true => {
                    self.masked_alone.valid += 1;
                    let place = format!("{} {index}", case.name);
                    self.masked_alone.refused.push(place);
                }
                false => self.masked_alone.invalid += 1,
            }
        }
    }

    fn handled(&self) -> f64 {
        1.0 - self.refused.len() as f64 / self.schemas.max(1) as f64
    }

    fn add(&mut self, other: &Self) {
        self.schemas += other.schemas;
        self.validated += other.validated;
        self.unsatisfiable
            .extend(other.unsatisfiable.iter().cloned());
        self.refused.extend(other.refused.iter().cloned());
        self.compile.extend(&other.compile);
        self.open.extend(&other.open);
        self.native.extend(&other.native);
        self.plugin.extend(&other.plugin);
        self.slow_compiles.extend(&other.slow_compiles);
        self.disagreements
            .extend(other.disagreements.iter().cloned());
        self.reordered += other.reordered;
        self.masked_alone.add(&other.masked_alone);
        self.with_validation.add(&other.with_validation);
    }

    fn json(&self) -> Value {
        json!({
            "schemas": self.schemas,
            "handled": self.handled(),
            "validated": self.validated,
            "unsatisfiable": self.unsatisfiable,
            "refused": self.refused,
            "compile": self.compile.summary().json(),
            "open": self.open.summary().json(),
            "mask_native": self.native.wall.summary().json(),
            "mask_plugin": self.plugin.wall.summary().json(),
            "mask_native_cpu": self.native.cpu.summary().json(),
            "mask_plugin_cpu": self.plugin.cpu.summary().json(),
            "slowest_masks": self.native.slowest.lines(),
            "slowest_compiles": self.slow_compiles.lines(),
            "disagreements": self.disagreements,
            "reordered": self.reordered,
            "masked_alone": self.masked_alone.json(),
            "with_validation": self.with_validation.json(),
        })
    }
}

/// The figures of all splits.
pub(super) struct Report {
    model: String,
    splits: BTreeMap<String, Split>,
    total: Split,
}

impl Report {
    pub(super) fn new(model: String, splits: BTreeMap<String, Split>) -> Self {
        let mut total = Split::default();
        splits.values().for_each(|split| total.add(split));
        Self {
            model,
            splits,
            total,
        }
    }

    pub(super) fn json(&self) -> Value {
        let splits = self
            .splits
            .iter()
            .map(|(name, split)| (name.clone(), split.json()));
        json!({
            "model": self.model,
            "total": self.total.json(),
            "splits": splits.collect::<serde_json::Map<_, _>>(),
            "plugin_to_native": self.ratios().map(|(name, ratio)| json!({name: ratio})),
        })
    }

    /// Mask time through the plugin in terms of native mask time.
    fn ratios(&self) -> [(&'static str, f64); 2] {
        let (native, plugin) = (
            self.total.native.wall.summary(),
            self.total.plugin.wall.summary(),
        );
        [
            ("average", plugin.average / native.average.max(1e-9)),
            ("p99", plugin.p99 / native.p99.max(1e-9)),
        ]
    }

    /// The table of times.
    fn times(&self) -> String {
        let total = &self.total;
        let mut rows = vec![heading(&[
            "", "COUNT", "AVERAGE", "P50", "P90", "P99", "P99.9", "MAX",
        ])];
        for (name, times) in [
            ("compile, native", &total.compile),
            ("open, plugin", &total.open),
            ("mask, native", &total.native.wall),
            ("mask, plugin", &total.plugin.wall),
            ("mask, native, CPU", &total.native.cpu),
            ("mask, plugin, CPU", &total.plugin.cpu),
        ] {
            let summary: Summary = times.summary();
            rows.push([vec![name.to_owned()], summary.cells()].concat());
        }
        format!("\nµs\n{}", table(&rows))
    }

    pub(super) fn text(&self) -> String {
        let mut text = format!("vocabulary of {}\n\n", self.model);
        let mut rows = vec![heading(&[
            "SPLIT",
            "SCHEMAS",
            "HANDLED",
            "VALIDATED",
            "VALID",
            "REFUSED",
            "INVALID",
            "ACCEPTED",
            "MASK µs",
            "P99",
            "MAX",
        ])];
        rows.extend(self.splits.iter().map(|(name, split)| row(name, split)));
        rows.push(row("all", &self.total));
        text += &table(&rows);
        text += &self.times();
        let total = &self.total;
        for (name, ratio) in self.ratios() {
            let _ = writeln!(text, "plugin ÷ native, {name}: {ratio:.3}");
        }
        for (name, verdicts) in [
            ("by the mask alone", &total.masked_alone),
            ("with validation", &total.with_validation),
        ] {
            let _ = writeln!(
                text,
                "\n{name}: {} of {} valid instances refused, {} of {} invalid ones accepted",
                verdicts.refused.len(),
                verdicts.valid,
                verdicts.accepted.len(),
                verdicts.invalid
            );
            text += &list("valid, refused", &verdicts.refused);
            text += &list("invalid, accepted", &verdicts.accepted);
        }
        let _ = writeln!(
            text,
            "\n{} valid instances go in another order of keys than the schema's text has",
            total.reordered
        );
        text += &list("slowest masks, CPU", &total.native.slowest.lines());
        text += &list("slowest to compile", &total.slow_compiles.lines());
        text += &list("schemas refused", &total.refused);
        text += &list("schemas that no value satisfies", &total.unsatisfiable);
        text += &list("plugin and native do not agree", &total.disagreements);
        text
    }
}

fn heading(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

fn row(name: &str, split: &Split) -> Vec<String> {
    let (alone, more) = (&split.masked_alone, &split.with_validation);
    let masks = split.plugin.wall.summary();
    vec![
        name.to_owned(),
        split.schemas.to_string(),
        format!("{:.1} %", split.handled() * 100.0),
        split.validated.to_string(),
        (alone.valid + more.valid).to_string(),
        (alone.refused.len() + more.refused.len()).to_string(),
        (alone.invalid + more.invalid).to_string(),
        (alone.accepted.len() + more.accepted.len()).to_string(),
        format!("{:.1}", masks.average),
        format!("{:.1}", masks.p99),
        format!("{:.1}", masks.most),
    ]
}

fn list(title: &str, names: &[String]) -> String {
    if names.is_empty() {
        return String::new();
    }
    let mut text = format!("{title} ({}):\n", names.len());
    for name in names.iter().take(SHOWN) {
        let line: String = name.chars().take(160).collect();
        text += &format!("  {line}\n");
    }
    if names.len() > SHOWN {
        text += "  … (all with --json)\n";
    }
    text
}
