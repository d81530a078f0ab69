//! When a shard lets its store flush and compact: in slices of about 100 µs, all the time while there
//! is nothing else to do, and otherwise for a share of it that the foreground earns.
//!
//! A slice follows the submission of the answers before it and precedes the requests that have come
//! meanwhile, so that it holds up none by more than its own length.

use tare_store::Urgency;

use crate::shard::Shard;
use crate::shard::stall::Task;

/// What a slice is reckoned to take: it is begun when so much has been earned.
const SLICE_NS: i64 = 100_000;
/// What can be earned in advance.
const CREDIT_NS_MAX: i64 = 4 * SLICE_NS;
/// The same while writes are about to be refused: who writes is held up by no more.
const CREDIT_NS_MAX_CRITICAL: i64 = 20 * SLICE_NS;

/// What the store's background work may spend.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Background {
    credit_ns: i64,
    urgency: Option<Urgency>,
    /// There was nothing to do; until an operation on a file has ended, or for a while.
    waits: bool,
}

impl Background {
    /// The foreground has worked for so long.
    #[inline]
    pub(super) fn earn(&mut self, worked_ns: u64) {
        let worked_ns = i64::try_from(worked_ns).unwrap_or(i64::MAX);
        // Until it is known how urgent it is, it is taken for work that can wait.
        let (earned, most) = match self.urgency {
            Some(Urgency::Critical) => (worked_ns.saturating_mul(9), CREDIT_NS_MAX_CRITICAL),
            Some(Urgency::Urgent) => (worked_ns, CREDIT_NS_MAX),
            // A quarter of the whole.
            Some(Urgency::Background | Urgency::None) | None => (worked_ns / 3, CREDIT_NS_MAX),
        };
        self.credit_ns = self.credit_ns.saturating_add(earned).min(most);
    }

    /// There may be something to do again.
    #[inline]
    pub(super) fn wake(&mut self) {
        self.waits = false;
    }
}

impl Shard {
    /// Whether the store has work that can go on now.
    pub(super) fn has_background_work(&self) -> bool {
        !self.state.background.waits && self.store.urgency() != Urgency::None
    }

    /// Whether requests have to wait because rows come faster than the disk takes them, into the
    /// log or from memtables into tables. Clients are held up then instead of being refused, which
    /// they would take for failures; where the store cannot go on (the disk is full, or has failed)
    /// they are refused, with the reason.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        let budget = &self.budget;
        let full = self.store.used_bytes() > budget.memtable_bytes / 16 * 15
            || self.store.log_pending_bytes() > budget.pending_bytes() / 4 * 3;
        full && self.can_go_on()
    }

    #[cold]
    fn can_go_on(&self) -> bool {
        let metrics = &self.state.metrics;
        metrics.disk_full == 0
            && metrics.poisoned == 0
            && (metrics.queue_files > 0 || self.store.urgency() != Urgency::None)
    }

    /// Gives the store slices: one if there is nothing else to do, else as many as were earned.
    /// Returns how long they took, in ns.
    #[inline]
    pub(super) fn work_in_background(&mut self, idle: bool) -> u64 {
        let background = &self.state.background;
        if background.waits || (!idle && background.credit_ns < SLICE_NS) {
            return 0;
        }
        self.spend(idle)
    }

    fn spend(&mut self, idle: bool) -> u64 {
        let background = &mut self.state.background;
        let urgency = self.store.urgency();
        background.urgency = Some(urgency);
        if urgency == Urgency::None {
            background.credit_ns = 0;
            return 0;
        }
        let begun_ns = self.stalls.enter(Task::Storage, self.clock);
        let mut spent_ns = 0;
        loop {
            background.waits = !self.store.work(self.state.now);
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
