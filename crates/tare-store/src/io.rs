//! The file operations of a store, as data: the store returns [`Op`]s, and its host (the server's
//! reactor, the simulator, a test) carries them out and returns them as [`Completion`]s.
//!
//! Operations under way at the same time may end in any order; the store never has two of them
//! under way whose order matters. Offsets and lengths of reads and writes, and the addresses of
//! their chunks, are multiples of [`crate::chunk::ALIGNMENT`], so that the host may use direct I/O.

use std::io;

use crate::chunk::Chunk;

/// A file of a store, in the directory of its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileId {
    /// A segment of the commit log: `00000000.log`.
    Log(u64),
    /// A table of sorted rows: `00000000.table`.
    Table(u64),
    /// The list of tables: `manifest`.
    Manifest,
    /// The next manifest before it is renamed: `manifest.new`.
    ManifestDraft,
}

/// The id of an operation, which the host returns unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpId(pub u64);

/// The part of the store that an operation belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    LogWrite,
    LogSegment,
    LogRemoval,
    LogTrim,
    /// A block for a read.
    Fetch,
    Flush,
    Compaction,
    Manifest,
    TableRemoval,
}

const OWNERS: [Owner; 9] = [
    Owner::LogWrite,
    Owner::LogSegment,
    Owner::LogRemoval,
    Owner::LogTrim,
    Owner::Fetch,
    Owner::Flush,
    Owner::Compaction,
    Owner::Manifest,
    Owner::TableRemoval,
];
const NUMBER_BITS: u32 = 56;

impl OpId {
    /// The id has its owner in the highest byte and a number of the owner's choice below it.
    pub(crate) fn new(owner: Owner, number: u64) -> Self {
        assert!(number >> NUMBER_BITS == 0, "operations and files are counted in 56 bits");
        Self(((owner as u64) << NUMBER_BITS) | number)
    }

    /// The id of an operation on a table file that is being written: `part` tells the files
    /// involved apart, `count` the operations.
    pub(crate) fn of_table(owner: Owner, file: u64, part: u8, count: u16) -> Self {
        assert!(file >> 32 == 0, "table files are counted in 32 bits");
        Self::new(owner, (file << 24) | (u64::from(part) << 16) | u64::from(count))
    }

    /// The file and part of an id of [`Self::of_table`].
    pub(crate) fn table_part(self) -> (u64, u8) {
        let [.., part, _, _] = self.0.to_be_bytes();
        (self.number() >> 24, part)
    }

    pub(crate) fn owner(self) -> Owner {
        OWNERS[usize::try_from(self.0 >> NUMBER_BITS).unwrap_or(usize::MAX)]
    }

    pub(crate) fn number(self) -> u64 {
        self.0 & ((1 << NUMBER_BITS) - 1)
    }
}

/// One operation on one file.
#[derive(Debug)]
pub struct Op {
    pub id: OpId,
    pub file: FileId,
    pub kind: OpKind,
}

/// The kind of an operation.
#[derive(Debug)]
pub enum OpKind {
    /// Fill [`Chunk::bytes_mut`], whose length is the number of bytes to read. A read returns fewer
    /// only at the end of the file.
    Read { offset: u64, chunk: Chunk },
    /// Write all of [`Chunk::bytes`], then make the file's data durable if `sync` is set.
    Write { offset: u64, chunk: Chunk, sync: bool },
    /// Make the file's data durable (`fdatasync`).
    Sync,
    /// Create an empty file with a durable name and reserve this many bytes for it, so that a full
    /// disk fails here and not at a write that was already promised. A leftover file of that name
    /// is replaced.
    Create { size_bytes: u64 },
    /// Shorten the file, durably.
    Truncate { length: u64 },
    /// Remove the file, durably.
    Remove,
    /// Rename the file durably. The name may be in use.
    Rename { to: FileId },
}

/// An operation that has ended, with or without success.
#[derive(Debug)]
pub struct Completion {
    pub id: OpId,
    /// The chunk of the operation, if it had one.
    pub chunk: Option<Chunk>,
    /// Bytes read or written; 0 for other operations.
    pub result: io::Result<usize>,
}

/// The time, which the store does not read by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    /// Nanoseconds since any fixed moment; it never goes back.
    pub monotonic_ns: u64,
    /// Seconds since the Unix epoch.
    pub wall_s: u32,
}

/// The files of one shard while its store is being opened, when there are no clients yet and the
/// store may wait. The server implements it on a directory, tests and the simulator in memory.
pub trait Files {
    /// The files that exist, in any order. Names that no [`FileId`] has are ignored.
    fn list(&self) -> io::Result<Vec<FileId>>;

    /// The length of a file, in bytes.
    fn length(&self, file: FileId) -> io::Result<u64>;

    /// Reads at any offset. It may return fewer bytes than the buffer has, and returns none at the
    /// end.
    fn read_at(&self, file: FileId, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Carries out an operation and waits for it.
    fn carry_out(&mut self, op: Op) -> Completion;

    /// The name of the file in error messages.
    fn name(&self, file: FileId) -> String;
}

impl FileId {
    /// The name of the file in the directory of its shard.
    pub fn file_name(self) -> String {
        match self {
            Self::Log(number) => format!("{number:08}.log"),
            Self::Table(number) => format!("{number:08}.table"),
            Self::Manifest => "manifest".into(),
            Self::ManifestDraft => "manifest.new".into(),
        }
    }

    /// The file of a name; `None` if no file of a store has this name.
    pub fn from_file_name(name: &str) -> Option<Self> {
        let numbered = |stem: &str, make: fn(u64) -> Self| {
            let file = make(stem.parse().ok()?);
            // "+1.log" parses too.
            (file.file_name() == name).then_some(file)
        };
        match name {
            "manifest" => Some(Self::Manifest),
            "manifest.new" => Some(Self::ManifestDraft),
            _ => match name.rsplit_once('.')? {
                (stem, "log") => numbered(stem, Self::Log),
                (stem, "table") => numbered(stem, Self::Table),
                _ => None,
            },
        }
    }
}

impl Completion {
    /// A completion, for a host that has carried out an operation.
    pub fn new(id: OpId, chunk: Option<Chunk>, result: io::Result<usize>) -> Self {
        Self { id, chunk, result }
    }
}

/// Reads until the buffer is full or the file ends. Returns the number of bytes.
pub fn read_full(
    files: &impl Files,
    file: FileId,
    offset: u64,
    buffer: &mut [u8],
) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match files.read_at(file, offset + done as u64, &mut buffer[done..])? {
            0 => break,
            length => done += length,
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_round_trip() {
        let files =
            [FileId::Log(7), FileId::Table(123_456_789), FileId::Manifest, FileId::ManifestDraft];
        for file in files {
            assert_eq!(FileId::from_file_name(&file.file_name()), Some(file));
        }
        for name in ["1.log", "+0000001.log", "00000001", "lock", "00000001.sst", ".log"] {
            assert_eq!(FileId::from_file_name(name), None, "{name}");
        }
    }
}
