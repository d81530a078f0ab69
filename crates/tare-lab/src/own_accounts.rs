//! What a system counts by itself: its busy time and its operations.

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
