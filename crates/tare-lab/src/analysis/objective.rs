//! The capacity of each environment under the objective of its workload ([`crate::staircase`]).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tare_stats::{Cost, Interval, estimate, fall_of};

use crate::record::Record;
use crate::staircase::{self, Step};

/// What a search for the capacity under an objective has found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SloFigures {
    /// The rate at which half of the slices keep the objective, in operations/s. `None` while too
    /// few rates count.
    pub capacity_per_s: Option<Interval>,
    /// How much lower that is than the baseline's, over the rounds of both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// Slices of the search, and those whose rates count.
    pub slices: u32,
    pub slices_settled: u32,
}

/// Returns the figures of an environment. `None` without a slice of the search.
pub(super) fn figures(
    record: &Record,
    workload: &str,
    environment: &str,
    baseline: Option<&str>,
) -> Option<SloFigures> {
    let of = |name: &str| staircase::steps(&record.slices, workload, name);
    let steps = of(environment);
    if steps.is_empty() {
        return None;
    }
    let settled = staircase::settled(&steps);
    let logs: Vec<f64> = settled.iter().map(|step| step.rate_per_s.ln()).collect();
    let level = estimate(&staircase::batches(&logs)).map(|level| level.map(f64::exp));
    let cost = baseline.and_then(|baseline| cost(settled, staircase::settled(&of(baseline))));
    let count = |steps: &[Step]| u32::try_from(steps.len()).unwrap_or(u32::MAX);
    Some(SloFigures {
        capacity_per_s: level.map(Interval::from),
        cost,
        slices: count(&steps),
        slices_settled: count(settled),
    })
}

fn cost(here: &[Step], baseline: &[Step]) -> Option<Cost> {
    let baseline: BTreeMap<u32, f64> =
        baseline.iter().map(|step| (step.round, step.rate_per_s)).collect();
    let pair = |step: &Step| Some((step.rate_per_s / baseline.get(&step.round)?).ln());
    let logs: Vec<f64> = here.iter().filter_map(pair).collect();
    estimate(&staircase::batches(&logs)).map(fall_of)
}
