//! The costs of one workload for a live view: one row per environment, on a common scale with the
//! noise of the A/A control. Figures and texts equal those of the report.

use tare_lab::analysis::{Analysis, Finding, Interval, claims};

use crate::figures::{CostFormat, clean, cost, micros, rate, with_interval};
use crate::headline::{Metric, claimed, extent, telling_noise};

/// The verdict of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The baseline.
    Baseline,
    /// No pair has been measured yet.
    Unknown,
    /// The interval holds 0, or the cost is within the noise of the control.
    NotClaimed,
    /// A cost beyond the noise.
    Loss,
    /// A gain beyond the noise.
    Gain,
}

/// The cost of one environment.
#[derive(Clone, Debug, PartialEq)]
pub struct CostChartRow {
    /// Name from the study, with any control characters.
    pub environment: String,
    /// The baseline's second copy (A/A).
    pub control: bool,
    /// The cost in percent.
    pub cost: Option<Interval>,
    /// The cost as text, or the baseline's own figure, without control characters.
    pub text: String,
    pub verdict: Verdict,
}

/// All environments under one workload.
#[derive(Clone, Debug, PartialEq)]
pub struct CostChart {
    /// In the order of the study, the control after the baseline.
    pub rows: Vec<CostChartRow>,
    /// Ends of the common scale, in percent; 0 is between them.
    pub low: f64,
    pub high: f64,
    /// The largest difference in percent that the control does not exclude.
    pub noise: Option<f64>,
}

/// The chart of a workload.
pub fn cost_chart(analysis: &Analysis, workload: &str, metric: Metric) -> CostChart {
    let findings: Vec<&Finding> =
        analysis.findings.iter().filter(|f| f.workload == workload).collect();
    let noise = telling_noise(analysis, workload, metric);
    let costs = findings.iter().filter_map(|f| metric.cost(f));
    let (low, high) = extent(costs, noise.into_iter().flat_map(|noise| [noise, -noise]));
    let rows = findings.iter().map(|finding| chart_row(analysis, finding, metric)).collect();
    CostChart { rows, low, high, noise }
}

fn chart_row(analysis: &Analysis, finding: &Finding, metric: Metric) -> CostChartRow {
    let found = metric.cost(finding);
    let verdict = match found {
        _ if finding.baseline => Verdict::Baseline,
        None => Verdict::Unknown,
        Some(_) if !claimed(analysis, finding, metric) => Verdict::NotClaimed,
        Some(cost) if cost.percent.value > 0.0 => Verdict::Loss,
        Some(_) => Verdict::Gain,
    };
    let level = || match metric {
        Metric::ServerCpu => {
            finding.server_cpu_us.map(|i| format!("{} µs/op", with_interval(&i, micros)))
        }
        Metric::Throughput => {
            finding.throughput_per_s.map(|i| format!("{} op/s", with_interval(&i, rate)))
        }
    };
    let text = match found {
        _ if finding.baseline => level().unwrap_or_else(|| "not known yet".into()),
        None => "not known yet".into(),
        Some(found) => cost(found, claims::verdict(analysis, finding, metric), CostFormat::Short),
    };
    CostChartRow {
        environment: finding.environment.clone(),
        control: finding.control,
        cost: found.map(|cost| cost.percent).filter(|percent| percent.value.is_finite()),
        text: clean(&text),
        verdict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn every_environment_has_a_row_on_the_scale() {
        let (_, analysis) = fixture::quick();
        let chart = cost_chart(&analysis, "write", Metric::ServerCpu);
        assert_eq!(chart.rows.len(), analysis.findings.len());
        assert!(chart.low < 0.0 && chart.high > 0.0);
        let of = |verdict| chart.rows.iter().filter(|row| row.verdict == verdict).count();
        assert_eq!(of(Verdict::Baseline), 1);
        assert!(of(Verdict::Loss) > 0);
        for row in chart.rows.iter().filter(|row| row.control) {
            assert_eq!(row.verdict, Verdict::NotClaimed, "the control claims nothing");
        }
        for cost in chart.rows.iter().filter_map(|row| row.cost) {
            assert!((chart.low..=chart.high).contains(&cost.value), "{cost:?}");
        }
    }

    #[test]
    fn single_round_has_no_interval() {
        let (_, analysis) = fixture::single_round();
        let one = cost_chart(&analysis, "write", Metric::Throughput);
        assert!(one.rows.iter().any(|row| row.text.contains("not known yet")), "{one:?}");
        assert!(one.low.is_finite() && one.high.is_finite());
        assert!(cost_chart(&analysis, "other", Metric::Throughput).rows.is_empty());
    }
}
