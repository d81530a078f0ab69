//! What a system counts by itself: its busy time, its operations, and the times of its event loops.

use serde::{Deserialize, Serialize};

/// The CPU time of a system since its start, in ns, split by the system itself into work and idle
/// polling. A polling system uses its CPUs fully even when idle, so the kernel's CPU time alone
/// does not show its work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BusyTime {
    /// Time spent working.
    pub busy_ns: u64,
    /// CPU time spent polling without finding work.
    pub idle_poll_ns: u64,
}

/// What the event loops of a polling system have counted since its start. Reading it takes a
/// request to the system, so that it is read before and after a slice, outside its window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoopTimes {
    /// One for each loop, in the order of the system.
    pub loops: Vec<LoopTime>,
    /// Requests of clients that the system has answered.
    pub requests: u64,
}

/// The time of one event loop by a clock, which runs on while another task has the CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoopTime {
    /// Time with work, in ns.
    pub busy_ns: u64,
    /// Time in which the loop did not sleep, in ns; 0 if the system does not count it.
    pub awake_ns: u64,
    /// Time in which it slept, in ns; 0 if the system does not count it.
    pub asleep_ns: u64,
}

impl LoopTimes {
    /// Returns these loops and those of another instance.
    #[must_use]
    pub fn plus(mut self, other: Self) -> Self {
        self.loops.extend(other.loops);
        self.requests += other.requests;
        self
    }

    /// Returns the times of each loop in a window of `window_ns` with `operations`, a part of the
    /// time since an earlier reading. `None` if the system answered nothing since then or is
    /// another process.
    ///
    /// The two readings span more than the window: the lead-in, and moments without load. What a
    /// request costs is the same in all of it, but the share of busy time is not.
    pub fn in_window(
        &self,
        before: &Self,
        operations: u64,
        window_ns: u64,
    ) -> Option<Vec<LoopInWindow>> {
        let requests = self.requests.checked_sub(before.requests).filter(|count| *count > 0)?;
        if self.loops.len() != before.loops.len() {
            return None;
        }
        let of_window = operations as f64 / requests as f64;
        let one = |(after, before): (&LoopTime, &LoopTime)| {
            let busy_ns = after.busy_ns.checked_sub(before.busy_ns)? as f64 * of_window;
            let awake_ns = after.awake_ns.saturating_sub(before.awake_ns) as f64;
            let asleep_ns = after.asleep_ns.saturating_sub(before.asleep_ns) as f64;
            let all_ns = awake_ns + asleep_ns;
            let awake_share = (all_ns > 0.0).then(|| awake_ns / all_ns);
            let idle_poll_ns =
                awake_share.map(|share| (window_ns as f64 * share - busy_ns).max(0.0));
            Some(LoopInWindow { busy_ns, idle_poll_ns })
        };
        self.loops.iter().zip(&before.loops).map(one).collect()
    }
}

/// The time of one event loop in a window, in ns, by its clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoopInWindow {
    pub busy_ns: f64,
    /// `None` if the system does not count whether it slept.
    pub idle_poll_ns: Option<f64>,
}

/// The latency inside a system since its start, as it counts it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnLatency {
    /// What it has answered: operations, commands, statements or transactions.
    pub requests: u64,
    /// Sum of their latencies, in ns.
    pub sum_ns: u64,
    /// Requests by their latency: the middle of each bucket in ns, rising, and the count. The same
    /// buckets at every reading. Empty if the system counts the sum alone.
    pub buckets: Vec<(u64, u64)>,
}

impl OwnLatency {
    /// Returns the sum with another system's latency, which has the same buckets.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        self.requests += other.requests;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        if self.buckets.is_empty() {
            self.buckets.clone_from(&other.buckets);
        } else {
            for (own, other) in self.buckets.iter_mut().zip(&other.buckets) {
                own.1 += other.1;
            }
        }
        self
    }

    /// Returns what was counted since an earlier reading.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let at = |bucket: usize| before.buckets.get(bucket).map_or(0, |(_, count)| *count);
        let buckets = self.buckets.iter().enumerate();
        Self {
            requests: self.requests.saturating_sub(before.requests),
            sum_ns: self.sum_ns.saturating_sub(before.sum_ns),
            buckets: buckets
                .map(|(bucket, (ns, count))| (*ns, count.saturating_sub(at(bucket))))
                .collect(),
        }
    }

    /// Returns the mean latency, in ns. `None` if nothing was answered.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.requests > 0).then(|| self.sum_ns as f64 / self.requests as f64)
    }
}

/// What a system has counted since its start by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnCounts {
    /// Reads that it answered.
    pub reads: u64,
    /// Those of them that had to wait for a disk.
    pub disk_reads: u64,
    pub latency: OwnLatency,
}

impl OwnCounts {
    /// Returns the sum with another system's counts.
    #[must_use]
    pub fn plus(self, other: &Self) -> Self {
        Self {
            reads: self.reads + other.reads,
            disk_reads: self.disk_reads + other.disk_reads,
            latency: self.latency.plus(&other.latency),
        }
    }

    /// Returns what was counted since an earlier reading.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            reads: self.reads.saturating_sub(before.reads),
            disk_reads: self.disk_reads.saturating_sub(before.disk_reads),
            latency: self.latency.since(&before.latency),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn loop_time(busy_ms: u64, awake_ms: u64, asleep_ms: u64) -> LoopTime {
        let [busy_ns, awake_ns, asleep_ns] = [busy_ms, awake_ms, asleep_ms].map(|ms| ms * MS);
        LoopTime { busy_ns, awake_ns, asleep_ns }
    }

    #[test]
    fn loops_divide_their_busy_time_by_requests() {
        let read = |loops: &[LoopTime], requests| LoopTimes { loops: loops.to_vec(), requests };
        let before = read(&[loop_time(100, 1000, 0), loop_time(0, 1000, 50)], 500);
        let check = |after: LoopTimes, expect: Option<&[(f64, Option<f64>)]>| {
            let found = after.in_window(&before, 300, 100 * MS);
            let ms = |one: &LoopInWindow| (one.busy_ns / 1e6, one.idle_poll_ns.map(|ns| ns / 1e6));
            let found = found.map(|all| all.iter().map(ms).collect::<Vec<_>>());
            assert_eq!(found.as_deref(), expect, "{after:?}");
        };
        // Of 400 requests 300 were in the window. The second loop slept half of the time.
        let after = read(&[loop_time(140, 1200, 0), loop_time(40, 1100, 150)], 900);
        check(after, Some(&[(30.0, Some(70.0)), (30.0, Some(20.0))]));
        // A system that counts neither.
        let after = read(&[loop_time(140, 0, 0), loop_time(200, 0, 0)], 900);
        check(after, Some(&[(30.0, None), (150.0, None)]));
        check(read(&[loop_time(140, 1200, 0), loop_time(80, 1200, 0)], 500), None);
        check(read(&[loop_time(140, 1200, 0)], 900), None);
        check(read(&[loop_time(1, 10, 0), loop_time(1, 10, 0)], 900), None);
        assert_eq!(before.clone().plus(before.clone()).loops.len(), 4);
    }
}
