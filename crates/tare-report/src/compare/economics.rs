//! Throughput of each machine, per CPU and per unit of money, and the ratios between machines.
//!
//! Method: a figure of a record has the interval of its rounds; dividing by CPUs or by a price,
//! which are exact, divides the bounds too. Two records' figures are compared as a ratio, in log
//! space.

use serde::Serialize;
use tare_lab::analysis::{Finding, Interval, closed_loop_latency};
use tare_stats::{Estimate, difference};

use super::Side;
use super::costs::{common, in_each};
use crate::bandwidth;
use crate::fleet::Price;
use crate::run_conditions::fixed_rate;
use crate::tails;

const SECONDS_PER_HOUR: f64 = 3_600.0;
/// Fixed rates that differ by less count as equal.
const SAME_RATE: f64 = 0.01;

/// One environment under one workload in all records.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FiguresRow<'r> {
    pub workload: &'r str,
    pub environment: &'r str,
    pub baseline: bool,
    pub control: bool,
    /// One per record.
    pub records: Vec<Option<Figures>>,
}

/// The figures of one machine in one environment under one workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Closed loop.
    pub throughput_per_s: Option<Interval>,
    /// Over the CPUs that the study gives to the system.
    pub throughput_per_s_per_cpu: Option<Interval>,
    /// Throughput times the size of an operation; `None` if operations have no common size.
    pub bandwidth_bytes_per_s: Option<Interval>,
    /// p99 of the service time in the closed loop, for loads on a disk, which may have no phase at
    /// a fixed rate.
    pub closed_loop_p99_ns: Option<u64>,
    pub server_cpu_us: Option<Interval>,
    pub server_cpu_is_busy_time: bool,
    /// Response time at the fixed rate.
    pub p99_ns: Option<u64>,
    /// p99 with its interval in ns; `None` if too few operations took longer.
    pub p99: Option<Interval>,
    /// Over the p99 of the same record's baseline.
    pub p99_over_baseline: Option<Interval>,
    pub rate_per_s: Option<f64>,
    /// Whether the fixed rate is that of the first record, so that latencies can be compared.
    pub same_rate_as_first: bool,
    /// Operations that one unit of money buys.
    pub operations_per_money: Option<Interval>,
    /// Ratio to the first record's figure; `None` in the first.
    pub throughput_vs_first: Option<Ratio>,
    pub throughput_per_cpu_vs_first: Option<Ratio>,
    pub server_cpu_vs_first: Option<Ratio>,
    /// `None` unless both were measured at one rate.
    pub p99_vs_first: Option<Ratio>,
    pub operations_per_money_vs_first: Option<Ratio>,
}

/// The ratio of two figures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    #[serde(flatten)]
    pub interval: Interval,
    /// The interval excludes 1.
    pub found: bool,
}

impl Ratio {
    /// `to` over `from`; both above 0.
    pub(crate) fn of(from: &Interval, to: &Interval) -> Option<Ratio> {
        let estimate = |i: &Interval| Estimate {
            centre: i.value.ln(),
            low: if i.low > 0.0 { i.low.ln() } else { f64::NEG_INFINITY },
            high: i.high.ln(),
            rounds: i.rounds,
        };
        let logs = difference(&estimate(from), &estimate(to))?;
        Some(Ratio { interval: logs.map(f64::exp).into(), found: logs.excludes(0.0) })
    }
}

pub(super) fn rows<'r>(sides: &[Side<'r>], prices: &[Option<Price>]) -> Vec<FiguresRow<'r>> {
    let row = |(workload, environment): (&'r str, &'r str)| {
        let findings = in_each(sides, workload, environment);
        let mut records: Vec<Option<Figures>> = (0..sides.len())
            .map(|at| Some(figures(&sides[at], findings[at]?, prices[at].as_ref())))
            .collect();
        if let Some((Some(first), others)) = records.split_first_mut() {
            for (at, other) in others.iter_mut().enumerate() {
                let Some(other) = other else { continue };
                let money = same_currency(&prices[0], &prices[at + 1]);
                other.compare(first, money);
            }
        }
        let is = |of: fn(&Finding) -> bool| findings.iter().flatten().any(|f| of(f));
        let (baseline, control) = (is(|f| f.baseline), is(|f| f.control));
        FiguresRow { workload, environment, baseline, control, records }
    };
    common(sides).into_iter().map(row).collect()
}

pub(super) fn same_currency(a: &Option<Price>, b: &Option<Price>) -> bool {
    a.as_ref().zip(b.as_ref()).is_some_and(|(a, b)| a.currency == b.currency)
}

pub(super) fn is_same_rate(a: Option<f64>, b: Option<f64>) -> bool {
    a.zip(b).is_some_and(|(a, b)| (a - b).abs() <= SAME_RATE * a.max(b))
}

#[expect(clippy::cast_precision_loss, reason = "CPUs of a machine, bytes of an operation")]
fn figures(side: &Side<'_>, finding: &Finding, price: Option<&Price>) -> Figures {
    let throughput = finding.throughput_per_s;
    let cpus = side.record.cpu_plan.system.len();
    let rate_per_s = fixed_rate(side.record, &finding.workload);
    let workload = side.record.study.workloads.iter().find(|w| w.name == finding.workload);
    let bytes = workload.and_then(bandwidth::operation_bytes).map(|bytes| bytes as f64);
    Figures {
        throughput_per_s: throughput,
        throughput_per_s_per_cpu: throughput
            .filter(|_| cpus > 0)
            .map(|i| times(i, 1.0 / cpus as f64)),
        bandwidth_bytes_per_s: bytes.and_then(|bytes| Some(times(throughput?, bytes))),
        closed_loop_p99_ns: bytes.and_then(|_| {
            let of = (&finding.workload, &finding.environment);
            Some(closed_loop_latency(side.record, of.0, of.1)?.p99_ns)
        }),
        server_cpu_us: finding.server_cpu_us,
        server_cpu_is_busy_time: finding.server_cpu_is_busy_time,
        p99_ns: finding.response.as_ref().map(|latency| latency.p99_ns),
        p99: tails::percentile(finding, 99.0).and_then(|one| one.ns),
        p99_over_baseline: tails::over_baseline(finding, 99.0).map(|over| over.ratio),
        rate_per_s,
        same_rate_as_first: true,
        operations_per_money: throughput
            .zip(price)
            .map(|(i, price)| times(i, SECONDS_PER_HOUR / price.per_hour())),
        throughput_vs_first: None,
        throughput_per_cpu_vs_first: None,
        server_cpu_vs_first: None,
        p99_vs_first: None,
        operations_per_money_vs_first: None,
    }
}

fn times(interval: Interval, factor: f64) -> Interval {
    Interval {
        value: interval.value * factor,
        low: interval.low * factor,
        high: interval.high * factor,
        ..interval
    }
}

impl Figures {
    fn compare(&mut self, first: &Figures, same_currency: bool) {
        let ratio = |from: &Option<Interval>, to: &Option<Interval>| {
            from.as_ref().zip(to.as_ref()).and_then(|(from, to)| Ratio::of(from, to))
        };
        self.same_rate_as_first = is_same_rate(first.rate_per_s, self.rate_per_s);
        self.throughput_vs_first = ratio(&first.throughput_per_s, &self.throughput_per_s);
        self.throughput_per_cpu_vs_first =
            ratio(&first.throughput_per_s_per_cpu, &self.throughput_per_s_per_cpu);
        if self.same_rate_as_first {
            self.p99_vs_first = ratio(&first.p99, &self.p99);
        }
        // Busy time and total CPU time are not comparable.
        if first.server_cpu_is_busy_time == self.server_cpu_is_busy_time {
            self.server_cpu_vs_first = ratio(&first.server_cpu_us, &self.server_cpu_us);
        }
        if same_currency {
            self.operations_per_money_vs_first =
                ratio(&first.operations_per_money, &self.operations_per_money);
        }
    }
}
