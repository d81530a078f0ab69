//! Applies the law of claims ([`tare_stats::law`]) to an analysis. The A/A control gives the noise
//! of each workload and figure. Across runtimes, the baseline's layers under the other runtime add
//! theirs ([`Finding::runtime_control`]).

use serde::Serialize;
use tare_stats::law::{Noise, OFTEN_SHARE, Objections, Verdict, judge, judge_ratio};

use super::{Analysis, Cost, Finding, OverBaseline};
use crate::doubt::Doubt;

/// A figure that is compared with the baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Metric {
    /// CPU time per operation of the system and the layer, at capacity.
    #[serde(rename = "server_cpu_per_operation")]
    ServerCpu,
    /// Operations/s at capacity.
    #[serde(rename = "throughput")]
    Throughput,
}

impl Metric {
    pub const ALL: [Metric; 2] = [Metric::ServerCpu, Metric::Throughput];

    /// Returns the cost of a finding in this metric, if it was measured.
    pub fn cost(self, finding: &Finding) -> Option<&Cost> {
        CostKind::from(self).cost(finding)
    }

    /// Returns the words that follow a percentage.
    pub fn of_what(self) -> &'static str {
        match self {
            Metric::ServerCpu => "server CPU per operation",
            Metric::Throughput => "throughput",
        }
    }
}

/// A cost of a finding that the control has too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostKind {
    /// [`Metric::ServerCpu`].
    ServerCpu,
    /// CPU time per operation of the system and the layer, at the fixed rate.
    ServerCpuAtRate,
    /// CPU time per operation of server and client together, at capacity.
    TotalCpu,
    /// [`Metric::Throughput`].
    Throughput,
    /// The capacity under the workload's objective.
    Slo,
}

impl CostKind {
    pub const ALL: [CostKind; 5] =
        [Self::ServerCpu, Self::ServerCpuAtRate, Self::TotalCpu, Self::Throughput, Self::Slo];

    /// Returns the cost of a finding, if it was measured.
    pub fn cost(self, finding: &Finding) -> Option<&Cost> {
        match self {
            Self::ServerCpu => finding.server_cpu_cost.as_ref(),
            Self::ServerCpuAtRate => finding.server_cpu_cost_at_rate.as_ref(),
            Self::TotalCpu => finding.total_cpu_cost.as_ref(),
            Self::Throughput => finding.throughput_cost.as_ref(),
            Self::Slo => finding.slo.as_ref()?.cost.as_ref(),
        }
    }
}

impl From<Metric> for CostKind {
    fn from(metric: Metric) -> Self {
        match metric {
            Metric::ServerCpu => Self::ServerCpu,
            Metric::Throughput => Self::Throughput,
        }
    }
}

fn control<'a>(analysis: &'a Analysis, workload: &str) -> Option<&'a Finding> {
    analysis.findings.iter().find(|f| f.control && f.workload == workload)
}

/// Returns the noise of a metric under a workload, in percent.
pub fn noise(analysis: &Analysis, workload: &str, metric: Metric) -> Noise {
    let cost = control(analysis, workload).and_then(|control| metric.cost(control));
    Noise::of_cost(cost.map(|cost| &cost.percent))
}

fn finding<'a>(analysis: &'a Analysis, workload: &str, environment: &str) -> Option<&'a Finding> {
    analysis.findings.iter().find(|f| f.workload == workload && f.environment == environment)
}

/// Returns the controls of the runtimes of two environments, if the runtimes differ.
fn runtime_controls<'a>(
    analysis: &'a Analysis,
    workload: &str,
    environments: [&str; 2],
) -> impl Iterator<Item = &'a Finding> {
    let names = environments
        .map(|name| finding(analysis, workload, name).and_then(|f| f.runtime_control.as_deref()));
    let across = names[0] != names[1];
    let names = names.into_iter().flatten().filter(move |_| across);
    let controls = names.map(|name| finding(analysis, workload, name));
    controls.flatten().collect::<Vec<_>>().into_iter()
}

/// Returns the noise of a cost between an environment and the baseline, in percent: that of the A/A
/// control, or of the control of the environment's runtime if that is larger.
pub fn noise_with_runtime(analysis: &Analysis, finding: &Finding, metric: Metric) -> Noise {
    let environments = [finding.environment.as_str(), baseline(analysis)];
    noise_between(analysis, &finding.workload, environments, metric.into())
}

/// Returns the noise of a cost between two environments under a workload, in percent.
fn noise_between(
    analysis: &Analysis,
    workload: &str,
    environments: [&str; 2],
    kind: CostKind,
) -> Noise {
    let of = |finding: &Finding| Noise::of_cost(kind.cost(finding).map(|cost| &cost.percent));
    let noise = control(analysis, workload).map_or(Noise::NoControl, of);
    runtime_controls(analysis, workload, environments).map(of).fold(noise, Noise::or)
}

/// Returns what the doubts about environments forbid under a workload.
pub fn objections(analysis: &Analysis, workload: &str, environments: [&str; 2]) -> Objections {
    let mut objections = Objections::default();
    for name in environments {
        let Some(finding) = finding(analysis, workload, name) else { continue };
        note_all(&mut objections, &finding.doubts, finding.slices + finding.slices_void);
    }
    objections
}

/// Adds what doubts about an environment forbid, each with the number of slices that it affects.
pub(super) fn note_all(objections: &mut Objections, doubts: &[(Doubt, u32)], slices: u32) {
    for (doubt, touched) in doubts {
        let often = f64::from(*touched) >= OFTEN_SHARE * f64::from(slices.max(1));
        note(objections, doubt, often);
    }
}

/// Adds what one doubt forbids. `often`: it affects at least [`OFTEN_SHARE`] of the slices.
fn note(objections: &mut Objections, doubt: &Doubt, often: bool) {
    match doubt {
        Doubt::OperationErrors { count, operations, .. } => {
            let share = *count as f64 / ((*count + *operations) as f64).max(1.0);
            objections.failed_share = objections.failed_share.max(share);
        }
        Doubt::Emulated { .. } => objections.emulated = true,
        Doubt::Strangers { .. } | Doubt::Steal { .. } => objections.contended |= often,
        Doubt::LinkFilled { .. } => objections.link_limited |= often,
        Doubt::ClientSaturated { .. } | Doubt::LoaderSaturated { .. } => {
            objections.client_limited |= often
        }
        Doubt::NeitherSaturated { .. } => objections.unsaturated |= often,
        Doubt::RateNotReached { .. } => objections.rate_missed |= often,
        Doubt::NoPollingAccount { .. } => objections.busy_time_unknown = true,
        _ => {}
    }
}

/// Judges a cost between any two environments under a workload. A claim that the doubts about them
/// forbid is withheld ([`Objections`]), so that tables claim what findings may.
pub fn judge_cost(
    analysis: &Analysis,
    workload: &str,
    environments: [&str; 2],
    kind: impl Into<CostKind>,
    cost: &Cost,
) -> Verdict {
    let kind = kind.into();
    let noise = noise_between(analysis, workload, environments, kind);
    let verdict = judge(cost, noise);
    let objections = objections(analysis, workload, environments);
    let allowed = match kind {
        CostKind::Throughput | CostKind::Slo => {
            objections.allow_throughput_change(verdict == Verdict::Gain)
        }
        _ => objections.allow_cpu(),
    };
    verdict.unless(!allowed)
}

/// Returns the name of the baseline.
fn baseline(analysis: &Analysis) -> &str {
    let baseline = analysis.findings.iter().find(|f| f.baseline);
    baseline.map_or("", |finding| finding.environment.as_str())
}

/// Judges an environment's cost. `None` without such a cost, and for the control, because the
/// others are judged by its difference from the baseline.
pub fn verdict(
    analysis: &Analysis,
    finding: &Finding,
    kind: impl Into<CostKind>,
) -> Option<Verdict> {
    let kind = kind.into();
    let cost = kind.cost(finding).filter(|_| !finding.baseline && !finding.control)?;
    let environments = [finding.environment.as_str(), baseline(analysis)];
    Some(judge_cost(analysis, &finding.workload, environments, kind, cost))
}

/// Returns the noise of a percentile of response times over the baseline's, as a factor.
pub fn ratio_noise(analysis: &Analysis, workload: &str, percent: f64) -> Noise {
    let Some(control) = control(analysis, workload) else { return Noise::NoControl };
    match over_baseline(control, percent) {
        Some(over) => Noise::of_ratio(&over.ratio),
        None => Noise::Unknown,
    }
}

/// Judges a percentile of response times over the baseline's. `None` if it is unknown, and for the
/// control.
pub fn ratio_verdict(analysis: &Analysis, finding: &Finding, percent: f64) -> Option<Verdict> {
    let over = over_baseline(finding, percent)?;
    let environments = [finding.environment.as_str(), baseline(analysis)];
    let controls = runtime_controls(analysis, &finding.workload, environments);
    let noise = ratio_noise(analysis, &finding.workload, percent);
    let noise = controls
        .filter_map(|control| over_baseline(control, percent))
        .fold(noise, |noise, over| noise.or(Noise::of_ratio(&over.ratio)));
    let compared = !finding.baseline && !finding.control;
    let allowed = objections(analysis, &finding.workload, environments).allow_latency();
    compared.then(|| judge_ratio(&over.ratio, over.found, noise).unless(!allowed))
}

fn over_baseline(finding: &Finding, percent: f64) -> Option<&OverBaseline> {
    finding.response.as_ref()?.percentile(percent)?.over_baseline.as_ref()
}
