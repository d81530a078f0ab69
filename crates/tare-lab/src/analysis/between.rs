//! Compares any two environments of a record; neither needs to be the baseline.
//!
//! Method: that of the costs against the baseline: cells of the same round are paired. In a study
//! by slices all environments share their rounds, so any two can be paired as well as one and the
//! baseline.

use serde::{Deserialize, Serialize};

use super::cells::{Cell, Cells};
use super::{Comparison, Cost};
use crate::record::{Phase, Record};

/// The cost of one environment against another, under one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Between {
    /// CPU time of the server per operation: at capacity, else at the fixed rate. Above 0 the
    /// environment takes more than the other.
    pub cpu: Option<Cost>,
    /// Operations/s at capacity. Above 0 the environment does fewer than the other.
    pub throughput: Option<Cost>,
}

/// Pairs an environment with another (`against`) over the rounds that both have.
///
/// `None` if the record has no round with both, or if they are the same environment.
pub fn between(
    record: &Record,
    workload: &str,
    environment: &str,
    against: &str,
) -> Option<Between> {
    if environment == against {
        return None;
    }
    let cells = Cells::of(record);
    let side_by_side = |phase| Comparison::new(&cells, workload, phase, environment, against);
    let cpu = |pair: &Comparison<'_>| pair.rise(|cell| cell.server_cpu_us(pair.busy));
    let capacity = side_by_side(Phase::Capacity);
    let found = Between {
        cpu: cpu(&capacity).or_else(|| cpu(&side_by_side(Phase::Latency))),
        throughput: capacity.fall(Cell::throughput_per_s),
    };
    (found.cpu.is_some() || found.throughput.is_some()).then_some(found)
}
