//! A record as one self-contained HTML page: no script, no network, everything inside.
//!
//! The template escapes every value (`page.html`, minijinja's auto-escape); the charts are drawn
//! here as SVG by a writer that escapes by construction (`svg`). Colours are Okabe and Ito's,
//! which people with any colour vision can tell apart (<https://jfly.uni-koeln.de/color/>), and
//! shape or text always says the same again.

mod charts;
mod diff;
mod explain;
mod svg;

use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Value};
use serde::Serialize;
use tare_lab::analysis::{Analysis, Cost, Finding, Interval, Latency};
use tare_lab::record::{EnvironmentRecord, Record};
use tare_lab::study::{KeyDistribution, PublishedCost, ScheduleKind, WorkloadSpec};
use tare_std::units::{nanoseconds, thousands};

use crate::counters;
use crate::doubts::Marks;
use crate::figures::{
    Room, clean, command, cost, in_order, latency, micros, percent, rate, role, share, span, utc,
    with_interval,
};
use crate::headline::{Metric, blocks, claimed, headline, noise};
use crate::prove::{self, Proof};
use crate::terminal::fixed_rate;

const TEMPLATE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");

/// The page.
pub fn page(record: &Record, analysis: &Analysis) -> String {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    let view = Value::from(Serde(View::new(record, analysis)));
    // The template is part of the program and takes no code from the record, so that it cannot fail
    // for one record and not for another; the tests render it for every kind of record.
    environment
        .render_str(TEMPLATE, view)
        .unwrap_or_else(|error| panic!("the page's own template is broken: {error:#}"))
}

/// What tuning the host gained.
#[derive(Serialize)]
struct TuningView {
    caption: String,
    head: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    sentences: Vec<String>,
}

impl TuningView {
    fn new(proof: &Proof) -> Self {
        let (head, rows) = prove::table(proof);
        Self { caption: prove::caption(proof), head, rows, sentences: prove::sentences(proof) }
    }
}

#[derive(Serialize)]
struct View {
    style: Value,
    title: String,
    name: String,
    headline: String,
    running: bool,
    facts: Vec<(String, String)>,
    workloads: Vec<WorkloadView>,
    several: bool,
    left_out: Vec<(String, String)>,
    arithmetic: Vec<String>,
    counters: Vec<counters::Table>,
    /// Where a cost was explained.
    explanation: Option<explain::ExplainView>,
    /// Where a study tunes the host.
    tuning: Option<TuningView>,
    marks: Vec<MarkView>,
    layers: Vec<EnvironmentView>,
    settings: Settings,
    diffs: Vec<diff::ConfigDiff>,
    host: Vec<(String, Vec<(String, String)>)>,
    order_chart: Option<Value>,
    order: Vec<(u32, String)>,
    command: String,
    seed: u64,
    study_text: String,
    version: String,
}

#[derive(Serialize)]
struct WorkloadView {
    id: usize,
    name: String,
    conditions: Vec<(String, String)>,
    rate: Option<String>,
    legend: Vec<Legend>,
    cpu_ladder: Option<Value>,
    throughput_ladder: Option<Value>,
    noise: Option<String>,
    throughput: Option<Value>,
    percentiles: Option<Value>,
    distribution: Option<Value>,
    costs: Vec<CostRow>,
    latencies: Vec<LatencyRow>,
    published: Vec<PublishedRow>,
    busy_time: bool,
}

#[derive(Serialize)]
struct Legend {
    swatch: Value,
    name: String,
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

/// A figure and, on a line below it, its interval.
#[derive(Serialize)]
struct Stacked {
    value: String,
    below: String,
}

/// A cost and how it is shown: `loss`, `gain` or `none`.
#[derive(Serialize)]
struct CostView {
    text: Stacked,
    class: &'static str,
}

#[derive(Serialize)]
struct LatencyRow {
    environment: String,
    role: Option<&'static str>,
    response: Option<Vec<String>>,
    service: Option<Vec<String>>,
    doubts: Vec<usize>,
}

#[derive(Serialize)]
struct PublishedRow {
    environment: String,
    here: String,
    published: String,
    source: String,
}

#[derive(Serialize)]
struct MarkView {
    number: usize,
    title: &'static str,
    advice: String,
    seen: Vec<String>,
}

#[derive(Serialize)]
struct EnvironmentView {
    name: String,
    role: Option<&'static str>,
    ready: Option<String>,
    teardown: Option<String>,
    rows: Vec<(String, String, String, bool)>,
}

/// What the system found, one column per environment.
#[derive(Serialize)]
struct Settings {
    environments: Vec<String>,
    /// Key, whether the environments differ in it, values.
    rows: Vec<(String, bool, Vec<String>)>,
}

impl View {
    fn new(record: &Record, analysis: &Analysis) -> View {
        let marks = Marks::of(record, analysis);
        let environments = in_order(record);
        let workloads: Vec<WorkloadView> = record
            .study
            .workloads
            .iter()
            .enumerate()
            .filter_map(|(id, workload)| WorkloadView::new(id, record, analysis, workload, &marks))
            .collect();
        View {
            style: Value::from_safe_string(STYLE.to_string()),
            title: clean(&record.study.title),
            name: clean(&record.study.name),
            // A percent sign never starts a line.
            headline: headline(record, analysis).replace(" %", "\u{a0}%"),
            running: record.header.ended_unix_ms.is_none(),
            facts: facts(record, analysis),
            several: workloads.len() > 1,
            workloads,
            left_out: environments
                .iter()
                .filter_map(|e| e.left_out.as_ref().map(|why| (clean(&e.spec.name), clean(why))))
                .collect(),
            arithmetic: analysis.arithmetic.iter().map(|line| clean(line)).collect(),
            counters: counters::tables(record),
            explanation: explain::ExplainView::new(record),
            tuning: Proof::of(record, analysis).as_ref().map(TuningView::new),
            marks: marks.0.iter().map(MarkView::new).collect(),
            layers: environments
                .iter()
                .filter(|e| !e.layers.is_empty())
                .map(|e| EnvironmentView::new(e, &record.study.baseline))
                .collect(),
            settings: settings(&environments),
            diffs: diff::between(&environments),
            host: host(record),
            order_chart: charts::order(record, "order").map(Value::from_safe_string),
            order: order(record),
            command: command(&record.header.command.iter().map(|w| clean(w)).collect::<Vec<_>>()),
            seed: record.header.seed,
            study_text: record.study_text.lines().map(clean).collect::<Vec<_>>().join("\n"),
            version: clean(&record.header.tare_version),
        }
    }
}

fn facts(record: &Record, analysis: &Analysis) -> Vec<(String, String)> {
    let header = &record.header;
    let schedule = &record.study.schedule;
    let plan = &record.cpu_plan;
    let ms = |duration: std::time::Duration| format!("{} ms", duration.as_millis());
    let options: Vec<String> =
        record.study.system.options.iter().map(|(key, value)| format!("{key} = {value}")).collect();
    let cpus = |set: &tare_std::cpus::CpuSet| {
        if set.is_empty() { "none".to_string() } else { set.to_string() }
    };
    let took = match header.ended_unix_ms {
        Some(end) => span(end.saturating_sub(header.started_unix_ms)),
        None => "not finished".to_string(),
    };
    let ending = header.ending.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
    [
        (
            "System",
            [record.study.system.name.clone()]
                .into_iter()
                .chain(options)
                .collect::<Vec<_>>()
                .join(", "),
        ),
        ("Baseline", record.study.baseline.clone()),
        (
            "CPUs",
            format!(
                "system {}, client {}, of {}",
                cpus(&plan.system),
                cpus(&plan.client),
                cpus(&plan.all)
            ),
        ),
        (
            "Schedule",
            match schedule.kind {
                ScheduleKind::Slices => format!(
                    "{}; slices of {} after {} of lead-in, random order in every block",
                    blocks(analysis.blocks),
                    ms(schedule.window),
                    ms(schedule.lead_in)
                ),
                ScheduleKind::Trials => format!(
                    "{}; whole runs of {} after {} of lead-in, interleaved by round",
                    blocks(analysis.blocks),
                    ms(schedule.window),
                    ms(schedule.lead_in)
                ),
            },
        ),
        ("Ran", format!("{}, {took}{ending}", utc(header.started_unix_ms))),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_string(), clean(&value)))
    .collect()
}

impl WorkloadView {
    fn new(
        id: usize,
        record: &Record,
        analysis: &Analysis,
        workload: &WorkloadSpec,
        marks: &Marks,
    ) -> Option<WorkloadView> {
        let findings: Vec<&Finding> =
            analysis.findings.iter().filter(|f| f.workload == workload.name).collect();
        findings.first()?;
        let looks = charts::looks(&findings);
        let ladder = |metric, name: &str| {
            charts::ladder(record, analysis, &findings, metric, &format!("{name}-{id}"))
                .map(Value::from_safe_string)
        };
        let noise_of = |metric: Metric, name: &str| {
            noise(analysis, &workload.name, metric).map(|noise| format!("{noise:.1} % in {name}"))
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
            legend: findings
                .iter()
                .zip(&looks)
                .map(|(finding, look)| Legend {
                    swatch: Value::from_safe_string(svg::swatch(look.shape, look.class)),
                    name: clean(&finding.environment),
                })
                .collect(),
            cpu_ladder: ladder(Metric::ServerCpu, "cpu"),
            throughput_ladder: ladder(Metric::Throughput, "lost"),
            noise: (!noises.is_empty()).then(|| noises.join(" and ")),
            throughput: charts::throughput(record, &findings, &looks, &format!("rate-{id}"))
                .map(Value::from_safe_string),
            percentiles: charts::percentiles(&findings, &looks, &format!("grouped-{id}"))
                .map(Value::from_safe_string),
            distribution: charts::distribution(record, &findings, &looks, &format!("hdr-{id}"))
                .map(Value::from_safe_string),
            costs: findings.iter().map(|f| CostRow::new(analysis, f, marks)).collect(),
            latencies: findings
                .iter()
                .filter(|f| f.response.is_some() || f.service.is_some())
                .map(|f| LatencyRow::new(f, marks))
                .collect(),
            published: published(record, &findings),
            busy_time: findings.iter().any(|f| f.server_cpu_is_busy_time),
        })
    }
}

fn conditions(record: &Record, workload: &WorkloadSpec) -> Vec<(String, String)> {
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
        "closed loop, {} in flight over {} connection{}: a maximum, not a service level",
        workload.in_flight,
        workload.connections,
        if workload.connections == 1 { "" } else { "s" }
    );
    let at_rate = match fixed_rate(record, &workload.name) {
        Some(at) => format!("open loop at {} op/s, the same for every environment", rate(at)),
        None => "not measured".to_string(),
    };
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
        ("Capacity".into(), capacity),
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
    fn new(analysis: &Analysis, finding: &Finding, marks: &Marks) -> CostRow {
        let figure = |interval: &Option<Interval>, form| {
            stacked(&interval.as_ref().map_or_else(missing, |i| with_interval(i, form)))
        };
        let view = |cost: &Option<Cost>, metric: Option<Metric>| {
            CostView::new(cost.as_ref(), finding, metric.map(|m| claimed(analysis, finding, m)))
        };
        let rests_on = finding.server_cpu_us.or(finding.throughput_per_s);
        CostRow {
            environment: clean(&finding.environment),
            role: role(finding),
            blocks: rests_on.map_or_else(|| "\u{2013}".to_string(), |i| i.blocks.to_string()),
            slices: finding.slices,
            void: finding.slices_void,
            cpu: figure(&finding.server_cpu_us, micros),
            cpu_cost: view(&finding.server_cpu_cost, Some(Metric::ServerCpu)),
            cpu_at_rate: figure(&finding.server_cpu_us_at_rate, micros),
            cpu_cost_at_rate: view(&finding.server_cpu_cost_at_rate, None),
            total_cpu: figure(&finding.total_cpu_us, micros),
            total_cpu_cost: view(&finding.total_cpu_cost, None),
            throughput: figure(&finding.throughput_per_s, rate),
            throughput_cost: view(&finding.throughput_cost, Some(Metric::Throughput)),
            client_cpu: figure(&finding.client_cpu_us, micros),
            client_share: finding.client_cpu_share.map_or_else(missing, share),
            doubts: marks.numbers(&finding.environment, &finding.workload),
        }
    }
}

impl CostView {
    /// `claim`: whether the headline may claim it; `None` where there is no control to ask.
    fn new(of: Option<&Cost>, finding: &Finding, claim: Option<bool>) -> CostView {
        let Some(of) = of else {
            let text = if finding.baseline { "baseline" } else { "\u{2013}" };
            return CostView { text: stacked(text), class: "none" };
        };
        let class = match (claim.unwrap_or(of.found), of.percent.value > 0.0) {
            (true, true) => "loss",
            (true, false) => "gain",
            _ => "none",
        };
        CostView { text: stacked(&cost(of, Room::Short)), class }
    }
}

impl LatencyRow {
    fn new(finding: &Finding, marks: &Marks) -> LatencyRow {
        let columns = |of: &Latency| {
            let mut columns = vec![nanoseconds(of.mean_ns)];
            columns.extend(
                [of.p50_ns, of.p95_ns, of.p99_ns, of.p999_ns, of.max_ns].into_iter().map(latency),
            );
            columns.push(thousands(of.count));
            columns
        };
        LatencyRow {
            environment: clean(&finding.environment),
            role: role(finding),
            response: finding.response.as_ref().map(columns),
            service: finding.service.as_ref().map(columns),
            doubts: marks.numbers(&finding.environment, &finding.workload),
        }
    }
}

fn published(record: &Record, findings: &[&Finding]) -> Vec<PublishedRow> {
    let here = |environment: &str| {
        let finding = findings.iter().find(|f| f.environment == environment)?;
        finding.throughput_cost.as_ref().map(|c| cost(c, Room::Full))
    };
    let study = &record.study;
    let place =
        |p: &&PublishedCost| study.environments.iter().position(|e| e.name == p.environment);
    let mut published: Vec<&PublishedCost> = study.published.iter().collect();
    published.sort_by_key(|p| place(p).unwrap_or(usize::MAX));
    published
        .into_iter()
        .map(|p| PublishedRow {
            environment: clean(&p.environment),
            here: here(&p.environment).unwrap_or_else(|| "not measured".to_string()),
            published: format!("{} %", percent(p.throughput_cost_percent)),
            source: clean(&p.source),
        })
        .collect()
}

impl MarkView {
    fn new(mark: &crate::doubts::Mark) -> MarkView {
        MarkView {
            number: mark.number,
            title: mark.title,
            advice: mark.advice.clone(),
            seen: mark.lines(),
        }
    }
}

impl EnvironmentView {
    fn new(environment: &EnvironmentRecord, baseline: &str) -> EnvironmentView {
        let role = if environment.control {
            Some("A/A control")
        } else {
            (environment.spec.name == baseline).then_some("baseline")
        };
        EnvironmentView {
            name: clean(&environment.spec.name),
            role,
            ready: environment.ready_ns.map(latency),
            teardown: environment.teardown_ns.map(latency),
            rows: environment
                .layers
                .iter()
                .map(|l| (clean(&l.layer), clean(&l.wanted), clean(&l.found), l.in_force))
                .collect(),
        }
    }
}

fn settings(environments: &[&EnvironmentRecord]) -> Settings {
    let shown: Vec<&EnvironmentRecord> =
        environments.iter().copied().filter(|e| !e.settings.is_empty()).collect();
    let mut keys: Vec<&str> = Vec::new();
    for (key, _) in shown.iter().flat_map(|e| &e.settings) {
        if !keys.contains(&key.as_str()) {
            keys.push(key);
        }
    }
    let row = |key: &str| {
        let value = |e: &&EnvironmentRecord| {
            let found = e.settings.iter().find(|(k, _)| k == key);
            found.map_or_else(|| "\u{2013}".to_string(), |(_, value)| clean(value))
        };
        let values: Vec<String> = shown.iter().map(value).collect();
        let differ = values.windows(2).any(|pair| pair[0] != pair[1]);
        (clean(key), differ, values)
    };
    Settings {
        environments: shown.iter().map(|e| clean(&e.spec.name)).collect(),
        rows: keys.into_iter().map(row).collect(),
    }
}

fn host(record: &Record) -> Vec<(String, Vec<(String, String)>)> {
    let mut sections: Vec<(String, Vec<(String, String)>)> = Vec::new();
    // A plan is shown as what it led to.
    for fact in record.host.iter().filter(|fact| fact.section != tare_lab::ablation::FACTS) {
        let section = clean(&fact.section);
        let pair = (clean(&fact.key), clean(&fact.value));
        match sections.iter_mut().find(|(name, _)| *name == section) {
            Some((_, facts)) => facts.push(pair),
            None => sections.push((section, vec![pair])),
        }
    }
    sections
}

/// The order inside each block, as text.
fn order(record: &Record) -> Vec<(u32, String)> {
    let several = record.study.workloads.len() > 1;
    let mut order: Vec<(u32, Vec<String>)> = Vec::new();
    for slice in &record.slices {
        let phase = match slice.phase {
            tare_lab::record::Phase::Capacity => "capacity",
            tare_lab::record::Phase::Latency => "latency",
        };
        let what = if several { format!("{} {phase}", slice.workload) } else { phase.to_string() };
        let text = clean(&format!("{} ({what})", slice.environment));
        match order.last_mut() {
            Some((block, texts)) if *block == slice.block => texts.push(text),
            _ => order.push((slice.block, vec![text])),
        }
    }
    order.into_iter().map(|(block, texts)| (block, texts.join(", "))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn every_kind_of_record_gives_a_page() {
        for (record, analysis) in [
            fixture::quick(),
            fixture::two_workloads(),
            fixture::running(),
            fixture::single_block(),
            fixture::empty(),
            fixture::hostile(),
        ] {
            let page = page(&record, &analysis);
            assert!(page.starts_with("<!doctype html>"));
            assert!(!page.contains("NaN") && !page.contains("inf%"), "a figure is missing");
        }
    }

    #[test]
    fn long_studies_stay_small() {
        let (record, analysis) = fixture::long();
        let page = page(&record, &analysis);
        assert!(page.len() < 1_000_000, "{} bytes", page.len());
        let table =
            page.split_once("id=\"published-0\"").unwrap().1.split_once("</table>").unwrap().0;
        let at = |text: &str| table.find(text).unwrap();
        assert!(at("container default") < at("docker default"), "in the order of the study");
        assert!(table.contains("not measured"), "{table}");
        if let Some(path) = std::env::var_os("TARE_LONG_PAGE") {
            std::fs::write(path, &page).unwrap();
        }
    }

    #[test]
    fn hostile_names_show_as_text() {
        let (record, analysis) = fixture::hostile();
        let page = page(&record, &analysis);
        for markup in [
            "<script",
            "<img",
            "<i>",
            "<u>",
            "<h1>\u{3c}",
            "onload=\"x",
            "<svg onload",
            "\u{1b}",
            "\u{202e}",
        ] {
            assert!(!page.contains(markup), "{markup:?} got through");
        }
        assert_eq!(page.matches("</style>").count(), 1);
        assert!(page.contains("&lt;script&gt;alert(&#x27;x&#x27;)"), "the name is shown");
        assert!(page.contains("{{ 7*7 }}") && !page.contains(" 49 "), "names are no templates");
    }

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        let (record, analysis) = fixture::quick();
        let page = page(&record, &analysis);
        for reference in ["src=", "href=\"http", "url(", "@import", "<link", "<script"] {
            assert!(!page.contains(reference), "{reference}");
        }
    }
}
