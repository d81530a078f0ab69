//! Simulates the reference database's stores: several shards on one thread, over a virtual clock
//! and disks in memory that fail, with a model that knows the right answers.
//!
//! [`run`] runs one seed. The same seed gives the same run, to the last operation, which
//! [`Outcome::hash`] proves. `docs/internals/simulation.md` describes what is simulated and what is
//! not.
#![forbid(unsafe_code)]

mod device;
mod disk;
mod engine;
mod faults;
mod files;
pub mod fuzz;
mod history;
mod log;
mod model;
mod node;
mod reads;
mod seeds;
mod shard;
mod simulation;
mod trace;
mod violation;
mod workload;

pub use faults::Canary;
pub use node::{Coverage, NodeOutcome, run_node};
pub use seeds::each_seed;
pub use simulation::{Options, Outcome, run};
pub use violation::{Failure, Violation};
