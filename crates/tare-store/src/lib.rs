//! The storage engine of one shard: a commit log, memtables, tables of sorted rows on disk, flush
//! and compaction. It opens no file, no socket and no thread and reads no clock: it returns
//! [`io::Op`]s for its host to carry out, and reads its files at the start through [`io::Files`].
//!
//! The host carries out the operations of [`Store::next_op`] and returns them with
//! [`Store::complete`], here on files in memory:
//!
//! ```
//! use std::collections::BTreeMap;
//! use std::io;
//! use std::ops::ControlFlow;
//!
//! use tare_store::cells::{self, Cell, FIRST_COLUMN};
//! use tare_store::{
//!     Change, Completion, Durability, FileId, Files, Limits, Mutation, Now, Op, OpKind,
//!     PartitionRead, Pins, Slice, Store, TableOptions,
//! };
//!
//! #[derive(Default)]
//! struct Memory(BTreeMap<FileId, Vec<u8>>);
//!
//! impl Files for Memory {
//!     fn list(&self) -> io::Result<Vec<FileId>> {
//!         Ok(self.0.keys().copied().collect())
//!     }
//!     fn length(&self, file: FileId) -> io::Result<u64> {
//!         Ok(self.0[&file].len() as u64)
//!     }
//!     fn read_at(&self, file: FileId, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
//!         let rest = &self.0[&file][offset as usize..];
//!         let length = rest.len().min(buffer.len());
//!         buffer[..length].copy_from_slice(&rest[..length]);
//!         Ok(length)
//!     }
//!     fn carry_out(&mut self, op: Op) -> Completion {
//!         let (mut done, mut returned) = (0, None);
//!         match op.kind {
//!             OpKind::Create { .. } => drop(self.0.insert(op.file, Vec::new())),
//!             OpKind::Remove => drop(self.0.remove(&op.file)),
//!             OpKind::Rename { to } => {
//!                 let bytes = self.0.remove(&op.file).unwrap_or_default();
//!                 self.0.insert(to, bytes);
//!             }
//!             OpKind::Truncate { length } => {
//!                 self.0.entry(op.file).or_default().truncate(length as usize)
//!             }
//!             OpKind::Write { offset, chunk, .. } => {
//!                 let (file, at) = (self.0.entry(op.file).or_default(), offset as usize);
//!                 done = chunk.len();
//!                 file.resize(file.len().max(at + done), 0);
//!                 file[at..at + done].copy_from_slice(chunk.bytes());
//!                 returned = Some(chunk);
//!             }
//!             OpKind::Read { offset, mut chunk } => {
//!                 done = self.read_at(op.file, offset, chunk.bytes_mut()).unwrap_or(0);
//!                 returned = Some(chunk);
//!             }
//!             OpKind::Sync => {}
//!         }
//!         Completion::new(op.id, returned, Ok(done))
//!     }
//!     fn name(&self, file: FileId) -> String {
//!         file.file_name()
//!     }
//! }
//!
//! let limits = Limits {
//!     memtable_bytes: 8 << 20,
//!     cache_bytes: 1 << 20,
//!     background_bytes: 1 << 20,
//!     pending_bytes: 1 << 20,
//!     segment_bytes: 1 << 20,
//!     durability: Durability::Sync,
//! };
//! let now = Now { monotonic_ns: 0, wall_s: 1_700_000_000 };
//! let tables = BTreeMap::from([(1, TableOptions::default())]);
//! let mut files = Memory::default();
//! let (mut store, _) = Store::open(&mut files, limits, tables, now)?;
//!
//! let mut cells = Vec::new();
//! cells::push(&mut cells, Cell::live(FIRST_COLUMN, 1, b"value"));
//! let change = Change::Row { clustering: b"row", cells: &cells };
//! let ticket = store.write(&[Mutation { table: 1, token: 5, key: b"key", change }])?;
//! while let Some(op) = store.next_op(now) {
//!     store.complete(files.carry_out(op), now)?;
//! }
//! assert!(ticket.0 < store.durable(), "the write may be acknowledged");
//!
//! let read = PartitionRead {
//!     table: 1,
//!     token: 5,
//!     key: b"key",
//!     slices: &[Slice::ALL],
//!     reversed: false,
//!     after: None,
//!     now_s: now.wall_s,
//! };
//! let mut rows = Vec::new();
//! store.read(&read, &mut Pins::default(), |row| {
//!     rows.push(row.clustering.to_vec());
//!     ControlFlow::Continue(())
//! })?;
//! assert_eq!(rows, [b"row"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
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
mod pages;
pub mod read;
pub mod recovery;
mod row_source;
pub mod statistics;
pub mod store;
pub mod table;

pub use background::Urgency;
pub use chunk::Chunk;
pub use entry::{Change, Mutation, RangeTombstone};
pub use io::{Completion, FileId, Files, Now, Op, OpId, OpKind};
pub use log::{CommitLog, Durability, LogError, Ticket};
pub use memtable::Memtable;
pub use options::{Limits, TableOptions};
pub use read::{End, Next, PartitionRead, Pins, Position, ReadError, Row, RowRead, Scan, Slice};
pub use recovery::{RecoveryError, TornTail};
pub use statistics::Statistics;
pub use store::{OpenError, Recovered, Store, StoreError, WriteError};
