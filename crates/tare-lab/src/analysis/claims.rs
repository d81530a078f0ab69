//! Applies the law of claims ([`tare_stats::law`]) to an analysis. The A/A control gives the noise
//! of each workload and figure.

use serde::Serialize;
use tare_stats::law::{Noise, Verdict, judge, judge_ratio};

use super::{Analysis, Cost, Finding, OverBaseline};

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
        match self {
            Metric::ServerCpu => finding.server_cpu_cost.as_ref(),
            Metric::Throughput => finding.throughput_cost.as_ref(),
        }
    }

    /// Returns the words that follow a percentage.
    pub fn of_what(self) -> &'static str {
        match self {
            Metric::ServerCpu => "server CPU per operation",
            Metric::Throughput => "throughput",
        }
    }
}

/// Selects one cost of a finding: that of a [`Metric`], or another that the control also has.
pub type CostOf = fn(&Finding) -> Option<&Cost>;

fn control<'a>(analysis: &'a Analysis, workload: &str) -> Option<&'a Finding> {
    analysis.findings.iter().find(|f| f.control && f.workload == workload)
}

/// Returns the noise of a metric under a workload, in percent.
pub fn noise(analysis: &Analysis, workload: &str, metric: Metric) -> Noise {
    let cost = control(analysis, workload).and_then(|control| metric.cost(control));
    Noise::of_cost(cost.map(|cost| &cost.percent))
}

/// Judges a cost between any two environments under a workload.
pub fn judge_cost(analysis: &Analysis, workload: &str, metric: Metric, cost: &Cost) -> Verdict {
    judge(cost, noise(analysis, workload, metric))
}

/// Judges an environment's cost. `None` without such a cost, and for the control, because the
/// others are judged by its difference from the baseline.
pub fn verdict(analysis: &Analysis, finding: &Finding, metric: Metric) -> Option<Verdict> {
    let cost = metric.cost(finding).filter(|_| !finding.baseline && !finding.control)?;
    Some(judge_cost(analysis, &finding.workload, metric, cost))
}

/// Judges a cost that is not a [`Metric`], by the control's cost of the same kind. `None` as for
/// [`verdict`].
pub fn verdict_of(analysis: &Analysis, finding: &Finding, of: CostOf) -> Option<Verdict> {
    let cost = of(finding).filter(|_| !finding.baseline && !finding.control)?;
    let noise = control(analysis, &finding.workload).and_then(of).map(|cost| &cost.percent);
    Some(judge(cost, Noise::of_cost(noise)))
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
    let noise = ratio_noise(analysis, &finding.workload, percent);
    let compared = !finding.baseline && !finding.control;
    compared.then(|| judge_ratio(&over.ratio, over.found, noise))
}

fn over_baseline(finding: &Finding, percent: f64) -> Option<&OverBaseline> {
    finding.response.as_ref()?.percentile(percent)?.over_baseline.as_ref()
}
