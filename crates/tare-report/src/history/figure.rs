//! The figures whose course a history shows.

use serde::Serialize;
use tare_lab::analysis::claims::{CostKind, ratio_noise, ratio_verdict, verdict};
use tare_lab::analysis::{Analysis, Cost, Finding, Interval, Metric};
use tare_stats::law::Verdict;

use crate::headline::{cost_title, noise};
use crate::tails;

/// A figure of an environment against the baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Figure {
    /// At capacity, or at the fixed rate in studies that have no other phase.
    #[serde(rename = "server_cpu_per_operation")]
    ServerCpu,
    #[serde(rename = "throughput")]
    Throughput,
    /// Response time at the fixed rate, over the baseline's.
    #[serde(rename = "p99")]
    P99,
    #[serde(rename = "p50")]
    P50,
    #[serde(rename = "p95")]
    P95,
    #[serde(rename = "p99.9")]
    P999,
}

impl Figure {
    pub(super) const ALL: [Self; 6] =
        [Self::ServerCpu, Self::Throughput, Self::P99, Self::P50, Self::P95, Self::P999];

    /// Whether changes are looked for, and tables and charts show it. The other percentiles move
    /// with p99 or need far more operations: each more series is one more chance of a false change.
    pub(super) fn has_changes(self) -> bool {
        matches!(self, Self::ServerCpu | Self::Throughput | Self::P99)
    }

    fn percent(self) -> Option<f64> {
        match self {
            Self::ServerCpu | Self::Throughput => None,
            Self::P50 => Some(50.0),
            Self::P95 => Some(95.0),
            Self::P99 => Some(99.0),
            Self::P999 => Some(99.9),
        }
    }

    /// The metric with the same scale of logarithms: a time is compared like CPU time.
    pub(super) fn scale(self) -> Metric {
        if self == Self::Throughput { Metric::Throughput } else { Metric::ServerCpu }
    }

    /// Such as `server_cpu`, in names of columns and labels.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ServerCpu => "server_cpu",
            Self::Throughput => "throughput",
            Self::P50 => "p50",
            Self::P95 => "p95",
            Self::P99 => "p99",
            Self::P999 => "p99.9",
        }
    }

    /// The title of a chart.
    pub(crate) fn title(self) -> String {
        match self.percent() {
            Some(_) => format!("Added to the {} response time", self.name()),
            None => cost_title(self.scale()).to_string(),
        }
    }

    /// A few words for the head of a column.
    pub(crate) fn heading(self) -> &'static str {
        match self.percent() {
            Some(_) => self.name(),
            None if self == Self::Throughput => "throughput lost",
            None => "CPU",
        }
    }

    /// The words that follow `cost in`.
    pub(crate) fn of_what(self) -> String {
        match self.percent() {
            Some(_) => format!("{} response time", self.name()),
            None => self.scale().of_what().to_string(),
        }
    }

    /// What the percentages are.
    pub(crate) fn unit(self) -> String {
        match self.percent() {
            Some(_) => format!("% longer {} response time at the fixed rate", self.name()),
            None if self == Self::Throughput => "% of the throughput lost".to_string(),
            None => "% more server CPU per operation".to_string(),
        }
    }

    /// The cost in a record, the verdict on it, and the noise of the record's control in percent.
    pub(super) fn of(
        self,
        analysis: &Analysis,
        finding: &Finding,
    ) -> Option<(Cost, Option<Verdict>, Option<f64>)> {
        if let Some(percent) = self.percent() {
            let over = tails::over_baseline(finding, percent)?;
            let noise = ratio_noise(analysis, &finding.workload, percent).bound();
            let verdict = ratio_verdict(analysis, finding, percent);
            return Some((more(&over.ratio, over.found), verdict, noise.map(added)));
        }
        let metric = self.scale();
        // Without a capacity phase the CPU time is that at the fixed rate.
        let (kind, cost) = match (metric, metric.cost(finding)) {
            (Metric::ServerCpu, None) => (CostKind::ServerCpuAtRate, finding.cpu_cost()?),
            (_, cost) => (metric.into(), cost?),
        };
        let noise = noise(analysis, &finding.workload, metric);
        Some((cost.clone(), verdict(analysis, finding, kind), noise))
    }
}

/// A factor in percent more: 1.3 is 30.
fn added(factor: f64) -> f64 {
    (factor - 1.0) * 100.0
}

fn more(ratio: &Interval, found: bool) -> Cost {
    let percent = Interval {
        value: added(ratio.value),
        low: added(ratio.low.max(0.0)),
        high: added(ratio.high),
        rounds: ratio.rounds,
    };
    Cost { percent, found, within_percent: percent.low.abs().max(percent.high.abs()) }
}
