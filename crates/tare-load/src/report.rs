//! What came of a load, as `tare load` prints it. `--json` prints these types; their names and
//! meanings are docs/reference/load-json.md.

use std::time::Duration;

use crate::doubts::LoadDoubt;
use crate::histogram::{Histogram, Quantiles};
use crate::pacing::{Arrivals, Pace, Step};
use crate::series::Series;
use crate::stats::{ErrorKind, Gap, Recovered, Stats};
use crate::steady::Steadiness;
use serde::Serialize;

/// Version of what `--json` prints. It goes up when a name or a meaning changes, not when a name
/// is added.
pub const JSON_VERSION: u32 = 1;

/// An operation counts as late if it was sent so much later than intended, in ns.
pub const LATE_NS: u64 = 1_000_000;

/// What came of a load.
#[derive(Clone, Debug, Serialize)]
pub struct LoadReport {
    pub version: u32,
    /// Operations that ended well in the window.
    pub operations: u64,
    /// Length of the window as it was, in s.
    pub window_s: f64,
    pub throughput_per_s: f64,
    /// `closed` or `open`.
    pub pacing: &'static str,
    /// Open loop: `constant` or `poisson`.
    pub arrivals: Option<&'static str>,
    /// Open loop: the asked rate in operations/s, over all steps.
    pub rate_per_s: Option<f64>,
    /// Open loop: time from the intended start.
    pub response: Option<Quantiles>,
    /// Time from the send.
    pub service: Quantiles,
    pub by_operation: Vec<OperationReport>,
    /// The steps of the schedule, where there is more than one.
    pub steps: Vec<StepReport>,
    /// Open loop: how much later than intended operations were sent, in ns; part of the response
    /// time.
    pub late: Option<Quantiles>,
    /// Open loop: operations that were sent more than 1 ms late.
    pub late_count: u64,
    /// Open loop: operations due in the window that were never sent. They are in no histogram.
    pub dropped: u64,
    /// Operations that got no answer in time, of those in `errors`.
    pub timed_out: u64,
    pub errors: Vec<ErrorCount>,
    /// Operations that ended well and found no row, where none had to be.
    pub not_found: u64,
    /// What checking the rows found, where they were checked.
    pub verify: Option<Verified>,
    /// What was done about failures, where that was asked for.
    pub recovery: Recovered,
    pub without_service: WithoutService,
    /// CPU time of the load threads per operation, in µs.
    pub client_cpu_us_per_operation: Option<f64>,
    /// Share of its CPUs that the client used, 0 to 1. Near 1 the client is what was measured.
    pub client_cpu_share: f64,
    /// Share of the time in which a load thread was ready to run and waited for its CPU.
    pub client_run_delay_share: Option<f64>,
    /// Whether the load was steady over the window; none where the rate varies or the window is too
    /// short to tell.
    pub steadiness: Option<Steadiness>,
    /// The load over time.
    pub intervals: Vec<IntervalReport>,
    pub doubts: Vec<DoubtReport>,
    /// Why the histogram log ends early.
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
    /// What the first of them said.
    pub first: String,
}

/// What came of the rows that were read and compared with what was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// Operations that read: those in `LoadReport::service`, and the wrong, stale and lost ones.
    pub checked: u64,
    /// Of these: rows with bytes that nobody wrote, or that are not there by themselves.
    pub wrong: u64,
    /// Rows older than a version that was acknowledged before the read was sent.
    pub stale: u64,
    /// Rows that were written and are not there.
    pub lost: u64,
}

impl Verified {
    /// What was counted of a load whose kinds of operations read or do not.
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

/// Latencies of one kind of operation.
#[derive(Clone, Debug, Serialize)]
pub struct OperationReport {
    pub operation: String,
    pub response: Option<Quantiles>,
    pub service: Quantiles,
}

/// What came of one step of a schedule. An operation belongs to the step in which it ended.
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

/// Times of at least 100 ms in which operations were due or in flight and none ended well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct WithoutService {
    pub count: u64,
    pub total_s: f64,
    pub longest_s: f64,
    /// When the longest began, in s from the beginning of the window.
    pub longest_at_s: Option<f64>,
}

/// The load in a part of the window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct IntervalReport {
    pub begin_s: f64,
    pub length_s: f64,
    pub operations: u64,
    /// Of response times, in a closed loop of service times.
    pub mean_ns: f64,
    pub max_ns: u64,
}

/// A doubt as it is printed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DoubtReport {
    pub kind: &'static str,
    pub text: String,
    pub advice: &'static str,
}

impl From<&LoadDoubt> for DoubtReport {
    fn from(doubt: &LoadDoubt) -> Self {
        Self { kind: doubt.kind(), text: doubt.text(), advice: doubt.advice() }
    }
}

/// What is gathered while a load runs, beside the sum of what its threads counted.
#[derive(Debug)]
pub(crate) struct Gathering {
    begin_ns: Option<u64>,
    steps: Vec<(Step, Stats)>,
    without_service: WithoutService,
    series: Series,
}

impl Gathering {
    pub(crate) fn new(pace: &Pace) -> Self {
        let steps = match pace {
            Pace::Open(schedule) if schedule.steps().len() > 1 => schedule.steps(),
            _ => &[],
        };
        Self {
            begin_ns: None,
            steps: steps.iter().map(|step| (*step, Stats::new())).collect(),
            without_service: WithoutService::default(),
            series: Series::default(),
        }
    }

    /// Takes the next stretch. Returns when it began, from the beginning of the window.
    pub(crate) fn take(&mut self, stats: &Stats, latency: &Histogram) -> Duration {
        let begin_ns = *self.begin_ns.get_or_insert(stats.begin_ns);
        let begin = Duration::from_nanos(stats.begin_ns.saturating_sub(begin_ns));
        // Threads cross a boundary a little late, never early: the middle is in the right step.
        let middle = begin + Duration::from_nanos(stats.window_ns() / 2);
        let mut end = Duration::ZERO;
        let step = self.steps.iter_mut().find(|(step, _)| {
            end += step.length;
            middle < end
        });
        if let Some((_, sum)) = step {
            sum.merge(stats);
            sum.gaps.clear();
        }
        for gap in Gap::union(stats.gaps.clone()) {
            self.without_service.add(gap, begin_ns);
        }
        self.series.push(IntervalReport {
            begin_s: begin.as_secs_f64(),
            length_s: stats.window_ns() as f64 / 1e9,
            operations: stats.operations,
            mean_ns: latency.mean(),
            max_ns: latency.max(),
        });
        begin
    }

    /// The report on a load whose threads counted `total`.
    pub(crate) fn report(
        self,
        pace: &Pace,
        total: &Stats,
        kinds: &[&str],
        cpus: usize,
    ) -> LoadReport {
        let window_s = total.window_ns() as f64 / 1e9;
        let schedule = match pace {
            Pace::Closed(_) => None,
            Pace::Open(schedule) => Some(schedule),
        };
        let by_operation = kinds.iter().zip(&total.latencies).filter_map(|(kind, latency)| {
            Some(OperationReport {
                operation: (*kind).into(),
                response: latency.response.as_ref().map(Quantiles::of),
                service: Quantiles::of(latency.service.as_ref()?),
            })
        });
        let errors = total.errors.iter().map(|(kind, errors)| ErrorCount {
            kind: kind.name(),
            count: errors.count,
            first: errors.first.clone(),
        });
        let thread_ns = total.window_ns() as f64 * cpus as f64;
        let is_steady_by_design = schedule
            .is_none_or(|s| matches!(s.steps(), [step] if step.from_per_s == step.to_per_s));
        let steadiness =
            is_steady_by_design.then(|| self.series.steadiness(schedule.is_some())).flatten();
        let response = total.response();
        let mut report = LoadReport {
            version: JSON_VERSION,
            operations: total.operations,
            window_s,
            throughput_per_s: ratio(total.operations as f64, window_s).unwrap_or(0.0),
            pacing: if schedule.is_some() { "open" } else { "closed" },
            arrivals: schedule.map(|schedule| match schedule.arrivals() {
                Arrivals::Constant => "constant",
                Arrivals::Poisson => "poisson",
            }),
            rate_per_s: schedule.map(crate::pacing::Schedule::mean_per_s),
            response: schedule.map(|_| Quantiles::of(&response)),
            service: Quantiles::of(&total.service()),
            by_operation: by_operation.collect(),
            steps: self.steps.iter().map(|(step, stats)| step_report(step, stats, cpus)).collect(),
            late: total.late.as_ref().map(Quantiles::of),
            late_count: late_count(total),
            dropped: total.dropped,
            timed_out: total.timed_out(),
            errors: errors.collect(),
            not_found: total.not_found,
            verify: None,
            recovery: total.recovery,
            without_service: self.without_service,
            client_cpu_us_per_operation: ratio(total.cpu_ns as f64 / 1e3, total.operations as f64),
            client_cpu_share: ratio(total.cpu_ns as f64, thread_ns).unwrap_or(0.0),
            client_run_delay_share: total
                .run_delay_ns
                .and_then(|delay_ns| ratio(delay_ns as f64, thread_ns)),
            steadiness,
            intervals: self.series.intervals(),
            doubts: Vec::new(),
            log_error: None,
            response_times: schedule.map(|_| response),
        };
        report.doubts = crate::doubts::of(&report).iter().map(DoubtReport::from).collect();
        report
    }
}

impl WithoutService {
    fn add(&mut self, gap: Gap, begin_ns: u64) {
        let length_s = (gap.to_ns - gap.from_ns) as f64 / 1e9;
        self.count += 1;
        self.total_s += length_s;
        if length_s > self.longest_s {
            self.longest_s = length_s;
            self.longest_at_s = Some(gap.from_ns.saturating_sub(begin_ns) as f64 / 1e9);
        }
    }
}

fn step_report(step: &Step, stats: &Stats, cpus: usize) -> StepReport {
    let window_s = stats.window_ns() as f64 / 1e9;
    StepReport {
        from_per_s: step.from_per_s,
        to_per_s: step.to_per_s,
        operations: stats.operations,
        window_s,
        throughput_per_s: ratio(stats.operations as f64, window_s).unwrap_or(0.0),
        response: Quantiles::of(&stats.response()),
        service: Quantiles::of(&stats.service()),
        late_count: late_count(stats),
        failed: stats.failed(),
        client_cpu_share: cpu_share(stats, cpus),
    }
}

fn late_count(stats: &Stats) -> u64 {
    stats.late.as_ref().map_or(0, |late| late.count_between(LATE_NS + 1, u64::MAX))
}

/// Share of `cpus` that the load threads used.
pub(crate) fn cpu_share(stats: &Stats, cpus: usize) -> f64 {
    ratio(stats.cpu_ns as f64, stats.window_ns() as f64 * cpus as f64).unwrap_or(0.0)
}

/// None where there is nothing to divide by.
pub(crate) fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}
