//! The section of a workload: its conditions, charts and tables.

use std::time::Duration;

use minijinja::Value;
use serde::Serialize;
use tare_lab::analysis::claims::{CostKind, verdict};
use tare_lab::analysis::{Analysis, Cost, Finding, Interval, Latency, PERCENTS};
use tare_lab::environment::options_text;
use tare_lab::record::{Phase, Record};
use tare_lab::seconds::WINDOW_MIN;
use tare_lab::study::{KeyDistribution, WorkloadSpec};
use tare_stats::law::Verdict;
use tare_std::units::{duration, nanoseconds, thousands};

use super::charts::{
    self, CountersOverTime, Noted, OfSecond, Plot, Series, SeriesStyle, by_second,
};
use super::svg;
use crate::bandwidth;
use crate::doubts::DoubtGroups;
use crate::figures::{CostFormat, clean, cost, latency, micros, rate, role, share, with_interval};
use crate::headline::{Metric, telling_noise};
use crate::histogram::{Responses, responses};
use crate::interrupts::{self, Counted, CpuRole, InterruptTable};
use crate::objective;
use crate::own_view::OwnTable;
use crate::polling;
use crate::relations;
use crate::run_conditions::fixed_rate;
use crate::seconds;
use crate::tails;

#[derive(Serialize)]
pub(super) struct WorkloadView {
    id: usize,
    name: String,
    conditions: Vec<(String, String)>,
    rate: Option<String>,
    legend: Vec<Legend>,
    cpu_costs: Option<Value>,
    throughput_costs: Option<Value>,
    noise: Option<String>,
    objective: Option<ObjectiveView>,
    /// Throughput over the requests in flight that were tried, if the study climbed to the knee.
    climb: Option<Value>,
    throughput: Option<Value>,
    /// Whether histograms replace the dots.
    folded: bool,
    throughput_over_time: Option<Noted>,
    percentiles: Option<Value>,
    distribution: Option<Plot>,
    p99_over_time: Option<Noted>,
    seconds: Vec<SecondsView>,
    interrupts: Option<InterruptsView>,
    counters_over_time: Option<CountersOverTime>,
    /// Length of a slice.
    window: String,
    costs: Vec<CostRow>,
    latencies: Vec<LatencyRow>,
    /// Whether any latency has a ratio to the baseline's.
    over: bool,
    /// Whether the chart of throughput has published costs.
    published: bool,
    /// Which account the CPU time of a system that polls is.
    polling: String,
    own: Option<OwnTable>,
}

#[derive(Serialize)]
pub(super) struct Legend {
    swatch: Value,
    name: String,
    style: String,
}

impl Legend {
    pub(super) fn new(environment: &str, style: SeriesStyle) -> Self {
        Self {
            swatch: Value::from_safe_string(svg::swatch(style.shape, style.class)),
            name: clean(environment),
            style: style.name(),
        }
    }
}

#[derive(Serialize)]
struct CostRow {
    environment: String,
    role: Option<&'static str>,
    blocks: String,
    slices: u32,
    void: u32,
    cpu: Stacked,
    cpu_cost: CostView,
    cpu_at_rate: Stacked,
    cpu_cost_at_rate: CostView,
    total_cpu: Stacked,
    total_cpu_cost: CostView,
    throughput: Stacked,
    throughput_cost: CostView,
    client_cpu: Stacked,
    client_share: String,
    doubts: Vec<usize>,
}

/// Interrupts by CPU over the rounds: the chart, and its figures.
#[derive(Serialize)]
struct InterruptsView {
    chart: Value,
    devices_only: bool,
    cpus_max: usize,
    cpus: Vec<String>,
    /// An environment with the median and the extremes of each CPU.
    rows: Vec<(String, Vec<String>)>,
}

impl InterruptsView {
    fn new(record: &Record, workload: &str, id: &str) -> Option<Self> {
        let tables = interrupts::tables(record, workload);
        let chart = Value::from_safe_string(charts::interrupts(&tables, id)?);
        let mut cpus: Vec<(u32, CpuRole)> =
            tables.iter().flat_map(|table| &table.cpus).map(|one| (one.cpu, one.role)).collect();
        cpus.sort_by_key(|(cpu, _)| *cpu);
        cpus.dedup();
        let cell = |table: &InterruptTable, cpu: u32| {
            let found = table.cpus.iter().find(|one| one.cpu == cpu);
            found.map_or_else(missing, |one| {
                let [median, smallest, largest] =
                    [one.per_s.median, one.per_s.smallest, one.per_s.largest].map(rate);
                format!("{median} ({smallest} to {largest})")
            })
        };
        let row = |table: &InterruptTable| {
            let cells = cpus.iter().map(|(cpu, _)| cell(table, *cpu)).collect();
            (clean(&table.environment), cells)
        };
        let rows = tables.iter().map(row).collect();
        let devices_only = tables.iter().all(|table| table.of == Counted::BusiestDevices);
        let heads = cpus.iter().map(|(cpu, role)| format!("CPU {cpu}, {}", role.word()));
        let cpus_max = charts::CPUS_MAX;
        Some(Self { chart, devices_only, cpus_max, cpus: heads.collect(), rows })
    }
}

/// Long windows of a phase by the second.
#[derive(Serialize)]
struct SecondsView {
    at_rate: bool,
    caption: &'static str,
    charts: Vec<SecondsChart>,
    head: [&'static str; 6],
    rows: Vec<Vec<String>>,
    disk_caption: &'static str,
    disk_head: [&'static str; 7],
    disk_rows: Vec<Vec<String>>,
}

#[derive(Serialize)]
struct SecondsChart {
    title: &'static str,
    noted: Noted,
}

impl SecondsView {
    /// A view for each phase that has seconds.
    fn all(id: usize, record: &Record, workload: &str, series: &[Series<'_>]) -> Vec<Self> {
        let view = |phase| Self::new(id, record, workload, series, phase);
        seconds::PHASES.into_iter().filter_map(view).collect()
    }

    fn new(
        id: usize,
        record: &Record,
        workload: &str,
        series: &[Series<'_>],
        phase: Phase,
    ) -> Option<Self> {
        let figures = seconds::figures(record, workload, phase);
        figures.first()?;
        let charts = OfSecond::ALL.into_iter().filter_map(|what| {
            let id = format!("{}-{}-{id}", what.id(), phase.name());
            Some(SecondsChart { title: what.title(), noted: by_second(series, phase, what, &id)? })
        });
        Some(Self {
            at_rate: phase == Phase::Latency,
            caption: seconds::caption(phase),
            charts: charts.collect(),
            head: seconds::HEAD,
            rows: seconds::rows(&figures),
            disk_caption: seconds::DISK_CAPTION,
            disk_head: seconds::DISK_HEAD,
            disk_rows: seconds::disk_rows(&figures),
        })
    }
}

/// The capacity of each environment under the workload's objective.
#[derive(Serialize)]
struct ObjectiveView {
    caption: String,
    head: [&'static str; 4],
    rows: Vec<Vec<String>>,
}

impl ObjectiveView {
    fn new(record: &Record, analysis: &Analysis, workload: &str) -> Option<Self> {
        let (caption, rows) = objective::table(record, analysis, workload)?;
        Some(Self { caption, head: objective::HEAD, rows })
    }
}

/// A figure with its interval on the line below.
#[derive(Serialize)]
struct Stacked {
    value: String,
    below: String,
}

/// A cost and its class: `loss`, `gain` or `none`.
#[derive(Serialize)]
struct CostView {
    text: Stacked,
    class: &'static str,
}

#[derive(Serialize)]
struct LatencyRow {
    environment: String,
    role: Option<&'static str>,
    /// Mean, percentiles, maximum, and the number of operations.
    response: Option<Vec<Stacked>>,
    service: Option<Vec<Stacked>>,
    /// Percentiles of the response time over the baseline's, which may be empty.
    over: Vec<CostView>,
    doubts: Vec<usize>,
}

impl WorkloadView {
    pub(super) fn new(
        id: usize,
        record: &Record,
        analysis: &Analysis,
        workload: &WorkloadSpec,
        marks: &DoubtGroups,
    ) -> Option<WorkloadView> {
        let findings: Vec<&Finding> =
            analysis.findings.iter().filter(|f| f.workload == workload.name).collect();
        findings.first()?;
        let series = Series::all(record, &findings);
        let responses: Vec<Option<Responses>> =
            series.iter().map(|d| responses(d.slices.iter().copied())).collect();
        let throughput = charts::throughput(&series, &format!("rate-{id}"));
        let costs = |metric, name: &str| {
            charts::costs(record, analysis, &series, metric, &format!("{name}-{id}"))
                .map(Value::from_safe_string)
        };
        let noise_of = |metric: Metric, name: &str| {
            telling_noise(analysis, &workload.name, metric)
                .map(|noise| format!("{noise:.1} % in {name}"))
        };
        let noises: Vec<String> = [
            noise_of(Metric::ServerCpu, "server CPU per operation"),
            noise_of(Metric::Throughput, "throughput"),
        ]
        .into_iter()
        .flatten()
        .collect();
        Some(WorkloadView {
            id,
            name: clean(&workload.name),
            conditions: conditions(record, workload),
            rate: fixed_rate(record, &workload.name).map(|at| format!("{} op/s", rate(at))),
            legend: series
                .iter()
                .map(|of| Legend::new(&of.finding.environment, of.style))
                .collect(),
            cpu_costs: costs(Metric::ServerCpu, "cpu"),
            throughput_costs: costs(Metric::Throughput, "lost"),
            noise: (!noises.is_empty()).then(|| noises.join(" and ")),
            objective: ObjectiveView::new(record, analysis, &workload.name),
            climb: charts::climb(workload, &format!("climb-{id}")).map(Value::from_safe_string),
            folded: throughput.as_ref().is_some_and(|(_, folded)| *folded),
            throughput: throughput.map(|(chart, _)| Value::from_safe_string(chart)),
            throughput_over_time: charts::throughput_over_time(&series, &format!("rate-time-{id}")),
            percentiles: charts::percentiles(&series, &responses, &format!("grouped-{id}"))
                .map(Value::from_safe_string),
            distribution: charts::distribution(&series, &responses, &format!("hdr-{id}")),
            p99_over_time: charts::p99_over_time(&series, &responses, &format!("p99-time-{id}")),
            seconds: SecondsView::all(id, record, &workload.name, &series),
            interrupts: InterruptsView::new(record, &workload.name, &format!("interrupts-{id}")),
            counters_over_time: charts::counters_over_time(&series),
            window: window_text(record.study.schedule.window),
            costs: findings.iter().map(|f| CostRow::new(record, analysis, f, marks)).collect(),
            over: findings.iter().any(|f| tails::over_baseline(f, PERCENTS[0]).is_some()),
            latencies: findings
                .iter()
                .filter(|f| f.response.is_some() || f.service.is_some())
                .map(|f| LatencyRow::new(analysis, f, marks))
                .collect(),
            published: findings
                .iter()
                .any(|f| relations::mark(record, &f.environment, &workload.name).is_some()),
            polling: polling::sentences(record, &findings).join(" "),
            own: OwnTable::new(record, &workload.name, &findings, marks),
        })
    }
}

/// Formats the length of a window: `400 ms`, `1h`.
fn window_text(window: Duration) -> String {
    if window < WINDOW_MIN { format!("{} ms", window.as_millis()) } else { duration(window) }
}

/// The name of the condition of the closed loop.
const CAPACITY: &str = "Capacity";

fn conditions(record: &Record, workload: &WorkloadSpec) -> Vec<(String, String)> {
    let connected = crate::run_conditions::connection(workload);
    let connected = connected.map(|text| ("Connections".to_string(), text));
    let mut all = load_conditions(record, workload);
    if workload.rate_only {
        all.retain(|(name, _)| name != CAPACITY);
    }
    all.extend(connected);
    all
}

fn load_conditions(record: &Record, workload: &WorkloadSpec) -> Vec<(String, String)> {
    let at_rate = match fixed_rate(record, &workload.name) {
        Some(at) => format!("open loop at {} op/s, the same for every environment", rate(at)),
        None => "not measured".to_string(),
    };
    if !workload.options.is_empty() {
        // Some drivers have their own options instead of rows.
        let asked = options_text(&workload.options);
        let found = crate::run_conditions::found(workload);
        return vec![
            (format!("Asked of {}", record.study.driver), asked),
            (CAPACITY.into(), format!("closed loop{found}: a maximum, not a service level")),
            ("Latency".into(), at_rate),
        ];
    }
    let keys = match workload.keys {
        KeyDistribution::Uniform => "uniform".to_string(),
        KeyDistribution::Sequential => "sequential".to_string(),
        KeyDistribution::Gaussian { mean_share, deviation_share } => {
            format!(
                "gaussian, mean at {mean_share:.2} and deviation {deviation_share:.2} of the rows"
            )
        }
    };
    let writes = workload.write_share * 100.0;
    let capacity = format!(
        "closed loop, {} in flight{} over {} connection{}: a maximum, not a service level",
        workload.in_flight,
        crate::run_conditions::found(workload),
        workload.connections,
        if workload.connections == 1 { "" } else { "s" }
    );
    if let Some(name) = &workload.workload {
        let asked = format!("{name}, a workload that ships: tare load --show {name}");
        return vec![
            ("Operations".into(), asked),
            ("Rows".into(), thousands(workload.rows)),
            (CAPACITY.into(), capacity),
            ("Latency".into(), at_rate),
        ];
    }
    vec![
        (
            "Operations".into(),
            format!("{writes:.0} % writes, {:.0} % reads by key", 100.0 - writes),
        ),
        (
            "Rows".into(),
            format!(
                "{} of {} × {} bytes",
                thousands(workload.rows),
                workload.columns,
                workload.column_bytes
            ),
        ),
        ("Keys".into(), keys),
        (CAPACITY.into(), capacity),
        ("Latency".into(), at_rate),
    ]
}

/// `+76.4 % [72.1, 84.7]` as two lines.
fn stacked(text: &str) -> Stacked {
    let at = text.find(" [").or_else(|| text.find(" (")).unwrap_or(text.len());
    let (value, below) = text.split_at(at);
    Stacked { value: value.to_string(), below: below.trim_start().to_string() }
}

fn missing() -> String {
    "\u{2013}".to_string()
}

impl CostRow {
    fn new(
        record: &Record,
        analysis: &Analysis,
        finding: &Finding,
        marks: &DoubtGroups,
    ) -> CostRow {
        let figure = |interval: &Option<Interval>, form| {
            stacked(&interval.as_ref().map_or_else(missing, |i| with_interval(i, form)))
        };
        let view = |kind: CostKind| {
            CostView::new(kind.cost(finding), finding, verdict(analysis, finding, kind))
        };
        let rests_on = finding.server_cpu_us.or(finding.throughput_per_s);
        let mut throughput = figure(&finding.throughput_per_s, rate);
        if let Some(bytes_per_s) = bandwidth::per_s(record, finding) {
            throughput.below = format!("{} {}", throughput.below, bandwidth::text(bytes_per_s));
        }
        CostRow {
            environment: clean(&finding.environment),
            role: role(finding),
            blocks: rests_on.map_or_else(|| "\u{2013}".to_string(), |i| i.rounds.to_string()),
            slices: finding.slices,
            void: finding.slices_void,
            cpu: figure(&finding.server_cpu_us, micros),
            cpu_cost: view(CostKind::ServerCpu),
            cpu_at_rate: figure(&finding.server_cpu_us_at_rate, micros),
            cpu_cost_at_rate: view(CostKind::ServerCpuAtRate),
            total_cpu: figure(&finding.total_cpu_us, micros),
            total_cpu_cost: view(CostKind::TotalCpu),
            throughput,
            throughput_cost: view(CostKind::Throughput),
            client_cpu: figure(&finding.client_cpu_us, micros),
            client_share: finding.client_cpu_share.map_or_else(missing, share),
            doubts: marks.numbers(&finding.environment, &finding.workload),
        }
    }
}

impl CostView {
    fn new(of: Option<&Cost>, finding: &Finding, verdict: Option<Verdict>) -> CostView {
        let Some(of) = of else {
            let text = if finding.baseline { "baseline" } else { "\u{2013}" };
            return CostView { text: stacked(text), class: "none" };
        };
        let class = match verdict {
            Some(Verdict::Loss) => "loss",
            Some(Verdict::Gain) => "gain",
            _ => "none",
        };
        CostView { text: stacked(&cost(of, verdict, CostFormat::Short)), class }
    }
}

impl LatencyRow {
    fn new(analysis: &Analysis, finding: &Finding, marks: &DoubtGroups) -> LatencyRow {
        let columns = |of: &Latency, with_intervals: bool| {
            let own = [of.p50_ns, of.p95_ns, of.p99_ns, of.p999_ns];
            let percentile = |(percent, ns): (f64, u64)| {
                let interval = of.percentile(percent).filter(|_| with_intervals);
                let below = interval.map(|one| match &one.ns {
                    Some(ns) => tails::bounds(ns),
                    None => tails::NOT_ENOUGH.to_string(),
                });
                Stacked { value: latency(ns), below: below.unwrap_or_default() }
            };
            let mut columns = vec![stacked(&nanoseconds(of.mean_ns))];
            columns.extend(PERCENTS.into_iter().zip(own).map(percentile));
            columns.push(stacked(&latency(of.max_ns)));
            columns.push(stacked(&thousands(of.count)));
            columns
        };
        let over = |percent: f64| {
            let text = tails::ratio(analysis, finding, percent);
            let class = match tails::claimed(analysis, finding, percent) {
                Some(over) if over.ratio.value > 1.0 => "loss",
                Some(_) => "gain",
                None => "none",
            };
            CostView { text: stacked(&text), class }
        };
        let compared = !finding.baseline && tails::percentile(finding, PERCENTS[0]).is_some();
        LatencyRow {
            environment: clean(&finding.environment),
            role: role(finding),
            response: finding.response.as_ref().map(|of| columns(of, true)),
            // The table has no room for these intervals; the JSON has them.
            service: finding.service.as_ref().map(|of| columns(of, false)),
            over: if compared { PERCENTS.map(over).into() } else { Vec::new() },
            doubts: marks.numbers(&finding.environment, &finding.workload),
        }
    }
}
