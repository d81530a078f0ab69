//! What a shard publishes: its counters, its latencies and its utilisation.

use crate::node::clock::Clock;
use crate::node::metrics::{Operation, ShardMetrics, SharedCounters};
use crate::shard::Shard;
use crate::shard::stall::SCHEDULE_NS;

/// Utilisation is an average over at least this long.
const UTILISATION_NS: u64 = 1_000_000_000;

/// The counters of a shard, and where it publishes them.
#[derive(Debug)]
pub(crate) struct Telemetry {
    shared: SharedCounters,
    pub(crate) counters: ShardMetrics,
    /// Operations answered in this iteration, by [`Operation`].
    answered: [u64; Operation::ALL.len()],
    /// All counters but those that change at every iteration are published again at this time.
    next_ns: u64,
    /// Begin of the time that the next utilisation is of, and `busy_ns` at that time.
    since_ns: u64,
    busy_ns: u64,
}

impl Telemetry {
    pub(crate) fn new(shared: SharedCounters) -> Self {
        Self {
            shared,
            counters: ShardMetrics::default(),
            answered: [0; Operation::ALL.len()],
            next_ns: 0,
            since_ns: 0,
            busy_ns: 0,
        }
    }

    /// Counts an operation on a row of this shard that is answered in the iteration in which it
    /// came.
    #[inline]
    pub(crate) fn answered(&mut self, operation: Operation) {
        self.answered[operation as usize] += 1;
    }

    /// Counts an operation that came in an earlier iteration.
    pub(crate) fn answered_late(&mut self, clock: Clock, operation: Operation, begun_ns: u64) {
        self.shared.took(operation, clock.now_ns().saturating_sub(begun_ns), 1);
    }

    pub(super) fn publish_counters(&self) {
        self.shared.store(&self.counters);
    }

    fn update_utilisation(&mut self, now_ns: u64) {
        let passed_ns = now_ns - self.since_ns;
        if passed_ns >= UTILISATION_NS {
            let busy = u128::from(self.counters.busy_ns - self.busy_ns);
            let share = busy * 1_000_000 / u128::from(passed_ns);
            self.counters.utilisation_ppm =
                u64::try_from(share.min(1_000_000)).unwrap_or(1_000_000);
            (self.since_ns, self.busy_ns) = (now_ns, self.counters.busy_ns);
        }
    }
}

impl Shard {
    /// Publishes what an iteration has changed.
    #[inline]
    pub(super) fn publish(&mut self, begun_ns: u64, now_ns: u64) {
        let telemetry = &mut self.telemetry;
        // An operation that was answered in the iteration in which it came took as long as the
        // iteration.
        for operation in Operation::ALL {
            let answered = std::mem::take(&mut telemetry.answered[operation as usize]);
            if answered > 0 {
                telemetry.shared.took(operation, now_ns - begun_ns, answered);
            }
        }
        if now_ns < telemetry.next_ns {
            telemetry.shared.store_hot(&telemetry.counters);
        } else {
            self.publish_all(now_ns);
        }
    }

    #[cold]
    fn publish_all(&mut self, now_ns: u64) {
        let schedule = self.stalls.schedule(now_ns);
        let [stalls, stalled_ns, stall_ns_max] = self.stalls.progress().counts();
        if self.connections.is_under_pressure() {
            self.trim_connections();
        }
        self.engine.accept_again();
        // The store counts seconds, so a tenth of one is near enough.
        self.now.wall_s = self.clock.now().wall_s;
        self.background.wake();
        let excess_bytes = self.shared.resident.excess_bytes() / self.shared.mailboxes.len();
        let budget = &self.settings.budget;
        if let Some(bytes) = self.background.cache.adapt(excess_bytes, budget.cache_bytes) {
            self.store.set_cache_bytes(bytes);
        }
        let counters = &mut self.telemetry.counters;
        (counters.cpu_ns, counters.cpu_wait_ns) = (schedule.on_cpu_ns, schedule.waited_ns);
        (counters.stalls, counters.stalled_ns, counters.stall_ns_max) =
            (stalls, stalled_ns, stall_ns_max);
        counters.take_over(&self.store.statistics());
        let count = |length: usize| length as u64;
        counters.connection_bytes = count(self.connections.memory_bytes());
        counters.queue_messages = count(self.siblings.waiting());
        counters.queue_durable = count(self.writes.pending());
        counters.queue_scans = count(self.reads.runnable());
        counters.queue_parked = count(self.reads.waiting() + self.reads.queued());
        counters.queue_held_up = count(self.connections.stalled());
        counters.memory_bytes_max = count(budget.total_bytes);
        self.telemetry.next_ns = now_ns + SCHEDULE_NS;
        self.telemetry.update_utilisation(now_ns);
        self.telemetry.publish_counters();
    }
}
