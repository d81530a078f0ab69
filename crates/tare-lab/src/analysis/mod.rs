//! Draws the conclusions of a record: costs with intervals, latencies, the control, the arithmetic.
//!
//! Method: the slices of one environment, workload, phase and round are a cell. A cell divided by
//! the baseline's cell of the same round is one paired ratio. [`tare_stats`] estimates the cost and
//! its interval from the ratios of all rounds. Void slices do not count, and neither does a round
//! in which one of the two is missing. The analysis also works on the record of a running study.
//!
//! Limits: each interval is computed alone. With several environments, chance finds a difference in
//! one of them more often than one time in twenty (docs/concepts/cost.md).

mod arithmetic;
mod cells;
pub mod claims;
mod counters;
mod doubts;
mod instances;
mod latency;
mod load_path;
mod objective;
mod pair;
mod relations;
mod rounds;
pub mod tuning;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::doubt::Doubt;
use crate::environment::EnvironmentSpec;
use crate::record::{EnvironmentRecord, Phase, Record};
use crate::response_time::ResponseTime;
use crate::study;
use cells::{Cell, Cells, Series};
use latency::Latencies;

pub use crate::response_time::{Latency, OverBaseline, Percentile};
pub use claims::Metric;
pub use counters::{CounterFinding, THROTTLED_NS, counters, risen_counters};
pub use instances::{
    InstanceFigures, OneInstance, SameNumber, Scaling, ScalingPoint, instance_figures,
    same_numbers, scaling,
};
pub use latency::{PERCENTS, closed_loop_latency, latency};
pub use load_path::{CARDS_FACT, CARDS_OF_LOAD_FACT, crosses_network_card};
pub use objective::SloFigures;
pub use pair::{PairCosts, pair_costs};
pub use relations::{
    Relation, Untestable, Verdict, WITHIN_POINTS, WITHIN_RATIO_PERCENT, relations,
};
pub use rounds::{RoundFigures, server_cpu_by_round};
use tare_stats::Estimate;
use tare_stats::starts::{OverStarts, over_starts};
pub use tare_stats::{Cost, Interval};

/// The figures of one environment under one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    pub environment: String,
    pub workload: String,
    pub baseline: bool,
    pub control: bool,
    /// The environment with the baseline's layers under this environment's runtime, if that is not
    /// the baseline's: what it seems to cost is noise of every comparison across the two runtimes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_control: Option<String>,
    /// Number of valid slices, of all phases but `traced`.
    pub slices: u32,
    /// Number of invalid slices: void, or without an operation.
    pub slices_void: u32,
    /// CPU time per operation of the system (without idle polling, if that is known) and the layer,
    /// in the capacity phase, in µs. Over all rounds of this environment.
    pub server_cpu_us: Option<Interval>,
    /// Whether idle polling was subtracted. That requires that the system measured its busy time in
    /// every slice of this environment and of the baseline.
    pub server_cpu_is_busy_time: bool,
    pub server_cpu_cost: Option<Cost>,
    /// As `server_cpu_us`, at the fixed rate.
    pub server_cpu_us_at_rate: Option<Interval>,
    pub server_cpu_cost_at_rate: Option<Cost>,
    /// CPU time per operation of server and client together, in the capacity phase, in µs.
    pub total_cpu_us: Option<Interval>,
    pub total_cpu_cost: Option<Cost>,
    pub throughput_per_s: Option<Interval>,
    pub throughput_cost: Option<Cost>,
    /// Response time at the fixed rate, which counts from the intended start.
    pub response: Option<Latency>,
    /// Service time at the fixed rate, which counts from the send.
    pub service: Option<Latency>,
    /// The capacity under the workload's objective, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo: Option<SloFigures>,
    /// CPU time of the client per operation in the capacity phase, in µs.
    pub client_cpu_us: Option<Interval>,
    /// Share of its CPUs that the client used in the capacity phase, 0 to 1.
    pub client_cpu_share: Option<f64>,
    /// Doubts about this environment: each kind once, at its worst, with the number of affected
    /// slices.
    pub doubts: Vec<(Doubt, u32)>,
    /// How much of the uncertainty of the CPU cost comes from starts. `None` with less than three
    /// starts; the intervals are then over rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts: Option<Starts>,
}

/// The starts of an environment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Starts {
    pub count: u32,
    /// Share of the variance of the CPU cost that comes from starts, 0 to 1. The rest comes from
    /// slices.
    pub share: f64,
}

impl Finding {
    /// Returns the main cost: server CPU per operation at capacity, or else at the fixed rate.
    pub fn cpu_cost(&self) -> Option<&Cost> {
        self.server_cpu_cost.as_ref().or(self.server_cpu_cost_at_rate.as_ref())
    }
}

/// The conclusions from a whole record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Analysis {
    /// By workload, in the order of the study. The control follows the baseline.
    pub findings: Vec<Finding>,
    /// Number of rounds with at least one pair.
    #[serde(rename = "blocks")]
    pub rounds: u32,
    /// Doubts about the whole record.
    pub doubts: Vec<Doubt>,
    /// Lines with the arithmetic of the headline cost. That is the largest cost in server CPU per
    /// operation that was found, or else the cost of the study's first environment that is not the
    /// baseline.
    pub arithmetic: Vec<String>,
}

/// Draws the conclusions of a record, finished or not.
pub fn analyse(record: &Record) -> Analysis {
    conclude(record, true)
}

/// Draws the conclusions without latencies, for the live view and the early stop after each round.
/// Most of the time of [`analyse`] goes into histograms.
pub fn analyse_costs(record: &Record) -> Analysis {
    conclude(record, false)
}

/// Returns the response times of all environments at the fixed rate, for the record.
pub fn response_times(record: &Record) -> Vec<ResponseTime> {
    let findings = analyse(record).findings.into_iter();
    let of = |finding: Finding| {
        let Finding { workload, environment, response, .. } = finding;
        Some(ResponseTime { workload, environment, latency: response? })
    };
    findings.filter_map(of).collect()
}

/// Draws the conclusions as [`analyse_costs`] does, with the response times that the record holds
/// ([`Record::read_costs`]).
pub fn analyse_with(record: &Record, response_times: Vec<ResponseTime>) -> Analysis {
    let mut analysis = analyse_costs(record);
    for one in response_times {
        let same =
            |f: &&mut Finding| f.workload == one.workload && f.environment == one.environment;
        if let Some(finding) = analysis.findings.iter_mut().find(same) {
            finding.response = Some(one.latency);
        }
    }
    analysis
}

fn conclude(record: &Record, with_latencies: bool) -> Analysis {
    let cells = Cells::of(record);
    let environments = in_order(record);
    let mut findings = Vec::new();
    for workload in &record.study.workloads {
        let latencies = with_latencies.then(|| Latencies::new(record, &workload.name));
        for environment in &environments {
            let latencies = latencies.as_ref();
            findings.push(finding(record, &cells, &workload.name, environment, latencies));
        }
    }
    let rounds = cells.paired_rounds(&record.study.baseline);
    doubts::about_claims(&mut findings, rounds);
    let doubts = doubts::about_record(record, &findings, rounds);
    let arithmetic = arithmetic::lines(record, &cells, &findings);
    Analysis { findings, rounds, doubts, arithmetic }
}

/// Returns the environments that are not left out, with the control after the baseline.
fn in_order(record: &Record) -> Vec<&EnvironmentRecord> {
    let here = || record.environments.iter().filter(|e| e.left_out.is_none());
    let mut ordered = Vec::new();
    for environment in here().filter(|e| !e.control) {
        ordered.push(environment);
        if environment.spec.name == record.study.baseline {
            ordered.extend(here().filter(|e| e.control));
        }
    }
    ordered
}

fn finding(
    record: &Record,
    cells: &Cells,
    workload: &str,
    environment: &EnvironmentRecord,
    latencies: Option<&Latencies<'_>>,
) -> Finding {
    let name = environment.spec.name.as_str();
    let baseline = record.study.baseline.as_str();
    let is_baseline = name == baseline && !environment.control;
    let capacity = Comparison::new(cells, workload, Phase::Capacity, name, baseline);
    let at_rate = Comparison::new(cells, workload, Phase::Latency, name, baseline);
    let search = cells.series(workload, Phase::Slo, name);
    let cost = |cost: Option<Cost>| cost.filter(|_| !is_baseline);
    let busy = capacity.busy;
    let mut doubts = doubts::about_environment(record, workload, name);
    doubts.extend(doubts::about_empty_slices(record, workload, name));
    let slices = capacity.here.slices + at_rate.here.slices + search.slices;
    let control = runtime_control(record, &environment.spec, |one| one.left_out.is_none());
    if control.is_none() && slices > 0 {
        doubts.extend(doubts::about_runtime(record, environment).map(|doubt| (doubt, slices)));
    }
    let warming = doubts::about_warming(capacity.here, &record.study.schedule);
    doubts.extend(warming.map(|doubt| (doubt, slices)));
    let mut latency = |times: latency::LatencyKind| {
        let (latency, unreadable) = latencies?.of(name, is_baseline, times);
        doubts.extend(unreadable.map(|failure| {
            let probe = format!("{} histogram", times.name());
            (Doubt::ProbeFailed { probe, reason: failure.reason }, failure.slices)
        }));
        latency
    };
    let response = latency(latency::LatencyKind::Response);
    let service = latency(latency::LatencyKind::Service);
    Finding {
        environment: name.to_string(),
        workload: workload.to_string(),
        baseline: is_baseline,
        control: environment.control,
        runtime_control: control.map(|control| control.spec.name.clone()),
        slices,
        slices_void: capacity.here.slices_void + at_rate.here.slices_void + search.slices_void,
        server_cpu_us: capacity.level(|cell| cell.server_cpu_us(busy)),
        server_cpu_is_busy_time: (capacity.busy && capacity.here.polls())
            || (at_rate.busy && at_rate.here.polls()),
        server_cpu_cost: cost(capacity.rise(|cell| cell.server_cpu_us(busy))),
        server_cpu_us_at_rate: at_rate.level(|cell| cell.server_cpu_us(at_rate.busy)),
        server_cpu_cost_at_rate: cost(at_rate.rise(|cell| cell.server_cpu_us(at_rate.busy))),
        total_cpu_us: capacity.level(|cell| cell.total_cpu_us(busy)),
        total_cpu_cost: cost(capacity.rise(|cell| cell.total_cpu_us(busy))),
        throughput_per_s: capacity.level(Cell::throughput_per_s),
        throughput_cost: cost(capacity.fall(Cell::throughput_per_s)),
        response,
        service,
        slo: (search.slices > 0)
            .then(|| objective::figures(record, workload, name, (!is_baseline).then_some(baseline)))
            .flatten(),
        client_cpu_us: capacity.level(Cell::client_cpu_us),
        client_cpu_share: capacity.here.client_cpu_share(client_cpus(record)),
        doubts,
        starts: capacity
            .over_starts(|cell| cell.server_cpu_us(busy))
            .filter(|_| !is_baseline)
            .map(|found| Starts { count: found.starts, share: found.share }),
    }
}

/// Returns the environment of a record with the baseline's layers under the runtime of `spec`, of
/// those that `which` selects.
fn runtime_control<'r>(
    record: &'r Record,
    spec: &EnvironmentSpec,
    which: impl Fn(&EnvironmentRecord) -> bool,
) -> Option<&'r EnvironmentRecord> {
    let baseline = record.study.baseline_environment()?;
    let candidates = || record.environments.iter().filter(|e| !e.control && which(e));
    let found = study::runtime_control(candidates().map(|e| &e.spec), baseline, &spec.runtime)?;
    candidates().find(|e| e.spec.name == found.name)
}

/// An environment and the baseline, in one phase of one workload.
struct Comparison<'c> {
    here: &'c Series,
    baseline: &'c Series,
    /// Whether the busy time is known in every slice of both, so that idle polling can be
    /// subtracted.
    busy: bool,
}

impl<'c> Comparison<'c> {
    fn new(
        cells: &'c Cells,
        workload: &str,
        phase: Phase,
        environment: &str,
        baseline: &str,
    ) -> Self {
        let here = cells.series(workload, phase, environment);
        let baseline = cells.series(workload, phase, baseline);
        Self { here, baseline, busy: here.has_busy_time() && baseline.has_busy_time() }
    }

    /// Returns the figure over all rounds of the environment.
    fn level(&self, figure: impl Fn(&Cell) -> f64) -> Option<Interval> {
        self.here.level(figure).map(Interval::from)
    }

    /// Returns the logs of the ratios of all pairs.
    fn log_ratios(&self, figure: impl Fn(&Cell) -> f64) -> Vec<f64> {
        let pairs = self.here.pairs(self.baseline);
        tare_stats::log_ratios(pairs.map(|(here, base)| (figure(here), figure(base))))
    }

    /// Returns the estimate over starts, from the pairs of equal start numbers. `None` with too few
    /// starts.
    fn over_starts(&self, figure: impl Fn(&Cell) -> f64) -> Option<OverStarts> {
        let mut starts: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        let pairs = self.here.pairs(self.baseline).filter(|(here, base)| here.start == base.start);
        for (here, base) in pairs {
            let log = tare_stats::log_ratios([(figure(here), figure(base))]);
            starts.entry(here.start).or_default().extend(log);
        }
        let starts: Vec<Vec<f64>> = starts.into_values().collect();
        over_starts(&starts)
    }

    /// Returns the estimate of the log of the ratio: over starts if there are enough, else over
    /// rounds.
    fn estimate(&self, figure: impl Fn(&Cell) -> f64 + Copy) -> Option<Estimate> {
        match self.over_starts(figure) {
            Some(found) => Some(found.estimate),
            None => tare_stats::estimate(&self.log_ratios(figure)),
        }
    }

    /// Returns the cost of a figure whose rise is a loss.
    fn rise(&self, figure: impl Fn(&Cell) -> f64 + Copy) -> Option<Cost> {
        self.estimate(figure).map(tare_stats::rise_of)
    }

    /// Returns the cost of a figure whose fall is a loss.
    fn fall(&self, figure: impl Fn(&Cell) -> f64 + Copy) -> Option<Cost> {
        self.estimate(figure).map(tare_stats::fall_of)
    }
}

/// Returns how many CPUs the client has: those of the plan, or of all loaders.
fn client_cpus(record: &Record) -> usize {
    match record.loaders.is_empty() {
        true => record.cpu_plan.client.len(),
        false => record.loaders.iter().map(|loader| loader.cpus.len()).sum(),
    }
}

#[cfg(test)]
mod tests;
