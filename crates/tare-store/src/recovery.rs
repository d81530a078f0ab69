//! Recovery of the log: reads the groups of a shard in order of their sequence numbers and passes
//! on those that no table holds yet.
//!
//! The first group of each segment gives the segment's position, so that leftovers (segments that
//! were created ahead, or wait for reuse, and may hold old groups) need no names of their own. If
//! the next group cannot be found, either a crash tore it or storage damaged it. Every group
//! records up to which group everything was durable when it was written. So if any later group
//! records that the missing one was durable, it was acknowledged and is damaged: an error that
//! names file and offset. Otherwise it was never promised, and the log is cut there, for good: also
//! if nothing can be read after the end, because the next group will have the same number. A clean
//! stop leaves a closing group, so after it any damage is found.

use std::collections::{BTreeMap, VecDeque};
use std::io;

use crate::chunk::{Chunk, round_up};
use crate::entry::{Entries, GROUP_HEAD_BYTES, GroupHead, MAGIC, is_readable};
use crate::io::{FileId, Files, Op, OpId, OpKind, Owner, read_full};
use crate::log::ClosedSegment;

/// The longest plausible group: a frame of 256 MiB and its overhead.
const GROUP_LENGTH_MAX: u32 = 272 << 20;
const SCAN_STEP: usize = 4096;
/// The magic of every version begins with this.
const FAMILY: &[u8] = b"TareLog";

/// The tail of a log that a crash left unfinished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    pub file: String,
    pub offset: u64,
}

/// Why a log could not be recovered.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    #[error("cannot read commit log {file}")]
    Read { file: String, source: io::Error },
    #[error("cannot list the files of the shard")]
    List { source: io::Error },
    #[error("cannot cut the torn tail of commit log {file} at offset {offset}")]
    Cut { file: String, offset: u64, source: io::Error },
    #[error(
        "commit log {file} has format {found} and this version reads {known}; start it with the \
         version that wrote it, or move the data directory away"
    )]
    Version { file: String, found: String, known: String },
    #[error("cannot make commit log {file} durable")]
    Sync { file: String, source: io::Error },
    #[error(
        "commit log {file} is damaged at offset {offset}: group {sequence} was durable and cannot \
         be read; restore the file, or move the shard's log away to start without it"
    )]
    Damaged { file: String, offset: u64, sequence: u64 },
}

/// The results of a recovery.
#[derive(Debug)]
pub(crate) struct Replayed {
    pub(crate) next_segment: u64,
    pub(crate) next_sequence: u64,
    /// The segments that were read.
    pub(crate) closed: Vec<ClosedSegment>,
    /// The position where the log was cut, if it was.
    pub(crate) torn: Option<TornTail>,
}

/// Reads the log and calls `apply` with the sequence and the entries of every group from sequence
/// `from` on, in order. Afterwards the log holds exactly these, durably.
pub(crate) fn recover<F: Files, E: From<RecoveryError>>(
    files: &mut F,
    from: u64,
    mut apply: impl FnMut(&mut F, u64, &[u8]) -> Result<(), E>,
) -> Result<Replayed, E> {
    let mut reader = LogReader::begin(files, from)?;
    let mut buffer = Vec::new();
    while let Some(sequence) = reader.next(files, &mut buffer)? {
        if sequence >= from {
            apply(files, sequence, &buffer)?;
        }
    }
    let torn = reader.end(files)?;
    reader.remove_unread(files)?;
    let LogReader { next_segment, expected, read: closed, .. } = reader;
    Ok(Replayed { next_segment, next_sequence: expected.max(from), closed, torn })
}

/// Reads the whole log as recovery does, without writing. Returns the number of entries, and the
/// position where a crash tore the log.
pub fn check(files: &impl Files, from: u64) -> Result<(u64, Option<TornTail>), RecoveryError> {
    let mut reader = LogReader::begin(files, from)?;
    let mut buffer = Vec::new();
    let mut entries = 0;
    while reader.next(files, &mut buffer)?.is_some() {
        entries += Entries::new(&buffer).count() as u64;
    }
    Ok((entries, reader.end(files)?))
}

/// Reads the log group by group.
struct LogReader {
    /// Segments by the sequence number of their first group.
    heads: BTreeMap<u64, u64>,
    /// Segments that do not begin with a head.
    headless: Vec<u64>,
    next_segment: u64,
    /// The sequence number of the next group.
    expected: u64,
    /// The position of the next group, if it is in the current segment.
    place: Option<(u64, u64)>,
    /// The segments that have been read.
    read: Vec<ClosedSegment>,
    /// Groups that have been read, but that no later group records as durable.
    open: VecDeque<GroupPosition>,
}

/// The position of a group.
struct GroupPosition {
    sequence: u64,
    segment: u64,
    offset: u64,
    bytes: usize,
}

impl LogReader {
    fn begin(files: &impl Files, from: u64) -> Result<Self, RecoveryError> {
        let listed = files.list().map_err(|source| RecoveryError::List { source })?;
        let mut heads = BTreeMap::new();
        let mut headless = Vec::new();
        let mut next_segment = 0;
        for file in listed {
            let FileId::Log(segment) = file else { continue };
            next_segment = next_segment.max(segment + 1);
            let mut head = [0; GROUP_HEAD_BYTES];
            read(files, segment, 0, &mut head)?;
            if head.starts_with(FAMILY) && !is_readable(&head[..MAGIC.len()]) {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let (found, known) = (text(&head[..MAGIC.len()]), text(&MAGIC));
                let file = files.name(file);
                return Err(RecoveryError::Version { file, found, known });
            }
            match GroupHead::decode(&head) {
                Some(head) => {
                    if let Some(double) = heads.insert(head.sequence, segment) {
                        headless.push(double);
                    }
                }
                None => headless.push(segment),
            }
        }
        // The first group that is needed may have others before it in its segment.
        let expected = heads.range(..=from).next_back().map_or(from, |(&first, _)| first);
        let (read, open) = (Vec::new(), VecDeque::new());
        Ok(Self { heads, headless, next_segment, expected, place: None, read, open })
    }

    /// Reads the next group's entries into the buffer and returns its sequence number.
    fn next(
        &mut self,
        files: &impl Files,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<u64>, RecoveryError> {
        loop {
            if let Some((segment, offset)) = self.place
                && let Some(head) = group(files, segment, offset, buffer)?
                && head.sequence == self.expected
            {
                self.expected += 1;
                while self.open.front().is_some_and(|group| group.sequence < head.durable) {
                    self.open.pop_front();
                }
                let (sequence, bytes) = (head.sequence, group_bytes(&head));
                self.open.push_back(GroupPosition { sequence, segment, offset, bytes });
                self.place = Some((segment, offset + bytes as u64));
                if let Some(last) = self.read.last_mut() {
                    last.end = self.expected;
                }
                return Ok(Some(head.sequence));
            }
            let Some(segment) = self.heads.remove(&self.expected) else { return Ok(None) };
            self.place = Some((segment, 0));
            let end = self.expected;
            self.read.push(ClosedSegment { number: segment, end, reusable_bytes: None });
        }
    }

    /// Determines why there is no next group: `None` means the end of the log.
    fn end(&self, files: &impl Files) -> Result<Option<TornTail>, RecoveryError> {
        let mut torn = false;
        let mut durable = false;
        let rest = self.heads.values().chain(&self.headless).map(|&segment| (segment, 0));
        for (segment, offset) in self.place.into_iter().chain(rest) {
            scan(files, segment, offset, |head| {
                torn |= head.sequence >= self.expected;
                durable |= head.durable > self.expected;
                !durable
            })?;
        }
        let (segment, offset) = self.missing(files)?;
        let file = files.name(FileId::Log(segment));
        if durable {
            return Err(RecoveryError::Damaged { file, offset, sequence: self.expected });
        }
        Ok(torn.then_some(TornTail { file, offset }))
    }

    /// The position of the missing group: the end of the last one, unless nothing was written there
    /// and a segment that has lost its first head continues the log.
    fn missing(&self, files: &impl Files) -> Result<(u64, u64), RecoveryError> {
        if let Some((segment, offset)) = self.place {
            let mut head = [0; GROUP_HEAD_BYTES];
            read(files, segment, offset, &mut head)?;
            let is_old = |head: GroupHead| head.sequence < self.expected;
            let is_unused = head == [0; GROUP_HEAD_BYTES];
            if !is_unused && !GroupHead::decode(&head).is_some_and(is_old) {
                return Ok((segment, offset));
            }
        }
        // The least sequence number that can be read in such a segment; segments without any come
        // last.
        let mut first: Option<(u64, u64)> = None;
        for &segment in &self.headless {
            let mut head = [0; GROUP_HEAD_BYTES];
            read(files, segment, 0, &mut head)?;
            let mut sequence = u64::MAX;
            scan(files, segment, 0, |head| {
                sequence = head.sequence;
                false
            })?;
            let is_later = sequence > self.expected && head != [0; GROUP_HEAD_BYTES];
            if is_later && first.is_none_or(|least| (sequence, segment) < least) {
                first = Some((sequence, segment));
            }
        }
        let found = first.map(|(_, segment)| (segment, 0)).or(self.place);
        Ok(found.unwrap_or((self.headless.iter().min().copied().unwrap_or(0), 0)))
    }

    /// Removes segments that were not read, so that they are never taken for new ones, and makes
    /// the rest durable.
    fn remove_unread(&mut self, files: &mut impl Files) -> Result<(), RecoveryError> {
        for &segment in self.heads.values().chain(&self.headless) {
            carry_out(files, segment, OpKind::Remove).map_err(|source| {
                let file = files.name(FileId::Log(segment));
                RecoveryError::Cut { file, offset: 0, source }
            })?;
        }
        let Some((segment, offset)) = self.place else { return Ok(()) };
        let file = files.name(FileId::Log(segment));
        if offset == 0 {
            self.read.pop();
            return carry_out(files, segment, OpKind::Remove)
                .map_err(|source| RecoveryError::Cut { file, offset, source });
        }
        // What follows may be a group whose head cannot be read now, and can later.
        if !files.length(FileId::Log(segment)).is_ok_and(|length| length == offset) {
            let cut = carry_out(files, segment, OpKind::Truncate { length: offset });
            let file = file.clone();
            cut.map_err(|source| RecoveryError::Cut { file, offset, source })?;
        }
        self.write_again(files)?;
        carry_out(files, segment, OpKind::Sync)
            .map_err(|source| RecoveryError::Sync { file, source })
    }

    /// Writes the groups again that no other group records as durable. A sync alone would not be
    /// enough: a sync that failed before the server died may have dropped the dirty pages, and then
    /// a second sync has nothing to write and succeeds, although only memory holds the data.
    fn write_again(&self, files: &mut impl Files) -> Result<(), RecoveryError> {
        for &GroupPosition { segment, offset, bytes, .. } in &self.open {
            let mut chunk = Chunk::zeroed(bytes);
            read(files, segment, offset, chunk.bytes_mut())?;
            carry_out(files, segment, OpKind::Write { offset, chunk, sync: true }).map_err(
                |source| {
                    let file = files.name(FileId::Log(segment));
                    RecoveryError::Sync { file, source }
                },
            )?;
        }
        Ok(())
    }
}

fn carry_out(files: &mut impl Files, segment: u64, kind: OpKind) -> io::Result<()> {
    let id = OpId::new(Owner::LogRemoval, segment);
    files.carry_out(Op { id, file: FileId::Log(segment), kind }).result.map(drop)
}

/// Reads the group at an offset and its entries into the buffer; `None` if no valid group is there.
fn group(
    files: &impl Files,
    segment: u64,
    offset: u64,
    buffer: &mut Vec<u8>,
) -> Result<Option<GroupHead>, RecoveryError> {
    let mut head = [0; GROUP_HEAD_BYTES];
    read(files, segment, offset, &mut head)?;
    let Some(head) = GroupHead::decode(&head) else { return Ok(None) };
    if head.length > GROUP_LENGTH_MAX {
        return Ok(None);
    }
    let wanted = head.length as usize;
    buffer.resize(wanted, 0);
    let length = read(files, segment, offset + GROUP_HEAD_BYTES as u64, buffer)?;
    let sound = length == wanted && Entries::new(buffer).all(|entry| entry.is_some());
    Ok(sound.then_some(head))
}

/// Calls `visit` with every head of a group from an offset on, until it returns false.
fn scan(
    files: &impl Files,
    segment: u64,
    offset: u64,
    mut visit: impl FnMut(&GroupHead) -> bool,
) -> Result<(), RecoveryError> {
    const STRIDE: usize = 1 << 20;
    let mut block = vec![0; STRIDE];
    let mut from = offset;
    loop {
        let length = read(files, segment, from, &mut block)?;
        for bytes in block[..length].chunks(SCAN_STEP) {
            if let Some(head) = bytes.first_chunk().and_then(GroupHead::decode)
                && !visit(&head)
            {
                return Ok(());
            }
        }
        if length < STRIDE {
            return Ok(());
        }
        from += STRIDE as u64;
    }
}

fn read(
    files: &impl Files,
    segment: u64,
    offset: u64,
    buffer: &mut [u8],
) -> Result<usize, RecoveryError> {
    let file = FileId::Log(segment);
    read_full(files, file, offset, buffer)
        .map_err(|source| RecoveryError::Read { file: files.name(file), source })
}

fn group_bytes(head: &GroupHead) -> usize {
    round_up(GROUP_HEAD_BYTES + head.length as usize)
}
