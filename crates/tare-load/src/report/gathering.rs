//! Makes the report on a load from what its threads counted.

use std::time::Duration;

use crate::pacing::{Arrivals, Pace, Schedule, Step};
use crate::report::doubts;
use crate::report::histogram::{Histogram, Quantiles};
use crate::report::model::{
    DoubtReport, ErrorCount, InKernelReport, IntervalReport, JSON_VERSION, LoadReport,
    OperationReport, StepReport, WithoutService,
};
use crate::report::series::Series;
use crate::report::stats::{Gap, Stats};

/// Collects the parts of a report while a load runs, besides the sum of its threads' counts.
#[derive(Debug)]
pub(crate) struct ReportBuilder {
    begin_ns: Option<u64>,
    steps: Vec<(Step, Stats)>,
    without_service: WithoutService,
    series: Series,
}

impl ReportBuilder {
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

    /// Takes the next stretch. Returns when it began, counted from the beginning of the window.
    pub(crate) fn take(&mut self, stats: &Stats, latency: &Histogram) -> Duration {
        let begin_ns = *self.begin_ns.get_or_insert(stats.begin_ns);
        let begin = Duration::from_nanos(stats.begin_ns.saturating_sub(begin_ns));
        // Threads cross a boundary a little late, never early, so the middle is in the right step.
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

    /// Returns the report on a load whose threads counted `total`.
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
            rate_per_s: schedule.map(Schedule::mean_per_s),
            response: schedule.map(|_| Quantiles::of(&response)),
            service: Quantiles::of(&total.service()),
            in_kernel: InKernelReport::of(&total.in_kernel),
            by_operation: by_operation.collect(),
            steps: self.steps.iter().map(|(step, stats)| step_report(step, stats, cpus)).collect(),
            late: total.late.as_ref().map(Quantiles::of),
            late_count: total.sent_late_count().unwrap_or(0),
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
        report.doubts = doubts::of(&report).iter().map(DoubtReport::from).collect();
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
        late_count: stats.sent_late_count().unwrap_or(0),
        failed: stats.failed(),
        client_cpu_share: cpu_share(stats, cpus),
    }
}

/// Returns the share of `cpus` that the load threads used.
pub(crate) fn cpu_share(stats: &Stats, cpus: usize) -> f64 {
    ratio(stats.cpu_ns as f64, stats.window_ns() as f64 * cpus as f64).unwrap_or(0.0)
}

/// Returns `None` if `whole` is 0.
pub(crate) fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}
