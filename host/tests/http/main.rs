//! The HTTP API against a real server: the tiny seeded model, the real engine, real plugins.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod answers;
mod chat;
mod connections;
mod faults;
mod generations;
#[path = "../../src/registry/tests/guest.rs"]
mod guest;
mod house;
mod operations;
mod plugins;
mod schemas;
mod streams;
mod tools;
