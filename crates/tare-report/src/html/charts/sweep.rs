//! The figures of workloads that differ in one number, as lines over it.

use tare_lab::analysis::claims::verdict;
use tare_lab::analysis::{Analysis, Finding, closed_loop_latency};
use tare_lab::record::Record;
use tare_lab::study::WorkloadSpec;
use tare_stats::law::Verdict;
use tare_std::units::nanoseconds;

use super::lines::{Height, LineAxis, LinePoint, LineSeries, draw, nth_style};
use super::{SeriesStyle, series_styles, short_time, trim_rate};
use crate::axes::Axis;
use crate::figures::{CostFormat, clean, cost, has_place, percent, rate, with_interval};
use crate::headline::{Metric, cost_title, extent, telling_noise};
use crate::tails;

/// A figure, the ends of its interval, whether its mark is hollow, and its text.
type Drawn = (f64, Option<(f64, f64)>, bool, String);

/// A sweep: its axis and the findings of each environment at its values.
pub(in crate::html) struct Sweep<'a> {
    pub(in crate::html) axis: &'a Axis<'a>,
    record: &'a Record,
    analysis: &'a Analysis,
    ticks: Vec<(f64, String)>,
    /// The environments of the first workload, which give the lines their order and style.
    pub(in crate::html) environments: Vec<(&'a Finding, SeriesStyle)>,
}

impl<'a> Sweep<'a> {
    /// `None` if the record has no figure of the sweep.
    pub(in crate::html) fn new(
        axis: &'a Axis<'a>,
        record: &'a Record,
        analysis: &'a Analysis,
    ) -> Option<Self> {
        let of = |workload: &str| {
            let found = analysis.findings.iter().filter(|f| f.workload == workload);
            found.collect::<Vec<_>>()
        };
        let findings =
            axis.points.iter().map(|point| of(point.workload)).find(|f| !f.is_empty())?;
        let styles = series_styles(&findings);
        let environments = findings.into_iter().zip(styles).collect();
        let ticks = axis.points.iter().map(|point| (point.value, clean(&point.text))).collect();
        Some(Self { axis, record, analysis, ticks, environments })
    }

    fn axis(&self) -> LineAxis<'_> {
        LineAxis { ticks: &self.ticks, unit: self.axis.label() }
    }

    /// The line of every environment with a point where `point` has one.
    fn series(&self, point: &dyn Fn(&Finding) -> Option<Drawn>) -> Vec<LineSeries<'_>> {
        let line = |(e, (first, style)): (usize, &(&'a Finding, SeriesStyle))| {
            let points = self.axis.points.iter().filter_map(|at| {
                let finding =
                    self.analysis.findings.iter().find(|f| {
                        f.environment == first.environment && f.workload == at.workload
                    })?;
                let (value, ends, hollow, text) = point(finding)?;
                let ends = ends.filter(|(low, high)| low.is_finite() && high.is_finite());
                let text = format!("{} {}: {text}", self.axis.label(), clean(&at.text));
                value.is_finite().then_some(LinePoint { x: at.value, value, ends, hollow, text })
            });
            let points = points.collect();
            LineSeries { e, name: first.environment.as_str(), style: *style, points }
        };
        let all = self.environments.iter().enumerate().map(line);
        all.filter(|one| !one.points.is_empty()).collect()
    }

    /// Operations per second at capacity.
    pub(in crate::html) fn throughput(&self, id: &str) -> Option<String> {
        let series = self.series(&|finding| {
            let of = finding.throughput_per_s?;
            let text = format!("{}/s", with_interval(&of, rate));
            Some((of.value, Some((of.low, of.high)), false, text))
        });
        let form = |per_s: f64| trim_rate(per_s);
        let height = Height { form: &form, zero: false, may_be_log: true, ends: None, width: None };
        draw((id, &self.title("Throughput")), &self.axis(), &height, &series, &[])
    }

    /// A cost against the baseline, with the band of the A/A control. A hollow mark is a cost that
    /// is not beyond the noise.
    pub(in crate::html) fn costs(&self, metric: Metric, id: &str) -> Option<String> {
        let series = self.series(&|finding| {
            let of = metric.cost(finding).filter(|cost| has_place(cost))?;
            let verdict = verdict(self.analysis, finding, metric);
            let text = cost(of, verdict, CostFormat::Short);
            let hollow = !verdict.is_some_and(Verdict::is_claim);
            Some((of.percent.value, Some((of.percent.low, of.percent.high)), hollow, text))
        });
        let noise = |workload: &str| telling_noise(self.analysis, workload, metric);
        let band: Vec<(f64, f64, f64)> = self
            .axis
            .points
            .iter()
            .filter_map(|at| noise(at.workload).map(|noise| (at.value, -noise, noise)))
            .collect();
        let known = self.axis.points.iter().flat_map(|at| {
            self.analysis.findings.iter().filter(move |f| f.workload == at.workload)
        });
        let shown = known.filter_map(|f| metric.cost(f)).filter(|cost| has_place(cost));
        let ends = extent(shown, band.iter().flat_map(|(_, low, high)| [*low, *high]));
        let form = |tick: f64| format!("{}\u{202f}%", percent(tick).replace(".0", ""));
        let height =
            Height { form: &form, zero: true, may_be_log: false, ends: Some(ends), width: None };
        draw((id, &self.title(cost_title(metric))), &self.axis(), &height, &series, &band)
    }

    /// p99 of the service time in the closed loop.
    pub(in crate::html) fn service_time(&self, id: &str) -> Option<String> {
        let series = self.series(&|finding| {
            let of = closed_loop_latency(self.record, &finding.workload, &finding.environment)?;
            let p99 = super::as_f64(of.p99_ns);
            Some((p99, None, false, format!("p99 {}", nanoseconds(p99))))
        });
        self.times("p99", &series, id)
    }

    /// A percentile of the response time at the fixed rate.
    pub(in crate::html) fn latency(&self, percent: f64, id: &str) -> Option<String> {
        let name = tails::name(percent);
        let series = self.series(&|finding| {
            let interval = tails::percentile(finding, percent).and_then(|one| one.ns);
            // The p99 is known from all operations where its interval is not.
            let all = finding.response.as_ref().filter(|_| percent == 99.0);
            let all = all.map(|response| super::as_f64(response.p99_ns));
            let value = all.or(interval.as_ref().map(|one| one.value))?;
            let text = interval.as_ref().map_or_else(|| nanoseconds(value), tails::time);
            Some((value, interval.map(|i| (i.low, i.high)), false, format!("{name} {text}")))
        });
        self.times(&name, &series, id)
    }

    fn times(&self, name: &str, series: &[LineSeries<'_>], id: &str) -> Option<String> {
        let form = |ns: f64| short_time(ns);
        let height = Height { form: &form, zero: false, may_be_log: true, ends: None, width: None };
        draw((id, &self.title(name)), &self.axis(), &height, series, &[])
    }

    fn title(&self, what: &str) -> String {
        format!("{what} over {}: {}", self.axis.label(), clean(self.axis.workload))
    }
}

/// The baseline's throughput over the requests in flight that were tried to find the load.
pub(in crate::html) fn climb(workload: &WorkloadSpec, id: &str) -> Option<String> {
    let climb = workload.load.climb().filter(|climb| climb.steps.len() > 1)?;
    let ticks: Vec<(f64, String)> = climb
        .steps
        .iter()
        .map(|step| (f64::from(step.in_flight), step.in_flight.to_string()))
        .collect();
    let points = climb.steps.iter().map(|step| LinePoint {
        x: f64::from(step.in_flight),
        value: step.operations_per_s,
        ends: None,
        hollow: step.in_flight != workload.in_flight,
        text: format!("{} in flight: {} op/s", step.in_flight, rate(step.operations_per_s)),
    });
    let series = LineSeries { e: 0, name: "", style: nth_style(0), points: points.collect() };
    let axis = LineAxis { ticks: &ticks, unit: "requests in flight".into() };
    let form = |per_s: f64| trim_rate(per_s);
    let height = Height { form: &form, zero: false, may_be_log: false, ends: None, width: None };
    draw((id, "Throughput over requests in flight"), &axis, &height, &[series], &[])
}

#[cfg(test)]
mod tests {
    use tare_lab::study::{Climb, ClimbEnd, ClimbStep, Saturate};

    use super::*;
    use crate::axes::axes;
    use crate::fixture;

    #[test]
    fn every_environment_has_a_line_with_a_point_for_each_value() {
        let (record, analysis) = fixture::sweep();
        let axes = axes(&record.study);
        for axis in &axes {
            let sweep = Sweep::new(axis, &record, &analysis).unwrap();
            let lines = sweep.environments.len();
            let throughput = sweep.throughput("rate").unwrap();
            assert_eq!(throughput.matches("class=\"curve ").count(), lines);
            assert_eq!(throughput.matches("class=\"mark ").count(), lines * axis.points.len());
            let costs = sweep.costs(Metric::ServerCpu, "cpu").unwrap();
            assert_eq!(costs.matches("class=\"curve ").count(), lines - 1, "not the baseline");
            assert!(costs.contains("class=\"band\"") && costs.contains(" open\""), "{costs}");
            assert!(costs.contains("logarithmic") && !costs.contains("NaN"));
        }
    }

    #[test]
    fn a_climb_is_a_line_whose_full_mark_is_the_load() {
        let (mut record, _) = fixture::quick();
        let workload = &mut record.study.workloads[0];
        assert_eq!(climb(workload, "climb"), None, "the load was named");
        let step = |in_flight, operations_per_s| ClimbStep { in_flight, operations_per_s };
        let steps = vec![step(16, 2e4), step(32, 4e4), step(64, 5e4), step(128, 5.1e4)];
        let found = Climb { steps, end: ClimbEnd::Knee };
        workload.load.saturate = Some(Saturate { climb: Some(found), ..Saturate::default() });
        let chart = climb(workload, "climb").unwrap();
        assert_eq!(chart.matches("class=\"mark ").count(), 4);
        assert_eq!(chart.matches(" open\"").count(), 3);
        assert!(chart.contains("64 in flight: 50.0k op/s"), "{chart}");
    }
}
