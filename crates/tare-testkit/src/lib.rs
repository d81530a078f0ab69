//! Helpers that the tests of all crates share. The README has the rules for dependencies.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a failed helper fails the test")]

pub mod cql;
pub mod database;
pub mod downloads;
pub mod environment;
pub mod fake_server;
mod golden;
pub mod harness;
pub mod host_state;
pub mod kubernetes;
pub mod skip;
pub mod ssh_bed;
pub mod tiny;
mod workload;

pub use environment::EnvironmentBuilder;
pub use golden::{golden, overwrites_golden_files};
pub use skip::{Machine, Need, Reason, skip, skipped};
pub use workload::workload;
