//! Writes a table file: takes partitions and rows, returns whole pages, front to back.
//!
//! Rows are collected into blocks of one page. With compression they are collected into groups of
//! [`GROUP_BYTES`] instead; a group that LZ4 makes smaller by whole pages becomes one block, and
//! any other group is cut into pages, so that incompressible rows are read by the page. Where many
//! groups in a row were not made smaller, only some are tried. A longer row gets a block of as many
//! pages as it needs.
//!
//! Index and filter blocks are written among the data blocks as they fill up: the memory of the
//! writer does not grow with the table, except for the top of the index.

use std::collections::VecDeque;

use super::block::{self, pages_of};
use super::data::{self, Data};
use super::footer::{Footer, Top};
use super::{Kind, PAGE_BYTES, ROOM_BYTES, Statistics, Table, filter, index};
use crate::chunk::Chunk;
use crate::entry::RangeTombstone;

/// Bytes that are compressed together.
pub const GROUP_BYTES: usize = 16 << 10;
/// After so many groups that LZ4 did not make smaller, one in [`TRIED_ONE_IN`] is tried.
const TRIED_ALL: u32 = 16;
const TRIED_ONE_IN: u32 = 16;
/// Chunks kept for reuse.
const FREE_MAX: usize = 4;

/// The options of a table file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WriterOptions {
    /// Number of the file.
    pub file: u64,
    /// The store's number of the table that the rows belong to.
    pub table: u32,
    pub compression: bool,
    /// Share of false positives of the filter; from 1 on there is no filter.
    pub filter_false_positives: f64,
    /// Size of the chunks that the writer returns, in bytes.
    pub chunk_bytes: usize,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            file: 0,
            table: 0,
            compression: true,
            filter_false_positives: 0.01,
            chunk_bytes: 256 << 10,
        }
    }
}

/// Writes one table file.
#[derive(Debug)]
pub struct TableWriter {
    options: WriterOptions,
    partition: Partition,
    /// Rows that are not in a block yet: with compression a group, else a page.
    rows: data::Builder,
    /// A page that is being cut out of a group.
    page: data::Builder,
    last: Last,
    index: index::Builder,
    /// Key and clustering key of the first separator of the index block being collected.
    index_first: (i64, Vec<u8>, Vec<u8>),
    top: index::Builder,
    filter: Option<filter::Builder>,
    filters: Vec<(i64, u32)>,
    statistics: Statistics,
    data_blocks: u32,
    plain_bytes: u64,
    /// Groups since the last one that LZ4 made smaller.
    incompressible: u32,
    token_min: i64,
    token_max: i64,
    clustering: Option<(Vec<u8>, Vec<u8>)>,
    /// Buffers for a group, its compressed form, a block's contents, and a block.
    contents: Vec<u8>,
    compressed: Vec<u8>,
    block_contents: Vec<u8>,
    block: Vec<u8>,
    output: Output,
}

/// The partition that takes rows.
#[derive(Debug, Default)]
struct Partition {
    /// Whether there is such a partition.
    open: bool,
    token: i64,
    key: Vec<u8>,
    /// Its encoded range tombstones.
    ranges: Vec<u8>,
    /// Whether any part of it is among the rows.
    begun: bool,
    /// Clustering key of the row before, if `has_rows`.
    last_row: Vec<u8>,
    has_rows: bool,
}

/// The last position of the data block before; without rows its clustering key is empty.
#[derive(Debug, Default)]
struct Last {
    token: i64,
    key: Vec<u8>,
    clustering: Vec<u8>,
}

impl TableWriter {
    pub fn new(options: WriterOptions) -> Self {
        let filtered = options.filter_false_positives < 1.0;
        Self {
            options,
            partition: Partition::default(),
            rows: data::Builder::default(),
            page: data::Builder::default(),
            last: Last::default(),
            index: index::Builder::default(),
            index_first: (0, Vec::new(), Vec::new()),
            top: index::Builder::default(),
            filter: filtered.then(|| filter::Builder::new(options.filter_false_positives)),
            filters: Vec::new(),
            statistics: Statistics::default(),
            data_blocks: 0,
            plain_bytes: 0,
            incompressible: 0,
            token_min: 0,
            token_max: 0,
            clustering: None,
            contents: Vec::new(),
            compressed: Vec::new(),
            block_contents: Vec::new(),
            block: Vec::new(),
            output: Output::new(options.chunk_bytes),
        }
    }

    /// Begins a partition with all its range tombstones: ascending, without overlap. A partition
    /// without tombstones and rows leaves no trace.
    ///
    /// # Panics
    /// Panics if the partition is not after the one before, or a range tombstone is not
    /// after the one before.
    pub fn partition<'a>(
        &mut self,
        token: i64,
        key: &[u8],
        ranges: impl IntoIterator<Item = RangeTombstone<'a>>,
    ) {
        let before = &self.partition;
        let ascends = (before.token, &*before.key) < (token, key);
        assert!(!before.open || ascends, "partitions are written in order");
        self.close_partition();
        let next = &mut self.partition;
        (next.open, next.token) = (true, token);
        next.key.clear();
        next.key.extend_from_slice(key);
        let mut last: Option<RangeTombstone<'_>> = None;
        for range in ranges {
            let follows = data::follows(last.as_ref(), &range);
            assert!(follows, "range tombstones are written in order and do not overlap");
            last = Some(range);
            self.statistics.add_range(&range);
            data::push_range(&mut next.ranges, &range);
        }
        if !self.partition.ranges.is_empty() {
            // At worst they take a block of their own.
            let ranges = std::mem::take(&mut self.partition.ranges);
            self.make_room(&[], &ranges);
            self.partition.ranges = ranges;
            self.begin();
        }
    }

    /// Adds a row to the partition.
    ///
    /// # Panics
    /// Panics if there is no partition, or the row is not after the row before.
    pub fn row(&mut self, clustering: &[u8], cells: &[u8]) {
        let partition = &self.partition;
        assert!(partition.open, "a row belongs to a partition");
        let ascends = !partition.has_rows || &*partition.last_row < clustering;
        assert!(ascends, "rows are written in order");
        if !partition.has_rows {
            self.widen(clustering);
        }
        self.make_room(clustering, cells);
        self.begin();
        self.rows.row(clustering, cells);
        self.statistics.add_row(cells);
        let partition = &mut self.partition;
        partition.has_rows = true;
        partition.last_row.clear();
        partition.last_row.extend_from_slice(clustering);
    }

    /// The next chunk to write, and its offset in the file. Chunks are whole pages and come front
    /// to back; after [`Self::finish`] the last one comes, full or not.
    pub fn next_chunk(&mut self) -> Option<(u64, Chunk)> {
        self.output.full.pop_front()
    }

    /// Takes a written chunk for reuse.
    pub fn recycle(&mut self, chunk: Chunk) {
        self.output.recycle(chunk);
    }

    /// Bytes of the file so far.
    pub fn written_bytes(&self) -> u64 {
        self.output.position()
    }

    /// Ends the file: all remaining chunks can be fetched, and the table can be read when they are
    /// written. `None` means that nothing was added, and there is nothing to write.
    pub fn finish(&mut self) -> Option<Table> {
        self.close_partition();
        if self.options.compression {
            self.flush_group(true);
        } else {
            self.flush_page();
        }
        if self.data_blocks == 0 {
            return None;
        }
        self.flush_filter();
        self.flush_index();
        let mut contents = std::mem::take(&mut self.contents);
        contents.clear();
        let clustering = self.clustering.take().unwrap_or_default();
        Top::encode(&self.top, &self.filters, (&clustering.0, &clustering.1), &mut contents);
        let top = Top::of(contents.as_slice().into()).expect("it was just made");
        let (top_page, top_pages) = self.write(Kind::Top, &contents, None);
        let footer = Footer {
            table: self.options.table,
            top_page,
            top_pages,
            data_blocks: self.data_blocks,
            token_min: self.token_min,
            token_max: self.token_max,
            statistics: self.statistics,
            plain_bytes: self.plain_bytes,
        };
        contents.clear();
        footer.encode(&mut contents);
        self.write(Kind::Footer, &contents, None);
        self.output.seal();
        Some(Table::new(self.options.file, footer, top))
    }

    fn close_partition(&mut self) {
        let partition = std::mem::take(&mut self.partition);
        if partition.has_rows {
            self.widen(&partition.last_row);
        }
        // The next partition reuses the buffers.
        let Partition { token, mut key, mut ranges, mut last_row, .. } = partition;
        key.clear();
        ranges.clear();
        last_row.clear();
        self.partition = Partition { token, key, ranges, last_row, ..Partition::default() };
    }

    /// Widens the bounds of the clustering keys.
    fn widen(&mut self, clustering: &[u8]) {
        match &mut self.clustering {
            None => self.clustering = Some((clustering.to_vec(), clustering.to_vec())),
            Some((min, _)) if clustering < &**min => replace(min, clustering),
            Some((_, max)) if clustering > &**max => replace(max, clustering),
            Some(_) => {}
        }
    }

    /// Writes blocks until there is room for a row, or no rows are left that it would have to
    /// follow.
    fn make_room(&mut self, clustering: &[u8], cells: &[u8]) {
        let limit = if self.options.compression { GROUP_BYTES } else { ROOM_BYTES };
        while !self.rows.is_empty()
            && self.rows.bytes_with(&self.partition.key, clustering, cells) > limit
            && !is_bound(&self.rows, self.partition.begun, clustering)
        {
            if self.options.compression {
                self.flush_group(false);
            } else {
                self.flush_page();
            }
        }
    }

    /// Makes the last piece one of the current partition.
    fn begin(&mut self) {
        let partition = &mut self.partition;
        if partition.begun {
            if self.rows.is_empty() {
                self.rows.piece(partition.token, &partition.key, true, &partition.ranges);
            }
            return;
        }
        partition.begun = true;
        self.rows.piece(partition.token, &partition.key, false, &partition.ranges);
        let token = partition.token;
        if self.statistics.partitions == 0 {
            self.token_min = token;
        }
        self.token_max = token;
        self.statistics.partitions += 1;
        if self.filter.as_mut().is_some_and(|filter| !filter.push(token)) {
            self.flush_filter();
            let filter = self.filter.as_mut();
            filter.map(|filter| filter.push(token));
        }
    }

    /// Writes the rows as one block without compression.
    fn flush_page(&mut self) {
        if self.rows.is_empty() {
            return;
        }
        let mut rows = std::mem::take(&mut self.rows);
        self.write_data(&mut rows);
        self.rows = rows;
    }

    /// Writes the rows as one compressed block, or cut into pages; an incomplete last page stays if
    /// more rows come.
    fn flush_group(&mut self, is_last: bool) {
        if self.rows.is_empty() {
            return;
        }
        let mut contents = std::mem::take(&mut self.contents);
        contents.clear();
        self.rows.finish(&mut contents);
        let pages = pages_of(contents.len());
        let mut compressed = std::mem::take(&mut self.compressed);
        let mut length = contents.len();
        if pages > 1 && self.tries() {
            compressed.resize(lz4_flex::block::get_maximum_output_size(contents.len()), 0);
            length = lz4_flex::block::compress_into(&contents, &mut compressed)
                .expect("the output has the size that the library asks for");
        }
        if pages == 1 {
            self.write_contents(&contents, None);
            self.rows.clear();
        } else if pages_of(length) < pages {
            self.incompressible = 0;
            self.write_contents(&contents, Some(&compressed[..length]));
            self.rows.clear();
        } else {
            self.incompressible = self.incompressible.saturating_add(1);
            self.cut(&contents, is_last);
        }
        (self.contents, self.compressed) = (contents, compressed);
    }

    /// Whether the next group may be worth compressing.
    fn tries(&self) -> bool {
        self.incompressible < TRIED_ALL || self.incompressible.is_multiple_of(TRIED_ONE_IN)
    }

    /// Cuts the contents of a group into pages.
    fn cut(&mut self, contents: &[u8], is_last: bool) {
        let mut page = std::mem::take(&mut self.page);
        let group = Data::of(contents).expect("it was just made");
        for number in 0..group.pieces() {
            let piece = group.piece(number);
            let ranges = group.ranges(number);
            // A piece that continues a partition only records whether there are any.
            let mark: &[u8] = if piece.has_ranges { &[0] } else { &[] };
            let mut begun = piece.continued;
            if !piece.continued && piece.has_ranges {
                if !page.is_empty() && page.bytes_with(piece.key, &[], ranges) > ROOM_BYTES {
                    self.write_data(&mut page);
                }
                page.piece(piece.token, piece.key, false, ranges);
                begun = true;
            }
            for row in group.rows_of(number) {
                let (clustering, cells) = group.row(number, row);
                if !page.is_empty()
                    && page.bytes_with(piece.key, clustering, cells) > ROOM_BYTES
                    && !is_bound(&page, begun, clustering)
                {
                    self.write_data(&mut page);
                }
                if page.is_empty() || !begun {
                    page.piece(piece.token, piece.key, begun, if begun { mark } else { &[] });
                    begun = true;
                }
                page.row(clustering, cells);
            }
        }
        self.rows.clear();
        if is_last || page.bytes_with(&[], &[], &[]) > ROOM_BYTES {
            self.write_data(&mut page);
        } else {
            std::mem::swap(&mut self.rows, &mut page);
        }
        self.page = page;
    }

    /// Writes a data block and clears its builder.
    fn write_data(&mut self, rows: &mut data::Builder) {
        let mut contents = std::mem::take(&mut self.block_contents);
        contents.clear();
        rows.finish(&mut contents);
        rows.clear();
        self.write_contents(&contents, None);
        self.block_contents = contents;
    }

    /// Writes a data block and adds it to the index.
    fn write_contents(&mut self, contents: &[u8], compressed: Option<&[u8]>) {
        let place = match compressed {
            Some(stored) => self.write(Kind::Data, stored, Some(contents.len())),
            None => self.write(Kind::Data, contents, None),
        };
        let data = Data::of(contents).expect("it was just made");
        let first = data.piece(0);
        let first_row = data.rows_of(0).next().map_or(&[][..], |row| data.row(0, row).0);
        let last = &self.last;
        let (key, clustering): (&[u8], &[u8]) =
            if self.data_blocks == 0 || last.token != first.token {
                (&[], &[])
            } else if *last.key != *first.key {
                (first.key, &[])
            } else {
                // The shortest prefix that is above the row before.
                let pairs = last.clustering.iter().zip(first_row);
                let common = pairs.take_while(|(a, b)| a == b).count();
                (first.key, &first_row[..common + 1])
            };
        if !self.index.is_empty() && self.index.bytes_with(key, clustering) > ROOM_BYTES {
            self.flush_index();
        }
        if self.index.is_empty() {
            self.index_first = (first.token, key.to_vec(), clustering.to_vec());
        }
        self.index.push(first.token, key, clustering, place);
        let piece = data.pieces() - 1;
        let end = data.piece(piece);
        let end_row = data.rows_of(piece).next_back().map_or(&[][..], |row| data.row(piece, row).0);
        self.last.token = end.token;
        replace(&mut self.last.key, end.key);
        replace(&mut self.last.clustering, end_row);
        self.data_blocks += 1;
        self.plain_bytes += contents.len() as u64;
    }

    fn flush_index(&mut self) {
        let mut contents = std::mem::take(&mut self.block_contents);
        contents.clear();
        self.index.finish(&mut contents);
        self.index.clear();
        let place = self.write(Kind::Index, &contents, None);
        let (token, key, clustering) = &self.index_first;
        self.top.push(*token, key, clustering, place);
        self.block_contents = contents;
    }

    fn flush_filter(&mut self) {
        let Some(filter) = &mut self.filter else { return };
        let Some(first) = filter.first() else { return };
        let mut contents = Vec::with_capacity(PAGE_BYTES);
        filter.finish(&mut contents);
        let (page, _) = self.write(Kind::Filter, &contents, None);
        self.filters.push((first, page));
    }

    /// Writes a block. Returns its first page and its number of pages.
    fn write(&mut self, kind: Kind, stored: &[u8], plain: Option<usize>) -> (u32, u32) {
        let offset = self.output.position();
        block::encode(kind, offset, stored, plain, &mut self.block);
        self.output.push(&self.block);
        let page = u32::try_from(offset / PAGE_BYTES as u64).expect("a file is below 16 TiB");
        (page, pages_of(stored.len()))
    }
}

/// Whether a row has to stay in the block of its predecessor: without a clustering key, its
/// position could not be distinguished from the begin of its partition.
fn is_bound(rows: &data::Builder, begun: bool, clustering: &[u8]) -> bool {
    begun && clustering.is_empty() && rows.is_head_alone()
}

fn replace(bytes: &mut Vec<u8>, by: &[u8]) {
    bytes.clear();
    bytes.extend_from_slice(by);
}

/// Collects blocks into chunks.
#[derive(Debug)]
struct Output {
    chunk_bytes: usize,
    current: Chunk,
    /// Position of the current chunk in the file.
    start: u64,
    full: VecDeque<(u64, Chunk)>,
    free: Vec<Chunk>,
}

impl Output {
    fn new(chunk_bytes: usize) -> Self {
        let current = Chunk::new(chunk_bytes);
        Self { chunk_bytes, current, start: 0, full: VecDeque::new(), free: Vec::new() }
    }

    fn position(&self) -> u64 {
        self.start + self.current.len() as u64
    }

    fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(self.current.room()));
            self.current.take(now.len()).copy_from_slice(now);
            bytes = later;
            if self.current.room() == 0 {
                self.seal();
            }
        }
    }

    fn seal(&mut self) {
        if self.current.is_empty() {
            return;
        }
        let next = self.free.pop().unwrap_or_else(|| Chunk::new(self.chunk_bytes));
        let start = self.start;
        self.start = self.position();
        self.full.push_back((start, std::mem::replace(&mut self.current, next)));
    }

    fn recycle(&mut self, mut chunk: Chunk) {
        if chunk.capacity() == self.current.capacity() && self.free.len() < FREE_MAX {
            chunk.clear();
            self.free.push(chunk);
        }
    }
}
