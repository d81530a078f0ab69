//! The storage engine of one shard: a commit log, memtables, tables of sorted rows on disk, flush
//! and compaction. It opens no file, no socket and no thread and reads no clock: it returns
//! [`io::Op`]s for its host to carry out, and reads its files at the start through [`io::Files`].
#![forbid(unsafe_code)]

mod background;
pub mod cache;
pub mod cells;
pub mod chunk;
pub mod entry;
mod fetch;
pub mod io;
pub mod log;
pub mod manifest;
pub mod memtable;
pub mod options;
pub mod read;
pub mod recovery;
pub mod statistics;
pub mod store;
pub mod table;

pub use background::Urgency;
pub use cache::Pins;
pub use chunk::Chunk;
pub use entry::{Change, Mutation, RangeTombstone};
pub use io::{Completion, FileId, Files, Now, Op, OpId, OpKind};
pub use log::{CommitLog, Durability, LogError, Ticket};
pub use memtable::Memtable;
pub use options::{Limits, TableOptions};
pub use read::{End, Next, PartitionRead, Position, ReadError, Row, RowRead, Scan, Slice};
pub use recovery::{RecoveryError, TornTail};
pub use statistics::Statistics;
pub use store::{OpenError, Recovered, Store, StoreError, WriteError};
