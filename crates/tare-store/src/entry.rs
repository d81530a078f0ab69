//! The bytes of the log: groups of entries.
//!
//! A *group* is what one write carries; it starts at a multiple of 4,096 bytes and is padded with
//! zeros to the next:
//!
//! ```text
//! group  magic "TareLog1" | sequence u64 | durable u64 | length u32 | crc32c of these 28 bytes u32
//!        | entries (length bytes) | padding
//! entry  length u32 | crc32c of the payload u32 | payload
//! payload  table u32 | token i64 | key length u16 | clustering length u16 | key | clustering | cells
//! ```
//!
//! Sequences count by one per shard. `durable` says that every group below it was on stable
//! storage when this one was written: that is how recovery tells a damaged middle, which is an
//! error, from a tail that a crash tore, which is cut (see [`crate::recovery`]).

use crate::cells;

/// First bytes of a group; the digit is the version of the format.
pub const MAGIC: [u8; 8] = *b"TareLog1";
/// Bytes of a group before its entries.
pub const GROUP_HEAD_BYTES: usize = 32;
/// Bytes of an entry before its payload.
pub const ENTRY_HEAD_BYTES: usize = 8;
const PAYLOAD_HEAD_BYTES: usize = 16;
/// Longest key or clustering key, as in Cassandra: their lengths are 16-bit.
pub const KEY_BYTES_MAX: usize = u16::MAX as usize;

/// One write to one row: what the log stores and the memtable applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mutation<'a> {
    /// The store's number of the table. A truncated table gets a new one.
    pub table: u32,
    /// Murmur3 token of the key.
    pub token: i64,
    /// Serialised partition key.
    pub key: &'a [u8],
    /// Clustering key in a form that compares bytewise; empty where the table has none.
    pub clustering: &'a [u8],
    /// Cells as in [`crate::cells`].
    pub cells: &'a [u8],
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

    /// `None` if the bytes are no head of a group.
    pub fn decode(bytes: &[u8; GROUP_HEAD_BYTES]) -> Option<Self> {
        let u64_at = |at: usize| Some(u64::from_le_bytes(bytes[at..at + 8].try_into().ok()?));
        let u32_at = |at: usize| Some(u32::from_le_bytes(bytes[at..at + 4].try_into().ok()?));
        let sound = bytes[..8] == MAGIC && u32_at(28)? == crc32c::crc32c(&bytes[..28]);
        if !sound {
            return None;
        }
        Some(Self { sequence: u64_at(8)?, durable: u64_at(16)?, length: u32_at(24)? })
    }
}

impl<'a> Mutation<'a> {
    /// Length of the entry in the log, in bytes.
    #[inline]
    pub fn entry_bytes(&self) -> usize {
        ENTRY_HEAD_BYTES + self.payload_bytes()
    }

    /// Length of the payload alone, in bytes.
    #[inline]
    pub fn payload_bytes(&self) -> usize {
        PAYLOAD_HEAD_BYTES + self.key.len() + self.clustering.len() + self.cells.len()
    }

    /// Writes the entry over `out`, which has exactly [`Self::entry_bytes`] bytes.
    ///
    /// # Panics
    /// If a key is longer than [`KEY_BYTES_MAX`]; the store refuses it before.
    #[inline]
    pub fn encode_entry(&self, out: &mut [u8]) {
        let (head, payload) = out.split_at_mut(ENTRY_HEAD_BYTES);
        self.encode_payload(payload);
        let length = u32::try_from(payload.len()).expect("an entry is shorter than 4 GiB");
        head[..4].copy_from_slice(&length.to_le_bytes());
        head[4..].copy_from_slice(&crc32c::crc32c(payload).to_le_bytes());
    }

    /// Writes the payload over `out`, which has exactly [`Self::payload_bytes`] bytes.
    ///
    /// # Panics
    /// As [`Self::encode_entry`].
    #[inline]
    pub fn encode_payload(&self, out: &mut [u8]) {
        let length = |bytes: &[u8]| u16::try_from(bytes.len()).expect("a key has a 16-bit length");
        let (head, rest) = out.split_at_mut(PAYLOAD_HEAD_BYTES);
        head[..4].copy_from_slice(&self.table.to_le_bytes());
        head[4..12].copy_from_slice(&self.token.to_le_bytes());
        head[12..14].copy_from_slice(&length(self.key).to_le_bytes());
        head[14..].copy_from_slice(&length(self.clustering).to_le_bytes());
        let (key, rest) = rest.split_at_mut(self.key.len());
        key.copy_from_slice(self.key);
        let (clustering, cells) = rest.split_at_mut(self.clustering.len());
        clustering.copy_from_slice(self.clustering);
        cells.copy_from_slice(self.cells);
    }

    /// Reads a payload; `None` if it is none.
    pub fn decode_payload(payload: &'a [u8]) -> Option<Self> {
        let (head, rest) = payload.split_first_chunk::<PAYLOAD_HEAD_BYTES>()?;
        let table = u32::from_le_bytes(head[..4].try_into().ok()?);
        let token = i64::from_le_bytes(head[4..12].try_into().ok()?);
        let key_length = usize::from(u16::from_le_bytes([head[12], head[13]]));
        let clustering_length = usize::from(u16::from_le_bytes([head[14], head[15]]));
        let (key, rest) = rest.split_at_checked(key_length)?;
        let (clustering, cells) = rest.split_at_checked(clustering_length)?;
        Some(Self { table, token, key, clustering, cells })
    }
}

/// Reads the entries of a group one after another.
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
    /// `None` inside: the entry is damaged, and nothing after it can be read.
    type Item = Option<Mutation<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.bytes.is_empty() {
            return None;
        }
        let read = || {
            let (head, rest) = self.bytes.split_first_chunk::<ENTRY_HEAD_BYTES>()?;
            let length = u32::from_le_bytes(head[..4].try_into().ok()?);
            let crc = u32::from_le_bytes(head[4..].try_into().ok()?);
            let (payload, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            let sound = crc32c::crc32c(payload) == crc;
            let mutation = sound.then(|| Mutation::decode_payload(payload)).flatten()?;
            cells::is_valid(mutation.cells).then_some((mutation, rest))
        };
        match read() {
            Some((mutation, rest)) => {
                self.bytes = rest;
                Some(Some(mutation))
            }
            None => {
                self.bytes = &[];
                Some(None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn entries_round_trip_and_damage_is_seen(
            table: u32,
            token: i64,
            key in proptest::collection::vec(any::<u8>(), 0..40),
            clustering in proptest::collection::vec(any::<u8>(), 0..40),
            value in proptest::collection::vec(any::<u8>(), 0..40),
            flip: proptest::sample::Index,
        ) {
            let mut row = Vec::new();
            cells::push(&mut row, cells::Cell { column: 1, timestamp: 7, value: Some(&value) });
            let (key, clustering) = (&key, &clustering);
            let mutation = Mutation { table, token, key, clustering, cells: &row };
            let mut bytes = vec![0; mutation.entry_bytes()];
            mutation.encode_entry(&mut bytes);
            let read: Vec<_> = Entries::new(&bytes).collect();
            prop_assert_eq!(read, vec![Some(mutation)]);
            let at = flip.index(bytes.len());
            bytes[at] ^= 1;
            let read: Vec<_> = Entries::new(&bytes).collect();
            prop_assert_eq!(read.last(), Some(&None));
        }
    }

    #[test]
    fn a_group_head_is_checked() {
        let head = GroupHead { sequence: 3, durable: 2, length: 99 };
        let mut bytes = head.encode();
        assert_eq!(GroupHead::decode(&bytes), Some(head));
        for at in 0..GROUP_HEAD_BYTES {
            bytes[at] ^= 0x10;
            assert_eq!(GroupHead::decode(&bytes), None, "byte {at}");
            bytes[at] ^= 0x10;
        }
    }
}
