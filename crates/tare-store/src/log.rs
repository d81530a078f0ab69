//! The writing side of the commit log of one shard. It collects entries into groups and returns
//! them as operations, one write at a time, so that a crash can tear at most the last group.
//!
//! The caller decides when to acknowledge: [`CommitLog::durable`] and the ticket of
//! `CommitLog::append` tell what is on stable storage. A failed write or sync poisons the log for
//! good: after a failed `fsync` the kernel may have dropped the dirty pages, so nothing later can
//! be promised (see "Can Applications Recover from fsync Failures?", USENIX ATC 2020).
//!
//! The next segment is always created ahead of its use, so that no write waits for it while the
//! disk has room. If that fails, the log takes entries as long as the current segment has room for
//! them. Segments whose rows are all in tables are reused under a new name: their blocks are
//! allocated already, so that a sync of them changes no metadata.

use std::collections::VecDeque;
use std::io;

use crate::chunk::{ALIGNMENT, Chunk, round_up};
use crate::entry::{GROUP_HEAD_BYTES, GroupHead};
use crate::io::{Completion, FileId, Now, Op, OpId, OpKind, Owner};

/// Size of a group's buffer; a larger entry gets one of its own.
pub const GROUP_BYTES: usize = 256 << 10;
/// Size of a group's buffer while two groups wait for the disk. A disk that takes as long for a
/// short write as for a long one catches up with fewer of them. It is at most a part of a segment.
const LONG_GROUP_BYTES: usize = 2 << 20;
const LONG_GROUP_PART: u64 = 4;
/// Buffers kept for reuse. More are needed only while the disk is behind.
const FREE_MAX: usize = 8;
/// Segments kept for reuse.
const USED_MAX: usize = 4;
/// How long the log waits before it tries a full disk again, in ns.
const RETRY_NS: u64 = 100_000_000;

/// When the log makes its entries durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// At once, together with all entries that came meanwhile.
    Sync,
    /// After this many ns.
    Periodic { period_ns: u64 },
}

/// The group of an entry. The entry is durable once [`CommitLog::durable`] exceeds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// Why the log refuses an entry.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error(
        "{pending_bytes} bytes wait for the commit log and the limit is {limit_bytes}; the disk \
         is too slow; send less"
    )]
    Behind { pending_bytes: usize, limit_bytes: usize },
    #[error("the commit log failed ({why}); this shard takes no more writes; restart the server")]
    Poisoned { why: String },
    #[error("cannot create a commit log segment: {why}; writes are refused until there is room")]
    NoSegment { why: String },
}

/// The limits of a log, and when it is synced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogLimits {
    pub(crate) segment_bytes: u64,
    pub(crate) pending_bytes: usize,
    pub(crate) durability: Durability,
}

/// A segment that is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClosedSegment {
    pub(crate) number: u64,
    /// The sequence numbers of all its groups are below this.
    pub(crate) end: u64,
    /// Its size, if it may be reused. A segment of an earlier run may not: it may hold groups that
    /// a crash lost, and whose numbers were assigned again.
    pub(crate) reusable_bytes: Option<u64>,
}

#[derive(Debug)]
struct Segment {
    number: u64,
    size: u64,
    offset: u64,
}

/// The write or sync under way.
#[derive(Clone, Copy, Debug)]
struct GroupInFlight {
    bytes: usize,
    /// Groups below this are written when it succeeds, and durable with `sync`.
    next_sequence: u64,
    sync: bool,
}

/// The commit log of one shard.
#[derive(Debug)]
pub struct CommitLog {
    limits: LogLimits,
    next_segment: u64,
    current: Option<Segment>,
    spare: Option<Segment>,
    /// The number and size of the segment that is being created.
    making: Option<(u64, u64)>,
    closed: VecDeque<ClosedSegment>,
    /// Reusable segments of the usual size.
    used: Vec<u64>,
    removable: Vec<u64>,
    /// Number of removals under way.
    removing: usize,
    /// Groups below this are no longer needed.
    released: u64,
    /// The group that takes entries; its sequence number is `sequence`.
    active: Chunk,
    sequence: u64,
    sealed: VecDeque<Chunk>,
    sealed_bytes: usize,
    free: Vec<Chunk>,
    flight: Option<GroupInFlight>,
    /// Groups below this have been written.
    written: u64,
    written_bytes: u64,
    /// Groups below this are on stable storage.
    durable: u64,
    /// Groups below this have to become durable as soon as possible.
    wanted: u64,
    next_sync_ns: u64,
    /// Why no segment can be created; the next success clears it.
    no_segment: Option<String>,
    retry_ns: u64,
    poisoned: Option<String>,
    closing: Closing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Closing {
    No,
    Requested,
    /// The closing group has been sealed.
    Sealed,
    /// The closing group is durable, and the unused reserved space is being freed.
    Trimming,
    Done,
}

impl CommitLog {
    /// A log that continues after recovery, in a new segment.
    pub(crate) fn new(
        next_segment: u64,
        next_sequence: u64,
        closed: impl IntoIterator<Item = ClosedSegment>,
        limits: LogLimits,
    ) -> Self {
        let segment_bytes = limits.segment_bytes.max((GROUP_BYTES * 2) as u64);
        Self {
            limits: LogLimits { segment_bytes, ..limits },
            next_segment,
            current: None,
            spare: None,
            making: None,
            closed: closed.into_iter().collect(),
            used: Vec::new(),
            removable: Vec::new(),
            removing: 0,
            released: 0,
            active: empty_group(GROUP_BYTES),
            sequence: next_sequence,
            sealed: VecDeque::new(),
            sealed_bytes: 0,
            free: Vec::new(),
            flight: None,
            written: next_sequence,
            written_bytes: 0,
            durable: next_sequence,
            wanted: 0,
            next_sync_ns: 0,
            no_segment: None,
            retry_ns: 0,
            poisoned: None,
            closing: Closing::No,
        }
    }

    /// Adds an entry of `length` bytes, which `encode` writes, to the current group.
    #[inline]
    pub(crate) fn append(
        &mut self,
        length: usize,
        encode: impl FnOnce(&mut [u8]),
    ) -> Result<Ticket, LogError> {
        self.check(length)?;
        if length > self.active.room() {
            self.seal(length);
        }
        encode(self.active.take(length));
        Ok(Ticket(self.sequence))
    }

    /// Whether the log would take an entry of so many bytes.
    pub fn check(&self, length: usize) -> Result<(), LogError> {
        if let Some(why) = &self.poisoned {
            return Err(LogError::Poisoned { why: why.clone() });
        }
        let pending_bytes = self.pending_bytes() + length;
        if let Some(why) = &self.no_segment
            && !self.has_room(pending_bytes)
        {
            return Err(LogError::NoSegment { why: why.clone() });
        }
        if pending_bytes > self.limits.pending_bytes {
            let limit_bytes = self.limits.pending_bytes;
            return Err(LogError::Behind { pending_bytes, limit_bytes });
        }
        Ok(())
    }

    /// The log's next operation, if there is one. At most one write is under way.
    pub(crate) fn next_op(&mut self, now: Now) -> Option<Op> {
        if self.poisoned.is_some() {
            return None;
        }
        if self.flight.is_none() {
            self.prepare(now);
        }
        if let Some(op) = self.next_removal() {
            return Some(op);
        }
        self.make_segment(now).or_else(|| self.next_write()).or_else(|| self.trim())
    }

    /// The time at which [`Self::next_op`] has to be called again even if nothing else happens.
    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        if self.poisoned.is_some() {
            return None;
        }
        let retry = self.no_segment.is_some().then_some(self.retry_ns);
        let sync = match self.limits.durability {
            Durability::Periodic { .. } if self.is_dirty() && self.flight.is_none() => {
                Some(self.next_sync_ns)
            }
            _ => None,
        };
        match (retry, sync) {
            (Some(retry), Some(sync)) => Some(retry.min(sync)),
            (retry, sync) => retry.or(sync),
        }
    }

    fn make_segment(&mut self, now: Now) -> Option<Op> {
        let needed = self.sealed.front().map_or(0, |group| round_up(group.len()) as u64);
        if let Some(spare) = self.spare.take_if(|spare| spare.size < needed) {
            self.removable.push(spare.number);
        }
        let wait = self.no_segment.is_some() && now.monotonic_ns < self.retry_ns;
        if self.spare.is_some() || self.making.is_some() || wait || self.closing >= Closing::Sealed
        {
            return None;
        }
        let number = self.next_segment;
        self.next_segment += 1;
        let size = self.limits.segment_bytes.max(needed);
        self.making = Some((number, size));
        let id = OpId::new(Owner::LogSegment, number);
        if size == self.limits.segment_bytes
            && let Some(used) = self.used.pop()
        {
            let kind = OpKind::Rename { to: FileId::Log(number) };
            return Some(Op { id, file: FileId::Log(used), kind });
        }
        let kind = OpKind::Create { size_bytes: size };
        Some(Op { id, file: FileId::Log(number), kind })
    }

    fn next_write(&mut self) -> Option<Op> {
        if self.flight.is_some() {
            return None;
        }
        let Some(length) = self.sealed.front().map(|group| round_up(group.len()) as u64) else {
            return if self.durable < self.wanted { self.sync_op() } else { None };
        };
        let full = self.current.as_ref().is_some_and(|c| c.offset + length > c.size);
        if full || self.current.is_none() {
            // A segment is durable before the next one begins, so that one sync covers everything.
            if let Some(op) = self.sync_op() {
                return Some(op);
            }
            let next = self.spare.take_if(|spare| length <= spare.size)?;
            if let Some(Segment { number, size, .. }) = self.current.replace(next) {
                let usual = size == self.limits.segment_bytes;
                let reusable_bytes = usual.then_some(size);
                self.closed.push_back(ClosedSegment { number, end: self.written, reusable_bytes });
            }
        }
        let (current, mut chunk) = (self.current.as_mut()?, self.sealed.pop_front()?);
        // More groups may be durable than when the group was sealed.
        let head = GroupHead {
            sequence: self.written,
            durable: self.durable,
            length: group_length(&chunk),
        };
        self.sealed_bytes -= chunk.len();
        chunk.pad();
        chunk.bytes_mut()[..GROUP_HEAD_BYTES].copy_from_slice(&head.encode());
        let offset = current.offset;
        current.offset += chunk.len() as u64;
        let next_sequence = self.written + 1;
        let sync = match self.limits.durability {
            Durability::Sync => true,
            Durability::Periodic { .. } => {
                self.durable < self.wanted && next_sequence >= self.wanted
            }
        };
        self.flight = Some(GroupInFlight { bytes: chunk.len(), next_sequence, sync });
        let file = FileId::Log(current.number);
        let id = OpId::new(Owner::LogWrite, 0);
        Some(Op { id, file, kind: OpKind::Write { offset, chunk, sync } })
    }

    /// The last operation of a clean stop.
    fn trim(&mut self) -> Option<Op> {
        if self.closing != Closing::Sealed || self.is_dirty() {
            return None;
        }
        self.closing = Closing::Done;
        self.removable.append(&mut self.used);
        self.removable.extend(self.spare.take().map(|spare| spare.number));
        if self.released >= self.end() {
            self.removable.extend(self.closed.drain(..).map(|closed| closed.number));
            self.removable.extend(self.current.take().map(|current| current.number));
        }
        let Some(Segment { number, offset, .. }) = self.current else {
            return self.next_removal();
        };
        self.closing = Closing::Trimming;
        let id = OpId::new(Owner::LogTrim, number);
        Some(Op { id, file: FileId::Log(number), kind: OpKind::Truncate { length: offset } })
    }

    fn next_removal(&mut self) -> Option<Op> {
        let number = self.removable.pop()?;
        self.removing += 1;
        let id = OpId::new(Owner::LogRemoval, number);
        Some(Op { id, file: FileId::Log(number), kind: OpKind::Remove })
    }

    /// Ends the current group if it has to be written now.
    fn prepare(&mut self, now: Now) {
        if self.closing == Closing::Requested && !self.is_dirty() && self.making.is_none() {
            self.closing = Closing::Sealed;
            // A segment that nobody needs is released as a whole.
            if self.released < self.end() {
                self.seal_closing_group();
            }
        }
        self.want(now);
        if self.wanted > self.sequence && self.sealed.is_empty() {
            self.seal(0);
        }
    }

    /// Determines what has to become durable now.
    fn want(&mut self, now: Now) {
        let due = match self.limits.durability {
            Durability::Sync => true,
            Durability::Periodic { period_ns } => {
                let due = self.is_dirty() && now.monotonic_ns >= self.next_sync_ns;
                if due {
                    self.next_sync_ns = now.monotonic_ns.saturating_add(period_ns);
                }
                due
            }
        };
        if due || self.closing != Closing::No {
            self.wanted = self.end();
        }
    }

    fn sync_op(&mut self) -> Option<Op> {
        let current = self.current.as_ref()?;
        if self.durable >= self.written {
            return None;
        }
        self.flight = Some(GroupInFlight { bytes: 0, next_sequence: self.written, sync: true });
        let id = OpId::new(Owner::LogWrite, 0);
        Some(Op { id, file: FileId::Log(current.number), kind: OpKind::Sync })
    }

    /// Takes the completion of an operation of the log.
    ///
    /// # Panics
    /// Panics if the operation is not under way.
    pub(crate) fn complete(&mut self, completion: Completion, now: Now) -> Result<(), LogError> {
        let Completion { id, chunk, result } = completion;
        match id.owner() {
            Owner::LogWrite => self.written(chunk, result),
            Owner::LogSegment => self.made(result, now),
            Owner::LogTrim => {
                // A segment that was not trimmed does no harm.
                self.closing = Closing::Done;
                Ok(())
            }
            // The next start removes a segment that could not be removed.
            Owner::LogRemoval => {
                self.removing -= 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn written(&mut self, chunk: Option<Chunk>, result: io::Result<usize>) -> Result<(), LogError> {
        let flight = self.flight.take().expect("a write of the log ends once");
        if let Some(mut chunk) = chunk
            && chunk.capacity() == GROUP_BYTES
            && self.free.len() < FREE_MAX
        {
            chunk.clear();
            chunk.take(GROUP_HEAD_BYTES);
            self.free.push(chunk);
        }
        let short = |length: usize| length < flight.bytes;
        match result {
            Ok(length) if short(length) => Err(self.poison("a short write".into())),
            Ok(_) => {
                self.written_bytes += flight.bytes as u64;
                self.written = flight.next_sequence;
                if flight.sync {
                    self.durable = flight.next_sequence;
                }
                Ok(())
            }
            Err(error) => Err(self.poison(error.to_string())),
        }
    }

    fn made(&mut self, result: io::Result<usize>, now: Now) -> Result<(), LogError> {
        let (number, size) = self.making.take().expect("a segment is made once");
        match result {
            Ok(_) => {
                self.no_segment = None;
                self.spare = Some(Segment { number, size, offset: 0 });
                Ok(())
            }
            Err(error) => {
                // The number is used again, so that a full disk leaves no gap of unused numbers.
                self.next_segment = number;
                self.retry_ns = now.monotonic_ns.saturating_add(RETRY_NS);
                let why = error.to_string();
                self.no_segment = Some(why.clone());
                match self.has_room(self.pending_bytes()) {
                    true => Ok(()),
                    false => Err(LogError::NoSegment { why }),
                }
            }
        }
    }

    /// Refuses all entries from now on.
    pub(crate) fn poison(&mut self, why: String) -> LogError {
        self.poisoned = Some(why.clone());
        LogError::Poisoned { why }
    }

    /// Ends the current group. All earlier entries are below the sequence number that it returns,
    /// all later ones are not.
    pub(crate) fn cut(&mut self) -> u64 {
        if self.active.len() > GROUP_HEAD_BYTES {
            self.seal(0);
        }
        self.sequence
    }

    /// Releases the segments whose groups are all below a sequence number.
    pub(crate) fn release(&mut self, sequence: u64) {
        self.released = self.released.max(sequence);
        while let Some(closed) = self.closed.pop_front_if(|closed| closed.end <= sequence) {
            match closed.reusable_bytes {
                Some(size) if size == self.limits.segment_bytes && self.used.len() < USED_MAX => {
                    self.used.push(closed.number);
                }
                _ => self.removable.push(closed.number),
            }
        }
    }

    /// Makes everything durable, then writes an empty group that records this, so that later damage
    /// cannot pass for a torn tail.
    pub(crate) fn close(&mut self) {
        self.closing = self.closing.max(Closing::Requested);
    }

    /// Whether [`Self::close`] is complete.
    pub(crate) fn is_closed(&self) -> bool {
        self.closing == Closing::Done && self.removable.is_empty() && self.removing == 0
    }

    /// Groups below this are on stable storage.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// Whether some entries are not on stable storage yet.
    pub fn is_dirty(&self) -> bool {
        self.is_behind() || self.durable < self.written || self.active.len() > GROUP_HEAD_BYTES
    }

    /// Whether a whole group waits to be written, or one is being written.
    fn is_behind(&self) -> bool {
        !self.sealed.is_empty() || self.flight.is_some()
    }

    pub fn is_poisoned(&self) -> bool {
        self.poisoned.is_some()
    }

    /// Bytes that wait to be written.
    pub fn pending_bytes(&self) -> usize {
        let in_flight = self.flight.map_or(0, |flight| flight.bytes);
        self.active.len() + self.sealed_bytes + in_flight
    }

    /// Bytes written so far.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Number of segments that are needed.
    pub fn segments(&self) -> u64 {
        (self.closed.len() + usize::from(self.current.is_some())) as u64
    }

    /// The sequence number after all entries.
    fn end(&self) -> u64 {
        self.sequence + u64::from(self.active.len() > GROUP_HEAD_BYTES)
    }

    /// Whether so many pending bytes fit into the existing segments.
    fn has_room(&self, pending_bytes: usize) -> bool {
        let rest = |segment: &Segment| segment.size - segment.offset;
        let in_flight = self.flight.map_or(0, |flight| flight.bytes);
        // Each group is padded.
        let groups = pending_bytes / GROUP_BYTES + self.sealed.len() + 2;
        let wanted = (pending_bytes - in_flight + groups * ALIGNMENT) as u64;
        let segments = [&self.current, &self.spare];
        segments.into_iter().flatten().map(rest).any(|rest| wanted <= rest)
    }

    fn seal_closing_group(&mut self) {
        if self.current.is_some() && self.active.len() == GROUP_HEAD_BYTES {
            self.seal(0);
        }
    }

    /// Size of the next group's buffer.
    fn group_bytes(&self) -> usize {
        let part = self.limits.segment_bytes / LONG_GROUP_PART;
        let long =
            usize::try_from(part).map_or(LONG_GROUP_BYTES, |part| part.min(LONG_GROUP_BYTES));
        // The current group is the second one.
        if self.sealed.is_empty() { GROUP_BYTES } else { long.max(GROUP_BYTES) }
    }

    /// Closes the current group and opens one with room for `length` bytes.
    fn seal(&mut self, length: usize) {
        let wanted = (GROUP_HEAD_BYTES + length).max(self.group_bytes());
        let next = match self.free.pop() {
            Some(chunk) if wanted <= GROUP_BYTES => chunk,
            unfit => {
                self.free.extend(unfit);
                empty_group(wanted)
            }
        };
        let sealed = std::mem::replace(&mut self.active, next);
        if sealed.len() == GROUP_HEAD_BYTES && length > 0 {
            // The group is empty; only its size was too small.
            return;
        }
        self.sealed_bytes += sealed.len();
        self.sealed.push_back(sealed);
        self.sequence += 1;
    }
}

fn empty_group(capacity: usize) -> Chunk {
    let mut chunk = Chunk::new(capacity);
    chunk.take(GROUP_HEAD_BYTES);
    chunk
}

fn group_length(chunk: &Chunk) -> u32 {
    u32::try_from(chunk.len() - GROUP_HEAD_BYTES).expect("a group is shorter than 4 GiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_longer_while_the_disk_is_behind() {
        let limits = LogLimits {
            segment_bytes: 16 << 20,
            pending_bytes: 64 << 20,
            durability: Durability::Sync,
        };
        let (mut log, now) = (CommitLog::new(0, 0, [], limits), Now::default());
        let mut last = Ticket(0);
        for _ in 0..6 << 10 {
            last = log.append(1 << 10, |bytes| bytes.fill(7)).unwrap();
        }
        let mut lengths = Vec::new();
        while let Some(Op { id, kind, .. }) = log.next_op(now) {
            let (chunk, length) = match kind {
                OpKind::Write { chunk, .. } => {
                    let length = chunk.len();
                    lengths.push(length);
                    (Some(chunk), length)
                }
                _ => (None, 0),
            };
            log.complete(Completion::new(id, chunk, Ok(length)), now).unwrap();
        }
        assert!(last.0 < log.durable());
        assert!(lengths[..2].iter().all(|length| *length <= GROUP_BYTES), "{lengths:?}");
        // 5.5 MiB in groups of 2 MiB.
        assert_eq!(lengths.len(), 5, "{lengths:?}");
        assert!(lengths.iter().all(|length| *length <= LONG_GROUP_BYTES), "{lengths:?}");
    }
}
