//! The load generator: asks a CQL server for operations as fast as it answers (closed loop) or on
//! a schedule (open loop), and counts what comes back. `run` makes one load and reports on it;
//! `engine` keeps connections to several systems open and loads one of them at a time.
//!
//! Thread per CPU, many requests in flight per connection, no allocation per operation. Response
//! time counts from the intended start, service time from the send. Every operation derives from
//! (seed, index), every row from (seed, key).
//!
//! **Invariant:** the client's own CPU time and lateness are measured and reported with every
//! result, and no wait is without a deadline.
#![forbid(unsafe_code)]

pub mod access;
mod clock;
mod cluster;
mod column;
mod connection;
mod dial;
mod doubts;
pub mod engine;
mod error;
mod gather;
pub mod histogram;
pub mod keys;
pub mod load;
pub mod log;
mod operation;
pub mod pacing;
mod queue;
mod redial;
pub mod report;
mod request;
mod routing;
pub mod rows;
pub mod search;
mod series;
mod stats;
mod steady;
mod table;
mod tls;
pub mod value;
mod versions;
mod wire;
mod worker;
pub mod workload;

pub use access::Access;
pub use dial::execute;
pub use doubts::LoadDoubt;
pub use engine::Asked;
pub use error::LoadError;
pub use load::{LoadConfig, run};
pub use operation::{Operations, Part, PartError};
pub use report::LoadReport;
pub use stats::{Recovered, Stats};
pub use steady::Steadiness;

#[cfg(test)]
mod tests;
