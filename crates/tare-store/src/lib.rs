//! The storage engine of one shard: a commit log, a memtable, and recovery from the one into the
//! other. It opens no file, no socket and no thread: it hands out [`log::Job`]s for the reactor to
//! carry out, and reads segments at start through [`segments::Segments`].
//!
//! Limits of this version: everything lives in memory and every segment is kept, so the data is
//! bounded by [`store::Limits::memory_bytes`]; beyond it writes are refused and reads go on.
#![forbid(unsafe_code)]

pub mod cells;
pub mod chunk;
pub mod entry;
pub mod log;
pub mod memtable;
pub mod recovery;
pub mod segments;
pub mod store;

pub use entry::Mutation;
pub use log::{CommitLog, Job, LogError, Ticket};
pub use memtable::{Partition, Table};
pub use recovery::{Recovered, RecoveryError, TornTail};
pub use segments::Segments;
pub use store::{Limits, Store, WriteError};
