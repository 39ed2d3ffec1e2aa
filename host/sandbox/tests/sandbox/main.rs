//! The sandbox as its users and its enemies see it.

// Tests may panic; the lint's own exception knows test functions only, not their helpers.
#![allow(clippy::unwrap_used)]

mod admission;
mod compile;
mod guest;
mod healing;
mod hostile;
mod schemas;
mod walks;
mod world;
