//! Recovery: reads the segments of a shard in order and applies every entry.
//!
//! Where a group cannot be read, either a crash tore it or storage damaged it. Every group says
//! up to which group everything was durable when it was written. So if any later group says that
//! the unreadable one was durable, it was acknowledged and is damaged: an error that names file
//! and offset. Otherwise it was never promised: the log is cut there. A clean stop leaves a closing
//! group, so after it any damage is found.

use std::io;

use crate::chunk::round_up;
use crate::entry::{Entries, GROUP_HEAD_BYTES, GroupHead, Mutation};
use crate::segments::Segments;

/// The longest group that is believed: a frame of 256 MiB and its overhead.
const GROUP_LENGTH_MAX: u32 = 272 << 20;
const SCAN_STEP: usize = 4096;

/// What recovery found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    pub next_segment: u64,
    pub next_sequence: u64,
    pub segments: u64,
    pub entries: u64,
    /// Where the log was cut, if it was.
    pub torn: Option<TornTail>,
}

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
    #[error("cannot list the commit log's segments")]
    List { source: io::Error },
    #[error("cannot cut the torn tail of commit log {file} at offset {offset}")]
    Cut { file: String, offset: u64, source: io::Error },
    #[error(
        "commit log {file} is damaged at offset {offset}: group {sequence} was durable and cannot \
         be read; restore the file, or move the shard's log away to start without it"
    )]
    Damaged { file: String, offset: u64, sequence: u64 },
}

/// Reads all segments and calls `apply` with every entry, in order.
pub fn recover(
    segments: &mut impl Segments,
    mut apply: impl FnMut(&Mutation<'_>),
) -> Result<Recovered, RecoveryError> {
    let numbers = segments.list().map_err(|source| RecoveryError::List { source })?;
    let mut reader = Reader { segments, buffer: Vec::new() };
    // The first segment that is kept says where the sequence starts.
    let mut expected: Option<u64> = None;
    let mut found = Recovered {
        next_segment: numbers.last().map_or(0, |last| last + 1),
        next_sequence: 0,
        segments: numbers.len() as u64,
        entries: 0,
        torn: None,
    };
    for (index, &segment) in numbers.iter().enumerate() {
        let mut offset = 0;
        loop {
            let group = reader.group(segment, offset)?;
            match group {
                Group::Sound(head) if expected.is_none_or(|e| e == head.sequence) => {
                    for mutation in Entries::new(reader.entries(&head)).flatten() {
                        apply(&mutation);
                        found.entries += 1;
                    }
                    expected = Some(head.sequence + 1);
                    offset += group_bytes(&head);
                }
                group => {
                    let rest = &numbers[index + 1..];
                    if let Some(&next) = rest.first()
                        && matches!(group, Group::Nothing)
                        && matches!(reader.group(next, 0)?, Group::Sound(head)
                            if expected.is_none_or(|e| e == head.sequence))
                    {
                        break;
                    }
                    let sequence = expected.unwrap_or(0);
                    let was_durable = reader.says_durable(segment, offset, rest, sequence)?;
                    let file = reader.segments.name(segment);
                    if was_durable {
                        return Err(RecoveryError::Damaged { file, offset, sequence });
                    }
                    reader.cut(segment, offset, rest)?;
                    if !matches!(group, Group::Nothing) || !rest.is_empty() {
                        found.torn = Some(TornTail { file, offset });
                    }
                    found.next_sequence = sequence;
                    return Ok(found);
                }
            }
        }
    }
    found.next_sequence = expected.unwrap_or(0);
    Ok(found)
}

enum Group {
    /// Head and every entry are sound; the entries are in the reader's buffer.
    Sound(GroupHead),
    /// Zeros or the end of the file: nothing was written here.
    Nothing,
    Unreadable,
}

struct Reader<'a, S> {
    segments: &'a mut S,
    buffer: Vec<u8>,
}

impl<S: Segments> Reader<'_, S> {
    fn group(&mut self, segment: u64, offset: u64) -> Result<Group, RecoveryError> {
        let mut head = [0; GROUP_HEAD_BYTES];
        let length = self.read(segment, offset, &mut head)?;
        if head[..length].iter().all(|&byte| byte == 0) {
            return Ok(Group::Nothing);
        }
        let Some(head) = GroupHead::decode(&head) else { return Ok(Group::Unreadable) };
        if head.length > GROUP_LENGTH_MAX {
            return Ok(Group::Unreadable);
        }
        let wanted = head.length as usize;
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(wanted, 0);
        let length = self.read(segment, offset + GROUP_HEAD_BYTES as u64, &mut buffer)?;
        self.buffer = buffer;
        let sound = length == wanted && Entries::new(&self.buffer).all(|entry| entry.is_some());
        Ok(if sound { Group::Sound(head) } else { Group::Unreadable })
    }

    fn entries(&self, head: &GroupHead) -> &[u8] {
        &self.buffer[..head.length as usize]
    }

    /// Whether any group after this place says that group `sequence` was durable.
    fn says_durable(
        &self,
        segment: u64,
        offset: u64,
        rest: &[u64],
        sequence: u64,
    ) -> Result<bool, RecoveryError> {
        const STRIDE: usize = 1 << 20;
        let mut block = vec![0; STRIDE];
        let mut from = offset;
        for &segment in std::iter::once(&segment).chain(rest) {
            loop {
                let length = self.read(segment, from, &mut block)?;
                for bytes in block[..length].chunks(SCAN_STEP) {
                    if let Some(head) = bytes.first_chunk().and_then(GroupHead::decode)
                        && head.durable > sequence
                    {
                        return Ok(true);
                    }
                }
                if length < STRIDE {
                    break;
                }
                from += STRIDE as u64;
            }
            from = 0;
        }
        Ok(false)
    }

    fn cut(&mut self, segment: u64, offset: u64, rest: &[u64]) -> Result<(), RecoveryError> {
        let name = self.segments.name(segment);
        let failed = |source| RecoveryError::Cut { file: name, offset, source };
        let mut cut = || {
            // Backwards, so that a crash in between leaves no gap.
            for &later in rest.iter().rev() {
                self.segments.remove(later)?;
            }
            if offset == 0 {
                self.segments.remove(segment)
            } else {
                self.segments.truncate(segment, offset)
            }
        };
        cut().map_err(failed)
    }

    /// Reads until the buffer is full or the segment ends.
    fn read(&self, segment: u64, offset: u64, buffer: &mut [u8]) -> Result<usize, RecoveryError> {
        let mut done = 0;
        while done < buffer.len() {
            let read = self.segments.read_at(segment, offset + done as u64, &mut buffer[done..]);
            match read {
                Ok(0) => break,
                Ok(length) => done += length,
                Err(source) => {
                    let file = self.segments.name(segment);
                    return Err(RecoveryError::Read { file, source });
                }
            }
        }
        Ok(done)
    }
}

fn group_bytes(head: &GroupHead) -> u64 {
    round_up(GROUP_HEAD_BYTES + head.length as usize) as u64
}
