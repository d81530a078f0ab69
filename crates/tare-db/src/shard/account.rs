//! What a shard says of itself: its account and its latencies.

use crate::node::metrics::Operation;
use crate::shard::Shard;
use crate::shard::stall::SCHEDULE_NS;

/// Over how long utilisation is reckoned at least.
const UTILISATION_NS: u64 = 1_000_000_000;

/// What has been published, so that only the difference counts.
#[derive(Debug, Default)]
pub(super) struct Published {
    /// All but the fields that change at every turn: not again before.
    next_ns: u64,
    since_ns: u64,
    busy_ns: u64,
}

impl Shard {
    /// Publishes what a turn has changed.
    #[inline]
    pub(super) fn publish(&mut self, begun_ns: u64, now_ns: u64) {
        // What was answered in the turn in which it came took as long as the turn.
        for operation in Operation::ALL {
            let answered = std::mem::take(&mut self.state.answered[operation as usize]);
            if answered > 0 {
                self.account.took(operation, now_ns - begun_ns, answered);
            }
        }
        if now_ns < self.state.published.next_ns {
            self.account.store_hot(&self.state.metrics);
        } else {
            self.publish_all(now_ns);
        }
    }

    #[cold]
    pub(super) fn publish_all(&mut self, now_ns: u64) {
        let schedule = self.stalls.schedule(now_ns);
        let [stalls, stalled_ns, stall_ns_max] = self.stalls.progress().counts();
        if self.is_pressed() {
            self.trim();
        }
        self.engine.accept_again();
        let state = &mut self.state;
        let metrics = &mut state.metrics;
        (metrics.cpu_ns, metrics.cpu_wait_ns) = (schedule.on_cpu_ns, schedule.waited_ns);
        (metrics.stalls, metrics.stalled_ns, metrics.stall_ns_max) =
            (stalls, stalled_ns, stall_ns_max);
        // The store counts seconds; a tenth of one is near enough.
        state.now.wall_s = self.clock.now().wall_s;
        state.background.wake();
        let excess_bytes = self.common.resident.excess_bytes() / self.common.mailboxes.len();
        if let Some(bytes) = state.cache.adapt(excess_bytes, self.budget.cache_bytes) {
            self.store.set_cache_bytes(bytes);
        }
        metrics.take_over(&self.store.statistics());
        let count = |length: usize| length as u64;
        metrics.connection_bytes = count(state.held.bytes());
        metrics.queue_messages = count(state.outbox_len);
        metrics.queue_durable = count(state.waiters.len());
        metrics.queue_scans = count(state.readings.len());
        metrics.queue_parked = count(state.parked.len());
        metrics.queue_held_up = count(state.stalled.len());
        metrics.memory_bytes_max = count(self.budget.total_bytes);
        let published = &mut state.published;
        published.next_ns = now_ns + SCHEDULE_NS;
        let passed_ns = now_ns - published.since_ns;
        if passed_ns >= UTILISATION_NS {
            let busy = u128::from(metrics.busy_ns - published.busy_ns);
            let share = busy * 1_000_000 / u128::from(passed_ns);
            metrics.utilisation_ppm = u64::try_from(share.min(1_000_000)).unwrap_or(1_000_000);
            (published.since_ns, published.busy_ns) = (now_ns, metrics.busy_ns);
        }
        self.account.store(metrics);
    }

    /// An operation on a row of this shard is answered in the turn in which it came.
    #[inline]
    pub(crate) fn answered(&mut self, operation: Operation) {
        self.state.answered[operation as usize] += 1;
    }

    /// An operation that came in an earlier turn is answered.
    pub(crate) fn answered_late(&mut self, operation: Operation, begun_ns: u64) {
        let now_ns = self.clock.now_ns();
        self.account.took(operation, now_ns.saturating_sub(begun_ns), 1);
    }
}
