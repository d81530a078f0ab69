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
    contents: Vec<u8>,
}

impl Block {
    /// Checks the bytes of a block (`at.pages` pages) and returns its contents.
    pub fn decode(at: BlockAt, bytes: &[u8]) -> Result<Self, TableError> {
        Self::decode_into(Vec::new(), at, bytes)
    }

    /// Decodes a block into the buffer of one that is no longer needed.
    pub(crate) fn decode_into(
        buffer: Vec<u8>,
        at: BlockAt,
        bytes: &[u8],
    ) -> Result<Self, TableError> {
        decode(buffer, at, bytes).map_err(|damage| at.damaged(damage))
    }

    /// The buffer of the block, for reuse.
    pub(crate) fn into_buffer(self) -> Vec<u8> {
        self.contents
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Bytes that the block occupies in memory, without the cache's overhead.
    pub fn bytes(&self) -> usize {
        self.contents.capacity()
    }

    /// Whether this is a filter whose first probes exclude a token.
    #[inline]
    pub(crate) fn denies(&self, token: i64) -> bool {
        self.kind == Kind::Filter && !filter::may_contain_at_first(&self.contents, token)
    }

    pub(super) fn contents(&self) -> &[u8] {
        &self.contents
    }

    pub(super) fn into_contents(self) -> Box<[u8]> {
        self.contents.into_boxed_slice()
    }

    /// A block of a given length, for tests of code that holds blocks.
    #[cfg(test)]
    pub(crate) fn for_test(length: usize) -> Self {
        Self { kind: Kind::Data, contents: vec![0; length] }
    }

    /// The contents, if the block is of this kind.
    pub(super) fn expect(&self, kind: Kind) -> Result<&[u8], Damage> {
        let found = self.kind;
        (found == kind).then_some(&self.contents[..]).ok_or(Damage::Kind { expected: kind, found })
    }
}

fn decode(mut contents: Vec<u8>, at: BlockAt, bytes: &[u8]) -> Result<Block, Damage> {
    let bytes = bytes.get(..at.bytes()).filter(|bytes| !bytes.is_empty()).ok_or(Damage::Short)?;
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
    let stored = &bytes[HEAD_BYTES..HEAD_BYTES + stored];
    contents.clear();
    match bytes[5] {
        PLAIN if plain == stored.len() => {
            // Any block of as many pages fits, so that the buffer serves the next one.
            contents.reserve_exact(at.bytes() - HEAD_BYTES);
            contents.extend_from_slice(stored);
        }
        LZ4 if plain <= stored.len().saturating_mul(RATIO_MAX) => {
            contents.reserve_exact(plain);
            contents.resize(plain, 0);
            let length = lz4_flex::block::decompress_into(stored, &mut contents);
            if !length.is_ok_and(|length| length == plain) {
                return Err(Damage::Compression);
            }
        }
        _ => return Err(Damage::Compression),
    }
    match kind {
        Kind::Data => data::check(&contents)?,
        Kind::Index => index::check(&contents)?,
        Kind::Filter => filter::check(&contents)?,
        // These blocks are checked by the code that parses them.
        Kind::Top | Kind::Footer => {}
    }
    Ok(Block { kind, contents })
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
