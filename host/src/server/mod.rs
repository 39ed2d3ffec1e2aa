//! The HTTP server: connections with deadlines, routes, and a drain that ends.

mod auth;
mod body;
mod connections;
mod generate;
mod guard;
mod ops;
mod patience;
mod plugins;
mod router;
mod tokens;

pub use auth::{ApiKeys, KeyFileError};
pub use connections::{ServeError, serve};
pub use router::router;
