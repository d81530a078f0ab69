//! Compares any two environments of a record; neither needs to be the baseline.
//!
//! Method: as for the costs against the baseline, the cells of the same round are paired. All
//! environments of a study share their rounds, so any two can be paired.

use serde::{Deserialize, Serialize};

use super::cells::{Cell, Cells};
use super::{Comparison, Cost};
use crate::record::{Phase, Record};

/// The costs of one environment against another, under one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PairCosts {
    /// Server CPU time per operation, at capacity or else at the fixed rate. Above 0 the
    /// environment uses more than the other.
    pub cpu: Option<Cost>,
    /// Operations/s at capacity. Above 0 the environment has fewer than the other.
    pub throughput: Option<Cost>,
}

/// Compares an environment with another (`against`) over the rounds of both. `None` if no round has
/// both, or if they are the same environment.
pub fn pair_costs(
    record: &Record,
    workload: &str,
    environment: &str,
    against: &str,
) -> Option<PairCosts> {
    if environment == against {
        return None;
    }
    let cells = Cells::of(record);
    let side_by_side = |phase| Comparison::new(&cells, workload, phase, environment, against);
    let cpu = |pair: &Comparison<'_>| pair.rise(|cell| cell.server_cpu_us(pair.busy));
    let capacity = side_by_side(Phase::Capacity);
    let found = PairCosts {
        cpu: cpu(&capacity).or_else(|| cpu(&side_by_side(Phase::Latency))),
        throughput: capacity.fall(Cell::throughput_per_s),
    };
    (found.cpu.is_some() || found.throughput.is_some()).then_some(found)
}
