//! The sandbox as its users and its enemies see it.

// Tests may panic; the lint's own exception knows test functions only, not their helpers.
#![allow(clippy::unwrap_used)]

mod admission;
mod artifacts;
mod bounds;
mod compile;
mod conditions;
mod guest;
mod healing;
mod hostile;
mod patience;
mod places;
mod references;
mod reports;
mod schemas;
mod verdicts;
mod walks;
mod world;
mod writing;
