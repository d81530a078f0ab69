//! The storage engine of one shard: a commit log, a memtable, and recovery from the one into the
//! other. It opens no file, no socket and no thread and reads no clock: it hands out [`io::Op`]s for
//! its host to carry out, and reads its files at start through [`io::Files`].
//!
//! Limits of this version: everything lives in memory and every segment is kept, so the data is
//! bounded by [`Limits::memtable_bytes`]; beyond it writes are refused and reads go on.
#![forbid(unsafe_code)]

pub mod cache;
pub mod cells;
pub mod chunk;
pub mod entry;
pub mod io;
pub mod log;
pub mod memtable;
pub mod options;
pub mod read;
pub mod recovery;
pub mod store;
pub mod table;

pub use chunk::Chunk;
pub use entry::{Change, Mutation, RangeTombstone};
pub use io::{Completion, FileId, Files, Now, Op, OpId, OpKind};
pub use log::{CommitLog, Durability, LogError, Ticket};
pub use memtable::Memtable;
pub use options::{Limits, TableOptions};
pub use read::{End, Next, PartitionRead, Pins, Position, ReadError, Row, Scan, Slice};
pub use recovery::{RecoveryError, TornTail};
pub use store::{OpenError, Recovered, Store, StoreError, WriteError};
