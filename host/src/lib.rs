//! Stub.
pub mod admission;
pub mod api;
pub mod app;
pub mod build;
pub mod cli;
pub mod config;
pub mod constrain;
pub mod errors;
pub mod metrics;
pub mod models;
pub mod registry;
pub mod relay;
pub mod server;
