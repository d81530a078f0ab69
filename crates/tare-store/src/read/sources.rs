//! The sources of a read, and the position of the read in each.

use std::ops::ControlFlow;
use std::rc::Rc;

use super::lookup::{Lookup, LookupMemo, Lookups};
use super::merge::Merge;
use super::stored::Stored;
use super::walk::{walk, walk_all};
use super::{Cached, End, Next, PartitionRead, Position, ReadError, Row, Scan, Scratch};
use crate::cells::Deletion;
use crate::entry::RangeTombstone;
use crate::memtable::{Cursor, Memtable};
use crate::row_source::{Source, Step};
use crate::table::{self, BlockSource, Start, Table};

/// Blocks that a scan requests ahead of its position.
const SCAN_AHEAD: usize = 8;

/// The sources of the rows of one table.
#[derive(Debug)]
pub(crate) struct Sources<'s> {
    pub(crate) active: &'s Memtable,
    pub(crate) frozen: &'s [Rc<Memtable>],
    /// Table files, with the latest timestamp first.
    pub(crate) tables: &'s [Rc<Table>],
}

impl<'s> Sources<'s> {
    /// Implements [`crate::store::Store::read`]. The pins know the rows that earlier calls have
    /// passed.
    #[inline]
    pub(crate) fn read(
        &self,
        read: &PartitionRead<'_>,
        blocks: &mut Cached<'_>,
        scratch: &mut Scratch,
        visit: impl FnMut(Row<'_>) -> ControlFlow<()>,
    ) -> Result<End, ReadError> {
        scratch.looked = 0;
        let passed = blocks.pins.take_passed(read.token, read.key);
        let read = read.after_too(passed.as_deref());
        let end = self.read_some(&read, blocks, scratch, visit)?;
        if matches!(end, End::Missing | End::Paused) {
            let (token, key) = (read.token, read.key);
            if scratch.looked > 0 {
                // Blocks of passed rows may leave memory.
                blocks.pins.forget_done();
                blocks.pins.pass(token, key, &scratch.passed);
            } else if let Some(passed) = &passed {
                blocks.pins.pass(token, key, passed);
            }
        }
        Ok(end)
    }

    #[inline]
    fn read_some<B: BlockSource>(
        &self,
        read: &PartitionRead<'_>,
        blocks: &mut B,
        scratch: &mut Scratch,
        visit: impl FnMut(Row<'_>) -> ControlFlow<()>,
    ) -> Result<End, ReadError> {
        let at = |memtable: &'s Memtable| Cursor::at(memtable, read.table, read.token, read.key);
        let active = at(self.active);
        if self.frozen.is_empty() && self.tables.is_empty() {
            let Some(mut active) = active else { return Ok(End::Done) };
            return walk(&mut active, blocks, read, scratch, visit);
        }
        let frozen = self.frozen.iter().filter_map(|memtable| at(memtable));
        let mut sources: Vec<_> = active.into_iter().chain(frozen).map(AnySource::Memory).collect();
        let mut lookups = Lookups::default();
        // The next try may be for another row, so the memo is empty.
        scratch.memo.clear();
        let memo = &mut scratch.memo;
        if self.find(read, blocks, &mut sources, (memo, &mut lookups))? == Step::Missing {
            return Ok(End::Missing);
        }
        scratch.lookups.add(lookups);
        match &mut sources[..] {
            [] => Ok(End::Done),
            [one] => walk(one, blocks, read, scratch, visit),
            _ => walk(&mut Merge::new(sources), blocks, read, scratch, visit),
        }
    }

    /// Implements [`crate::store::Store::scan`].
    pub(crate) fn scan(
        &self,
        scan: &mut Scan,
        blocks: &mut Cached<'_>,
        scratch: &mut Scratch,
        visit: impl FnMut(Row<'_>) -> Next,
    ) -> Result<End, ReadError> {
        scratch.looked = 0;
        let end = self.scan_some(scan, blocks, scratch, visit)?;
        if end == End::Missing && scratch.looked > 0 {
            blocks.pins.forget_done();
        }
        Ok(end)
    }

    fn scan_some<B: BlockSource>(
        &self,
        scan: &mut Scan,
        blocks: &mut B,
        scratch: &mut Scratch,
        visit: impl FnMut(Row<'_>) -> Next,
    ) -> Result<End, ReadError> {
        let Position { token, key, .. } = &scan.position;
        let from = |memtable: &'s Memtable| Cursor::from(memtable, scan.table, *token, key);
        let frozen = self.frozen.iter().map(|memtable| from(memtable));
        let memtables = std::iter::once(from(self.active)).chain(frozen);
        let mut sources: Vec<_> = memtables.map(AnySource::Memory).collect();
        let mut all = Step::Ready;
        for table in self.tables {
            let footer = table.footer();
            if footer.token_max < *token || footer.token_min > scan.to_token {
                continue;
            }
            let cursor = table::Cursor::new(Rc::clone(table)).with_read_ahead(SCAN_AHEAD);
            let mut stored = Stored::new(cursor);
            // All tables are opened, so that all missing blocks are noted at once.
            if stored.open(*token, key, blocks)? == Step::Missing {
                all = Step::Missing;
            }
            sources.push(AnySource::Stored(stored));
        }
        if all == Step::Missing {
            return Ok(End::Missing);
        }
        walk_all(&mut Merge::new(sources), blocks, scan, scratch, visit)
    }

    /// Finds the partition of a read in every table that may have some of its rows.
    fn find<B: BlockSource>(
        &self,
        read: &PartitionRead<'_>,
        blocks: &mut B,
        sources: &mut Vec<AnySource<'s>>,
        so_far: (&mut LookupMemo, &mut Lookups),
    ) -> Result<Step, ReadError> {
        let [first, .., last] = read.slices else {
            let [slice] = read.slices else { return Ok(Step::Ready) };
            return self.find_between((slice.from, slice.to), read, blocks, sources, so_far);
        };
        self.find_between((first.from, last.to), read, blocks, sources, so_far)
    }

    fn find_between<B: BlockSource>(
        &self,
        (from, to): (&[u8], Option<&[u8]>),
        read: &PartitionRead<'_>,
        blocks: &mut B,
        sources: &mut Vec<AnySource<'s>>,
        so_far: (&mut LookupMemo, &mut Lookups),
    ) -> Result<Step, ReadError> {
        let start = match read.after {
            Some(after) if read.reversed => {
                Start::Before(Some(to.map_or(after, |to| to.min(after))))
            }
            None if read.reversed => Start::Before(to),
            after => Start::From(after.map_or(from, |after| after.max(from))),
        };
        let ((memo, lookups), mut all) = (so_far, Step::Ready);
        for table in self.tables.iter().filter(|table| table.may_cover(from, to)) {
            match memo.find(table, (read.token, read.key), start, blocks, lookups)? {
                Lookup::Missing => all = Step::Missing,
                Lookup::Absent => {}
                Lookup::Found(stored) => sources.push(AnySource::Stored(stored)),
            }
        }
        Ok(all)
    }
}

/// A position in a source of either kind.
#[derive(Debug)]
enum AnySource<'s> {
    Memory(Cursor<&'s Memtable>),
    Stored(Stored),
}

/// Calls the same method of either kind.
macro_rules! either {
    ($place:expr, $source:ident => $what:expr) => {
        match $place {
            AnySource::Memory($source) => $what,
            AnySource::Stored($source) => $what,
        }
    };
}

impl<B: BlockSource> Source<B> for AnySource<'_> {
    fn partition(&self) -> Option<(i64, &[u8])> {
        either!(self, source => Source::<B>::partition(source))
    }

    fn row(&self) -> Option<(&[u8], &[u8])> {
        either!(self, source => Source::<B>::row(source))
    }

    fn covering(&self, clustering: &[u8]) -> Option<Deletion> {
        either!(self, source => Source::<B>::covering(source, clustering))
    }

    fn ranges(&self, each: &mut dyn FnMut(RangeTombstone<'_>)) {
        either!(self, source => Source::<B>::ranges(source, each));
    }

    fn seek(
        &mut self,
        from: &[u8],
        to: Option<&[u8]>,
        reversed: bool,
        blocks: &mut B,
    ) -> Result<Step, ReadError> {
        either!(self, source => Source::seek(source, from, to, reversed, blocks))
    }

    fn next_row(&mut self, blocks: &mut B) -> Result<Step, ReadError> {
        either!(self, source => Source::next_row(source, blocks))
    }

    fn next_partition(&mut self, blocks: &mut B) -> Result<Step, ReadError> {
        either!(self, source => Source::next_partition(source, blocks))
    }
}
