//! The cost of the same environment in each record, and whether two costs differ.

use serde::Serialize;
use tare_lab::analysis::claims::{noise, noise_with_runtime, verdict};
use tare_lab::analysis::{Cost, Finding, Interval};
use tare_stats::law::{Noise, Verdict, is_informative, judge_difference};
use tare_stats::{Estimate, difference};

use super::Side;
use crate::headline::Metric;

/// One environment under one workload in all records, by one metric.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CostRow<'r> {
    pub(crate) metric: Metric,
    pub workload: &'r str,
    pub environment: &'r str,
    pub control: bool,
    /// One per record.
    pub costs: Vec<Option<&'r Cost>>,
    /// One per record: found, and beyond the noise of that record's A/A control.
    pub claimed: Vec<bool>,
    /// One per record: the verdict by its own A/A control; none for the control.
    pub verdicts: Vec<Option<Verdict>>,
    /// One per record; the first has none.
    pub differences_to_first: Vec<Option<Difference>>,
}

/// The difference of a record's cost to the first record's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    #[serde(flatten)]
    pub cost: Cost,
    /// Whether it is beyond both A/A controls together.
    pub beyond_noise: bool,
    /// The verdict by both A/A controls.
    pub verdict: Verdict,
}

impl Difference {
    /// Whether the difference is a claim.
    pub fn claimed(&self) -> bool {
        self.verdict.is_claim()
    }
}

/// Environments that at least two records have, in the order of the first that has them.
pub(super) fn rows<'r>(sides: &[Side<'r>]) -> Vec<CostRow<'r>> {
    let mut rows = Vec::new();
    for metric in Metric::ALL {
        for (workload, environment) in common(sides) {
            let findings = in_each(sides, workload, environment);
            let costs: Vec<Option<&Cost>> =
                findings.iter().map(|f| f.and_then(|f| metric.cost(f))).collect();
            if costs.iter().flatten().count() < 2 {
                continue;
            }
            let verdicts: Vec<Option<Verdict>> = findings
                .iter()
                .zip(sides)
                .map(|(f, side)| f.and_then(|f| verdict(side.analysis, f, metric)))
                .collect();
            let differs = |index: usize| {
                let (from, to) = (costs[0]?, costs[index]?);
                let two = [0, index];
                let crosses = is_another_runtime([sides[0], sides[index]], environment);
                let noises = two.map(|at| match findings[at].filter(|_| crosses) {
                    Some(finding) => noise_with_runtime(sides[at].analysis, finding, metric),
                    None => noise(sides[at].analysis, workload, metric),
                });
                let difference = between(from, to, metric, noises)?;
                // A doubt about either record forbids the claim.
                let withheld = two.iter().any(|at| verdicts[*at] == Some(Verdict::Withheld));
                Some(Difference { verdict: difference.verdict.unless(withheld), ..difference })
            };
            let differences_to_first = (0..sides.len())
                .map(|index| if index == 0 { None } else { differs(index) })
                .collect();
            rows.push(CostRow {
                metric,
                workload,
                environment,
                control: findings.iter().flatten().any(|f| f.control),
                claimed: verdicts.iter().map(|v| v.is_some_and(Verdict::is_claim)).collect(),
                verdicts,
                differences_to_first,
                costs,
            });
        }
    }
    rows
}

/// Whether an environment has different runtimes in two records.
fn is_another_runtime(sides: [Side<'_>; 2], environment: &str) -> bool {
    let [one, other] = sides.map(|side| {
        let found = side.record.environments.iter().find(|one| one.spec.name == environment);
        found.map(|found| &found.spec.runtime)
    });
    one.zip(other).is_some_and(|(one, other)| one != other)
}

/// Workload and environment that at least two records have, including the baseline.
pub(super) fn common<'r>(sides: &[Side<'r>]) -> Vec<(&'r str, &'r str)> {
    let mut known: Vec<(&str, &str)> = Vec::new();
    for finding in sides.iter().flat_map(|side| &side.analysis.findings) {
        let key = (finding.workload.as_str(), finding.environment.as_str());
        if !known.contains(&key) {
            known.push(key);
        }
    }
    known.retain(|(w, e)| in_each(sides, w, e).iter().flatten().count() > 1);
    // By workload, also for environments that only later records have.
    let mut order: Vec<&str> = Vec::new();
    known.iter().for_each(|(w, _)| {
        if !order.contains(w) {
            order.push(w);
        }
    });
    known.sort_by_key(|(w, _)| order.iter().position(|known| known == w));
    known
}

/// The finding of each record, if it has one.
pub(super) fn in_each<'r>(
    sides: &[Side<'r>],
    workload: &str,
    environment: &str,
) -> Vec<Option<&'r Finding>> {
    let of = |side: &Side<'r>| {
        let same = |f: &&Finding| f.environment == environment && f.workload == workload;
        side.analysis.findings.iter().find(same)
    };
    sides.iter().map(of).collect()
}

/// A larger loss is a larger logarithm of the slow-down, by either metric.
pub(crate) fn log(percent: f64, metric: Metric) -> f64 {
    match metric {
        Metric::ServerCpu => (percent / 100.0).ln_1p(),
        Metric::Throughput => -(-percent / 100.0).ln_1p(),
    }
}

/// The percentage of a logarithm by [`log`].
pub(crate) fn percent(log: f64, metric: Metric) -> f64 {
    match metric {
        Metric::ServerCpu => log.exp_m1() * 100.0,
        Metric::Throughput => -(-log).exp_m1() * 100.0,
    }
}

/// The extra cost of `to` over `from`, in percent of `from`'s CPU time or remaining throughput.
pub(crate) fn between(
    from: &Cost,
    to: &Cost,
    metric: Metric,
    noises: [Noise; 2],
) -> Option<Difference> {
    let estimate = |cost: &Cost| Estimate {
        centre: log(cost.percent.value, metric),
        low: log(cost.percent.low, metric),
        high: log(cost.percent.high, metric),
        rounds: cost.percent.rounds,
    };
    let logs = difference(&estimate(from), &estimate(to))?;
    let found = logs.excludes(0.0);
    let interval = Interval::from(logs.map(|log| percent(log, metric)));
    let within_percent = interval.low.abs().max(interval.high.abs());
    let noise = Noise::of_two_records(noises);
    let verdict = match judge_difference(found, logs.centre, noise) {
        Verdict::NotFound if !is_informative(within_percent) => Verdict::NotKnown,
        verdict => verdict,
    };
    Some(Difference {
        cost: Cost { percent: interval, found, within_percent },
        beyond_noise: noise.bound().is_some_and(|noise| logs.centre.abs() > noise),
        verdict,
    })
}
