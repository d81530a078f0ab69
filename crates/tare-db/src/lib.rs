//! The reference database: a shard per core, each a thread that owns its part of the data, over
//! io_uring or epoll; CQL's native protocol to the outside, `tare-store` inside.
//!
//! [`serve`] runs a server until its stop flag is set; [`metrics::read`] reads its account of time
//! and [`report::read`] what it found and chose, both from the data directory.
//!
//! | folder | content |
//! |---|---|
//! | `node` | what all shards share: configuration, directory, memory, CPUs, metrics, report |
//! | `net` | connections: reactor, transport, TLS, users |
//! | `query` | statements: schema, planner, values, reads, answers |
//! | `shard` | the event loop of a core, its sessions and statements, messages between shards |
//! | `server` | start and stop, access control |
//! | `inspect` | checks and prints the files of a stopped server |
//! | `simulation` | runs shards on a simulated machine; only with the feature of this name |
//!
//! A folder uses those above it, never those below it.
#![deny(unsafe_code)]

pub mod inspect;
mod net;
mod node;
mod query;
mod server;
mod shard;
#[cfg(feature = "simulation")]
pub mod simulation;

pub use net::auth::{self, AuthError};
pub use net::reactor::{ReactorError, UringError};
pub use net::tls::TlsFilesError;
pub use node::config::{self, Choice, Config, Durability, IoChoice, TlsFiles};
pub use node::directory::DirectoryError;
pub use node::environment::{self, EnvironmentError};
pub use node::memory::{MemoryError, SHARD_BYTES_MIN, row_bytes_in_memory};
pub use node::placement::PlacementError;
pub use node::{inject, metrics, report, snapshot};
pub use query::catalog::journal::JournalError;
pub use server::{AccessError, DbError, serve};
