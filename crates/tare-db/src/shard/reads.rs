//! Reads under way, and writes that have to read before: those that yielded to other work, and
//! those that wait for blocks of tables.
//!
//! A read that waits keeps its rows and the blocks that it has, so that every try gets further. How
//! many may wait is bounded (`Budget::waiting_reads_max`). Reads that come then queue before they
//! begin, which takes less memory; when that queue is full too (`Budget::queued_reads_max`), reads
//! are refused as overloaded. A part of the bound is left to writes that have to read before, and
//! to reads that need more blocks: they do not queue.

use std::collections::VecDeque;

use tare_store::Pins;

use crate::node::memory::Budget;
use crate::query::conditional::ConditionalWrite;
use crate::query::failure::Failure;
use crate::query::read_task::ReadTask;
use crate::query::read_write::ReadWrite;
use crate::shard::Shard;
use crate::shard::waiting::Waiting;

/// The part of the waiting reads, as its divisor, that is left to those that do not queue.
const RESERVED_PART: usize = 8;
/// Reads that resume in one iteration, and reads that begin. Their answers leave before the next
/// ones go on.
const RESUMED_MAX: usize = 16;

/// A read that cannot go on at once, with its blocks.
#[derive(Debug)]
pub(crate) enum Suspended {
    Read(Box<ReadTask>, Pins),
    /// A write with conditions has pins for each of the rows that it reads.
    Conditional(Box<ConditionalWrite>, Vec<Pins>),
    /// So does a write that reads before.
    ReadWrite(Box<ReadWrite>, Vec<Pins>),
}

impl Suspended {
    /// Whether the blocks that it waits for have come.
    fn is_ready(&self) -> bool {
        match self {
            Self::Read(_, pins) => pins.is_ready(),
            Self::Conditional(_, pins) | Self::ReadWrite(_, pins) => {
                pins.iter().all(Pins::is_ready)
            }
        }
    }

    /// Waits under this number for its blocks.
    fn wait_as(&self, number: usize) {
        match self {
            Self::Read(_, pins) => pins.wait_as(number),
            Self::Conditional(_, pins) | Self::ReadWrite(_, pins) => {
                pins.iter().for_each(|pins| pins.wait_as(number));
            }
        }
    }
}

/// The reads under way.
#[derive(Debug)]
pub(crate) struct Reads {
    /// Reads that yielded and can go on at any time.
    runnable: VecDeque<Suspended>,
    /// Reads that wait for blocks, and those whose blocks have come.
    waiting: Waiting<Suspended>,
    waiting_max: usize,
    /// Reads that have not begun here, the oldest first.
    queued: VecDeque<Box<ReadTask>>,
    queued_max: usize,
}

impl Reads {
    /// No reads yet.
    pub(crate) fn new(budget: &Budget) -> Self {
        Self {
            runnable: VecDeque::new(),
            waiting: Waiting::default(),
            waiting_max: budget.waiting_reads_max,
            queued: VecDeque::new(),
            queued_max: budget.queued_reads_max,
        }
    }

    /// Number of reads that can go on.
    #[inline]
    pub(super) fn runnable(&self) -> usize {
        self.runnable.len()
    }

    /// Number of reads that wait for blocks.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Number of reads that have not begun.
    pub(super) fn queued(&self) -> usize {
        self.queued.len()
    }

    /// Whether as many reads wait for blocks as may, but for those that do not queue.
    #[inline]
    fn is_full(&self) -> bool {
        self.waiting.len() >= self.waiting_max - self.waiting_max / RESERVED_PART
    }

    /// Whether a read that comes has to queue.
    #[inline]
    pub(crate) fn queues(&self) -> bool {
        self.is_full() || !self.queued.is_empty()
    }

    /// Whether a queued read may begin.
    #[inline]
    pub(super) fn may_begin(&self) -> bool {
        !self.queued.is_empty() && !self.is_full()
    }

    /// Keeps a read that yielded.
    pub(crate) fn push_runnable(&mut self, read: Suspended) {
        self.runnable.push_back(read);
    }

    fn pop_runnable(&mut self) -> Option<Suspended> {
        self.runnable.pop_front()
    }

    /// Whether waiting reads can go on.
    #[inline]
    pub(super) fn may_resume(&self) -> bool {
        self.waiting.has_ready()
    }

    /// Notes that blocks have come for the reads with these numbers.
    #[inline]
    pub(super) fn wake(&mut self, numbers: impl Iterator<Item = usize>) {
        numbers.for_each(|number| self.waiting.wake(number, Suspended::is_ready));
    }
}

impl Shard {
    /// Keeps a read until its blocks have come. The caller reports a refusal.
    pub(crate) fn suspend(&mut self, mut read: Suspended) -> Result<(), Failure> {
        let reads = &mut self.reads;
        if read.is_ready() {
            // The missing blocks have come or are gone: no operation would resume the read.
            reads.push_runnable(read);
            return Ok(());
        }
        if reads.waiting.len() >= reads.waiting_max {
            return Err(self.too_many_reads());
        }
        self.telemetry.counters.parked += 1;
        if let Suspended::Read(task, _) = &mut read {
            self.telemetry.counters.disk_reads += u64::from(task.waits_for_disk());
        }
        let (number, read) = reads.waiting.insert(read);
        read.wait_as(number);
        Ok(())
    }

    /// Keeps a read until it may begin. The caller reports a refusal.
    pub(crate) fn queue(&mut self, task: Box<ReadTask>) -> Result<(), Failure> {
        if self.reads.queued.len() >= self.reads.queued_max {
            return Err(self.too_many_reads());
        }
        self.reads.queued.push_back(task);
        Ok(())
    }

    #[cold]
    fn too_many_reads(&mut self) -> Failure {
        self.telemetry.counters.overloaded += 1;
        let message = "more reads wait for the disk than memory allows; send fewer at a time";
        Failure::Overloaded(message.into())
    }

    /// Begins queued reads, while they may. Returns whether there were any.
    pub(super) fn begin_reads(&mut self) -> bool {
        let mut begun = 0;
        while begun < RESUMED_MAX && self.reads.may_begin() {
            let Some(task) = self.reads.queued.pop_front() else { break };
            self.advance(task, Pins::default());
            begun += 1;
        }
        begun > 0
    }

    /// Goes on with a read.
    fn resume(&mut self, read: Suspended) {
        match read {
            Suspended::Read(task, pins) => self.advance(task, pins),
            Suspended::Conditional(write, pins) => self.advance_conditional(write, pins),
            Suspended::ReadWrite(write, pins) => self.advance_read_write(write, pins),
        }
    }

    /// Goes on with one read that yielded.
    pub(super) fn step_runnable(&mut self) -> bool {
        let Some(read) = self.reads.pop_runnable() else { return false };
        self.resume(read);
        true
    }

    /// Resumes some of the reads whose blocks have come. Returns whether there were any.
    pub(super) fn resume_reads(&mut self) -> bool {
        let mut resumed = 0;
        while resumed < RESUMED_MAX
            && let Some(read) = self.reads.waiting.pop_ready()
        {
            self.resume(read);
            resumed += 1;
        }
        resumed > 0
    }
}
