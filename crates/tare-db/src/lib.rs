//! The reference database: a shard per core, each a thread that owns its part of the data, over
//! io_uring or epoll; CQL's native protocol to the outside, `tare-store` inside.
//!
//! [`serve`] runs a server until its stop flag is set; [`metrics::read`] reads its account of time
//! and [`report::read`] what it found and chose, both from the data directory.
//!
//! | folder | content |
//! |---|---|
//! | `net` | connections: reactor, sessions, transport, TLS, logins |
//! | `query` | statements: schema, planner, values, reads and writes, answers |
//! | `shard` | the event loop of a core, its parts, and messages between shards |
//! | `node` | the server as a whole: start and stop, directory, memory, CPUs, metrics, report |
#![deny(unsafe_code)]

mod net;
mod node;
mod query;
mod shard;

pub use net::access::AccessError;
pub use net::auth::{self, AuthError};
pub use net::reactor::{ReactorError, UringError};
pub use net::tls::{TlsFiles, TlsFilesError};
pub use node::config::{self, Choice, Config, Durability, IoChoice};
pub use node::directory::DirectoryError;
pub use node::environment::{self, EnvironmentError};
pub use node::error::DbError;
pub use node::memory::MemoryError;
pub use node::placement::PlacementError;
pub use node::server::serve;
pub use node::{inject, inspect, metrics, report, snapshot};
pub use query::catalog::journal::JournalError;
