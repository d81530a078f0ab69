//! A record in Prometheus' text format 0.0.4, for the textfile collector of node_exporter
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>).
//!
//! Each family has its HELP and TYPE and base units in its name. There are no timestamps, which the
//! collector refuses. A figure with an interval has three series: `bound` is `value`, `lower` or
//! `upper`. A figure without an interval (one round) has the value alone; a missing figure has no
//! series. HELP does not depend on the record, because the collector refuses two files with
//! different HELP for one name.
//!
//! Names are label values as the study has them, escaped.

mod figures;

use std::collections::BTreeMap;

use tare_lab::analysis::{Analysis, Cost, Finding, Interval, Latency};
use tare_lab::layer::Layer;
use tare_lab::record::Record;

use crate::headline::{Metric, claimed, noise};
pub(crate) use figures::Figures;

/// The value of the label `of`.
fn of(metric: Metric) -> &'static str {
    match metric {
        Metric::ServerCpu => "server_cpu",
        Metric::Throughput => "throughput",
    }
}

/// All metrics of a record. Lines end in LF.
pub fn render(record: &Record, analysis: &Analysis) -> String {
    let page = Page { record, analysis };
    let mut out = Figures::default();
    page.about_the_record(&mut out);
    page.environments(&mut out);
    page.figures(&mut out);
    page.costs(&mut out);
    page.latencies(&mut out);
    page.doubts(&mut out);
    out.text()
}

type Labels<'a> = Vec<(&'static str, &'a str)>;

struct Page<'a> {
    record: &'a Record,
    analysis: &'a Analysis,
}

impl<'a> Page<'a> {
    fn study(&self) -> Labels<'a> {
        vec![("study", self.record.study.name.as_str())]
    }

    fn of_finding(&self, finding: &'a Finding) -> Labels<'a> {
        let mut labels = self.study();
        labels.push(("workload", &finding.workload));
        labels.push(("environment", &finding.environment));
        labels
    }

    #[expect(clippy::cast_precision_loss, reason = "ms since 1970 are far below 2^53")]
    fn about_the_record(&self, out: &mut Figures) {
        let header = &self.record.header;
        let mut labels = self.study();
        let seed = header.seed.to_string();
        labels.extend([
            ("baseline", self.record.study.baseline.as_str()),
            ("system", &self.record.study.system.name),
            ("seed", &seed),
            ("tare_version", &header.tare_version),
        ]);
        out.gauge("tare_study_info", "The measured study; always 1.");
        out.sample(&labels, 1.0);
        out.gauge(
            "tare_study_started_timestamp_seconds",
            "Start of the study, in seconds since 1970.",
        );
        out.sample(&self.study(), header.started_unix_ms as f64 / 1e3);
        out.gauge(
            "tare_study_ended_timestamp_seconds",
            "End of the study, in seconds since 1970. Absent while it runs and after a crash.",
        );
        if let Some(ended) = header.ended_unix_ms {
            out.sample(&self.study(), ended as f64 / 1e3);
        }
        out.gauge(
            "tare_study_blocks",
            "Measured rounds: each runs every environment once, in random order.",
        );
        out.sample(&self.study(), f64::from(self.analysis.rounds));
    }

    fn environments(&self, out: &mut Figures) {
        out.gauge(
            "tare_environment_info",
            "The layers of an environment and its role: baseline, control (a second copy of the baseline), compared, or left_out (the host cannot run it); always 1.",
        );
        for environment in crate::figures::in_order(self.record) {
            let spec = &environment.spec;
            let role = match environment {
                e if e.left_out.is_some() => "left_out",
                e if e.control => "control",
                _ if spec.name == self.record.study.baseline => "baseline",
                _ => "compared",
            };
            let [network, cpu, security, cgroup, host] =
                [Layer::Network, Layer::Cpu, Layer::Security, Layer::Cgroup, Layer::Host]
                    .map(|layer| layer.text(spec));
            let mut labels = self.study();
            labels.extend([
                ("environment", spec.name.as_str()),
                ("role", role),
                ("runtime", spec.runtime.as_str()),
                ("network", &network),
                ("cpu", &cpu),
                ("security", &security),
                ("cgroup", &cgroup),
                ("host_tuning", &host),
            ]);
            out.sample(&labels, 1.0);
        }
    }

    fn figures(&self, out: &mut Figures) {
        type Figure = fn(&Finding) -> Option<Interval>;
        let families: [(&'static str, &'static str, f64, Figure); 3] = [
            (
                "tare_server_cpu_seconds_per_operation",
                "CPU time of the system and of what the layer adds, per operation, at capacity. 95 % interval by bound.",
                1e-6,
                |f| f.server_cpu_us,
            ),
            (
                "tare_client_cpu_seconds_per_operation",
                "CPU time of the client per operation, at capacity. 95 % interval by bound.",
                1e-6,
                |f| f.client_cpu_us,
            ),
            (
                "tare_throughput_operations_per_second",
                "Operations per second at capacity, in a closed loop. 95 % interval by bound.",
                1.0,
                |f| f.throughput_per_s,
            ),
        ];
        for (name, help, unit, figure) in families {
            out.gauge(name, help);
            for finding in &self.analysis.findings {
                if let Some(interval) = figure(finding) {
                    bounds(out, self.of_finding(finding), &interval, unit);
                }
            }
        }
        out.gauge(
            "tare_client_cpu_utilization_ratio",
            "Share of its CPUs that the client used, at capacity; near 1 the client is the bottleneck.",
        );
        for finding in &self.analysis.findings {
            if let Some(share) = finding.client_cpu_share {
                out.sample(&self.of_finding(finding), share);
            }
        }
        type Count = fn(&Finding) -> u32;
        let counts: [(&'static str, &'static str, Count); 2] = [
            ("tare_slices", "Slices that count, capacity and latency.", |f| f.slices),
            ("tare_slices_void", "Slices that do not count.", |f| f.slices_void),
        ];
        for (name, help, count) in counts {
            out.gauge(name, help);
            for finding in &self.analysis.findings {
                out.sample(&self.of_finding(finding), f64::from(count(finding)));
            }
        }
    }

    fn costs(&self, out: &mut Figures) {
        out.gauge(
            "tare_cost_ratio",
            "Loss against the baseline as a share of 1, paired within each round; above 0 is a loss. of: server_cpu (per operation, ratio - 1) or throughput (1 - ratio). 95 % interval by bound. Read it with tare_cost_found.",
        );
        self.each_cost(|labels, _, _, cost| bounds(out, labels, &cost.percent, 1e-2));
        let flag = |flag: bool| if flag { 1.0 } else { 0.0 };
        out.gauge(
            "tare_cost_found",
            "1: the interval of the cost excludes 0. 0: no difference found; that is not a cost of 0.",
        );
        self.each_cost(|labels, _, _, cost| out.sample(&labels, flag(cost.found)));
        out.gauge(
            "tare_cost_claimed",
            "1: the cost is found and beyond the noise of the A/A control.",
        );
        self.each_cost(|labels, finding, metric, _| {
            out.sample(&labels, flag(claimed(self.analysis, finding, metric)));
        });
        out.gauge("tare_cost_blocks", "Rounds behind the cost and its interval.");
        self.each_cost(|labels, _, _, cost| out.sample(&labels, f64::from(cost.percent.rounds)));
        out.gauge(
            "tare_noise_ratio",
            "Noise: the largest difference between two copies of the baseline that the A/A control does not exclude, as a share of 1. No smaller cost is claimed.",
        );
        for workload in &self.record.study.workloads {
            for metric in Metric::ALL {
                if let Some(noise) = noise(self.analysis, &workload.name, metric) {
                    let mut labels = self.study();
                    labels.extend([("workload", workload.name.as_str()), ("of", of(metric))]);
                    out.sample(&labels, noise / 100.0);
                }
            }
        }
    }

    fn each_cost(&self, mut draw: impl FnMut(Labels<'a>, &'a Finding, Metric, &'a Cost)) {
        for finding in &self.analysis.findings {
            for metric in Metric::ALL {
                if let Some(cost) = metric.cost(finding) {
                    let mut labels = self.of_finding(finding);
                    labels.push(("of", of(metric)));
                    draw(labels, finding, metric, cost);
                }
            }
        }
    }

    fn latencies(&self, out: &mut Figures) {
        type Side = fn(&Finding) -> Option<&Latency>;
        let sides: [(&'static str, &'static str, &'static str, Side); 2] = [
            (
                "tare_response_time_seconds",
                "tare_response_time_max_seconds",
                "at the fixed rate, from the moment at which an operation was due",
                |f| f.response.as_ref(),
            ),
            (
                "tare_service_time_seconds",
                "tare_service_time_max_seconds",
                "at the fixed rate, from the moment at which an operation was sent",
                |f| f.service.as_ref(),
            ),
        ];
        for (name, longest, what, latency) in sides {
            out.summary(name, &format!("Time of an operation {what}."));
            for finding in &self.analysis.findings {
                if let Some(latency) = latency(finding) {
                    summary(out, &self.of_finding(finding), latency);
                }
            }
            out.gauge(longest, &format!("Longest time of an operation {what}."));
            for finding in &self.analysis.findings {
                if let Some(latency) = latency(finding) {
                    out.sample(&self.of_finding(finding), seconds(latency.max_ns));
                }
            }
        }
    }

    /// A doubt about the record as a whole has neither workload nor environment.
    fn doubts(&self, out: &mut Figures) {
        let mut touched: BTreeMap<(&str, &str, &str), u32> = BTreeMap::new();
        for doubt in &self.analysis.doubts {
            touched.entry(("", "", doubt.kind())).or_default();
        }
        for finding in &self.analysis.findings {
            for (doubt, slices) in &finding.doubts {
                let place = (finding.workload.as_str(), finding.environment.as_str(), doubt.kind());
                *touched.entry(place).or_default() += slices;
            }
        }
        out.gauge(
            "tare_doubt_slices",
            "Doubts by kind: the number of affected slices; 0 for a doubt about no slice in particular. Without workload and environment it is about the whole study.",
        );
        for ((workload, environment, kind), slices) in touched {
            let mut labels = self.study();
            for (label, value) in [("workload", workload), ("environment", environment)] {
                if !value.is_empty() {
                    labels.push((label, value));
                }
            }
            labels.push(("kind", kind));
            out.sample(&labels, f64::from(slices));
        }
    }
}

/// The value, and the bounds where there are any.
fn bounds(out: &mut Figures, labels: Labels<'_>, interval: &Interval, unit: f64) {
    let mut bound = |name: &'static str, value: f64| {
        let mut labels = labels.clone();
        labels.push(("bound", name));
        out.sample(&labels, value * unit);
    };
    bound("value", interval.value);
    if interval.is_bounded() {
        bound("lower", interval.low);
        bound("upper", interval.high);
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown with six digits")]
fn summary(out: &mut Figures, labels: &Labels<'_>, latency: &Latency) {
    for (quantile, ns) in [
        ("0.5", latency.p50_ns),
        ("0.95", latency.p95_ns),
        ("0.99", latency.p99_ns),
        ("0.999", latency.p999_ns),
    ] {
        let mut labels = labels.clone();
        labels.push(("quantile", quantile));
        out.sample(&labels, seconds(ns));
    }
    out.sample_of("_sum", labels, latency.mean_ns / 1e9 * latency.count as f64);
    out.sample_of("_count", labels, latency.count as f64);
}

#[expect(clippy::cast_precision_loss, reason = "shown with six digits")]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests;
