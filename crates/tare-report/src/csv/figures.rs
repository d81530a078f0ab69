//! The figures of an analysis as CSV: one line per figure with its interval, ready to pivot in a
//! spreadsheet.

use tare_lab::analysis::claims::{self, CostKind};
use tare_lab::analysis::{Analysis, Finding, Interval};
use tare_stats::law::Verdict;

use crate::csv_table::CsvTable;
use crate::figures::COST_FIELDS;
use crate::tails;

const COLUMNS: [&str; 12] = [
    "workload",
    "environment",
    "role",
    "figure",
    "unit",
    "value",
    "low",
    "high",
    "blocks",
    "found",
    "claimed",
    "verdict",
];

/// Figures, costs and percentiles of every environment, a header line first. Lines end in CR LF;
/// a missing bound is empty. `found`: the interval excludes no difference; `claimed`: it is also
/// beyond the A/A control; `verdict`: a `tare_stats::law::Verdict`, empty for the control.
pub fn figures(analysis: &Analysis) -> String {
    let mut out = CsvTable::new(COLUMNS);
    for finding in &analysis.findings {
        levels(&mut out, finding);
        costs(&mut out, analysis, finding);
        latencies(&mut out, analysis, finding);
    }
    out.finish()
}

fn levels(out: &mut CsvTable, finding: &Finding) {
    for (name, unit, level) in [
        ("server_cpu", "us/op", &finding.server_cpu_us),
        ("server_cpu_at_rate", "us/op", &finding.server_cpu_us_at_rate),
        ("total_cpu", "us/op", &finding.total_cpu_us),
        ("client_cpu", "us/op", &finding.client_cpu_us),
        ("throughput", "op/s", &finding.throughput_per_s),
    ] {
        if let Some(level) = level {
            add(out, finding, (name, unit), level, Verdicts::default());
        }
    }
    let slo = finding.slo.as_ref().and_then(|slo| slo.capacity_per_s.as_ref());
    if let Some(level) = slo {
        add(out, finding, ("slo_capacity", "op/s"), level, Verdicts::default());
    }
}

fn costs(out: &mut CsvTable, analysis: &Analysis, finding: &Finding) {
    for (name, kind) in COST_FIELDS.into_iter().chain([("slo_cost", CostKind::Slo)]) {
        if let Some(cost) = kind.cost(finding) {
            let verdicts = Verdicts::new(cost.found, claims::verdict(analysis, finding, kind));
            add(out, finding, (name, "percent"), &cost.percent, verdicts);
        }
    }
}

fn latencies(out: &mut CsvTable, analysis: &Analysis, finding: &Finding) {
    for (which, latency) in [("response", &finding.response), ("service", &finding.service)] {
        for one in latency.iter().flat_map(|latency| &latency.percentiles) {
            let name = format!("{which}_{}", tails::name(one.percent));
            if let Some(ns) = &one.ns {
                add(out, finding, (&name, "ns"), ns, Verdicts::default());
            }
            let Some(over) = &one.over_baseline else { continue };
            let verdict = claims::ratio_verdict(analysis, finding, one.percent);
            let verdicts = match which {
                "response" => Verdicts::new(over.found, verdict),
                _ => Verdicts { found: Some(over.found), ..Verdicts::default() },
            };
            let ratio = format!("{name}_over_baseline");
            add(out, finding, (&ratio, "ratio"), &over.ratio, verdicts);
            let more = format!("{name}_less_baseline");
            add(out, finding, (&more, "ns"), &over.difference_ns, Verdicts::default());
        }
    }
}

/// The last three columns of a figure.
#[derive(Clone, Copy, Default)]
struct Verdicts {
    found: Option<bool>,
    claimed: Option<bool>,
    verdict: Option<Verdict>,
}

impl Verdicts {
    fn new(found: bool, verdict: Option<Verdict>) -> Self {
        let claimed = verdict.is_some_and(Verdict::is_claim);
        Self { found: Some(found), claimed: Some(claimed), verdict }
    }
}

fn add(
    out: &mut CsvTable,
    finding: &Finding,
    (name, unit): (&str, &str),
    figure: &Interval,
    verdicts: Verdicts,
) {
    let number = |x: f64| if x.is_finite() { x.to_string() } else { String::new() };
    let flag = |is: Option<bool>| is.map(|is| is.to_string()).unwrap_or_default();
    let role = match (finding.baseline, finding.control) {
        (true, _) => "baseline",
        (_, true) => "control",
        _ => "",
    };
    let fields = [
        finding.workload.clone(),
        finding.environment.clone(),
        role.to_string(),
        name.to_string(),
        unit.to_string(),
        number(figure.value),
        number(figure.low),
        number(figure.high),
        figure.rounds.to_string(),
        flag(verdicts.found),
        flag(verdicts.claimed),
        verdicts.verdict.map(|verdict| verdict.name().to_string()).unwrap_or_default(),
    ];
    out.row(fields);
}
