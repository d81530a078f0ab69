//! What was concluded of a record as CSV: a line per figure, each with its interval, so that a
//! spreadsheet can pivot it.

use tare_lab::analysis::{Analysis, Finding, Interval, claims};
use tare_stats::law::Verdict;

use super::line;
use crate::json::COSTS;
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
/// what has no bound is empty. `found`: the interval excludes no difference; `claimed`: beyond the
/// A/A control, too; `verdict`: what may be said (`tare_stats::law::Verdict`), empty for the
/// control.
pub fn figures(analysis: &Analysis) -> String {
    let mut out = String::new();
    line(&mut out, COLUMNS.iter().map(|column| (*column).to_string()));
    for finding in &analysis.findings {
        levels(&mut out, finding);
        costs(&mut out, analysis, finding);
        latencies(&mut out, analysis, finding);
    }
    out
}

fn levels(out: &mut String, finding: &Finding) {
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
}

fn costs(out: &mut String, analysis: &Analysis, finding: &Finding) {
    for (name, of) in COSTS {
        if let Some(cost) = of(finding) {
            let said = Verdicts::new(cost.found, claims::verdict_of(analysis, finding, of));
            add(out, finding, (name, "percent"), &cost.percent, said);
        }
    }
}

fn latencies(out: &mut String, analysis: &Analysis, finding: &Finding) {
    for (which, latency) in [("response", &finding.response), ("service", &finding.service)] {
        for one in latency.iter().flat_map(|latency| &latency.percentiles) {
            let name = format!("{which}_{}", tails::name(one.percent));
            if let Some(ns) = &one.ns {
                add(out, finding, (&name, "ns"), ns, Verdicts::default());
            }
            let Some(over) = &one.over_baseline else { continue };
            let verdict = claims::ratio_verdict(analysis, finding, one.percent);
            let said = match which {
                "response" => Verdicts::new(over.found, verdict),
                _ => Verdicts { found: Some(over.found), ..Verdicts::default() },
            };
            let ratio = format!("{name}_over_baseline");
            add(out, finding, (&ratio, "ratio"), &over.ratio, said);
            let more = format!("{name}_less_baseline");
            add(out, finding, (&more, "ns"), &over.difference_ns, Verdicts::default());
        }
    }
}

/// What may be said of a figure, where anything is.
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
    out: &mut String,
    finding: &Finding,
    (name, unit): (&str, &str),
    figure: &Interval,
    said: Verdicts,
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
        flag(said.found),
        flag(said.claimed),
        said.verdict.map(|verdict| verdict.name().to_string()).unwrap_or_default(),
    ];
    line(out, fields.into_iter());
}
