//! What was concluded of a record as CSV: a line per figure, each with its interval, so that a
//! spreadsheet can pivot it.

use tare_lab::analysis::{Analysis, Cost, Finding, Interval};

use super::line;
use crate::headline::{Metric, claimed};
use crate::tails;

const COLUMNS: [&str; 11] = [
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
];

/// Figures, costs and percentiles of every environment, a header line first. Lines end in CR LF; what has
/// no bound is empty. `found`: the interval excludes no difference; `claimed`: beyond the A/A control, too.
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
            add(out, finding, (name, unit), level, [None; 2]);
        }
    }
}

fn costs(out: &mut String, analysis: &Analysis, finding: &Finding) {
    let claim = |metric| Some(claimed(analysis, finding, metric));
    let mut one = |name: &str, cost: &Option<Cost>, claimed: Option<bool>| {
        if let Some(cost) = cost {
            add(out, finding, (name, "percent"), &cost.percent, [Some(cost.found), claimed]);
        }
    };
    one("server_cpu_cost", &finding.server_cpu_cost, claim(Metric::ServerCpu));
    one("server_cpu_cost_at_rate", &finding.server_cpu_cost_at_rate, None);
    one("total_cpu_cost", &finding.total_cpu_cost, None);
    one("throughput_cost", &finding.throughput_cost, claim(Metric::Throughput));
}

fn latencies(out: &mut String, analysis: &Analysis, finding: &Finding) {
    for (which, latency) in [("response", &finding.response), ("service", &finding.service)] {
        for one in latency.iter().flat_map(|latency| &latency.percentiles) {
            let name = format!("{which}_{}", tails::name(one.percent));
            if let Some(ns) = &one.ns {
                add(out, finding, (&name, "ns"), ns, [None; 2]);
            }
            let Some(over) = &one.over_baseline else { continue };
            let claim = tails::claimed(analysis, finding, one.percent).is_some();
            let claim = (which == "response").then_some(claim);
            let ratio = format!("{name}_over_baseline");
            add(out, finding, (&ratio, "ratio"), &over.ratio, [Some(over.found), claim]);
            let more = format!("{name}_less_baseline");
            add(out, finding, (&more, "ns"), &over.difference_ns, [None; 2]);
        }
    }
}

fn add(
    out: &mut String,
    finding: &Finding,
    (name, unit): (&str, &str),
    figure: &Interval,
    found_and_claimed: [Option<bool>; 2],
) {
    let number = |x: f64| if x.is_finite() { x.to_string() } else { String::new() };
    let flag = |is: Option<bool>| is.map(|is| is.to_string()).unwrap_or_default();
    let [found, claimed] = found_and_claimed.map(flag);
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
        figure.blocks.to_string(),
        found,
        claimed,
    ];
    line(out, fields.into_iter());
}
