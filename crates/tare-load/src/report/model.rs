//! The report on a load, as data. `--json` prints these types; their names and meanings are in
//! docs/reference/load-json.md.

use serde::Serialize;

use crate::report::histogram::{Histogram, Quantiles};
use crate::report::stats::{ErrorKind, InKernel, Recovered, Stats};
use tare_stats::steady::Steadiness;

/// The version of what `--json` prints. It rises when a name or a meaning changes, not when a name
/// is added.
pub const JSON_VERSION: u32 = 1;

/// The report on a load.
#[derive(Clone, Debug, Serialize)]
pub struct LoadReport {
    pub version: u32,
    /// Operations that succeeded in the window.
    pub operations: u64,
    /// The actual length of the window, in s.
    pub window_s: f64,
    pub throughput_per_s: f64,
    /// `closed` or `open`.
    pub pacing: &'static str,
    /// Open loop: `constant` or `poisson`.
    pub arrivals: Option<&'static str>,
    /// Open loop: the requested rate in operations/s, over all steps.
    pub rate_per_s: Option<f64>,
    /// Open loop: time from the intended start.
    pub response: Option<Quantiles>,
    /// Time from the send.
    pub service: Quantiles,
    /// The same by the kernel's times, if they were wanted.
    pub in_kernel: Option<InKernelReport>,
    pub by_operation: Vec<OperationReport>,
    /// The steps of the schedule, if there are several.
    pub steps: Vec<StepReport>,
    /// Open loop: how much later than intended operations were sent, in ns; part of the response
    /// time.
    pub late: Option<Quantiles>,
    /// Open loop: operations that were sent more than 1 ms late.
    pub late_count: u64,
    /// Open loop: operations due in the window that were never sent. They are in no histogram.
    pub dropped: u64,
    /// Operations that got no answer in time; part of `errors`.
    pub timed_out: u64,
    pub errors: Vec<ErrorCount>,
    /// Successful operations that found no row, where none was expected.
    pub not_found: u64,
    /// The result of checking rows, if they were checked.
    pub verify: Option<Verified>,
    /// Counts of the recovery from failures, if it was configured.
    pub recovery: Recovered,
    pub without_service: WithoutService,
    /// CPU time of the load threads per operation, in µs.
    pub client_cpu_us_per_operation: Option<f64>,
    /// The share of its CPUs that the client used, 0 to 1. Near 1 the client limits the result.
    pub client_cpu_share: f64,
    /// The share of time in which a load thread was ready to run but waited for its CPU.
    pub client_run_delay_share: Option<f64>,
    /// Whether the load was steady over the window; `None` if the rate varies or the window is too
    /// short to tell.
    pub steadiness: Option<Steadiness>,
    /// The load over time.
    pub intervals: Vec<IntervalReport>,
    pub doubts: Vec<DoubtReport>,
    /// Why the histogram log is incomplete.
    pub log_error: Option<String>,
    /// Open loop: all response times.
    #[serde(skip)]
    pub response_times: Option<Histogram>,
}

/// Failed operations of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ErrorCount {
    pub kind: String,
    pub count: u64,
    /// The message of the first of them.
    pub first: String,
}

/// The result of comparing rows with what was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// Operations that read: those in `LoadReport::service`, and the wrong, stale and lost ones.
    pub checked: u64,
    /// Rows with bytes that were never written, or that should not exist.
    pub wrong: u64,
    /// Rows older than a version that was acknowledged before the read was sent.
    pub stale: u64,
    /// Rows that were written and are missing.
    pub lost: u64,
}

impl Verified {
    /// Sums up a load. `reads` tells which kinds of operations read.
    pub(crate) fn of(total: &Stats, reads: impl Iterator<Item = bool>) -> Self {
        let count = |kind| total.errors.get(&kind).map_or(0, |errors| errors.count);
        let (wrong, stale, lost) = (
            count(ErrorKind::RowDiffers),
            count(ErrorKind::RowStale),
            count(ErrorKind::RowMissing),
        );
        let ended_well: u64 = reads
            .zip(&total.latencies)
            .filter(|(reads, _)| *reads)
            .filter_map(|(_, latency)| latency.service.as_ref())
            .map(Histogram::len)
            .sum();
        Self { checked: ended_well + wrong + stale + lost, wrong, stale, lost }
    }
}

/// Latencies by the times at which the kernel passed requests to the network device and received
/// answers. They leave out how long the client needs to wake up.
#[derive(Clone, Debug, Serialize)]
pub struct InKernelReport {
    /// Open loop: time from the intended start until the answer came.
    pub response: Option<Quantiles>,
    /// Time from when the request left until the answer came.
    pub service: Quantiles,
    /// Successful operations for which the kernel has not said both times; in neither histogram.
    pub missing: u64,
}

impl InKernelReport {
    /// `None` if the times were not wanted.
    pub(crate) fn of(times: &InKernel) -> Option<Self> {
        let wanted = times.service.is_some() || times.missing > 0;
        wanted.then(|| Self {
            response: times.response.as_ref().map(Quantiles::of),
            service: times.service.as_ref().map(Quantiles::of).unwrap_or_default(),
            missing: times.missing,
        })
    }
}

/// Latencies of one kind of operation.
#[derive(Clone, Debug, Serialize)]
pub struct OperationReport {
    pub operation: String,
    pub response: Option<Quantiles>,
    pub service: Quantiles,
}

/// The results of one step of a schedule. An operation belongs to the step in which it ended.
#[derive(Clone, Debug, Serialize)]
pub struct StepReport {
    pub from_per_s: f64,
    pub to_per_s: f64,
    pub operations: u64,
    pub window_s: f64,
    pub throughput_per_s: f64,
    pub response: Quantiles,
    pub service: Quantiles,
    pub late_count: u64,
    pub failed: u64,
    pub client_cpu_share: f64,
}

/// Gaps of at least 100 ms in which operations were due or in flight and none succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct WithoutService {
    pub count: u64,
    pub total_s: f64,
    pub longest_s: f64,
    /// When the longest gap began, in s from the beginning of the window.
    pub longest_at_s: Option<f64>,
}

/// The load in a part of the window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct IntervalReport {
    pub begin_s: f64,
    pub length_s: f64,
    pub operations: u64,
    /// The mean of response times; in a closed loop, of service times.
    pub mean_ns: f64,
    pub max_ns: u64,
}

/// A doubt as a report prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DoubtReport {
    pub kind: &'static str,
    pub text: String,
    pub advice: &'static str,
}
