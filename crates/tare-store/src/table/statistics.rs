//! Statistics that are collected while a table is written, and kept in its footer.

use crate::cells::{self, Content};
use crate::entry::RangeTombstone;

/// Counts and bounds of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    pub partitions: u64,
    pub rows: u64,
    /// Number of range tombstones.
    pub ranges: u64,
    pub cells: u64,
    /// Cells that are deletions, of a row or a column.
    pub dead_cells: u64,
    /// Cells that expire.
    pub expiring_cells: u64,
    /// Least and greatest timestamp of cells and range tombstones; the greatest is below the least
    /// if there are none.
    pub timestamp_min: i64,
    pub timestamp_max: i64,
    /// Time of the first deletion or expiry, in seconds since 1970.
    pub deletion_s_min: u32,
    /// Time of the last deletion or expiry; `u32::MAX` if any cell lives for ever.
    pub deletion_s_max: u32,
}

impl Default for Statistics {
    fn default() -> Self {
        Self {
            partitions: 0,
            rows: 0,
            ranges: 0,
            cells: 0,
            dead_cells: 0,
            expiring_cells: 0,
            timestamp_min: i64::MAX,
            timestamp_max: i64::MIN,
            deletion_s_min: u32::MAX,
            deletion_s_max: 0,
        }
    }
}

impl Statistics {
    pub(super) fn add_row(&mut self, cells: &[u8]) {
        self.rows += 1;
        for cell in cells::iter(cells) {
            self.cells += 1;
            self.add_timestamp(cell.timestamp);
            match cell.content {
                Content::Live(_) => self.deletion_s_max = u32::MAX,
                Content::Expiring { expires_s, .. } => {
                    self.expiring_cells += 1;
                    self.add_deletion(expires_s);
                }
                Content::Dead { since_s } => {
                    self.dead_cells += 1;
                    self.add_deletion(since_s);
                }
            }
        }
    }

    pub(super) fn add_range(&mut self, range: &RangeTombstone<'_>) {
        self.ranges += 1;
        self.add_timestamp(range.timestamp);
        self.add_deletion(range.deleted_s);
    }

    /// Whether anything in the table can hide other data.
    pub fn has_deletions(&self) -> bool {
        self.ranges > 0 || self.dead_cells > 0
    }

    fn add_timestamp(&mut self, timestamp: i64) {
        self.timestamp_min = self.timestamp_min.min(timestamp);
        self.timestamp_max = self.timestamp_max.max(timestamp);
    }

    fn add_deletion(&mut self, at_s: u32) {
        self.deletion_s_min = self.deletion_s_min.min(at_s);
        self.deletion_s_max = self.deletion_s_max.max(at_s);
    }
}
