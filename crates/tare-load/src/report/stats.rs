//! Counters of a load: operations, errors by kind, latencies by operation, gaps in service, and the
//! client's own needs.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::report::histogram::{self, Histogram};

/// An operation counts as late if it was sent this much later than intended, in ns.
pub const LATE_NS: u64 = 1_000_000;

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ErrorKind {
    /// The server answered with an ERROR of this code (CQL protocol, section 9).
    Server(i32),
    /// The server answered with an error in words (Redis, memcached).
    Refused,
    /// A read found no row although one was written.
    RowMissing,
    /// A read returned an older version of a row than was acknowledged before.
    RowStale,
    /// A read returned other bytes than were written.
    RowDiffers,
    /// The answer did not fit the request.
    Unexpected,
    /// The connection ended before the answer.
    ConnectionClosed,
    /// The received bytes were not of the protocol, so the connection was closed.
    Malformed,
    /// No answer within the time limit after the end of the load.
    NoAnswer,
    /// No answer within the user's time limit for an attempt.
    TimedOut,
}

impl ErrorKind {
    /// Returns true if another attempt may succeed, because the failure lies in the server or the
    /// network.
    pub(crate) fn may_pass(self) -> bool {
        match self {
            // Server error, unavailable, overloaded, bootstrapping; time-outs and failures of
            // writes and reads.
            Self::Server(code) => {
                matches!(code, 0x0000 | 0x1000..=0x1002 | 0x1100 | 0x1200 | 0x1300 | 0x1500)
            }
            Self::ConnectionClosed
            | Self::Malformed
            | Self::NoAnswer
            | Self::TimedOut
            | Self::Refused => true,
            Self::RowMissing | Self::RowStale | Self::RowDiffers | Self::Unexpected => false,
        }
    }

    /// Returns true if the operation failed because no answer came in time.
    pub(crate) fn is_time_out(self) -> bool {
        matches!(self, Self::NoAnswer | Self::TimedOut)
    }

    /// Returns the name of the kind; known error codes have a name instead of a number.
    pub(crate) fn name(self) -> String {
        let server = match self {
            Self::Refused => return "server answered with an error".into(),
            Self::RowMissing => return "row missing".into(),
            Self::RowStale => return "row stale".into(),
            Self::RowDiffers => return "row differs from what was written".into(),
            Self::Unexpected => return "unexpected answer".into(),
            Self::ConnectionClosed => return "connection closed".into(),
            Self::Malformed => return "garbage on the connection".into(),
            Self::NoAnswer => return "no answer".into(),
            Self::TimedOut => return "timed out".into(),
            Self::Server(code) => code,
        };
        let name = match server {
            0x0000 => "server error",
            0x000A => "protocol error",
            0x0100 => "bad credentials",
            0x1000 => "unavailable",
            0x1001 => "overloaded",
            0x1002 => "bootstrapping",
            0x1003 => "truncate error",
            0x1100 => "write timeout",
            0x1200 => "read timeout",
            0x1300 => "read failure",
            0x1400 => "function failure",
            0x1500 => "write failure",
            0x2000 => "syntax error",
            0x2100 => "unauthorized",
            0x2200 => "invalid",
            0x2300 => "configuration error",
            0x2400 => "already exists",
            0x2500 => "unprepared",
            other => return format!("server answered error {other:#06x}"),
        };
        format!("server answered {name}")
    }
}

/// Errors of one kind: how many, and what the first of them said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Errors {
    pub(crate) count: u64,
    pub(crate) first: String,
}

/// Latencies of one kind of operation. A histogram is created with its first value.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latency {
    /// Times from the send.
    pub(crate) service: Option<Histogram>,
    /// Open loop only: times from the intended start.
    pub(crate) response: Option<Histogram>,
}

/// Latencies of all kinds of operations by the kernel's times, if these are wanted.
#[derive(Clone, Debug, Default)]
pub(crate) struct InKernel {
    /// Times from when the request left to when the answer came.
    pub(crate) service: Option<Histogram>,
    /// Open loop only: times from the intended start to when the answer came.
    pub(crate) response: Option<Histogram>,
    /// Operations for which the kernel has not said both.
    pub(crate) missing: u64,
}

/// A time span in which operations were due or in flight and none succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
}

impl Gap {
    /// The shortest gap that is reported, in ns.
    pub(crate) const LEAST_NS: u64 = 100_000_000;

    /// Merges the gaps of several threads, which may overlap, into what all of them saw, in order.
    pub(crate) fn union(mut gaps: Vec<Self>) -> Vec<Self> {
        gaps.sort_by_key(|gap| gap.from_ns);
        let mut union: Vec<Self> = Vec::new();
        for gap in gaps {
            match union.last_mut() {
                Some(last) if gap.from_ns <= last.to_ns => last.to_ns = last.to_ns.max(gap.to_ns),
                _ => union.push(gap),
            }
        }
        union
    }
}

/// The counts of one thread, or of all, in one stretch of time.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// When the stretch began and ended, on the clock of `clock::now_ns`.
    pub(crate) begin_ns: u64,
    pub(crate) end_ns: u64,
    /// Operations that succeeded between begin and end.
    pub operations: u64,
    /// Successful reads that found no row where none was expected.
    pub(crate) not_found: u64,
    pub(crate) errors: BTreeMap<ErrorKind, Errors>,
    /// Open loop only: operations that were due in the window and never sent.
    pub dropped: u64,
    /// CPU time of the load threads between begin and end.
    pub cpu_ns: u64,
    /// CPU time of the busiest load thread in one stretch.
    pub busiest_thread_ns: u64,
    /// How long the load threads were ready to run and waited for a CPU, if the kernel reports it.
    pub run_delay_ns: Option<u64>,
    /// Latencies by kind of operation.
    pub(crate) latencies: Vec<Latency>,
    pub(crate) in_kernel: InKernel,
    /// Open loop only: how much later than intended operations were sent.
    pub(crate) late: Option<Histogram>,
    pub(crate) gaps: Vec<Gap>,
    pub(crate) recovery: Recovered,
}

/// Counts of the recovery from failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Recovered {
    /// Operations that were sent again after a failed attempt.
    pub retries: u64,
    /// Attempts that got no answer within their time limit.
    pub timeouts: u64,
    /// Second attempts, and how many of them were answered before the first.
    pub speculative: u64,
    pub speculative_won: u64,
    /// Answers to attempts that had been given up.
    pub unused_answers: u64,
    /// Connections that were replaced.
    pub reconnects: u64,
    /// Statements that the server had forgotten and that were prepared again.
    pub reprepared: u64,
}

impl Recovered {
    fn merge(&mut self, other: &Self) {
        self.retries += other.retries;
        self.timeouts += other.timeouts;
        self.speculative += other.speculative;
        self.speculative_won += other.speculative_won;
        self.unused_answers += other.unused_answers;
        self.reconnects += other.reconnects;
        self.reprepared += other.reprepared;
    }
}

impl Stats {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Records the times of a successful operation of a kind.
    #[inline]
    pub(crate) fn answered(&mut self, kind: usize, service_ns: u64, response_ns: Option<u64>) {
        if kind >= self.latencies.len() {
            self.latencies.resize(kind + 1, Latency::default());
        }
        let Latency { service, response } = &mut self.latencies[kind];
        histogram::record(service.get_or_insert_with(histogram::new), service_ns);
        if let Some(response_ns) = response_ns {
            histogram::record(response.get_or_insert_with(histogram::new), response_ns);
        }
    }

    /// Records service and response time of a successful operation by the kernel's times, or that
    /// there are none.
    #[inline]
    pub(crate) fn in_kernel(&mut self, times: Option<(u64, Option<u64>)>) {
        let InKernel { service, response, missing } = &mut self.in_kernel;
        let Some((service_ns, response_ns)) = times else {
            *missing += 1;
            return;
        };
        histogram::record(service.get_or_insert_with(histogram::new), service_ns);
        if let Some(response_ns) = response_ns {
            histogram::record(response.get_or_insert_with(histogram::new), response_ns);
        }
    }

    /// Records how much later than intended an operation was sent.
    #[inline]
    pub(crate) fn sent_late(&mut self, late_ns: u64) {
        histogram::record(self.late.get_or_insert_with(histogram::new), late_ns);
    }

    /// Returns how many operations were sent more than [`LATE_NS`] after they were due; `None` in a
    /// closed loop.
    pub fn sent_late_count(&self) -> Option<u64> {
        self.late.as_ref().map(|late| late.count_between(LATE_NS + 1, u64::MAX))
    }

    /// Returns the service times of all operations.
    pub fn service(&self) -> Histogram {
        sum(self.latencies.iter().filter_map(|latency| latency.service.as_ref()))
    }

    /// Returns the response times of all operations.
    pub fn response(&self) -> Histogram {
        sum(self.latencies.iter().filter_map(|latency| latency.response.as_ref()))
    }

    /// Returns the number of failed operations.
    pub(crate) fn failed(&self) -> u64 {
        self.errors.values().map(|errors| errors.count).sum()
    }

    /// Returns the number of operations that got no answer in time.
    pub(crate) fn timed_out(&self) -> u64 {
        let errors = self.errors.iter().filter(|(kind, _)| kind.is_time_out());
        errors.map(|(_, errors)| errors.count).sum()
    }

    /// Returns when the stretch really began and ended, on the clock of [`crate::clock_ns`].
    pub fn edges_ns(&self) -> (u64, u64) {
        (self.begin_ns, self.end_ns)
    }

    /// Returns the length of the stretch in ns.
    pub fn window_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.begin_ns)
    }

    pub(crate) fn error(&mut self, kind: ErrorKind, message: &str, count: u64) {
        if count == 0 {
            return;
        }
        let errors = self.errors.entry(kind).or_default();
        if errors.count == 0 {
            errors.first = message.into();
        }
        errors.count += count;
    }

    /// Adds the counts of another thread in the same stretch, or of the next stretch.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.begin_ns = if self.begin_ns == 0 { other.begin_ns } else { self.begin_ns };
        self.end_ns = self.end_ns.max(other.end_ns);
        self.operations += other.operations;
        self.not_found += other.not_found;
        self.dropped += other.dropped;
        self.cpu_ns += other.cpu_ns;
        self.busiest_thread_ns = self.busiest_thread_ns.max(other.busiest_thread_ns);
        if let Some(run_delay_ns) = other.run_delay_ns {
            *self.run_delay_ns.get_or_insert(0) += run_delay_ns;
        }
        if self.latencies.len() < other.latencies.len() {
            self.latencies.resize(other.latencies.len(), Latency::default());
        }
        for (mine, theirs) in self.latencies.iter_mut().zip(&other.latencies) {
            add(&mut mine.service, theirs.service.as_ref());
            add(&mut mine.response, theirs.response.as_ref());
        }
        add(&mut self.in_kernel.service, other.in_kernel.service.as_ref());
        add(&mut self.in_kernel.response, other.in_kernel.response.as_ref());
        self.in_kernel.missing += other.in_kernel.missing;
        add(&mut self.late, other.late.as_ref());
        self.gaps.extend_from_slice(&other.gaps);
        self.recovery.merge(&other.recovery);
        for (&kind, errors) in &other.errors {
            self.error(kind, &errors.first, errors.count);
        }
    }

    /// Returns the errors as (kind, count).
    pub fn errors_by_kind(&self) -> Vec<(String, u64)> {
        self.errors.iter().map(|(kind, errors)| (kind.name(), errors.count)).collect()
    }
}

fn add(sum: &mut Option<Histogram>, more: Option<&Histogram>) {
    if let Some(more) = more {
        histogram::merge(sum.get_or_insert_with(histogram::new), more);
    }
}

fn sum<'h>(histograms: impl Iterator<Item = &'h Histogram>) -> Histogram {
    let mut sum = histogram::new();
    histograms.for_each(|one| histogram::merge(&mut sum, one));
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_of_several_threads_merge() {
        let gap = |from_ns, to_ns| Gap { from_ns, to_ns };
        let check = |gaps: &[Gap], expect: &[Gap]| assert_eq!(Gap::union(gaps.to_vec()), expect);
        check(&[], &[]);
        check(&[gap(1, 5), gap(1, 5)], &[gap(1, 5)]);
        check(&[gap(7, 9), gap(1, 5), gap(4, 6)], &[gap(1, 6), gap(7, 9)]);
        check(&[gap(1, 9), gap(2, 3)], &[gap(1, 9)]);
    }

    #[test]
    fn merged_stats_keep_all_counts() {
        let (mut one, mut other) = (Stats::new(), Stats::new());
        one.answered(0, 10, None);
        one.run_delay_ns = Some(3);
        other.answered(2, 1_000, Some(2_000));
        other.sent_late(7);
        other.error(ErrorKind::NoAnswer, "none", 2);
        other.error(ErrorKind::RowMissing, "none", 1);
        one.merge(&other);
        assert_eq!((one.service().len(), one.response().len()), (2, 1));
        assert_eq!((one.failed(), one.timed_out(), one.run_delay_ns), (3, 2, Some(3)));
        assert_eq!(one.late.map(|late| late.len()), Some(1));
        assert!(one.latencies[1].service.is_none() && one.latencies[0].response.is_none());
    }
}
