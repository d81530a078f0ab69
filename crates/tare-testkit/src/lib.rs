//! What the tests of all crates share. See the README for what may depend on what.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]

pub mod cql;
pub mod database;
pub mod environment;
pub mod fake_server;
pub mod harness;
pub mod host_state;
pub mod skip;
pub mod tiny;

pub use environment::EnvironmentBuilder;
pub use skip::{Machine, Need, Reason, skip, skipped};
