//! The part of a table file that stays in memory.

use std::io;
use std::rc::Rc;

use super::block::Block;
use super::block::BlockAt;
use super::footer::{Footer, Top};
use super::source::{BlockSource, FileSource};
use super::{Damage, Kind, PAGE_BYTES, Statistics, TableError, filter};

/// A table file: its footer, and the positions of its index and filter blocks.
#[derive(Debug)]
pub struct Table {
    file: u64,
    footer: Footer,
    pub(super) top: Top,
}

impl Table {
    pub(super) fn new(file: u64, footer: Footer, top: Top) -> Self {
        Self { file, footer, top }
    }

    /// Opens a file of `file_bytes` bytes. `read` fills a buffer from an offset and may return
    /// fewer bytes. It reads two blocks, however long the file is.
    pub fn open(
        file: u64,
        file_bytes: u64,
        read: impl FnMut(u64, &mut [u8]) -> io::Result<usize>,
    ) -> Result<Self, TableError> {
        let mut source = FileSource::new(read);
        let none = BlockAt { file, page: 0, pages: 0 };
        let at = Footer::place(file, file_bytes).map_err(|damage| none.damaged(damage))?;
        let block = source.block(at)?;
        let footer = Footer::decode(&block, at.page).map_err(|damage| at.damaged(damage))?;
        let at = footer.top_at(file);
        let top = Top::decode(source.block(at)?).map_err(|damage| at.damaged(damage))?;
        Ok(Self { file, footer, top })
    }

    /// The file's number.
    pub fn file(&self) -> u64 {
        self.file
    }

    pub fn footer(&self) -> &Footer {
        &self.footer
    }

    pub fn statistics(&self) -> &Statistics {
        &self.footer.statistics
    }

    /// Length of the file, in bytes, without space that the file system reserved after it.
    pub fn file_bytes(&self) -> u64 {
        let pages = u64::from(self.footer.top_page) + u64::from(self.footer.top_pages) + 1;
        pages * PAGE_BYTES as u64
    }

    /// Bytes of memory that the table occupies.
    pub fn resident_bytes(&self) -> usize {
        size_of::<Self>() + self.top.bytes()
    }

    /// Least and greatest clustering key of all rows.
    pub fn clustering_bounds(&self) -> (&[u8], &[u8]) {
        self.top.clustering()
    }

    /// Whether any row of some partition, or any deletion, may be in `[from, to)`.
    pub fn may_cover(&self, from: &[u8], to: Option<&[u8]>) -> bool {
        let (min, max) = self.top.clustering();
        let statistics = &self.footer.statistics;
        statistics.ranges > 0
            || (statistics.rows > 0 && max >= from && to.is_none_or(|to| min < to))
    }

    /// Whether a row with this clustering key, or its deletion, may be in some partition.
    #[inline]
    pub fn may_have_row(&self, clustering: &[u8]) -> bool {
        let (min, max) = self.top.clustering();
        if max.is_empty() && clustering.is_empty() {
            // The usual case without clustering columns. Comparing nothing is slow: memcmp of the C
            // library reads under a mask, and where the empty slice has no memory, that faults
            // inside the CPU.
            return true;
        }
        self.footer.statistics.ranges > 0 || (min <= clustering && clustering <= max)
    }

    /// Whether a partition of this token may be in the table, according to the filter; false is
    /// certain. `None` means that the filter's block is missing.
    pub fn may_contain(
        &self,
        token: i64,
        source: &mut impl BlockSource,
    ) -> Result<Option<bool>, TableError> {
        let Some(at) = self.filter_for(token) else {
            // A table that was written without a filter may have any token between its bounds.
            return Ok(Some(self.top.filters() == 0 && self.spans(token)));
        };
        let found = self.get(at, Kind::Filter, source)?;
        Ok(found.map(|block| filter::may_contain(block.contents(), token)))
    }

    /// The position of the filter block for a token; `None` if there is none, or if the table's
    /// tokens are all below it or above it.
    #[inline]
    pub(crate) fn filter_for(&self, token: i64) -> Option<BlockAt> {
        let filter = self.spans(token).then(|| self.top.filter_of(token)).flatten()?;
        Some(self.filter_at(filter))
    }

    /// Whether a token is between the least and the greatest one of the table.
    #[inline]
    fn spans(&self, token: i64) -> bool {
        self.footer.token_min <= token && token <= self.footer.token_max
    }

    pub(super) fn filter_at(&self, filter: usize) -> BlockAt {
        BlockAt { file: self.file, page: self.top.filter_page(filter), pages: 1 }
    }

    pub(super) fn block_at(&self, place: (u32, u32)) -> BlockAt {
        BlockAt { file: self.file, page: place.0, pages: place.1 }
    }

    /// Checks that a block is before the top block. The host may allocate memory for any block that
    /// passes.
    pub(super) fn check_place(&self, at: BlockAt) -> Result<(), TableError> {
        let inside = at.page.checked_add(at.pages).is_some_and(|end| end <= self.footer.top_page);
        let top = self.footer.top_at(self.file);
        let outside = || top.damaged(Damage::Structure("it names a block beyond the last"));
        inside.then_some(()).ok_or_else(outside)
    }

    /// Reads a block of a kind from a source, which notes it if it is missing.
    pub(super) fn get(
        &self,
        at: BlockAt,
        kind: Kind,
        source: &mut impl BlockSource,
    ) -> Result<Option<Rc<Block>>, TableError> {
        self.check_place(at)?;
        let Some(block) = source.get(at)? else { return Ok(None) };
        block.expect(kind).map_err(|damage| at.damaged(damage))?;
        Ok(Some(block))
    }
}
