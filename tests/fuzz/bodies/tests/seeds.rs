//! Every target over its checked-in seeds, and over what a seeded generator makes of them.

// Tests may panic; the lint's own exception knows test functions only, not their helpers.
#![allow(clippy::unwrap_used)]

use formwork_fuzz::{Dice, TARGETS, Target};
use std::path::Path;

/// Inputs made of the seeds, for each target.
const MADE: usize = 1_000;

/// Longest input that is made.
const BYTES: usize = 600;

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../seeds")
        .join(target);
    let entries = std::fs::read_dir(&folder).expect("each target has seeds");
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect()
}

fn run(target: Target, input: &[u8]) {
    let outcome = std::panic::catch_unwind(|| (target.1)(input));
    let shown = String::from_utf8_lossy(input);
    assert!(
        outcome.is_ok(),
        "{} fails on {shown:?} = {}",
        target.0,
        input.escape_ascii()
    );
}

/// Pieces of two seeds with a few bytes changed.
fn made(seeds: &[Vec<u8>], dice: &mut Dice) -> Vec<u8> {
    let mut input = Vec::new();
    for _ in 0..=dice.roll(2) {
        let seed = dice.pick(seeds);
        let (from, until) = (dice.roll(seed.len() + 1), dice.roll(seed.len() + 1));
        let whole = dice.once_in(2);
        input.extend_from_slice(if whole {
            seed
        } else {
            &seed[from.min(until)..from.max(until)]
        });
    }
    for _ in 0..dice.roll(4) {
        let at = dice.roll(input.len() + 1);
        match dice.roll(3) {
            0 => input.insert(at, dice.roll(256) as u8),
            1 if at < input.len() => drop(input.remove(at)),
            _ if at < input.len() => input[at] = *dice.pick(b"\"\\()[]{}|*+?,:19 aA\n"),
            _ => {}
        }
    }
    input.truncate(BYTES);
    input
}

fn check(name: &str) {
    let target = *TARGETS.iter().find(|(known, _)| *known == name).unwrap();
    let seeds = seeds(name);
    assert!(seeds.len() >= 4, "{name} has too few seeds");
    for seed in &seeds {
        run(target, seed);
    }
    let mut dice = Dice::new(&[], name.as_bytes());
    for _ in 0..MADE {
        run(target, &made(&seeds, &mut dice));
    }
    run(target, b"");
}

#[test]
fn schema() {
    check("schema");
}

#[test]
fn lark() {
    check("lark");
}

#[test]
fn regex() {
    check("regex");
}

#[test]
fn gbnf() {
    check("gbnf");
}

#[test]
fn plan() {
    check("plan");
}

#[test]
fn walk() {
    check("walk");
}

#[test]
fn every_target_has_a_binary() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz_targets");
    for (name, _) in TARGETS {
        let text = std::fs::read_to_string(folder.join(format!("{name}.rs"))).unwrap();
        assert!(
            text.contains(&format!("formwork_fuzz::{name}(data)")),
            "{name}"
        );
    }
}
