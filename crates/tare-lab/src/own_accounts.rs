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
    /// The part of the time awake in which others had the CPU, in ns. Not below 0 between two
    /// readings.
    pub stolen_ns: i64,
}

impl LoopTimes {
    /// Returns these loops and those of another instance.
    #[must_use]
    pub fn plus(mut self, other: Self) -> Self {
        self.loops.extend(other.loops);
        self.requests += other.requests;
        self
    }

    /// Returns the CPU time with work, in ns, that each loop had for `operations` operations of a
    /// window, of all that the system answered since an earlier reading. `None` if it answered
    /// nothing or is another process.
    ///
    /// The two readings span more than the window: the lead-in, and moments without load. What a
    /// request costs is the same in all of it, but the share of busy time is not.
    pub fn busy_since(&self, before: &Self, operations: u64) -> Option<Vec<f64>> {
        let requests = self.requests.checked_sub(before.requests).filter(|count| *count > 0)?;
        if self.loops.len() != before.loops.len() {
            return None;
        }
        let of_window = operations as f64 / requests as f64;
        let busy = |(after, before): (&LoopTime, &LoopTime)| {
            let busy_ns = after.busy_ns.checked_sub(before.busy_ns)? as f64;
            let awake_ns = after.awake_ns.saturating_sub(before.awake_ns) as f64;
            let stolen_ns = (after.stolen_ns - before.stolen_ns).max(0) as f64;
            let had_cpu = if awake_ns > 0.0 { 1.0 - (stolen_ns / awake_ns).min(1.0) } else { 1.0 };
            Some(busy_ns * had_cpu * of_window)
        };
        self.loops.iter().zip(&before.loops).map(busy).collect()
    }
}

/// What a system has counted since its start by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnCounts {
    /// Reads that it answered.
    pub reads: u64,
    /// Those of them that had to wait for a disk.
    pub disk_reads: u64,
    /// Operations by their latency inside the system: the middle of each bucket in ns, rising, and
    /// the count. The same buckets at every reading.
    pub latencies: Vec<(u64, u64)>,
    /// Sum of these latencies, in ns.
    pub latency_sum_ns: u64,
}

impl OwnCounts {
    /// Returns the sum with another system's counts, which has the same buckets.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        self.reads += other.reads;
        self.disk_reads += other.disk_reads;
        self.latency_sum_ns += other.latency_sum_ns;
        if self.latencies.is_empty() {
            self.latencies.clone_from(&other.latencies);
        } else {
            for (own, other) in self.latencies.iter_mut().zip(&other.latencies) {
                own.1 += other.1;
            }
        }
        self
    }

    /// Returns what was counted since an earlier reading.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let at = |bucket: usize| before.latencies.get(bucket).map_or(0, |(_, count)| *count);
        let buckets = self.latencies.iter().enumerate();
        Self {
            reads: self.reads.saturating_sub(before.reads),
            disk_reads: self.disk_reads.saturating_sub(before.disk_reads),
            latencies: buckets
                .map(|(bucket, (ns, count))| (*ns, count.saturating_sub(at(bucket))))
                .collect(),
            latency_sum_ns: self.latency_sum_ns.saturating_sub(before.latency_sum_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loop_time(busy_ms: u64, awake_ms: u64, stolen_ms: i64) -> LoopTime {
        let ms = 1_000_000;
        LoopTime {
            busy_ns: busy_ms * ms,
            awake_ns: awake_ms * ms,
            stolen_ns: stolen_ms * 1_000_000,
        }
    }

    #[test]
    fn loops_divide_their_busy_time_by_requests() {
        let read = |loops: &[LoopTime], requests| LoopTimes { loops: loops.to_vec(), requests };
        let before = read(&[loop_time(100, 1000, -50), loop_time(0, 1000, 0)], 500);
        let check = |after: LoopTimes, expect: Option<&[f64]>| {
            let found = after.busy_since(&before, 300);
            let found = found.map(|all| all.iter().map(|ns| ns / 1e6).collect::<Vec<_>>());
            assert_eq!(found.as_deref(), expect, "{after:?}");
        };
        // Of 400 requests 300 were in the window. The second loop had three quarters of its CPU.
        let after = read(&[loop_time(140, 1200, -60), loop_time(80, 1200, 50)], 900);
        check(after, Some(&[30.0, 45.0]));
        // A system that does not count the time awake.
        let after = read(&[loop_time(140, 0, -60), loop_time(80, 0, 50)], 900);
        check(after, Some(&[30.0, 60.0]));
        check(read(&[loop_time(140, 1200, 0), loop_time(80, 1200, 0)], 500), None);
        check(read(&[loop_time(140, 1200, 0)], 900), None);
        check(read(&[loop_time(1, 10, 0), loop_time(1, 10, 0)], 900), None);
        assert_eq!(before.clone().plus(before.clone()).loops.len(), 4);
    }
}
