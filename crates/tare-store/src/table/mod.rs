//! Table files: the rows of one table, sorted by (token, key, clustering key), written once and
//! never changed.
//!
//! [`TableWriter`] takes partitions and rows in order and returns whole pages to write. [`Table`]
//! is the part of a file that stays in memory: its footer and the top of its index. A [`Cursor`]
//! finds partitions and rows through a [`BlockSource`], which either has a block or notes that it
//! is missing; nothing here reads or waits. Every block is checked as a whole when it comes into
//! memory ([`Block::decode`]), so that a cursor sees only what was written: damage is a
//! [`TableError`] that names file and offset. `docs/internals/store.md` describes the format.
//!
//! Limits: a file has at most 2^32 pages (16 TiB), a block at most 4 GiB, a key 64 KiB. All range
//! tombstones of a partition are in its first block.

mod block;
mod cursor;
mod data;
mod filter;
mod footer;
mod index;
mod resident;
mod source;
mod statistics;
mod verify;
mod writer;

pub use block::{Block, BlockAt, Kind};
pub use cursor::{Cursor, Start, Step};
pub use data::{Ranges, ranges_of};
pub use footer::Footer;
pub use resident::Table;
pub use source::{BlockSource, FileSource, Window};
pub use statistics::Statistics;
pub use verify::Verify;
pub use writer::{GROUP_BYTES, TableWriter, WriterOptions};

use std::sync::Arc;

use crate::chunk::ALIGNMENT;

/// The unit of blocks in a file, and of direct I/O.
pub const PAGE_BYTES: usize = ALIGNMENT;
/// Bytes of a block before its contents.
const HEAD_BYTES: usize = 24;
/// Bytes of contents that fit into a block of one page.
const ROOM_BYTES: usize = PAGE_BYTES - HEAD_BYTES;

/// Why a table file cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TableError {
    #[error(
        "table file {file:08}.table is damaged at offset {offset}: {damage}; restore it from a \
         snapshot"
    )]
    Damaged { file: u64, offset: u64, damage: Damage },
    #[error("cannot read table file {file:08}.table at offset {offset}")]
    Read { file: u64, offset: u64, source: Arc<std::io::Error> },
}

/// The kind of damage of a table file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    #[error("the file ends too early")]
    Short,
    #[error("the checksum does not match")]
    Checksum,
    #[error("the block belongs to offset {0}")]
    Misplaced(u64),
    #[error("a {found} block is in the place of a {expected} block")]
    Kind { expected: Kind, found: Kind },
    #[error("it cannot be decompressed")]
    Compression,
    #[error("it is no table file of a known version (1 to 3)")]
    Version,
    #[error("{0}")]
    Structure(&'static str),
    #[error("cells of a row cannot be read")]
    Cells,
    #[error("the filter excludes a partition that exists")]
    Filter,
    #[error("{0} differs from the footer")]
    Counts(&'static str),
    #[error("{0} pages belong to no block")]
    Stray(u32),
}

fn u16_at(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline]
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(eight)
}

#[inline]
fn i64_at(bytes: &[u8], at: usize) -> i64 {
    u64_at(bytes, at).cast_signed()
}

/// Narrows a length or an offset inside a block to its stored type.
///
/// # Panics
/// Panics from 4 GiB on: rows come in frames of 256 MiB at most.
fn narrow(length: usize) -> u32 {
    u32::try_from(length).expect("a block is shorter than 4 GiB")
}

#[cfg(test)]
mod tests;
