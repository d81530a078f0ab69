//! Reads of the store: they take rows from its memtables and tables, and fetch the blocks that are
//! missing.

use std::ops::ControlFlow;

use super::Store;
use crate::read::{
    Cached, End, Next, PartitionRead, Pins, ReadError, Row, RowRead, Scan, Scratch, Sources,
};

impl Store {
    /// Visits the rows of one partition in clustering order.
    #[inline]
    pub fn read(
        &mut self,
        read: &PartitionRead<'_>,
        pins: &mut Pins,
        visit: impl FnMut(Row<'_>) -> ControlFlow<()>,
    ) -> Result<End, ReadError> {
        self.with_sources(read.table, pins, |sources, blocks, scratch| {
            sources.read(read, blocks, scratch, visit)
        })
    }

    /// Visits one row, if it exists.
    #[inline]
    pub fn read_row(
        &mut self,
        read: &RowRead<'_>,
        pins: &mut Pins,
        visit: impl FnOnce(Row<'_>),
    ) -> Result<End, ReadError> {
        self.with_sources(read.table, pins, |sources, blocks, scratch| {
            sources.read_row(read, blocks, scratch, visit)
        })
    }

    /// Visits one row, or `None` if it does not exist, with the latest timestamp of all that is
    /// stored for it, deletions too; `None` if nothing is. The visitor is not called if a block is
    /// missing.
    pub fn read_row_with_latest(
        &mut self,
        read: &RowRead<'_>,
        pins: &mut Pins,
        visit: impl FnOnce(Option<Row<'_>>, Option<i64>),
    ) -> Result<End, ReadError> {
        self.with_sources(read.table, pins, |sources, blocks, scratch| {
            sources.read_row_with_latest(read, blocks, scratch, visit)
        })
    }

    /// Visits the rows of a table in order of (token, key, clustering key).
    pub fn scan(
        &mut self,
        scan: &mut Scan,
        pins: &mut Pins,
        visit: impl FnMut(Row<'_>) -> Next,
    ) -> Result<End, ReadError> {
        self.with_sources(scan.table, pins, |sources, blocks, scratch| {
            sources.scan(scan, blocks, scratch, visit)
        })
    }

    /// Runs a read and fetches the missing blocks.
    #[inline]
    fn with_sources(
        &mut self,
        table: u32,
        pins: &mut Pins,
        read: impl FnOnce(&Sources<'_>, &mut Cached<'_>, &mut Scratch) -> Result<End, ReadError>,
    ) -> Result<End, ReadError> {
        let tables = self.table_files.get(&table).map_or(&[][..], Vec::as_slice);
        let sources = Sources { active: &self.memory, frozen: &self.frozen, tables };
        let end = read(&sources, &mut Cached { cache: &mut self.cache, pins }, &mut self.scratch)?;
        if end == End::Missing {
            self.fetch(pins);
        }
        Ok(end)
    }
}
