//! Reading one row by its whole key: the newest sources first, and no further than they leave a
//! doubt.

use super::look::{Learnt, Looked, Lookups};
use super::source::{Source, Step};
use super::sources::Sources;
use super::{Cached, End, ReadError, Row, RowRead, Scratch};
use crate::cells::{self, Deletion, MARKER, Shown};
use crate::memtable::{Cursor, Memtable};
use crate::table::Start;

/// What is known of a row from the sources that were asked.
struct Found<'s> {
    scratch: &'s mut Scratch,
    covering: Option<Deletion>,
}

impl Found<'_> {
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
        // Later than anything there: nothing overwrites, deletes or hides it.
        let newer = || cells::iter(row).filter(|cell| cell.timestamp > timestamp_max);
        let mut newer_columns = newer().map(|cell| cell.column);
        let is_there = newer().any(|cell| {
            let counts = cell.column >= MARKER && cell.is_live(read.now_s);
            counts && hidden.is_none_or(|hidden| cell.timestamp > hidden)
        });
        is_there && columns.iter().all(|column| newer_columns.any(|newer| newer == *column))
    }
}

impl<'s> Sources<'s> {
    /// See [`crate::store::Store::read_row`]. The pins know what was learnt in earlier calls.
    #[inline]
    pub(super) fn read_row(
        &self,
        read: &RowRead<'_>,
        blocks: &mut Cached<'_>,
        scratch: &mut Scratch,
        visit: impl FnOnce(Row<'_>),
    ) -> Result<End, ReadError> {
        let active = Cursor::at(self.active, read.table, read.token, read.key);
        if self.frozen.is_empty() && self.tables.is_empty() {
            let Some(mut active) = active else { return Ok(End::Done) };
            if let (Some(cells), covering) = active.find_row(read.clustering) {
                show(read, cells, covering, &mut scratch.part, visit);
            }
            return Ok(End::Done);
        }
        scratch.cells.clear();
        let mut found = Found { scratch, covering: None };
        let at = |memtable: &'s Memtable| Cursor::at(memtable, read.table, read.token, read.key);
        let frozen = self.frozen.iter().filter_map(|memtable| at(memtable));
        for mut memory in active.into_iter().chain(frozen) {
            let (cells, covering) = memory.find_row(read.clustering);
            found.add(cells, covering);
        }
        let mut learnt = std::mem::take(&mut found.scratch.learnt);
        learnt.clear();
        if !blocks.pins.learnt.is_empty() {
            learnt = std::mem::take(&mut blocks.pins.learnt);
        }
        let step = self.find_row(read, blocks, &mut found, &mut learnt)?;
        if step == Step::Missing {
            blocks.pins.learnt = learnt;
            return Ok(End::Missing);
        }
        found.scratch.learnt = learnt;
        let Found { scratch: Scratch { cells, part, .. }, covering } = found;
        show(read, cells, covering, part, visit);
        Ok(End::Done)
    }

    /// Adds what the tables know of a row.
    fn find_row(
        &self,
        read: &RowRead<'_>,
        blocks: &mut Cached<'_>,
        found: &mut Found<'_>,
        learnt: &mut Learnt,
    ) -> Result<Step, ReadError> {
        let (mut all, mut lookups) = (Step::Ready, Lookups::default());
        let (place, start) = ((read.token, read.key), Start::From(read.clustering));
        for table in self.tables {
            // The others are older still.
            if found.is_settled(table.statistics().timestamp_max, read) {
                break;
            }
            if !table.may_have_row(read.clustering) {
                continue;
            }
            match learnt.look(table, place, start, blocks, &mut lookups)? {
                // What is in this table may settle the answer, so the others wait for it.
                Looked::Missing if read.columns.is_some() => return Ok(Step::Missing),
                Looked::Missing => all = Step::Missing,
                Looked::Absent => {}
                Looked::There(stored) => {
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
fn show(
    read: &RowRead<'_>,
    cells: &[u8],
    covering: Option<Deletion>,
    part: &mut Vec<u8>,
    visit: impl FnOnce(Row<'_>),
) {
    let RowRead { token, key, clustering, .. } = *read;
    let cells = match cells::show(cells, covering, read.now_s, part) {
        Shown::Whole => cells,
        Shown::Part => part,
        Shown::Nothing => return,
    };
    visit(Row { token, key, clustering, cells });
}
