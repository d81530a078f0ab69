//! The section of sweeps: figures over a number, one line per environment.

use minijinja::Value;
use serde::Serialize;
use tare_lab::analysis::Analysis;
use tare_lab::record::Record;

use super::charts::Sweep;
use super::workload::Legend;
use crate::axes::Axis;
use crate::figures::clean;
use crate::headline::Metric;
use crate::{rates, tails};

/// The percentile of the chart that every sweep has.
const LATENCY_PERCENT: f64 = 99.0;

/// One sweep: a workload over a number.
#[derive(Serialize)]
pub(super) struct SweepView {
    title: String,
    /// The number, such as `jobs`.
    axis: String,
    legend: Vec<Legend>,
    throughput: Option<Value>,
    throughput_cost: Option<Value>,
    cpu_cost: Option<Value>,
    latency: Option<Value>,
    /// Whether the latency is of the closed loop, because no rate was measured.
    closed: bool,
    /// Other percentiles over the rate, and the table of them.
    rates: Option<RatesView>,
}

/// Response time over the rate.
#[derive(Serialize)]
struct RatesView {
    /// The charts of the percentiles beside p99, with their names.
    percentiles: Vec<(String, Value)>,
    caption: String,
    head: [&'static str; 5],
    rows: Vec<Vec<String>>,
}

impl RatesView {
    fn new(id: usize, sweep: &Sweep<'_>, record: &Record, analysis: &Analysis) -> Option<Self> {
        let table = rates::table(sweep.axis, record, analysis)?;
        let others = rates::SHOWN.into_iter().filter(|percent| *percent != LATENCY_PERCENT);
        let chart = |percent: f64| {
            let name = tails::name(percent);
            let chart = sweep.latency(percent, &format!("sweep-{}-{id}", name.replace('.', "")))?;
            Some((name, Value::from_safe_string(chart)))
        };
        Some(Self {
            percentiles: others.filter_map(chart).collect(),
            caption: table.caption,
            head: rates::HEAD,
            rows: table.rows,
        })
    }
}

impl SweepView {
    /// The sweeps with a figure.
    pub(super) fn all(axes: &[Axis<'_>], record: &Record, analysis: &Analysis) -> Vec<Self> {
        let view = |(id, axis): (usize, &Axis<'_>)| {
            Some(Self::new(id, &Sweep::new(axis, record, analysis)?, record, analysis))
        };
        axes.iter().enumerate().filter_map(view).collect()
    }

    fn new(id: usize, sweep: &Sweep<'_>, record: &Record, analysis: &Analysis) -> Self {
        let safe = |chart: Option<String>| chart.map(Value::from_safe_string);
        let mut points = sweep.axis.points.iter();
        let closed = !points.any(|point| {
            analysis.findings.iter().any(|f| f.workload == point.workload && f.response.is_some())
        });
        let legend = sweep.environments.iter();
        Self {
            title: format!("{} over {}", clean(sweep.axis.workload), sweep.axis.label()),
            axis: sweep.axis.label(),
            legend: legend.map(|(of, style)| Legend::new(&of.environment, *style)).collect(),
            throughput: safe(sweep.throughput(&format!("sweep-rate-{id}"))),
            throughput_cost: safe(sweep.costs(Metric::Throughput, &format!("sweep-lost-{id}"))),
            cpu_cost: safe(sweep.costs(Metric::ServerCpu, &format!("sweep-cpu-{id}"))),
            latency: safe(match closed {
                true => sweep.service_time(&format!("sweep-p99-{id}")),
                false => sweep.latency(LATENCY_PERCENT, &format!("sweep-p99-{id}")),
            }),
            closed,
            rates: RatesView::new(id, sweep, record, analysis),
        }
    }
}
