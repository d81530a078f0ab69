//! Workloads of `tare load` from what runs already: from a packet capture of CQL or Redis's
//! protocol ([`read`]), and from a table of a running cluster ([`sample()`]).
//!
//! A capture is read twice: first for its tables and prepared statements, then for the operations
//! on the table that most of them are on. Sizes, counts and hashes of keys outlive a packet, and
//! the first keys themselves until the capture has been read, to see whether they come in order.
//!
//! **Invariant:** a workload holds names of tables and columns, sizes and frequencies, never a key
//! or a value.
#![forbid(unsafe_code)]

mod arrivals;
mod build;
mod capture;
mod cql;
mod error;
mod fit;
mod key_value;
mod packet;
mod reassembly;
mod redis;
mod sample;
mod side;
mod sizes;
mod spec;
mod statements;
mod tally;
#[cfg(test)]
mod tests;
mod trace;
mod walk;

pub use arrivals::Arrivals;
pub use error::TraceError;
pub use sample::{Sampled, sample};
pub use trace::{LeftOut, QueryCount, Trace, TraceProtocol, read};
