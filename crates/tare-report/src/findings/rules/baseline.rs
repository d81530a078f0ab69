//! Whether the comparison is valid: the A/A control, and a baseline without container costs.

use tare_lab::doubt::Doubt;
use tare_lab::stacks::StackKind;

use super::super::facts::{Facts, interval};
use super::super::{Evidence, Kind, Rule, Statement, words};
use crate::figures::percent_interval;
use crate::figures::rounds;
use crate::stacks::Side;

/// Smallest share of the CPU time per operation that is reported; fewer samples are chance.
const CONNTRACK_SHARE_MIN: f64 = 0.01;
const CONNTRACK: &str = "netfilter and conntrack";

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "control_failed",
        title: "The A/A control failed",
        kind: Kind::Void,
        data: "the baseline's second copy (A/A) against the baseline; the doubt control_beyond_claim",
        condition: "the control's interval excludes 0, or the control is larger than the smallest cost that was found",
        sentence: "A/A control: {control} server CPU per operation between two copies of the baseline. Ignore costs of \
                   that size.",
        details: "",
        advice: "Repeat with more rounds or a larger --budget, on a quieter host, or with schedule.kind = \"trials\", which \
                 restarts every environment in each round.",
        expected: "",
        expected_from: "",
        apply: control_failed,
    },
    Rule {
        id: "no_control",
        title: "No A/A control",
        kind: Kind::Void,
        data: "the environments of the record",
        condition: "environments were compared, and none of them is a second copy of the baseline",
        sentence: "No A/A control: the noise of this host is unknown, and any cost may be noise. Repeat with a control.",
        details: "",
        advice: "tare weigh adds the control by itself.",
        expected: "",
        expected_from: "",
        apply: no_control,
    },
    Rule {
        id: "baseline_not_clean",
        title: "The baseline is not clean",
        kind: Kind::Caution,
        data: "the baseline's stacks by subsystem; the doubt baseline_not_clean (NAT tables and bridges in the \
                   host's network namespace)",
        condition: "the doubt is there, or netfilter and conntrack take more than 1 % of the baseline's CPU time per \
                    operation with an interval that excludes 0",
        sentence: "Unclean baseline: {found}. Costs are larger than shown.",
        details: "",
        advice: "Measure the baseline without NAT tables and container bridges: stop the engine, or run tare weigh in \
                 its own network namespace.",
        expected: "{back}",
        expected_from: "the measured time of netfilter and conntrack in the baseline's stacks; none without \
                        stacks",
        apply: baseline_not_clean,
    },
];

fn control_failed(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let mut failed = facts.analysis.doubts.iter().filter_map(|doubt| match doubt {
        Doubt::ControlBeyondClaim { control_percent, .. } => Some(*control_percent),
        _ => None,
    });
    let Some(failed) = failed.next() else { return Vec::new() };
    // Of several workloads, take the one whose control caused the doubt.
    let controls = facts.analysis.findings.iter().filter(|one| one.control);
    let worst = controls
        .filter_map(|control| Some((control, control.cpu_cost()?.percent)))
        .min_by(|a, b| (a.1.value - failed).abs().total_cmp(&(b.1.value - failed).abs()));
    let Some((control, percent)) = worst else { return Vec::new() };
    let doubts = facts.doubt_number("control_beyond_claim").into_iter().collect();
    let n = rounds(percent.rounds);
    vec![
        rule.statement(&[("control", percent_interval(&percent))])
            .with_effect(&control.workload, percent.value)
            .confidence(words::confidence(&percent, ("percent", "%"), &n, None, doubts))
            .with_evidence([facts.costs_evidence(&control.workload, &[&control.environment])])
            .with_evidence(facts.doubt_evidence("control_beyond_claim")),
    ]
}

fn no_control(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let findings = &facts.analysis.findings;
    let compared = findings.iter().any(|one| !one.baseline && one.slices > 0);
    if !compared || findings.iter().any(|one| one.control) {
        return Vec::new();
    }
    vec![
        rule.statement(&[])
            .confidence(words::without_interval("certain: the record has none", Vec::new()))
            .with_evidence([Evidence::at("layers", "environments that ran")]),
    ]
}

fn baseline_not_clean(rule: &Rule, facts: &Facts<'_>) -> Vec<Statement> {
    let baseline = facts.record.study.baseline.as_str();
    let doubt = facts.analysis.doubts.iter().find_map(|doubt| match doubt {
        Doubt::BaselineNotClean { found } => Some(crate::figures::clean(found)),
        _ => None,
    });
    let doubts: Vec<usize> = facts.doubt_number("baseline_not_clean").into_iter().collect();
    let of_stacks = facts.workloads().find_map(|(_, workload)| {
        let side = Side::of(facts.stacks, StackKind::OnCpu, workload, baseline);
        let (total, figure) = (side.total(), side.subsystem(CONNTRACK));
        let much = figure.us > CONNTRACK_SHARE_MIN * total.us;
        let figure = interval(&figure, side.rounds());
        (much && figure.is_bounded() && figure.low > 0.0).then_some((workload, figure, total.us))
    });
    if doubt.is_none() && of_stacks.is_none() {
        return Vec::new();
    }
    let mut found: Vec<String> =
        doubt.into_iter().map(|found| format!("{found} in its network namespace")).collect();
    let mut size = 0.0;
    if let Some((_, figure, total)) = &of_stacks {
        size = 100.0 * figure.value / total;
        found.push(format!(
            "{} per operation, {size:.0} % of its CPU time, in netfilter and connection tracking",
            words::us(figure)
        ));
    }
    let back = of_stacks.as_ref().map_or(String::new(), |(_, figure, _)| {
        format!(
            "{} less in the baseline; every cost against it is too small by that",
            words::us(figure)
        )
    });
    let statement = rule.statement(&[("found", found.join("; ")), ("back", back)]);
    let workload = of_stacks.map_or_else(
        || facts.workloads().next().map_or("", |(_, name)| name),
        |(workload, ..)| workload,
    );
    let statement = statement
        .with_effect(workload, size)
        .with_evidence(facts.doubt_evidence("baseline_not_clean"));
    vec![match of_stacks {
        Some((_, figure, _)) => statement
            .confidence(words::confidence(
                &figure,
                ("us_per_operation", "\u{b5}s"),
                &rounds(figure.rounds),
                None,
                doubts,
            ))
            .with_evidence([facts.stacks_evidence(baseline, baseline, CONNTRACK)]),
        None => statement
            .confidence(words::without_interval("found before the run, not measured", doubts)),
    }]
}
