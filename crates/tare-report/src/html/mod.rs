//! A record as one self-contained HTML page that needs no network. Scripts draw the dense charts
//! and the flame graphs; without them static charts and tables show the same figures.
//!
//! The templates (`page.html` and `sections/`) escape every value by minijinja's auto-escape; the
//! charts are SVG from a writer that escapes every text (`svg`). Colours are Okabe and Ito's, which
//! are distinct with any colour vision (<https://jfly.uni-koeln.de/color/>); shape or text repeats
//! what a colour means.

mod charts;
mod compare;
mod diff;
pub mod disk;
mod document;
mod explain;
mod findings;
mod history;
mod host;

mod instances;
mod stacks;
pub(crate) mod standalone;
mod summary;
pub(crate) mod svg;
mod sweeps;
mod workload;

use minijinja::Value;
use serde::Serialize;
use tare_lab::analysis::{Analysis, Finding};
use tare_lab::record::Record;
use tare_lab::stacks::StackSlice;
use tare_lab::study::ScheduleKind;

use crate::axes::{Axis, axes};
use crate::counters;
use crate::doubts::DoubtGroups;
use crate::figures::{clean, command, in_order, left_out, rounds, span, utc};
use crate::headline::{capital, headline};
use crate::network_path::{self, DrawnPath};
use crate::prove::{self, Proof};
use crate::relations;
use crate::run_conditions::{guest, interrupts};
use crate::slice_schedule;
use document::{Asset, Document};
use host::{EnvironmentView, Settings};
use instances::InstancesView;
use stacks::StacksView;
use summary::SummaryView;
use sweeps::SweepView;
use workload::WorkloadView;

pub use compare::comparison;
pub use history::history;
pub use stacks::flamegraph;
pub use summary::slide;

/// The page of a record and its stack slices ([`tare_lab::record::read_stacks`]), which may be
/// empty.
pub fn page(record: &Record, analysis: &Analysis, stacks: &[StackSlice]) -> String {
    document::render("page.html", View::new(record, analysis, stacks))
}

/// The gains of host tuning.
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

/// The comparison of several workloads.
#[derive(Serialize)]
struct GroupsView {
    throughput: Option<Value>,
    latency: Option<Value>,
    /// Whether the latency is of the closed loop, because no rate was measured.
    closed: bool,
}

impl GroupsView {
    /// Workloads on an axis are drawn as lines instead.
    fn new(record: &Record, analysis: &Analysis, axes: &[Axis<'_>]) -> Option<Self> {
        let of = |name: &str| {
            let findings = analysis.findings.iter().filter(|f| f.workload == name);
            findings.collect::<Vec<_>>()
        };
        let names = record.study.workloads.iter().map(|workload| workload.name.as_str());
        let on_axis = |name: &str| axes.iter().any(|axis| axis.workloads.contains(&name));
        let groups: Vec<(&str, Vec<&Finding>)> =
            names.filter(|name| !on_axis(name)).map(|name| (name, of(name))).collect();
        if record.study.workloads.len() < 2 {
            return None;
        }
        let closed = analysis.findings.iter().all(|finding| finding.response.is_none());
        let draw = |chart: Option<String>| chart.map(Value::from_safe_string);
        let latency = charts::groups::latency(record, &groups, closed, "groups-latency");
        let throughput = charts::groups::throughput(&groups, "groups-rate");
        let (throughput, latency) = (draw(throughput), draw(latency));
        throughput.is_some().then_some(Self { throughput, latency, closed })
    }
}

/// Published relations and ours.
#[derive(Serialize)]
struct PublishedView {
    summary: String,
    note: &'static str,
    head: [&'static str; 6],
    rows: Vec<relations::Row>,
}

impl PublishedView {
    fn new(record: &Record) -> Option<Self> {
        let rows = relations::rows(record);
        let summary = capital(&relations::summary(&rows));
        let (note, head) = (relations::NOTE, relations::HEAD);
        (!rows.is_empty()).then_some(Self { summary, note, head, rows })
    }
}

#[derive(Serialize)]
struct View {
    document: Document,
    title: String,
    name: String,
    headline: String,
    running: bool,
    summary: SummaryView,
    findings: Vec<findings::FindingView>,
    facts: Vec<(String, String)>,
    workloads: Vec<WorkloadView>,
    several: bool,
    left_out: Vec<(String, String)>,
    /// The network paths of the loaders, each from left to right.
    paths: Vec<DrawnPath>,
    /// `None` for a single workload.
    groups: Option<GroupsView>,
    sweeps: Vec<SweepView>,
    /// Empty unless an environment runs several instances.
    instances: Vec<InstancesView>,
    /// `None` if the study has no published relations.
    published: Option<PublishedView>,
    arithmetic: Vec<String>,
    /// `None` if no stacks were sampled.
    stacks: Option<StacksView>,
    counters: Vec<counters::Table>,
    /// `None` unless the record is from `tare explain`.
    explanation: Option<explain::ExplainView>,
    /// `None` unless the study tunes the host.
    tuning: Option<TuningView>,
    marks: Vec<DoubtView>,
    layers: Vec<EnvironmentView>,
    settings: Settings,
    not_in_force: usize,
    diffs: Vec<diff::ConfigDiff>,
    host: Vec<host::Section>,
    order_chart: Option<Value>,
    order: Vec<(u32, String)>,
    command: String,
    seed: u64,
    study_text: String,
    version: String,
}

#[derive(Serialize)]
struct DoubtView {
    number: usize,
    title: &'static str,
    advice: String,
    seen: Vec<String>,
}

impl View {
    fn new(record: &Record, analysis: &Analysis, stacks: &[StackSlice]) -> View {
        let marks = DoubtGroups::of(record, analysis);
        let environments = in_order(record);
        let workloads: Vec<WorkloadView> = record
            .study
            .workloads
            .iter()
            .enumerate()
            .filter_map(|(id, workload)| WorkloadView::new(id, record, analysis, workload, &marks))
            .collect();
        let axes = axes(&record.study);
        let stacks_view = StacksView::new(record, stacks);
        let mut parts = vec![Asset::Plots];
        if stacks_view.is_some() {
            parts.push(Asset::FlameGraph);
        }
        View {
            document: Document::new(
                clean(&format!("{}: {}", record.study.name, record.study.title)),
                clean(&record.header.tare_version),
                &parts,
            ),
            stacks: stacks_view,
            title: clean(&record.study.title),
            name: clean(&record.study.name),
            // A no-break space keeps the percent sign off the start of a line.
            headline: headline(record, analysis).replace(" %", "\u{a0}%"),
            summary: SummaryView::new(record, analysis),
            running: record.header.ended_unix_ms.is_none(),
            findings: findings::views(
                &crate::findings::statements(record, analysis, stacks),
                workloads.len() > 1,
            ),
            facts: facts(record, analysis),
            several: workloads.len() > 1,
            workloads,
            paths: network_path::drawn(record),
            left_out: left_out(record)
                .iter()
                .map(|(name, why)| (clean(name), clean(why)))
                .collect(),
            groups: GroupsView::new(record, analysis, &axes),
            sweeps: SweepView::all(&axes, record, analysis),
            instances: InstancesView::all(record, analysis),
            published: PublishedView::new(record),
            arithmetic: analysis.arithmetic.iter().map(|line| clean(line)).collect(),
            counters: counters::tables(record),
            explanation: explain::ExplainView::new(record),
            tuning: Proof::of(record, analysis).as_ref().map(TuningView::new),
            marks: marks.0.iter().map(DoubtView::new).collect(),
            layers: environments
                .iter()
                .filter(|e| !e.layers.is_empty())
                .map(|e| EnvironmentView::new(e, &record.study.baseline))
                .collect(),
            settings: host::settings(&environments, &record.study.baseline),
            not_in_force: host::not_in_force(&environments),
            diffs: diff::between(&environments),
            host: host::facts(record),
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
                "system {}, client {}, of {}{}",
                cpus(&plan.system),
                cpus(&plan.client),
                cpus(&plan.all),
                interrupts(plan)
            ),
        ),
        (
            "Schedule",
            match schedule.kind {
                ScheduleKind::Slices => format!(
                    "{}; slices of {} after {} of lead-in, random order in every round{}",
                    rounds(analysis.rounds),
                    ms(schedule.window),
                    ms(schedule.lead_in),
                    slice_schedule::text(schedule, &analysis.findings)
                ),
                ScheduleKind::Trials => format!(
                    "{}; whole runs of {} after {} of lead-in, interleaved by round",
                    rounds(analysis.rounds),
                    ms(schedule.window),
                    ms(schedule.lead_in)
                ),
            },
        ),
        ("Ran", format!("{}, {took}{ending}", utc(header.started_unix_ms))),
    ]
    .into_iter()
    .chain(guest(record).map(|guest| ("Inside", format!("a guest: {guest}"))))
    .map(|(key, value)| (key.to_string(), clean(&value)))
    .chain(
        crate::loaders::lines(record)
            .into_iter()
            .map(|(host, line)| (clean(&format!("Loader {host}")), clean(&line))),
    )
    .collect()
}

impl DoubtView {
    fn new(mark: &crate::doubts::DoubtGroup) -> DoubtView {
        DoubtView {
            number: mark.number,
            title: mark.title,
            advice: mark.advice.clone(),
            seen: mark.lines(),
        }
    }
}

/// The order of the slices in each round.
fn order(record: &Record) -> Vec<(u32, String)> {
    let several = record.study.workloads.len() > 1;
    let mut order: Vec<(u32, Vec<String>)> = Vec::new();
    for slice in &record.slices {
        let phase = slice.phase.name();
        let what = if several { format!("{} {phase}", slice.workload) } else { phase.to_string() };
        let text = clean(&format!("{} ({what})", slice.environment));
        match order.last_mut() {
            Some((block, texts)) if *block == slice.round => texts.push(text),
            _ => order.push((slice.round, vec![text])),
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
            fixture::single_round(),
            fixture::empty(),
            fixture::hostile(),
        ] {
            let page = page(&record, &analysis, &[]);
            assert!(page.starts_with("<!doctype html>"));
            assert!(!page.contains("NaN") && !page.contains("inf%"), "a figure is missing");
        }
    }

    #[test]
    fn page_of_a_long_study_stays_small() {
        let (record, analysis) = fixture::long();
        let page = page(&record, &analysis, &[]);
        assert!(page.len() < 1_000_000, "{} bytes", page.len());
        let table =
            page.split_once("id=\"published-title\"").unwrap().1.split_once("</table>").unwrap().0;
        assert!(table.contains("docker default against native: throughput"), "{table}");
        assert!(table.contains("not measured"), "{table}");
        if let Some(path) = std::env::var_os("TARE_LONG_PAGE") {
            std::fs::write(path, &page).unwrap();
        }
    }

    /// `cargo test --release --package tare-report page_of_many_rounds -- --nocapture` prints the
    /// time.
    #[test]
    #[expect(clippy::print_stderr, reason = "the time is printed, not tested")]
    fn page_of_many_rounds_stays_small() {
        let (record, analysis) = fixture::many_rounds();
        let started = std::time::Instant::now();
        let page = page(&record, &analysis, &[]);
        eprintln!("{} slices: {:?}, {} bytes", record.slices.len(), started.elapsed(), page.len());
        assert!(page.len() < 20_000_000, "{} bytes", page.len());
        assert!(page.contains("rounds share a column"), "the page notes what it left out");
        assert!(page.contains("too many rounds for a dot each"));
        if let Some(path) = std::env::var_os("TARE_LONG_PAGE") {
            std::fs::write(path, &page).unwrap();
        }
    }

    #[test]
    fn hostile_names_show_as_text() {
        let (record, analysis) = fixture::hostile();
        let page = page(&record, &analysis, &[]);
        for markup in [
            "<script>a",
            "<script>1",
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
        assert_eq!(page.matches("</style>").count(), page.matches("<style>").count());
        assert_eq!(page.matches("</script>").count(), page.matches("<script").count());
        assert!(page.contains("&lt;script&gt;alert(&#x27;x&#x27;)"), "the name is shown");
        assert!(page.contains("{{ 7*7 }}") && !page.contains(" 49 "), "names are no templates");
    }

    #[test]
    fn page_is_self_contained() {
        let (record, analysis) = fixture::quick();
        let page = page(&record, &analysis, &[]);
        for reference in [" src=", "href=\"http", "url(", "@import", "fetch(", "XMLHttpRequest"] {
            assert!(!page.contains(reference), "{reference}");
        }
        assert!(page.contains("default-src 'none'"), "the policy forbids other sources");
    }
}
