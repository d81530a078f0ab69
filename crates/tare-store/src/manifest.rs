//! The manifest: the list of table files, and the group from which on the log is needed.
//!
//! ```text
//! manifest  magic "TareMan1" | length u32 | crc32c of the contents u32 | contents | zeros up to
//!           the next page
//! contents  log sequence u64 | tables u32 | tables
//! table     file u64 | table u32 | bytes u64
//! ```
//!
//! It is replaced as a whole: a draft is written, made durable, and then renamed, so that there is
//! one complete manifest at any time. A table file that it does not list is a leftover.

use std::io;

use crate::chunk::{Chunk, round_up};
use crate::io::{FileId, Files, read_full};

/// First bytes of the file; the digit is the version of the format.
const MAGIC: [u8; 8] = *b"TareMan1";
const HEAD_BYTES: usize = 16;
const FIXED_BYTES: usize = 12;
const LISTED_BYTES: usize = 20;

/// One table file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TableEntry {
    /// The number of the file.
    pub file: u64,
    /// The store's number of the table whose rows the file holds.
    pub table: u32,
    /// The length of the file.
    pub bytes: u64,
}

/// The contents of a manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// Groups of the log below this are in tables.
    pub log_sequence: u64,
    /// Table files, ascending by number.
    pub tables: Vec<TableEntry>,
}

/// Why a manifest cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error("cannot read {file}")]
    Read { file: String, source: io::Error },
    #[error("{file} is damaged: {what}; restore the data directory from a snapshot")]
    Damaged { file: String, what: &'static str },
}

impl Manifest {
    /// Reads the manifest of a shard. A shard without one has no tables yet.
    pub fn read(files: &impl Files) -> Result<Self, ManifestError> {
        let id = FileId::Manifest;
        let read = || {
            if !files.list()?.contains(&id) {
                return Ok(None);
            }
            let length = usize::try_from(files.length(id)?).map_err(io::Error::other)?;
            let mut bytes = vec![0; length];
            let length = read_full(files, id, 0, &mut bytes)?;
            bytes.truncate(length);
            Ok(Some(bytes))
        };
        let name = || files.name(id);
        let bytes = read().map_err(|source| ManifestError::Read { file: name(), source })?;
        let Some(bytes) = bytes else { return Ok(Self::default()) };
        Self::decode(&bytes).map_err(|what| ManifestError::Damaged { file: name(), what })
    }

    /// Encodes the manifest into the bytes of its file.
    pub fn encode(&self) -> Chunk {
        let length = FIXED_BYTES + self.tables.len() * LISTED_BYTES;
        let mut contents = Vec::with_capacity(length);
        contents.extend_from_slice(&self.log_sequence.to_le_bytes());
        contents.extend_from_slice(&narrow(self.tables.len()).to_le_bytes());
        for TableEntry { file, table, bytes } in &self.tables {
            contents.extend_from_slice(&file.to_le_bytes());
            contents.extend_from_slice(&table.to_le_bytes());
            contents.extend_from_slice(&bytes.to_le_bytes());
        }
        let mut chunk = Chunk::new(round_up(HEAD_BYTES + length));
        let head = chunk.take(HEAD_BYTES);
        head[..8].copy_from_slice(&MAGIC);
        head[8..12].copy_from_slice(&narrow(length).to_le_bytes());
        head[12..].copy_from_slice(&crc32c::crc32c(&contents).to_le_bytes());
        chunk.take(length).copy_from_slice(&contents);
        chunk.pad();
        chunk
    }

    /// Decodes the bytes of a file. The error is a description of the damage.
    pub fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>().ok_or("it is too short")?;
        if head[..8] != MAGIC {
            return Err("it is no manifest of a known version (1)");
        }
        let u32_at = |bytes: &[u8], at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let u64_at = |bytes: &[u8], at: usize| {
            u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
        };
        let contents = rest.get(..u32_at(head, 8) as usize).ok_or("it ends too early")?;
        if crc32c::crc32c(contents) != u32_at(head, 12) {
            return Err("the checksum does not match");
        }
        let (fixed, listed) =
            contents.split_first_chunk::<FIXED_BYTES>().ok_or("it is too short")?;
        if listed.len() != u32_at(fixed, 8) as usize * LISTED_BYTES {
            return Err("the number of tables does not match the length");
        }
        let table = |bytes: &[u8]| TableEntry {
            file: u64_at(bytes, 0),
            table: u32_at(bytes, 8),
            bytes: u64_at(bytes, 12),
        };
        let tables: Vec<TableEntry> = listed.chunks_exact(LISTED_BYTES).map(table).collect();
        if !tables.is_sorted_by(|a, b| a.file < b.file) {
            return Err("its tables are not in order");
        }
        Ok(Self { log_sequence: u64_at(fixed, 0), tables })
    }
}

fn narrow(length: usize) -> u32 {
    u32::try_from(length).expect("a manifest is shorter than 4 GiB")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn manifests_round_trip_and_damage_is_detected(
            log_sequence: u64,
            tables in proptest::collection::btree_map(any::<u64>(), any::<(u32, u64)>(), 0..300),
            at: proptest::sample::Index,
            bit in 0u8..8,
        ) {
            let listed = |(file, (table, bytes))| TableEntry { file, table, bytes };
            let manifest = Manifest { log_sequence, tables: tables.into_iter().map(listed).collect() };
            let mut bytes = manifest.encode().bytes().to_vec();
            prop_assert_eq!(Manifest::decode(&bytes), Ok(manifest.clone()));
            let used = HEAD_BYTES + FIXED_BYTES + manifest.tables.len() * LISTED_BYTES;
            bytes[at.index(used)] ^= 1 << bit;
            prop_assert!(Manifest::decode(&bytes).is_err());
        }

        #[test]
        fn arbitrary_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut begun = MAGIC.to_vec();
            begun.extend_from_slice(&bytes);
            prop_assert!(Manifest::decode(&bytes).is_err());
            let _ = Manifest::decode(&begun);
        }
    }
}
