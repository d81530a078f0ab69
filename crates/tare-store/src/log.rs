//! The commit log of one shard, writing side: collects entries into groups and hands them out as
//! [`Job`]s, one at a time, so that at most the last group can be torn by a crash.
//!
//! The reactor carries a job out (write, then `fdatasync` if asked) and brings it back. What is
//! acknowledged when is the caller's policy: [`CommitLog::durable`] and [`CommitLog::append`]'s
//! ticket say what is on stable storage. A failed write or sync poisons the log for good: after a
//! failed `fsync` the kernel may have dropped the dirty pages, so nothing later can be promised
//! (see "Can Applications Recover from fsync Failures?", USENIX ATC 2020).

use std::collections::VecDeque;
use std::io;

use crate::chunk::{Chunk, round_up};
use crate::entry::{GROUP_HEAD_BYTES, GroupHead, Mutation};
use crate::segments::Segments;

/// Size of a group's buffer; a larger entry gets one of its own.
pub const GROUP_BYTES: usize = 256 << 10;
/// Buffers kept for reuse: more are only needed while the disk is behind.
const FREE_MAX: usize = 8;

/// The group that an entry went into. The entry is durable once [`CommitLog::durable`] exceeds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// Why the log takes no entry.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error(
        "{pending_bytes} bytes wait for the commit log and the limit is {limit_bytes}; the disk \
         is behind, send less"
    )]
    Behind { pending_bytes: usize, limit_bytes: usize },
    #[error("the commit log failed ({why}); this shard takes no more writes, restart the server")]
    Poisoned { why: String },
    #[error("cannot make a commit log segment: {why}; writes are refused until there is room")]
    NoSegment { why: String },
}

/// Work for the reactor: write `chunk` at `offset` of `segment`, then make the segment's data
/// durable if `sync` says so. Without a chunk there is only the sync.
#[derive(Debug)]
pub struct Job {
    pub segment: u64,
    pub offset: u64,
    pub chunk: Option<Chunk>,
    pub sync: bool,
    /// Groups below this are durable when the job has succeeded with `sync`.
    next_sequence: u64,
}

#[derive(Debug)]
struct Current {
    segment: u64,
    offset: u64,
}

/// The commit log of one shard.
#[derive(Debug)]
pub struct CommitLog {
    segment_bytes: u64,
    pending_bytes_max: usize,
    next_segment: u64,
    current: Option<Current>,
    /// The group that entries go into; its sequence is `sequence`.
    active: Chunk,
    sequence: u64,
    sealed: VecDeque<Chunk>,
    sealed_bytes: usize,
    free: Vec<Chunk>,
    in_flight_bytes: usize,
    in_flight: bool,
    /// Groups below this have been written.
    written: u64,
    /// Groups below this are on stable storage.
    durable: u64,
    /// Set while no segment can be made; cleared by the next success.
    no_segment: Option<String>,
    poisoned: Option<String>,
}

impl CommitLog {
    /// A log that continues after recovery, in a new segment.
    pub fn new(
        next_segment: u64,
        next_sequence: u64,
        segment_bytes: u64,
        pending_bytes_max: usize,
    ) -> Self {
        Self {
            segment_bytes: segment_bytes.max((GROUP_BYTES * 2) as u64),
            pending_bytes_max,
            next_segment,
            current: None,
            active: empty_group(GROUP_BYTES),
            sequence: next_sequence,
            sealed: VecDeque::new(),
            sealed_bytes: 0,
            free: Vec::new(),
            in_flight_bytes: 0,
            in_flight: false,
            written: next_sequence,
            durable: next_sequence,
            no_segment: None,
            poisoned: None,
        }
    }

    /// Adds an entry to the group being collected.
    #[inline]
    pub fn append(&mut self, mutation: &Mutation<'_>) -> Result<Ticket, LogError> {
        let length = mutation.entry_bytes();
        self.check(length)?;
        if length > self.active.room() {
            self.seal(length);
        }
        mutation.encode_entry(self.active.take(length));
        Ok(Ticket(self.sequence))
    }

    /// Whether an entry of so many bytes would be taken.
    pub fn check(&self, length: usize) -> Result<(), LogError> {
        if let Some(why) = &self.poisoned {
            return Err(LogError::Poisoned { why: why.clone() });
        }
        if let Some(why) = &self.no_segment {
            return Err(LogError::NoSegment { why: why.clone() });
        }
        let pending_bytes = self.pending_bytes() + length;
        if pending_bytes > self.pending_bytes_max {
            let limit_bytes = self.pending_bytes_max;
            return Err(LogError::Behind { pending_bytes, limit_bytes });
        }
        Ok(())
    }

    /// The next piece of work, if there is any and none is under way. With `flush` the group being
    /// collected goes too, however small; with `sync` what is written is made durable.
    ///
    /// Making a segment may fail, on a full disk above all; then entries wait, further ones are
    /// refused, and every later call tries again.
    pub fn next_job(
        &mut self,
        segments: &mut impl Segments,
        flush: bool,
        sync: bool,
    ) -> Result<Option<Job>, LogError> {
        if self.in_flight || self.poisoned.is_some() {
            return Ok(None);
        }
        if flush && self.active.len() > GROUP_HEAD_BYTES && self.sealed.is_empty() {
            self.seal(0);
        }
        let Some(length) = self.sealed.front().map(|chunk| chunk.len() as u64) else {
            return Ok(if sync { self.sync_job() } else { None });
        };
        let full = self.current.as_ref().is_some_and(|c| c.offset + length > self.segment_bytes);
        if full {
            // A segment is durable before the next one begins, so that one sync covers all.
            if let Some(job) = self.sync_job() {
                return Ok(Some(job));
            }
            self.current = None;
        }
        if self.current.is_none() {
            self.open_segment(segments, length)?;
        }
        let (Some(current), Some(mut chunk)) = (self.current.as_mut(), self.sealed.pop_front())
        else {
            return Ok(None);
        };
        // What is durable may have grown since the group was sealed.
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
        self.in_flight = true;
        self.in_flight_bytes = chunk.len();
        let segment = current.segment;
        let next_sequence = self.written + 1;
        Ok(Some(Job { segment, offset, chunk: Some(chunk), sync, next_sequence }))
    }

    /// Takes a job back.
    ///
    /// # Panics
    /// If none is under way.
    pub fn complete(&mut self, job: Job, result: io::Result<()>) -> Result<(), LogError> {
        assert!(self.in_flight, "a job was completed that was not handed out");
        self.in_flight = false;
        self.in_flight_bytes = 0;
        if let Some(mut chunk) = job.chunk
            && chunk.capacity() == GROUP_BYTES
            && self.free.len() < FREE_MAX
        {
            chunk.clear();
            chunk.take(GROUP_HEAD_BYTES);
            self.free.push(chunk);
        }
        match result {
            Ok(()) => {
                self.written = job.next_sequence;
                if job.sync {
                    self.durable = job.next_sequence;
                }
                Ok(())
            }
            Err(error) => {
                let why = error.to_string();
                self.poisoned = Some(why.clone());
                Err(LogError::Poisoned { why })
            }
        }
    }

    /// Seals an empty group that says that everything before it is durable, so that damage found
    /// later cannot pass for a torn tail. For a clean stop, when all is durable.
    pub fn seal_closing_group(&mut self) {
        if self.current.is_some() && self.active.len() == GROUP_HEAD_BYTES {
            self.seal(0);
        }
    }

    /// Groups below this are on stable storage.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// Whether anything is not yet on stable storage.
    pub fn is_dirty(&self) -> bool {
        self.is_behind() || self.durable < self.written || self.active.len() > GROUP_HEAD_BYTES
    }

    /// Whether a whole group waits to be written, or one is being written.
    pub fn is_behind(&self) -> bool {
        !self.sealed.is_empty() || self.in_flight
    }

    /// Whether a job is under way.
    pub fn is_in_flight(&self) -> bool {
        self.in_flight
    }

    pub fn is_poisoned(&self) -> bool {
        self.poisoned.is_some()
    }

    /// Bytes that wait to be written.
    pub fn pending_bytes(&self) -> usize {
        self.active.len() + self.sealed_bytes + self.in_flight_bytes
    }

    /// Closes the group being collected and opens one with room for `length` bytes.
    fn seal(&mut self, length: usize) {
        let wanted = GROUP_HEAD_BYTES + length;
        let next = match self.free.pop() {
            Some(chunk) if wanted <= GROUP_BYTES => chunk,
            unfit => {
                self.free.extend(unfit);
                empty_group(wanted.max(GROUP_BYTES))
            }
        };
        let sealed = std::mem::replace(&mut self.active, next);
        if sealed.len() == GROUP_HEAD_BYTES && length > 0 {
            // Nothing in it: only its size did not fit.
            return;
        }
        self.sealed_bytes += sealed.len();
        self.sealed.push_back(sealed);
        self.sequence += 1;
    }

    fn sync_job(&mut self) -> Option<Job> {
        let current = self.current.as_ref()?;
        if self.durable >= self.written {
            return None;
        }
        self.in_flight = true;
        let (segment, offset) = (current.segment, current.offset);
        Some(Job { segment, offset, chunk: None, sync: true, next_sequence: self.written })
    }

    fn open_segment(&mut self, segments: &mut impl Segments, length: u64) -> Result<(), LogError> {
        let segment = self.next_segment;
        let size = self.segment_bytes.max(round_up_u64(length));
        match segments.create(segment, size) {
            Ok(()) => {
                self.no_segment = None;
                self.next_segment += 1;
                self.current = Some(Current { segment, offset: 0 });
                Ok(())
            }
            Err(error) => {
                let why = error.to_string();
                self.no_segment = Some(why.clone());
                Err(LogError::NoSegment { why })
            }
        }
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

fn round_up_u64(length: u64) -> u64 {
    usize::try_from(length).map_or(length, |length| round_up(length) as u64)
}
