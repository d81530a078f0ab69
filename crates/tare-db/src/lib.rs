//! The reference database: a shard per core, each a thread that owns its part of the data, over
//! io_uring or epoll; CQL's native protocol to the outside, `tare-store` inside.
//!
//! [`serve`] runs a server until it is told to stop; [`metrics::read`] reads its account of time
//! and [`report::read`] what it found and chose, both from the data directory.
#![deny(unsafe_code)]

mod announce;
pub mod auth;
mod balance;
mod bind;
mod catalog;
mod clock;
pub mod config;
mod cursor;
mod describe;
mod directory;
pub mod environment;
mod execute;
mod failure;
mod guard;
pub mod inject;
pub mod inspect;
mod mailbox;
mod memory;
mod message;
pub mod metrics;
mod modify;
mod options;
mod ordered;
mod placement;
mod plan;
mod planner;
mod reactor;
mod replication;
pub mod report;
mod ring;
mod rows;
mod schema;
mod select;
mod server;
mod session;
mod shard;
pub mod snapshot;
mod stall;
mod system;
mod tls;
mod transport;
mod warning;

pub use auth::AuthError;
pub use catalog::journal::JournalError;
pub use config::{Choice, Config, Durability, IoChoice};
pub use directory::DirectoryError;
pub use environment::EnvironmentError;
pub use guard::GuardError;
pub use memory::MemoryError;
pub use placement::PlacementError;
pub use reactor::{ReactorError, UringError};
pub use server::{DbError, serve};
pub use tls::{TlsFiles, TlsFilesError};
