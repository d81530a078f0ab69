//! Reads one row by its whole key: from the newest sources first, and only until older ones cannot
//! change the answer.

use super::lookup::{self, Lookup, LookupMemo, Lookups, TOGETHER};
use super::sources::Sources;
use super::{Cached, End, ReadError, Row, RowRead, Scratch};
use crate::cells::{self, Deletion, MARKER, Visibility};
use crate::memtable::{Cursor, Memtable};
use crate::row_source::{Source, Step};
use crate::table::Start;

/// Tables from which on their filters are asked together.
const TABLES_SOME: usize = 3;

/// A row as the sources that were read so far know it.
struct PartialRow<'s> {
    scratch: &'s mut Scratch,
    covering: Option<Deletion>,
}

impl PartialRow<'_> {
    fn add(&mut self, cells: Option<&[u8]>, covering: Option<Deletion>) {
        self.covering = self.covering.max(covering);
        let Some(cells) = cells else { return };
        let Scratch { cells: known, merged, .. } = &mut *self.scratch;
        if known.is_empty() {
            known.extend_from_slice(cells);
        } else {
            cells::merge(known, cells, merged);
            std::mem::swap(known, merged);
        }
    }

    /// Whether a source without any timestamp later than this cannot change the answer.
    fn is_settled(&self, timestamp_max: i64, read: &RowRead<'_>) -> bool {
        let row = &self.scratch.cells;
        let hidden = self.covering.max(cells::deletion(row)).map(|deletion| deletion.timestamp);
        if hidden >= Some(timestamp_max) {
            return true;
        }
        let Some(columns) = read.columns else { return false };
        // Cells newer than everything in the source: nothing overwrites, deletes or hides them.
        let newer = || cells::iter(row).filter(|cell| cell.timestamp > timestamp_max);
        // Of a collection only the deletion says that older sources add nothing.
        let mut newer_columns = newer().filter(|cell| cell.path.is_none()).map(|cell| cell.column);
        let is_there = newer().any(|cell| {
            let counts = cell.column >= MARKER && cell.is_live(read.now_s);
            counts && hidden.is_none_or(|hidden| cell.timestamp > hidden)
        });
        is_there && columns.iter().all(|column| newer_columns.any(|newer| newer == *column))
    }
}

impl<'s> Sources<'s> {
    /// Implements [`crate::store::Store::read_row`]. The pins keep the memo of earlier calls.
    #[inline]
    pub(crate) fn read_row(
        &self,
        read: &RowRead<'_>,
        blocks: &mut Cached<'_>,
        scratch: &mut Scratch,
        visit: impl FnOnce(Row<'_>),
    ) -> Result<End, ReadError> {
        self.merge_row(read, blocks, scratch, |cells, covering, part| {
            visit_visible(read, cells, covering, part, visit);
        })
    }

    /// Implements [`crate::store::Store::read_row_with_latest`].
    pub(crate) fn read_row_with_latest(
        &self,
        read: &RowRead<'_>,
        blocks: &mut Cached<'_>,
        scratch: &mut Scratch,
        visit: impl FnOnce(Option<Row<'_>>, Option<i64>),
    ) -> Result<End, ReadError> {
        self.merge_row(read, blocks, scratch, |cells, covering, part| {
            let latest = cells::iter(cells).map(|cell| cell.timestamp).max();
            let latest = latest.max(covering.map(|covering| covering.timestamp));
            let mut visit = Some(visit);
            visit_visible(read, cells, covering, part, |row| {
                if let Some(visit) = visit.take() {
                    visit(Some(row), latest);
                }
            });
            if let Some(visit) = visit {
                visit(None, latest);
            }
        })
    }

    /// Merges all that is stored for a row. `found` gets its cells, the strongest range tombstone
    /// over it, and a buffer. It is not called if a block is missing.
    #[inline]
    fn merge_row(
        &self,
        read: &RowRead<'_>,
        blocks: &mut Cached<'_>,
        scratch: &mut Scratch,
        found: impl FnOnce(&[u8], Option<Deletion>, &mut Vec<u8>),
    ) -> Result<End, ReadError> {
        let active = Cursor::at(self.active, read.table, read.token, read.key);
        if self.frozen.is_empty() && self.tables.is_empty() {
            let Some(mut active) = active else {
                found(&[], None, &mut scratch.part);
                return Ok(End::Done);
            };
            let (cells, covering) = active.find_row(read.clustering);
            found(cells.unwrap_or_default(), covering, &mut scratch.part);
            return Ok(End::Done);
        }
        scratch.cells.clear();
        let mut row = PartialRow { scratch, covering: None };
        let at = |memtable: &'s Memtable| Cursor::at(memtable, read.table, read.token, read.key);
        let frozen = self.frozen.iter().filter_map(|memtable| at(memtable));
        for mut memory in active.into_iter().chain(frozen) {
            let (cells, covering) = memory.find_row(read.clustering);
            row.add(cells, covering);
        }
        let mut memo = std::mem::take(&mut row.scratch.memo);
        memo.clear();
        if !blocks.pins.memo.is_empty() {
            memo = std::mem::take(&mut blocks.pins.memo);
        }
        memo.begin_try();
        let step = self.find_row(read, blocks, &mut row, &mut memo)?;
        if step == Step::Missing {
            blocks.pins.memo = memo;
            return Ok(End::Missing);
        }
        row.scratch.memo = memo;
        let PartialRow { scratch: Scratch { cells, part, .. }, covering } = row;
        found(cells, covering, part);
        Ok(End::Done)
    }

    /// Adds the cells and tombstones that the tables have for a row.
    fn find_row(
        &self,
        read: &RowRead<'_>,
        blocks: &mut Cached<'_>,
        found: &mut PartialRow<'_>,
        memo: &mut LookupMemo,
    ) -> Result<Step, ReadError> {
        let (mut all, mut lookups) = (Step::Ready, Lookups::default());
        let (place, start) = ((read.token, read.key), Start::From(read.clustering));
        let (mut asked, mut denied) = (0..0, [false; TOGETHER]);
        for (at, table) in self.tables.iter().enumerate() {
            // The remaining tables are older still.
            if found.is_settled(table.statistics().timestamp_max, read) {
                break;
            }
            let rest = &self.tables[at..];
            if at >= asked.end && rest.len() >= TABLES_SOME && memo.knows_nothing() {
                asked = at..at + TOGETHER;
                denied = lookup::denied(rest, read.token, blocks.cache);
            }
            if !table.may_have_row(read.clustering) {
                continue;
            }
            if asked.contains(&at) && denied[at - asked.start] {
                memo.deny(table, &mut lookups);
                continue;
            }
            match memo.find(table, place, start, blocks, &mut lookups)? {
                // This table may settle the answer, so the others wait for it.
                Lookup::Missing if read.columns.is_some() => return Ok(Step::Missing),
                Lookup::Missing => all = Step::Missing,
                Lookup::Absent => {}
                Lookup::Found(stored) => {
                    let row = Source::<Cached<'_>>::row(&stored);
                    let row = row.filter(|row| row.0 == read.clustering);
                    let covering = Source::<Cached<'_>>::covering(&stored, read.clustering);
                    found.add(row.map(|(_, cells)| cells), covering);
                }
            }
        }
        if all == Step::Ready {
            found.scratch.lookups.add(lookups);
        }
        Ok(all)
    }
}

#[inline]
fn visit_visible(
    read: &RowRead<'_>,
    cells: &[u8],
    covering: Option<Deletion>,
    part: &mut Vec<u8>,
    visit: impl FnOnce(Row<'_>),
) {
    let RowRead { token, key, clustering, .. } = *read;
    let cells = match cells::visible(cells, covering, read.now_s, part) {
        Visibility::Full => cells,
        Visibility::Partial => part,
        Visibility::Empty => return,
    };
    visit(Row { token, key, clustering, cells });
}
