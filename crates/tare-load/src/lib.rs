//! The load generator: asks a CQL server for operations as fast as it answers (closed loop) or on
//! a schedule (open loop), and counts what comes back. `run` makes one load and reports on it;
//! `engine` keeps connections to several systems open and loads one of them at a time.
//!
//! One thread per CPU, many requests in flight per connection, no allocation per operation.
//! Response time counts from the intended start, service time from the send. Every operation
//! derives from (seed, index), every row from (seed, key).
//!
//! **Invariant:** the client's own CPU time and lateness are measured and reported with every
//! result, and no wait is without a deadline.
#![forbid(unsafe_code)]

pub mod access;
mod error;
pub mod pacing;
mod protocol;
pub mod report;
mod run;
pub mod workload;

pub use access::Access;
pub use error::LoadError;
pub use protocol::dial::execute;
pub use report::stats::{Recovered, Stats};
pub use report::{LoadDoubt, LoadReport, Steadiness, histogram, log};
pub use run::engine::{self, LoadSpec};
pub use run::load::{self, LoadConfig, run};
pub use run::search;
pub use workload::operation::{Operations, Part, PartError};
pub use workload::{keys, rows, value};

#[cfg(test)]
mod tests;
