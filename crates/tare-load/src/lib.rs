//! The load generator: asks a server of CQL, Redis or memcached for operations as fast as it
//! answers (closed loop) or on a schedule (open loop), and counts what comes back. `run` makes one
//! load and reports on it; `engine` keeps connections to several systems open and loads one of them
//! at a time.
//!
//! One thread per CPU, many requests in flight per connection, no allocation per operation.
//! Response time counts from the intended start, service time from the send. Every operation
//! derives from (seed, index), every row from (seed, key).
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::AtomicBool;
//! use std::time::Duration;
//!
//! use tare_load::keys::Keys;
//! use tare_load::pacing::Pace;
//! use tare_load::rows::{KeyType, Shape};
//! use tare_load::workload::Workload;
//! use tare_load::{Access, LoadConfig, LoadError, LoadSpec, Part, run};
//!
//! let shape = Shape { key_type: KeyType::Bigint, columns: 5, column_bytes: 64 };
//! let workload = Workload::plain(shape, 10_000, 0.5, Keys::Uniform)?;
//! let config = LoadConfig {
//!     access: Access::to("127.0.0.1:1".parse()?),
//!     cpus: "0".parse()?,
//!     spec: LoadSpec {
//!         workload: Arc::new(workload),
//!         part: Part::ALL,
//!         connections: 4,
//!         in_flight: 64,
//!     },
//!     pace: Pace::Closed(Duration::from_secs(10)),
//!     populate: true,
//!     lead_in: Duration::from_secs(1),
//!     seed: 1,
//!     verify: false,
//!     hdr_file: None,
//!     connect_deadline: Duration::from_millis(10),
//! };
//! // No server listens there, so there is no report.
//! let report = run(&config, &AtomicBool::new(false), &mut |_event| {});
//! assert!(matches!(report, Err(LoadError::NotReady { .. })));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **Invariant:** the client's own CPU time and lateness are measured and reported with every
//! result, and no wait is without a deadline.
#![forbid(unsafe_code)]

pub mod access;
mod clock;
mod error;
pub mod pacing;
mod protocol;
pub mod report;
pub mod round_trip;
mod run;
pub mod workload;

pub use access::Access;
pub use clock::now_ns as clock_ns;
pub use error::LoadError;
pub use protocol::dial::{QueryConnection, execute};
pub use report::stats::{Recovered, Stats};
pub use report::{LoadDoubt, LoadReport, histogram, log};
pub use run::engine::{self, LoadSpec};
pub use run::load::{self, LoadConfig, run};
pub use run::search;
pub use tare_stats::steady::Steadiness;
pub use workload::operation::{Operations, Part, PartError};
pub use workload::{keys, rows, value};

#[cfg(test)]
mod tests;
