//! One environment under one workload in all records of a group, by one metric.

use serde::Serialize;
use tare_lab::analysis::{Cost, Interval};
use tare_stats::Estimate;
use tare_stats::change::{self, Change, Point};
use tare_stats::law::{Verdict, judge_difference};

use super::entry::{Entry, EntryCost};
use super::figure::Figure;
use crate::compare::{log, percent_of};

/// The costs of one environment over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    pub workload: String,
    pub environment: String,
    pub metric: Figure,
    /// Whether it is a control, whose cost is noise. It has no changes.
    pub control: bool,
    /// One per record of the group; `None` if the record does not have it.
    pub costs: Vec<Option<CostPoint>>,
    pub changes: Vec<CostChange>,
    /// The smallest step of the newest three records that would be found half the time, in percent.
    pub least_step_percent: Option<f64>,
}

impl Series {
    /// The change whose first record this is, if it is claimed.
    pub(crate) fn claimed_change(&self, at: usize) -> Option<&CostChange> {
        self.changes.iter().find(|change| change.at == at && change.verdict.is_claim())
    }
}

/// The cost in one record.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CostPoint {
    #[serde(flatten)]
    pub cost: Cost,
    pub verdict: Option<Verdict>,
    /// The bound of the record's A/A control, in percent.
    pub noise_percent: Option<f64>,
}

impl CostPoint {
    /// Whether the record itself claims the cost.
    pub(crate) fn is_claimed(&self) -> bool {
        self.verdict.is_some_and(Verdict::is_claim)
    }
}

/// A step of the cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CostChange {
    /// Index of the first record after the step.
    pub at: usize,
    /// Number of records with the old cost, and with the new one.
    pub before: usize,
    pub after: usize,
    /// The new cost over the old one, as `tare compare` shows two records. Above 0 the environment
    /// costs more.
    pub percent: Interval,
    pub verdict: Verdict,
}

/// The series of a group, by workload, metric and environment, in the order in which the newest
/// record has them. The second list has those in which no changes are looked for.
pub(super) fn all(records: &[Entry]) -> (Vec<Series>, Vec<Series>) {
    type Key<'e> = (&'e str, &'e str, Figure, bool);
    let mut keys: Vec<Key<'_>> = Vec::new();
    for cost in records.iter().rev().flat_map(|record| &record.costs) {
        let key = (cost.workload.as_str(), cost.environment.as_str(), cost.metric, cost.control);
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let mut workloads: Vec<&str> = Vec::new();
    keys.iter().for_each(|key| {
        if !workloads.contains(&key.0) {
            workloads.push(key.0);
        }
    });
    let metric = |key: &Key<'_>| Figure::ALL.iter().position(|known| *known == key.2);
    keys.sort_by_key(|key| (workloads.iter().position(|known| *known == key.0), metric(key)));
    keys.into_iter()
        .map(|(workload, environment, metric, control)| {
            let of = |record: &Entry| {
                let same = |cost: &&EntryCost| {
                    cost.workload == workload
                        && cost.environment == environment
                        && cost.metric == metric
                };
                record.costs.iter().find(same).map(|found| CostPoint {
                    cost: found.cost.clone(),
                    verdict: found.verdict,
                    noise_percent: found.noise,
                })
            };
            let costs: Vec<Option<CostPoint>> = records.iter().map(of).collect();
            let (changes, least_step_percent) = if control || !metric.has_changes() {
                (Vec::new(), None)
            } else {
                changes(&costs, metric)
            };
            Series {
                workload: workload.to_string(),
                environment: environment.to_string(),
                metric,
                control,
                costs,
                changes,
                least_step_percent,
            }
        })
        .partition(|series: &Series| series.metric.has_changes())
}

/// Finds and judges the changes of a series. Costs without an interval, and those that a doubt
/// withholds, do not count.
fn changes(costs: &[Option<CostPoint>], metric: Figure) -> (Vec<CostChange>, Option<f64>) {
    let counted = |cost: &&CostPoint| {
        cost.cost.percent.is_bounded() && cost.verdict != Some(Verdict::Withheld)
    };
    let used: Vec<(usize, &CostPoint)> = costs
        .iter()
        .enumerate()
        .filter_map(|(at, cost)| Some((at, cost.as_ref().filter(counted)?)))
        .filter(|(_, cost)| log(cost.cost.percent.value, metric.scale()).is_finite())
        .collect();
    let points: Vec<Point> = used.iter().map(|(_, cost)| point(cost, metric)).collect();
    let judged = |change: &Change| {
        let noise = |of: &[(usize, &CostPoint)]| -> Vec<Option<f64>> {
            of.iter()
                .map(|(_, cost)| cost.noise_percent.map(|noise| noise_log(noise, metric)))
                .collect()
        };
        let (before, after) = (
            &used[change.at - change.before..change.at],
            &used[change.at..change.at + change.after],
        );
        let noise = change::noise_of_means(&noise(before), &noise(after));
        CostChange {
            at: used[change.at].0,
            before: change.before,
            after: change.after,
            percent: change.step.map(|log| percent_of(log, metric.scale())).into(),
            verdict: judge_difference(true, change.step.centre, noise),
        }
    };
    let least = change::least_step(&points).map(|log| 100.0 * log.exp_m1());
    (change::changes(&points).iter().map(judged).collect(), least)
}

/// The noise of a control on the scale of logarithms. A small percentage is about one; the noise of
/// a percentile is not small.
fn noise_log(percent: f64, metric: Figure) -> f64 {
    match metric {
        Figure::ServerCpu | Figure::Throughput => percent / 100.0,
        _ => (percent / 100.0).ln_1p(),
    }
}

fn point(cost: &CostPoint, metric: Figure) -> Point {
    let (interval, metric) = (&cost.cost.percent, metric.scale());
    Point::from(Estimate {
        centre: log(interval.value, metric),
        low: log(interval.low, metric),
        high: log(interval.high, metric),
        rounds: interval.rounds,
    })
}
