//! Changes of a partition that wait for what is stored: their timestamp, or some of their cells,
//! come from what the shard that owns the partition finds.

use std::sync::Arc;

use tare_store::cells::{self, Cell};
use tare_store::{Change, Mutation, RangeTombstone};

use crate::query::bind::{OwnedSlice, PartitionKey};
use crate::query::catalog::Table;
use crate::query::failure::Failure;
use crate::query::row_operation::{RowOperation, put_operations};
use crate::query::write_time::WriteTime;

/// A change of rows of one partition.
#[derive(Debug)]
pub(crate) enum RowChange {
    Row {
        clustering: Vec<u8>,
        /// Cells whose timestamps are added to that of the write.
        cells: Vec<u8>,
        operations: Vec<RowOperation>,
        time: WriteTime,
    },
    Range {
        slice: OwnedSlice,
        deleted_s: u32,
    },
}

impl RowChange {
    /// Bytes that the change takes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Row { clustering, cells, operations, .. } => {
                clustering.len() + cells.len() + size_of_val(&operations[..])
            }
            Self::Range { slice: (from, to), .. } => from.len() + to.as_ref().map_or(0, Vec::len),
        }
    }

    /// The cells to write at a time into a row that has the cells `before`.
    pub(crate) fn cells(&self, before: &[u8], timestamp: i64) -> Result<Vec<u8>, Failure> {
        let Self::Row { cells, operations, time, .. } = self else { return Ok(Vec::new()) };
        let mut out = Vec::with_capacity(cells.len());
        cells::iter(cells).for_each(|cell| {
            cells::push(&mut out, Cell { timestamp: timestamp + cell.timestamp, ..cell });
        });
        put_operations(&mut out, operations, before, WriteTime { timestamp, ..*time })?;
        Ok(out)
    }

    /// The mutation with the cells that [`RowChange::cells`] has returned; `None` for a row without
    /// any.
    pub(crate) fn mutation<'a>(
        &'a self,
        table: &Arc<Table>,
        key: &'a PartitionKey,
        cells: &'a [u8],
        timestamp: i64,
    ) -> Option<Mutation<'a>> {
        let change = match self {
            Self::Row { .. } if cells.is_empty() => return None,
            Self::Row { clustering, .. } => Change::Row { clustering, cells },
            Self::Range { slice: (from, to), deleted_s } => Change::Range(RangeTombstone {
                from,
                to: to.as_deref(),
                timestamp,
                deleted_s: *deleted_s,
            }),
        };
        Some(Mutation { table: table.store, token: key.token, key: &key.key, change })
    }
}
