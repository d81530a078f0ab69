//! The end of a table file: the top block, which has the positions of index and filter blocks, and
//! the footer, one page that has the position of the top block.
//!
//! ```text
//! top     index length u32 | filters u32 | clustering min length u32 | max length u32
//!         | index (as in an index block) | filters' first tokens i64 each | their pages u32 each
//!         | clustering min | clustering max
//! footer  magic "TareTab3" | table u32 | top page u32 | top pages u32
//!         | data blocks u32 | token min i64 | token max i64
//!         | partitions u64 | rows u64 | ranges u64 | cells u64 | dead cells u64
//!         | expiring cells u64 | timestamp min i64 | max i64 | deletion min u32 | max u32
//!         | plain bytes u64
//! ```

use super::block::Block;
use super::block::BlockAt;
use super::data::{range_of_token, search};
use super::index::{self, Index};
use super::{Damage, Kind, PAGE_BYTES, Statistics, i64_at, narrow, u32_at, u64_at};

/// First bytes of a footer; the digit is the version of the format.
const MAGIC: [u8; 8] = *b"TareTab3";
/// Earlier versions, which are read too. They differ in the form of the cells, which shows in each
/// row; the second one has elements of collections.
const EARLIER_MAGICS: [[u8; 8]; 2] = [*b"TareTab1", *b"TareTab2"];
const FOOTER_BYTES: usize = 8 + 4 * 4 + 2 * 8 + 8 * 8 + 2 * 4 + 8;
const TOP_HEAD_BYTES: usize = 16;

/// The description of a file in its footer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footer {
    /// The store's number of the table that the rows belong to.
    pub table: u32,
    pub(super) top_page: u32,
    pub(super) top_pages: u32,
    pub data_blocks: u32,
    pub token_min: i64,
    pub token_max: i64,
    pub statistics: Statistics,
    /// Bytes of all data blocks before compression.
    pub plain_bytes: u64,
}

impl Footer {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let s = &self.statistics;
        out.extend_from_slice(&MAGIC);
        for number in [self.table, self.top_page, self.top_pages, self.data_blocks] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for number in [self.token_min, self.token_max] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for number in [s.partitions, s.rows, s.ranges, s.cells, s.dead_cells, s.expiring_cells] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for number in [s.timestamp_min, s.timestamp_max] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for number in [s.deletion_s_min, s.deletion_s_max] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.plain_bytes.to_le_bytes());
    }

    /// Decodes the footer from its block, which is at `page`.
    pub(super) fn decode(block: &Block, page: u32) -> Result<Self, Damage> {
        let bytes = block.expect(Kind::Footer)?;
        let magic = bytes.first_chunk();
        let is_known = magic.is_some_and(|it| *it == MAGIC || EARLIER_MAGICS.contains(it));
        if !is_known || bytes.len() != FOOTER_BYTES {
            return Err(Damage::Version);
        }
        let statistics = Statistics {
            partitions: u64_at(bytes, 40),
            rows: u64_at(bytes, 48),
            ranges: u64_at(bytes, 56),
            cells: u64_at(bytes, 64),
            dead_cells: u64_at(bytes, 72),
            expiring_cells: u64_at(bytes, 80),
            timestamp_min: i64_at(bytes, 88),
            timestamp_max: i64_at(bytes, 96),
            deletion_s_min: u32_at(bytes, 104),
            deletion_s_max: u32_at(bytes, 108),
        };
        let footer = Self {
            table: u32_at(bytes, 8),
            top_page: u32_at(bytes, 12),
            top_pages: u32_at(bytes, 16),
            data_blocks: u32_at(bytes, 20),
            token_min: i64_at(bytes, 24),
            token_max: i64_at(bytes, 32),
            statistics,
            plain_bytes: u64_at(bytes, 112),
        };
        let end = footer.top_page.checked_add(footer.top_pages);
        let sound = footer.top_pages > 0 && end == Some(page);
        sound.then_some(footer).ok_or(Damage::Structure("the footer does not follow the top block"))
    }

    /// The position of the footer in a file of so many bytes.
    pub(super) fn place(file: u64, file_bytes: u64) -> Result<BlockAt, Damage> {
        let pages = file_bytes / PAGE_BYTES as u64;
        let last = pages.checked_sub(1).and_then(|last| u32::try_from(last).ok());
        let whole = file_bytes.is_multiple_of(PAGE_BYTES as u64);
        let page = last.filter(|_| whole).ok_or(Damage::Short)?;
        Ok(BlockAt { file, page, pages: 1 })
    }

    pub(super) fn top_at(&self, file: u64) -> BlockAt {
        BlockAt { file, page: self.top_page, pages: self.top_pages }
    }
}

/// The resident part of index and filter, and the bounds of the clustering keys.
#[derive(Debug)]
pub(super) struct Top {
    bytes: Box<[u8]>,
    index_end: usize,
    filters: usize,
    min: (usize, usize),
}

impl Top {
    pub(super) fn encode(
        index: &index::Builder,
        filters: &[(i64, u32)],
        clustering: (&[u8], &[u8]),
        out: &mut Vec<u8>,
    ) {
        let from = out.len();
        out.extend_from_slice(&[0; 4]);
        for length in [filters.len(), clustering.0.len(), clustering.1.len()] {
            out.extend_from_slice(&narrow(length).to_le_bytes());
        }
        index.finish(out);
        let length = narrow(out.len() - from - TOP_HEAD_BYTES);
        out[from..from + 4].copy_from_slice(&length.to_le_bytes());
        filters.iter().for_each(|(token, _)| out.extend_from_slice(&token.to_le_bytes()));
        filters.iter().for_each(|(_, page)| out.extend_from_slice(&page.to_le_bytes()));
        out.extend_from_slice(clustering.0);
        out.extend_from_slice(clustering.1);
    }

    pub(super) fn decode(block: Block) -> Result<Self, Damage> {
        block.expect(Kind::Top)?;
        Self::of(block.into_contents())
    }

    /// Reads the contents of a top block.
    pub(super) fn of(bytes: Box<[u8]>) -> Result<Self, Damage> {
        let wrong = Damage::Structure("the top block is not in order");
        let parse = || {
            let head = bytes.first_chunk::<TOP_HEAD_BYTES>()?;
            let number = |at: usize| u32_at(head, at) as usize;
            let (filters, min, max) = (number(4), number(8), number(12));
            let index_end = TOP_HEAD_BYTES.checked_add(number(0))?;
            let min_at = index_end.checked_add(filters.checked_mul(12)?)?;
            let max_at = min_at.checked_add(min)?;
            (max_at.checked_add(max)? == bytes.len()).then_some((
                index_end,
                filters,
                (min_at, max_at),
            ))
        };
        let (index_end, filters, min) = parse().ok_or(wrong)?;
        index::check(&bytes[TOP_HEAD_BYTES..index_end])?;
        let top = Self { bytes, index_end, filters, min };
        let ascend = (1..filters).all(|at| top.filter_token(at - 1) < top.filter_token(at));
        ascend.then_some(top).ok_or(wrong)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn index(&self) -> Index<'_> {
        Index::of(&self.bytes[TOP_HEAD_BYTES..self.index_end]).expect("it was checked")
    }

    /// Least and greatest clustering key of all rows.
    pub(super) fn clustering(&self) -> (&[u8], &[u8]) {
        let (min_at, max_at) = self.min;
        (&self.bytes[min_at..max_at], &self.bytes[max_at..])
    }

    pub(super) fn filters(&self) -> usize {
        self.filters
    }

    fn filter_token(&self, filter: usize) -> i64 {
        i64_at(&self.bytes, self.index_end + filter * 8)
    }

    pub(super) fn filter_page(&self, filter: usize) -> u32 {
        u32_at(&self.bytes, self.index_end + self.filters * 8 + filter * 4)
    }

    /// The filter block that may have a token; `None` if the token is below all blocks.
    pub(super) fn filter_of(&self, token: i64) -> Option<usize> {
        let near = range_of_token(self.filters, token, |at| self.filter_token(at));
        let found = search(near, |at| self.filter_token(at).cmp(&token));
        match found {
            Ok(at) => Some(at),
            Err(after) => after.checked_sub(1),
        }
    }
}
