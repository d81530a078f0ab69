//! Contents of an index block: the *separator* of each block, and the block's position.
//!
//! ```text
//! contents  entries u32 | suffix bytes u32 | tokens i64 each | page u32, pages u32 each
//!           | [key end u32, clustering end u32 each | keys and clustering keys]
//! ```
//!
//! A separator is a short position above everything in the block before and not above anything in
//! its own block. Most separators have only a token, and if all do, there are no suffixes. A
//! separator has a clustering key only if the block continues a partition. The top of the index has
//! the same form, with index blocks in place of data blocks.

use std::cmp::Ordering;

use super::data::{range_of_token, search};
use super::{Damage, i64_at, narrow, u32_at};

const HEAD_BYTES: usize = 8;
const ENTRY_BYTES: usize = 16;
const SUFFIX_BYTES: usize = 8;

/// A position in the order of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position<'a> {
    pub(super) token: i64,
    pub(super) key: &'a [u8],
    /// The clustering key; `None` is the position after all rows of the partition.
    pub(super) clustering: Option<&'a [u8]>,
}

impl Ord for Position<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.token.cmp(&other.token).then_with(|| self.key.cmp(other.key)).then_with(|| {
            match (self.clustering, other.clustering) {
                (Some(a), Some(b)) => a.cmp(b),
                (None, None) => Ordering::Equal,
                (None, Some(_)) => Ordering::Greater,
                (Some(_), None) => Ordering::Less,
            }
        })
    }
}

impl PartialOrd for Position<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Builds the contents of a block.
#[derive(Debug, Default)]
pub(super) struct Builder {
    tokens: Vec<i64>,
    places: Vec<(u32, u32)>,
    ends: Vec<(u32, u32)>,
    suffixes: Vec<u8>,
}

impl Builder {
    pub(super) fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.tokens.clear();
        self.places.clear();
        self.ends.clear();
        self.suffixes.clear();
    }

    /// Appends an entry. Separators ascend; their clustering key may be empty.
    pub(super) fn push(&mut self, token: i64, key: &[u8], clustering: &[u8], place: (u32, u32)) {
        self.tokens.push(token);
        self.places.push(place);
        self.suffixes.extend_from_slice(key);
        let key_end = narrow(self.suffixes.len());
        self.suffixes.extend_from_slice(clustering);
        self.ends.push((key_end, narrow(self.suffixes.len())));
    }

    /// Length of the contents with one more entry, in bytes.
    pub(super) fn bytes_with(&self, key: &[u8], clustering: &[u8]) -> usize {
        let suffixes = self.suffixes.len() + key.len() + clustering.len();
        let entry = ENTRY_BYTES + if suffixes > 0 { SUFFIX_BYTES } else { 0 };
        HEAD_BYTES + (self.tokens.len() + 1) * entry + suffixes
    }

    /// Appends the contents to `out`.
    pub(super) fn finish(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&narrow(self.tokens.len()).to_le_bytes());
        out.extend_from_slice(&narrow(self.suffixes.len()).to_le_bytes());
        self.tokens.iter().for_each(|token| out.extend_from_slice(&token.to_le_bytes()));
        let ends: &[(u32, u32)] = if self.suffixes.is_empty() { &[] } else { &self.ends };
        for (a, b) in self.places.iter().chain(ends) {
            out.extend_from_slice(&a.to_le_bytes());
            out.extend_from_slice(&b.to_le_bytes());
        }
        out.extend_from_slice(&self.suffixes);
    }
}

/// The checked contents of an index block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Index<'a> {
    bytes: &'a [u8],
    entries: usize,
    has_suffixes: bool,
}

impl<'a> Index<'a> {
    pub(super) fn of(bytes: &'a [u8]) -> Option<Self> {
        let head = bytes.first_chunk::<HEAD_BYTES>()?;
        let (entries, suffixes) = (u32_at(head, 0) as usize, u32_at(head, 4) as usize);
        let entry = ENTRY_BYTES + if suffixes > 0 { SUFFIX_BYTES } else { 0 };
        let length = entries.checked_mul(entry)?.checked_add(HEAD_BYTES)?.checked_add(suffixes)?;
        (length == bytes.len()).then_some(Self { bytes, entries, has_suffixes: suffixes > 0 })
    }

    pub(super) fn len(&self) -> usize {
        self.entries
    }

    fn token(&self, entry: usize) -> i64 {
        i64_at(self.bytes, HEAD_BYTES + entry * 8)
    }

    /// First page and number of pages of a block.
    pub(super) fn position(&self, entry: usize) -> (u32, u32) {
        let at = HEAD_BYTES + self.entries * 8 + entry * 8;
        (u32_at(self.bytes, at), u32_at(self.bytes, at + 4))
    }

    /// The ends of the key and of the clustering key in the suffixes.
    fn ends(&self, entry: usize) -> (usize, usize) {
        let at = HEAD_BYTES + self.entries * ENTRY_BYTES + entry * SUFFIX_BYTES;
        (u32_at(self.bytes, at) as usize, u32_at(self.bytes, at + 4) as usize)
    }

    /// The separator of a block.
    pub(super) fn separator(&self, entry: usize) -> Position<'a> {
        let token = self.token(entry);
        if !self.has_suffixes {
            return Position { token, key: &[], clustering: Some(&[]) };
        }
        let from = entry.checked_sub(1).map_or(0, |before| self.ends(before).1);
        let (key_end, end) = self.ends(entry);
        let suffixes = &self.bytes[HEAD_BYTES + self.entries * (ENTRY_BYTES + SUFFIX_BYTES)..];
        let (key, clustering) = (&suffixes[from..key_end], &suffixes[key_end..end]);
        Position { token, key, clustering: Some(clustering) }
    }

    /// The last block whose separator is not above a position: the only block that may have it.
    pub(super) fn find(&self, position: &Position<'_>) -> Option<usize> {
        let near = range_of_token(self.entries, position.token, |entry| self.token(entry));
        let found = search(near, |entry| {
            // The tokens nearly always decide.
            self.token(entry).cmp(&position.token).then_with(|| self.separator(entry).cmp(position))
        });
        match found {
            Ok(entry) => Some(entry),
            Err(after) => after.checked_sub(1),
        }
    }
}

/// Checks contents so that every later access is in bounds and in order.
pub(super) fn check(bytes: &[u8]) -> Result<(), Damage> {
    check_index(bytes).ok_or(Damage::Structure("entries of the index are not in order"))
}

fn check_index(bytes: &[u8]) -> Option<()> {
    let index = Index::of(bytes).filter(|index| index.entries > 0)?;
    let sure = |condition: bool| condition.then_some(());
    let suffixes = u32_at(bytes, 4) as usize;
    if index.has_suffixes {
        let mut last = 0;
        for entry in 0..index.entries {
            let (key_end, end) = index.ends(entry);
            sure(last <= key_end && key_end <= end && end <= suffixes)?;
            last = end;
        }
        sure(last == suffixes)?;
    }
    for entry in 0..index.entries {
        let (page, pages) = index.position(entry);
        sure(pages > 0 && page.checked_add(pages).is_some())?;
        sure(entry == 0 || index.separator(entry - 1) < index.separator(entry))?;
    }
    Some(())
}
