//! When a shard lets its store flush and compact: in slices of about 100 µs, all the time while the
//! shard is idle, and otherwise for a share of the time that the foreground has worked.
//!
//! A slice runs after the answers of an iteration are submitted and before the requests that came
//! meanwhile are handled, so that it delays a request by no more than its own length.

use tare_store::Urgency;

use crate::node::memory::CacheTarget;
use crate::shard::Shard;
use crate::shard::stall::Task;

/// Assumed length of a slice. A slice begins when this much credit has been earned.
const SLICE_NS: i64 = 100_000;
/// Credit that can be saved up.
const CREDIT_NS_MAX: i64 = 4 * SLICE_NS;
/// Credit that can be saved up while writes are about to be refused; it bounds how long background
/// work delays a writer.
const CREDIT_NS_MAX_CRITICAL: i64 = 20 * SLICE_NS;

/// The time that the store's background work may spend, and what it holds up.
#[derive(Debug, Default)]
pub(crate) struct Background {
    credit_ns: i64,
    urgency: Option<Urgency>,
    /// The store had nothing to do. It is checked again when an operation on a file has ended, and
    /// from time to time.
    waits: bool,
    /// Requests wait until memtables have been flushed.
    pub(super) full: bool,
    pub(super) cache: CacheTarget,
}

impl Background {
    /// Adds credit for the time that the foreground has worked.
    #[inline]
    pub(super) fn earn(&mut self, worked_ns: u64) {
        let worked_ns = i64::try_from(worked_ns).unwrap_or(i64::MAX);
        // Work of unknown urgency counts as work that can wait.
        let (earned, most) = match self.urgency {
            Some(Urgency::Critical) => (worked_ns.saturating_mul(9), CREDIT_NS_MAX_CRITICAL),
            Some(Urgency::Urgent) => (worked_ns, CREDIT_NS_MAX),
            // A third of the foreground's time is a quarter of the whole.
            Some(Urgency::Background | Urgency::None) | None => (worked_ns / 3, CREDIT_NS_MAX),
        };
        self.credit_ns = self.credit_ns.saturating_add(earned).min(most);
    }

    /// Notes that the store may have something to do again.
    #[inline]
    pub(super) fn wake(&mut self) {
        self.waits = false;
    }
}

impl Shard {
    /// Whether the store has work that can go on now.
    pub(super) fn has_background_work(&self) -> bool {
        !self.background.waits && self.store.urgency() != Urgency::None
    }

    /// Whether requests have to wait because rows come faster than the disk takes them, into the
    /// log or from memtables into tables. Clients wait then; a refusal would count as a failure.
    /// Where the store cannot go on (the disk is full, or has failed), requests are refused with
    /// the reason.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        let budget = &self.settings.budget;
        let full = self.store.used_bytes() > budget.memtable_bytes / 16 * 15
            || self.store.log_pending_bytes() > budget.pending_bytes() / 4 * 3;
        full && self.can_go_on()
    }

    #[cold]
    fn can_go_on(&self) -> bool {
        let metrics = &self.telemetry.counters;
        metrics.disk_full == 0
            && metrics.poisoned == 0
            && (metrics.queue_files > 0
                || self.store.is_flushing()
                || self.store.urgency() != Urgency::None)
    }

    /// Gives the store slices: one if the shard is idle, else as many as the credit allows. Returns
    /// how long they took, in ns.
    #[inline]
    pub(super) fn work_in_background(&mut self, idle: bool) -> u64 {
        let background = &self.background;
        if background.waits || (!idle && background.credit_ns < SLICE_NS) {
            return 0;
        }
        self.spend(idle)
    }

    fn spend(&mut self, idle: bool) -> u64 {
        let background = &mut self.background;
        let urgency = self.store.urgency();
        background.urgency = Some(urgency);
        if urgency == Urgency::None {
            background.credit_ns = 0;
            return 0;
        }
        let begun_ns = self.stalls.enter(Task::Storage, self.clock);
        let mut spent_ns = 0;
        loop {
            background.waits = !self.store.work(self.now);
            let now_ns = self.clock.now_ns() - begun_ns;
            let slice_ns = i64::try_from(now_ns - spent_ns).unwrap_or(i64::MAX);
            background.credit_ns =
                background.credit_ns.saturating_sub(slice_ns).max(-CREDIT_NS_MAX);
            spent_ns = now_ns;
            if idle || background.waits || background.credit_ns < SLICE_NS {
                break;
            }
        }
        self.stalls.leave(Task::Storage, begun_ns, self.clock);
        spent_ns
    }
}
