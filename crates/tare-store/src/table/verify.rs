//! Verifies a whole table file: every block, their order, that the index and the filters find
//! everything, that every row can be read, and that the footer's counts are right.

use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

use super::block::Block;
use super::block::BlockAt;
use super::data::{Data, Piece, ranges_of};
use super::index::{Index, Position};
use super::source::FileSource;
use super::{Damage, Kind, Statistics, Table, TableError, filter};
use crate::cells;

/// An iterator over the defects of a table file, block by block. If it returns none, the file is as
/// it was written.
#[derive(Debug)]
pub struct Verify<R> {
    source: FileSource<R>,
    table: Table,
    found: VecDeque<TableError>,
    sound: bool,
    done: bool,
    /// Index block and entry that come next.
    leaf: usize,
    entry: usize,
    leaf_block: Option<Rc<Block>>,
    /// The filter block in use; the inner option is empty if it cannot be read, which has been
    /// reported.
    filter: Option<(usize, Option<Block>)>,
    last: Option<Last>,
    statistics: Statistics,
    plain_bytes: u64,
    data_blocks: u32,
    tokens: Option<(i64, i64)>,
    clustering: Option<(Vec<u8>, Vec<u8>)>,
    /// First page and pages of every block.
    extents: Vec<(u32, u32)>,
}

/// The end of the data block before.
#[derive(Debug)]
struct Last {
    token: i64,
    key: Vec<u8>,
    has_ranges: bool,
    /// The last clustering key; empty without rows.
    clustering: Vec<u8>,
}

impl<R: FnMut(u64, &mut [u8]) -> io::Result<usize>> Verify<R> {
    /// Opens the file, as [`Table::open`] does.
    pub fn open(file: u64, file_bytes: u64, mut read: R) -> Result<Self, TableError> {
        let table = Table::open(file, file_bytes, &mut read)?;
        let top = table.footer().top_at(file);
        let extents = vec![(top.page, top.pages), (top.page + top.pages, 1)];
        Ok(Self {
            source: FileSource::new(read),
            table,
            found: VecDeque::new(),
            sound: true,
            done: false,
            leaf: 0,
            entry: 0,
            leaf_block: None,
            filter: None,
            last: None,
            statistics: Statistics::default(),
            plain_bytes: 0,
            data_blocks: 0,
            tokens: None,
            clustering: None,
            extents,
        })
    }

    pub fn table(&self) -> &Table {
        &self.table
    }

    fn block(&mut self, at: BlockAt) -> Result<Block, TableError> {
        self.table.check_place(at)?;
        self.source.block(at)
    }

    fn report(&mut self, at: BlockAt, damage: Damage) {
        self.fail(at.damaged(damage));
    }

    fn fail(&mut self, error: TableError) {
        self.sound = false;
        self.found.push_back(error);
    }

    /// Checks the next block.
    fn step(&mut self) {
        let Some(leaf) = self.leaf_block.clone() else { return self.next_leaf() };
        let index = Index::of(leaf.contents()).expect("the block was checked");
        if self.entry == index.len() {
            self.leaf_block = None;
            self.leaf += 1;
            return;
        }
        let at = self.table.block_at(index.position(self.entry));
        let separator = index.separator(self.entry);
        self.entry += 1;
        self.extents.push((at.page, at.pages));
        match self.block(at) {
            Ok(block) => match block.expect(Kind::Data) {
                Ok(contents) => self.check_data(at, contents, &separator),
                Err(damage) => self.report(at, damage),
            },
            Err(error) => {
                // The next block cannot be compared with its predecessor.
                self.last = None;
                self.fail(error);
            }
        }
    }

    fn next_leaf(&mut self) {
        let index = self.table.top.index();
        if self.leaf == index.len() {
            return self.finish();
        }
        let at = self.table.block_at(index.position(self.leaf));
        self.extents.push((at.page, at.pages));
        let read = self.block(at);
        let index = self.table.top.index();
        let wrong = match read {
            Ok(block) => match block.expect(Kind::Index) {
                Ok(contents) => {
                    let first = Index::of(contents).map(|leaf| leaf.separator(0));
                    if first == Some(index.separator(self.leaf)) {
                        (self.leaf_block, self.entry) = (Some(Rc::new(block)), 0);
                        return;
                    }
                    at.damaged(Damage::Structure("it does not begin at the position in the top"))
                }
                Err(damage) => at.damaged(damage),
            },
            Err(error) => error,
        };
        self.last = None;
        self.leaf += 1;
        self.fail(wrong);
    }

    fn check_data(&mut self, at: BlockAt, contents: &[u8], separator: &Position<'_>) {
        self.data_blocks += 1;
        self.plain_bytes += contents.len() as u64;
        let data = Data::of(contents).expect("the block was checked");
        self.check_order(at, &data, separator);
        let mut cells_readable = true;
        for number in 0..data.pieces() {
            let piece = data.piece(number);
            if !piece.continued {
                self.statistics.partitions += 1;
                let ranges = ranges_of(data.ranges(number));
                ranges.for_each(|range| self.statistics.add_range(&range));
                let (min, _) = self.tokens.unwrap_or((piece.token, piece.token));
                self.tokens = Some((min, piece.token));
                self.check_filter(at, piece.token);
            }
            let rows = data.rows_of(number);
            for row in rows.clone() {
                let (_, cells) = data.row(number, row);
                cells_readable &= cells::is_valid(cells);
                self.statistics.add_row(cells);
            }
            for row in rows.clone().take(1).chain(rows.clone().next_back()) {
                self.widen(data.row(number, row).0);
            }
            let clustering = rows.last().map_or(&[][..], |row| data.row(number, row).0);
            let Piece { token, key, has_ranges, .. } = piece;
            let (key, clustering) = (key.to_vec(), clustering.to_vec());
            self.last = Some(Last { token, key, has_ranges, clustering });
        }
        if !cells_readable {
            self.report(at, Damage::Cells);
        }
    }

    /// Checks that a block follows the one before, and that its separator divides them.
    fn check_order(&mut self, at: BlockAt, data: &Data<'_>, separator: &Position<'_>) {
        let first = data.piece(0);
        let first_row = data.rows_of(0).next().map_or(&[][..], |row| data.row(0, row).0);
        let clustering = if first.continued { first_row } else { &[] };
        let begins = Position { token: first.token, key: first.key, clustering: Some(clustering) };
        let divides = *separator <= begins;
        let Some(last) = &self.last else {
            if !divides {
                self.report(at, Damage::Structure("it begins before its place in the index"));
            }
            return;
        };
        let ends =
            Position { token: last.token, key: &last.key, clustering: Some(&last.clustering) };
        let follows = ends < begins;
        let same =
            (last.token, &*last.key, last.has_ranges) == (first.token, first.key, first.has_ranges);
        let (divides, continues) = (divides && ends < *separator, first.continued == same);
        if !follows || !continues {
            self.report(at, Damage::Structure("it does not follow the block before"));
        } else if !divides {
            self.report(at, Damage::Structure("it begins before its place in the index"));
        }
    }

    fn check_filter(&mut self, at: BlockAt, token: i64) {
        if self.table.top.filters() == 0 {
            return;
        }
        let Some(number) = self.table.top.filter_of(token) else {
            return self.report(at, Damage::Filter);
        };
        if self.filter.as_ref().is_none_or(|(held, _)| *held != number) {
            let filter_at = self.table.filter_at(number);
            self.extents.push((filter_at.page, filter_at.pages));
            let read = self.block(filter_at).and_then(|block| {
                block.expect(Kind::Filter).map_err(|damage| filter_at.damaged(damage))?;
                Ok(block)
            });
            let block = read.map_err(|error| self.fail(error)).ok();
            self.filter = Some((number, block));
        }
        let Some((_, Some(block))) = &self.filter else { return };
        if !filter::may_contain(block.contents(), token) {
            self.report(at, Damage::Filter);
        }
    }

    fn widen(&mut self, clustering: &[u8]) {
        let (min, max) =
            self.clustering.get_or_insert_with(|| (clustering.to_vec(), clustering.to_vec()));
        if clustering < &**min {
            *min = clustering.to_vec();
        }
        if clustering > &**max {
            *max = clustering.to_vec();
        }
    }

    /// Compares the counts with the footer, and the blocks with the pages of the file. If a block
    /// could not be read, they differ anyway, and that is not reported.
    fn finish(&mut self) {
        self.done = true;
        if !self.sound {
            return;
        }
        let footer = self.table.footer().clone();
        let top = footer.top_at(self.table.file());
        let at = BlockAt { page: top.page + top.pages, pages: 1, ..top };
        let bounds = self.table.clustering_bounds();
        let clustering = self.clustering.as_ref().map_or((&[][..], &[][..]), |(a, b)| (a, b));
        let checks = [
            (footer.statistics == self.statistics, "the statistics of the rows"),
            (footer.data_blocks == self.data_blocks, "the number of data blocks"),
            (footer.plain_bytes == self.plain_bytes, "the length before compression"),
            (self.tokens == Some((footer.token_min, footer.token_max)), "the range of tokens"),
            (bounds == clustering, "the range of clustering keys"),
        ];
        for (_, what) in checks.into_iter().filter(|(right, _)| !right) {
            self.report(at, Damage::Counts(what));
        }
        self.extents.sort_unstable();
        let mut next = 0;
        for (page, pages) in std::mem::take(&mut self.extents) {
            let block = BlockAt { page: next, pages: 1, ..at };
            if page > next {
                self.report(block, Damage::Stray(page - next));
            } else if page < next {
                self.report(BlockAt { page, ..block }, Damage::Structure("two blocks overlap"));
            }
            next = next.max(page.saturating_add(pages));
        }
    }
}

impl<R: FnMut(u64, &mut [u8]) -> io::Result<usize>> Iterator for Verify<R> {
    type Item = TableError;

    fn next(&mut self) -> Option<TableError> {
        loop {
            if let Some(found) = self.found.pop_front() {
                return Some(found);
            }
            if self.done {
                return None;
            }
            self.step();
        }
    }
}
