//! Blocks: the units that are read, checked and cached as a whole.
//!
//! ```text
//! block  crc32c u32 | kind u8 | codec u8 | 0 u16 | offset u64 | stored u32 | plain u32
//!        | contents (stored bytes) | zeros to the next multiple of 4,096
//! ```
//!
//! The checksum covers everything after it, including padding. `offset` is the position of the
//! block in the file, so that a block read from a wrong place is invalid. With codec 1 the contents
//! are LZ4 (block format) of `plain` bytes; with codec 0 `plain` is `stored`.

use crate::pages::Page;

use super::{
    Damage, HEAD_BYTES, PAGE_BYTES, TableError, data, filter, index, narrow, u32_at, u64_at,
};

/// LZ4 expands one byte to at most 255.
const RATIO_MAX: usize = 255;

const PLAIN: u8 = 0;
const LZ4: u8 = 1;

/// The kind of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Partitions and rows.
    Data,
    /// The positions of data blocks.
    Index,
    /// The tokens of partitions.
    Filter,
    /// The positions of index and filter blocks.
    Top,
    /// The last page of the file.
    Footer,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Data, Self::Index, Self::Filter, Self::Top, Self::Footer];

    fn code(self) -> u8 {
        match self {
            Self::Data => 1,
            Self::Index => 2,
            Self::Filter => 3,
            Self::Top => 4,
            Self::Footer => 5,
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Data => "data",
            Self::Index => "index",
            Self::Filter => "filter",
            Self::Top => "top",
            Self::Footer => "footer",
        })
    }
}

/// The position of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockAt {
    /// Number of the table file.
    pub file: u64,
    /// First page, counted from the start of the file.
    pub page: u32,
    pub pages: u32,
}

impl BlockAt {
    /// Offset in the file, in bytes.
    pub fn offset(&self) -> u64 {
        u64::from(self.page) * PAGE_BYTES as u64
    }

    /// Length in the file, in bytes.
    pub fn bytes(&self) -> usize {
        self.pages as usize * PAGE_BYTES
    }

    pub(super) fn damaged(&self, damage: Damage) -> TableError {
        TableError::Damaged { file: self.file, offset: self.offset(), damage }
    }
}

/// A block in memory: checked and decompressed.
#[derive(Debug)]
pub struct Block {
    kind: Kind,
    contents: Contents,
}

#[derive(Debug)]
enum Contents {
    /// The page as it was read: so many bytes of contents follow the head.
    Page(Page, usize),
    /// Contents of their own: those that were compressed, or that have several pages.
    Own(Vec<u8>),
}

impl Block {
    /// Checks the bytes of a block (`at.pages` pages) and returns its contents.
    pub fn decode(at: BlockAt, bytes: &[u8]) -> Result<Self, TableError> {
        let decoded = Head::of(at, bytes).and_then(|head| head.decode(bytes));
        decoded.map_err(|damage| at.damaged(damage))
    }

    /// Checks a block of one page into which so many bytes were read. The block keeps the page if
    /// its contents are not compressed.
    pub(crate) fn of_page(at: BlockAt, page: Page, length: usize) -> Result<Self, TableError> {
        let bytes = page.bytes();
        let bytes = &bytes[..length.min(bytes.len())];
        let head = Head::of(at, bytes).map_err(|damage| at.damaged(damage))?;
        if head.codec != PLAIN {
            return head.decode(bytes).map_err(|damage| at.damaged(damage));
        }
        let Head { kind, stored, .. } = head;
        let checked = head.check(&bytes[HEAD_BYTES..HEAD_BYTES + stored]);
        checked.map_err(|damage| at.damaged(damage))?;
        Ok(Self { kind, contents: Contents::Page(page, stored) })
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Bytes that the block occupies in memory, without the cache's overhead.
    pub fn bytes(&self) -> usize {
        match &self.contents {
            Contents::Page(page, _) => page.bytes().len(),
            Contents::Own(contents) => contents.capacity(),
        }
    }

    /// Whether this is a filter whose first probes exclude a token.
    #[inline]
    pub(crate) fn denies(&self, token: i64) -> bool {
        self.kind == Kind::Filter && !filter::may_contain_at_first(self.contents(), token)
    }

    #[inline]
    pub(super) fn contents(&self) -> &[u8] {
        match &self.contents {
            Contents::Page(page, length) => &page.bytes()[HEAD_BYTES..HEAD_BYTES + length],
            Contents::Own(contents) => contents,
        }
    }

    pub(super) fn into_contents(self) -> Box<[u8]> {
        match self.contents {
            Contents::Own(contents) => contents.into_boxed_slice(),
            Contents::Page(..) => self.contents().into(),
        }
    }

    /// A block of a given length, for tests of code that holds blocks.
    #[cfg(test)]
    pub(crate) fn for_test(length: usize) -> Self {
        Self { kind: Kind::Data, contents: Contents::Own(vec![0; length]) }
    }

    /// The contents, if the block is of this kind.
    pub(super) fn expect(&self, kind: Kind) -> Result<&[u8], Damage> {
        let found = self.kind;
        (found == kind).then_some(self.contents()).ok_or(Damage::Kind { expected: kind, found })
    }
}

/// The head of a block whose checksum and position are right.
struct Head {
    kind: Kind,
    codec: u8,
    stored: usize,
    plain: usize,
}

impl Head {
    /// Checks the bytes of a block, but for its contents.
    fn of(at: BlockAt, bytes: &[u8]) -> Result<Self, Damage> {
        let bytes =
            bytes.get(..at.bytes()).filter(|bytes| !bytes.is_empty()).ok_or(Damage::Short)?;
        if crc32c::crc32c(&bytes[4..]) != u32_at(bytes, 0) {
            return Err(Damage::Checksum);
        }
        let kind = Kind::ALL.into_iter().find(|kind| kind.code() == bytes[4]);
        let kind = kind.ok_or(Damage::Structure("the kind of block is unknown"))?;
        if u64_at(bytes, 8) != at.offset() {
            return Err(Damage::Misplaced(u64_at(bytes, 8)));
        }
        let (stored, plain) = (u32_at(bytes, 16) as usize, u32_at(bytes, 20) as usize);
        if pages_of(stored) != at.pages {
            return Err(Damage::Structure("the length does not match the pages"));
        }
        match bytes[5] {
            PLAIN if plain == stored => {}
            LZ4 if plain <= stored.saturating_mul(RATIO_MAX) => {}
            _ => return Err(Damage::Compression),
        }
        Ok(Self { kind, codec: bytes[5], stored, plain })
    }

    /// Copies or decompresses the contents of the block with these bytes, and checks them.
    fn decode(self, bytes: &[u8]) -> Result<Block, Damage> {
        let stored = &bytes[HEAD_BYTES..HEAD_BYTES + self.stored];
        let contents = if self.codec == PLAIN {
            stored.to_vec()
        } else {
            let mut contents = vec![0; self.plain];
            let length = lz4_flex::block::decompress_into(stored, &mut contents);
            if !length.is_ok_and(|length| length == self.plain) {
                return Err(Damage::Compression);
            }
            contents
        };
        self.check(&contents)?;
        Ok(Block { kind: self.kind, contents: Contents::Own(contents) })
    }

    fn check(&self, contents: &[u8]) -> Result<(), Damage> {
        match self.kind {
            Kind::Data => data::check(contents),
            Kind::Index => index::check(contents),
            Kind::Filter => filter::check(contents),
            // These blocks are checked by the code that parses them.
            Kind::Top | Kind::Footer => Ok(()),
        }
    }
}

/// Number of pages of a block with so many bytes of contents.
pub(super) fn pages_of(stored: usize) -> u32 {
    narrow((HEAD_BYTES + stored).div_ceil(PAGE_BYTES))
}

/// Writes a block into `out`, which is cleared first. `plain` is the length of the contents before
/// compression, if `stored` is compressed.
pub(super) fn encode(
    kind: Kind,
    offset: u64,
    stored: &[u8],
    plain: Option<usize>,
    out: &mut Vec<u8>,
) {
    out.clear();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&[kind.code(), if plain.is_some() { LZ4 } else { PLAIN }, 0, 0]);
    out.extend_from_slice(&offset.to_le_bytes());
    out.extend_from_slice(&narrow(stored.len()).to_le_bytes());
    out.extend_from_slice(&narrow(plain.unwrap_or(stored.len())).to_le_bytes());
    out.extend_from_slice(stored);
    out.resize(out.len().next_multiple_of(PAGE_BYTES), 0);
    let crc = crc32c::crc32c(&out[4..]);
    out[..4].copy_from_slice(&crc.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::Pages;

    const AT: BlockAt = BlockAt { file: 1, page: 2, pages: 1 };

    /// A page with a block, as a read leaves it.
    fn page(pages: &Pages, stored: &[u8], plain: Option<usize>) -> Page {
        let mut out = Vec::new();
        encode(Kind::Top, AT.offset(), stored, plain, &mut out);
        let mut chunk = pages.take();
        chunk.bytes_mut().copy_from_slice(&out);
        pages.filled(chunk)
    }

    #[test]
    fn block_stays_where_it_was_read_unless_it_is_compressed() {
        let pages = Pages::default();
        let read = page(&pages, b"contents", None);
        let address = read.bytes()[HEAD_BYTES..].as_ptr();
        let block = Block::of_page(AT, read, PAGE_BYTES).unwrap();
        assert_eq!((block.contents(), block.bytes()), (&b"contents"[..], PAGE_BYTES));
        assert_eq!(block.contents().as_ptr(), address);

        let read = page(&pages, &lz4_flex::block::compress(&[7; 1000]), Some(1000));
        let free = read.bytes().as_ptr();
        let block = Block::of_page(AT, read, PAGE_BYTES).unwrap();
        assert_eq!(block.contents(), [7; 1000]);
        assert_eq!(pages.take().bytes().as_ptr(), free);
    }

    #[test]
    fn short_and_changed_pages_are_damaged() {
        let pages = Pages::default();
        for length in [0, PAGE_BYTES - 1] {
            assert!(Block::of_page(AT, page(&pages, b"contents", None), length).is_err());
        }
        let mut changed = pages.take();
        changed.bytes_mut().copy_from_slice(page(&pages, b"contents", None).bytes());
        changed.bytes_mut()[HEAD_BYTES] ^= 1;
        assert!(Block::of_page(AT, pages.filled(changed), PAGE_BYTES).is_err());
    }
}
