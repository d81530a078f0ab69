//! The format of the log: groups of entries.
//!
//! A *group* is the unit of one write; it starts at a multiple of 4,096 bytes and is padded with
//! zeros to the next (all numbers little-endian):
//!
//! ```text
//! group     magic "TareLog3" | sequence u64 | durable u64 | length u32
//!           | crc32c of these 28 bytes u32 | entries (length bytes) | padding
//! entry     length u32 | crc32c of the payload u32 | payload
//! payload   one or more mutations
//! mutation  table u32 | token i64 | kind u8 | key length u16 | clustering length u16
//!           | rest length u32 | key | clustering | rest
//!   row            kind 0: rest = cells
//!   range          kind 1: clustering = from, rest = timestamp i64 | deleted_s u32 | to
//!   range, no end  kind 2: clustering = from, rest = timestamp i64 | deleted_s u32
//! ```
//!
//! An entry is atomic: recovery applies all its mutations or none. Sequence numbers count by one
//! per shard. `durable` records that every group below it was on stable storage when this one was
//! written; by it recovery distinguishes a damaged middle, which is an error, from a tail that a
//! crash tore, which is cut (see [`crate::recovery`]).

use crate::cells::{self, Deletion};

/// First bytes of a group; the digit is the version of the format.
pub const MAGIC: [u8; 8] = *b"TareLog3";
/// The version before, which is read too. It differs in the form of the cells, which shows in each
/// row.
const EARLIER_MAGIC: [u8; 8] = *b"TareLog2";
/// Bytes of a group before its entries.
pub const GROUP_HEAD_BYTES: usize = 32;
/// Bytes of an entry before its payload.
pub const ENTRY_HEAD_BYTES: usize = 8;
const MUTATION_HEAD_BYTES: usize = 21;
const RANGE_HEAD_BYTES: usize = 12;
/// The longest key or clustering key, as in Cassandra: their lengths have 16 bits.
pub const KEY_BYTES_MAX: usize = u16::MAX as usize;

const ROW: u8 = 0;
const RANGE: u8 = 1;
const RANGE_WITHOUT_END: u8 = 2;

/// One change of one partition, which the log stores and the memtable applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mutation<'a> {
    /// The store's number of the table. A truncated table gets a new one.
    pub table: u32,
    /// The Murmur3 token of the key.
    pub token: i64,
    /// The serialised partition key.
    pub key: &'a [u8],
    pub change: Change<'a>,
}

/// The change of a mutation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    Row {
        /// The clustering key in a form that compares bytewise; empty if the table has none.
        clustering: &'a [u8],
        /// The cells, in the form of [`crate::cells`].
        cells: &'a [u8],
    },
    Range(RangeTombstone<'a>),
}

/// The deletion of all rows of a partition whose clustering key is in `[from, to)`. The whole
/// partition is `from: &[], to: None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeTombstone<'a> {
    pub from: &'a [u8],
    /// The end; `None` is the end of the partition.
    pub to: Option<&'a [u8]>,
    /// The timestamp, in microseconds or whatever the client chose. It hides everything that is not
    /// later.
    pub timestamp: i64,
    /// Time of the deletion by the server's clock, in seconds since the Unix epoch.
    pub deleted_s: u32,
}

impl RangeTombstone<'_> {
    /// The deletion of the rows that the tombstone covers.
    pub fn deletion(&self) -> Deletion {
        Deletion { timestamp: self.timestamp, deleted_s: self.deleted_s }
    }
}

/// Whether a group that begins with these bytes is of a version that can be read.
pub fn is_readable(magic: &[u8]) -> bool {
    magic == MAGIC || magic == EARLIER_MAGIC
}

/// The fixed part of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupHead {
    pub sequence: u64,
    pub durable: u64,
    pub length: u32,
}

impl GroupHead {
    pub fn encode(&self) -> [u8; GROUP_HEAD_BYTES] {
        let mut out = [0; GROUP_HEAD_BYTES];
        out[..8].copy_from_slice(&MAGIC);
        out[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        out[16..24].copy_from_slice(&self.durable.to_le_bytes());
        out[24..28].copy_from_slice(&self.length.to_le_bytes());
        let crc = crc32c::crc32c(&out[..28]);
        out[28..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes a head; `None` if the bytes are no head of a group.
    pub fn decode(bytes: &[u8; GROUP_HEAD_BYTES]) -> Option<Self> {
        let u64_at = |at: usize| Some(u64::from_le_bytes(bytes[at..at + 8].try_into().ok()?));
        let u32_at = |at: usize| Some(u32::from_le_bytes(bytes[at..at + 4].try_into().ok()?));
        let sound = is_readable(&bytes[..8]) && u32_at(28)? == crc32c::crc32c(&bytes[..28]);
        if !sound {
            return None;
        }
        Some(Self { sequence: u64_at(8)?, durable: u64_at(16)?, length: u32_at(24)? })
    }
}

impl<'a> Mutation<'a> {
    /// Length of the mutation in a payload, in bytes.
    #[inline]
    pub fn encoded_bytes(&self) -> usize {
        let rest = match &self.change {
            Change::Row { clustering, cells } => clustering.len() + cells.len(),
            Change::Range(range) => {
                range.from.len() + RANGE_HEAD_BYTES + range.to.map_or(0, <[u8]>::len)
            }
        };
        MUTATION_HEAD_BYTES + self.key.len() + rest
    }

    /// Length of its longest key, which [`KEY_BYTES_MAX`] limits, in bytes.
    #[inline]
    pub fn longest_key_bytes(&self) -> usize {
        let longest = match &self.change {
            Change::Row { clustering, .. } => clustering.len(),
            Change::Range(range) => range.from.len().max(range.to.map_or(0, <[u8]>::len)),
        };
        self.key.len().max(longest)
    }

    /// Writes the mutation to the front of `out` and returns the rest.
    #[inline]
    fn encode<'o>(&self, out: &'o mut [u8]) -> &'o mut [u8] {
        let (kind, clustering, range, tail) = match &self.change {
            Change::Row { clustering, cells } => (ROW, *clustering, None, *cells),
            Change::Range(range) => match range.to {
                Some(to) => (RANGE, range.from, Some(range), to),
                None => (RANGE_WITHOUT_END, range.from, Some(range), &[][..]),
            },
        };
        let key_length = |key: &[u8]| u16::try_from(key.len()).expect("a key has a 16-bit length");
        let rest = tail.len() + range.map_or(0, |_| RANGE_HEAD_BYTES);
        let rest = u32::try_from(rest).expect("a mutation is shorter than 4 GiB");
        let (head, out) = out.split_at_mut(MUTATION_HEAD_BYTES);
        head[..4].copy_from_slice(&self.table.to_le_bytes());
        head[4..12].copy_from_slice(&self.token.to_le_bytes());
        head[12] = kind;
        head[13..15].copy_from_slice(&key_length(self.key).to_le_bytes());
        head[15..17].copy_from_slice(&key_length(clustering).to_le_bytes());
        head[17..].copy_from_slice(&rest.to_le_bytes());
        let mut out = put(put(out, self.key), clustering);
        if let Some(range) = range {
            out = put(out, &range.timestamp.to_le_bytes());
            out = put(out, &range.deleted_s.to_le_bytes());
        }
        put(out, tail)
    }

    /// Decodes a mutation at the front; `None` if there is no valid one.
    #[inline]
    fn decode(bytes: &mut &'a [u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<MUTATION_HEAD_BYTES>()?;
        let table = u32::from_le_bytes(head[..4].try_into().ok()?);
        let token = i64::from_le_bytes(head[4..12].try_into().ok()?);
        let key_length = usize::from(u16::from_le_bytes([head[13], head[14]]));
        let clustering_length = usize::from(u16::from_le_bytes([head[15], head[16]]));
        let rest_length = u32::from_le_bytes(head[17..].try_into().ok()?);
        let (key, rest) = rest.split_at_checked(key_length)?;
        let (clustering, rest) = rest.split_at_checked(clustering_length)?;
        let (tail, rest) = rest.split_at_checked(usize::try_from(rest_length).ok()?)?;
        let change = match head[12] {
            ROW => Change::Row { clustering, cells: tail },
            kind @ (RANGE | RANGE_WITHOUT_END) => {
                let (timestamp, tail) = tail.split_first_chunk()?;
                let (deleted_s, to) = tail.split_first_chunk()?;
                if kind == RANGE_WITHOUT_END && !to.is_empty() {
                    return None;
                }
                let to = (kind == RANGE).then_some(to);
                let timestamp = i64::from_le_bytes(*timestamp);
                let deleted_s = u32::from_le_bytes(*deleted_s);
                Change::Range(RangeTombstone { from: clustering, to, timestamp, deleted_s })
            }
            _ => return None,
        };
        *bytes = rest;
        Some(Self { table, token, key, change })
    }
}

#[inline]
fn put<'o>(out: &'o mut [u8], bytes: &[u8]) -> &'o mut [u8] {
    let (to, rest) = out.split_at_mut(bytes.len());
    to.copy_from_slice(bytes);
    rest
}

/// Length of the payload of an entry, in bytes.
#[inline]
pub fn payload_bytes(mutations: &[Mutation<'_>]) -> usize {
    mutations.iter().map(Mutation::encoded_bytes).sum()
}

/// Writes a payload into `out`, which must have exactly [`payload_bytes`] bytes.
///
/// # Panics
/// Panics if a key is longer than [`KEY_BYTES_MAX`]; the store refuses such keys before.
#[inline]
pub fn encode_payload(mutations: &[Mutation<'_>], out: &mut [u8]) {
    let mut rest = out;
    for mutation in mutations {
        rest = mutation.encode(rest);
    }
    assert!(rest.is_empty(), "a payload was given {} bytes too many", rest.len());
}

/// Length of an entry whose payload has so many bytes.
#[inline]
pub fn bytes(payload_bytes: usize) -> usize {
    ENTRY_HEAD_BYTES + payload_bytes
}

/// Writes an entry into `out`, which must have exactly [`bytes()`] of [`payload_bytes`].
///
/// # Panics
/// Panics as [`encode_payload`] does.
#[inline]
pub fn encode_entry(mutations: &[Mutation<'_>], out: &mut [u8]) {
    encode_payload(mutations, &mut out[ENTRY_HEAD_BYTES..]);
    seal(out);
}

/// Writes an entry whose payload is encoded already.
pub fn encode_encoded(payload: &[u8], out: &mut [u8]) {
    out[ENTRY_HEAD_BYTES..].copy_from_slice(payload);
    seal(out);
}

/// Completes the head of an entry whose payload has been written.
#[inline]
fn seal(entry: &mut [u8]) {
    let (head, payload) = entry.split_at_mut(ENTRY_HEAD_BYTES);
    let length = u32::try_from(payload.len()).expect("an entry is shorter than 4 GiB");
    head[..4].copy_from_slice(&length.to_le_bytes());
    head[4..].copy_from_slice(&crc32c::crc32c(payload).to_le_bytes());
}

/// Decodes the mutations of a payload. The iterator ends early at bytes that are none.
#[derive(Clone, Debug)]
pub struct Mutations<'a> {
    bytes: &'a [u8],
}

impl<'a> Mutations<'a> {
    pub fn new(payload: &'a [u8]) -> Self {
        Self { bytes: payload }
    }

    /// Whether the payload is one or more whole mutations with valid cells.
    pub fn are_valid(payload: &'a [u8]) -> bool {
        let mut mutations = Self::new(payload);
        let sound = |mutation: Mutation<'_>| match mutation.change {
            Change::Row { cells, .. } => cells::is_valid(cells),
            Change::Range(_) => true,
        };
        !payload.is_empty() && mutations.by_ref().all(sound) && mutations.bytes.is_empty()
    }
}

impl<'a> Iterator for Mutations<'a> {
    type Item = Mutation<'a>;

    #[inline]
    fn next(&mut self) -> Option<Mutation<'a>> {
        Mutation::decode(&mut self.bytes)
    }
}

/// Decodes the entries of a group.
#[derive(Debug)]
pub struct Entries<'a> {
    bytes: &'a [u8],
}

impl<'a> Entries<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }
}

impl<'a> Iterator for Entries<'a> {
    /// `None` means that the entry is damaged, and that nothing after it can be read.
    type Item = Option<Mutations<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.bytes.is_empty() {
            return None;
        }
        let read = || {
            let (head, rest) = self.bytes.split_first_chunk::<ENTRY_HEAD_BYTES>()?;
            let length = u32::from_le_bytes(head[..4].try_into().ok()?);
            let crc = u32::from_le_bytes(head[4..].try_into().ok()?);
            let (payload, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            let sound = crc32c::crc32c(payload) == crc && Mutations::are_valid(payload);
            sound.then_some((Mutations::new(payload), rest))
        };
        match read() {
            Some((mutations, rest)) => {
                self.bytes = rest;
                Some(Some(mutations))
            }
            None => {
                self.bytes = &[];
                Some(None)
            }
        }
    }
}

#[cfg(test)]
mod tests;
