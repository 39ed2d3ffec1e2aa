//! Instructions that a decode step of the tiny model takes, counted by valgrind's callgrind. Unlike
//! times, counts are the same on a busy machine, so a small growth shows.

mod support;

use formwork_model::Model;
use std::process::Command;
use std::sync::Arc;
use support::{Driver, greedy};

/// Instructions per step by batch. When a change moves them on purpose, write the new ones here.
const COUNTS: [(usize, u64); 2] = [(1, 184_600), (8, 1_140_600)];
/// Growth that goes unnoticed, in percent.
const SLACK: u64 = 3;
/// The two runs whose difference is counted, in steps.
const STEPS: [usize; 2] = [2, 12];

const SHAPE: &str = "FORMWORK_COUNTED_STEPS";

#[test]
fn a_decode_step_takes_no_more_instructions_than_it_did() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("skipped: valgrind is not installed");
        return;
    }
    if !is_avx2() {
        println!("skipped: the counts are those of the AVX2 path");
        return;
    }
    let mut grown = Vec::new();
    for (batch, known) in COUNTS {
        let [few, many] = STEPS.map(|steps| instructions(batch, steps));
        let per_step = (many - few) / (STEPS[1] - STEPS[0]) as u64;
        println!("batch {batch}: {per_step} instructions a step, known are {known}");
        if per_step * 100 > known * (100 + SLACK) {
            grown.push(format!("batch {batch}: {per_step} instead of {known}"));
        }
    }
    assert!(grown.is_empty(), "{grown:?}");
}

fn is_avx2() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        false
    }
}

/// Of this very program, running only the steps below.
fn instructions(batch: usize, steps: usize) -> u64 {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().expect("the program has a path"))
        .args(["--exact", "steps_to_count", "--ignored", "--test-threads=1"])
        .env(SHAPE, format!("{batch} {steps}"))
        .output()
        .expect("valgrind runs");
    let report = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{report}");
    let line = report
        .lines()
        .find_map(|line| line.split_once("Collected :"));
    let count = line.and_then(|(_, count)| count.trim().parse().ok());
    count.unwrap_or_else(|| panic!("no count in:\n{report}"))
}

#[test]
#[ignore = "what the other test counts"]
fn steps_to_count() {
    let shape = std::env::var(SHAPE).unwrap_or("1 1".into());
    let (batch, steps) = shape.split_once(' ').expect("two numbers");
    let (batch, steps): (usize, usize) = (batch.parse().unwrap(), steps.parse().unwrap());
    // One thread: with more, how often they look for work is counted, too.
    let mut driver = Driver::new(&Arc::new(Model::tiny(1)), 1, [batch, 256]);
    let which: Vec<usize> = (0..batch).map(|_| driver.add(&[65; 128])).collect();
    for _ in 0..steps {
        driver.step(&which, 128, &greedy()).expect("the step runs");
    }
}
