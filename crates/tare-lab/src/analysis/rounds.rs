//! Server CPU per operation in each round, for several environments.

use std::collections::{BTreeMap, BTreeSet};

use super::cells::Cells;
use crate::record::{Phase, Record};

/// Server CPU per operation of several environments in each round.
#[derive(Clone, Debug, PartialEq)]
pub struct RoundFigures {
    /// The phase of the figures: capacity, or latency if no environment has a figure at capacity.
    pub phase: Phase,
    /// Whether idle polling was subtracted, because every slice has a busy time.
    pub is_busy_time: bool,
    /// µs per operation of each environment, in the order of the argument. `None` without a valid
    /// slice in the round.
    pub us: BTreeMap<u32, Vec<Option<f64>>>,
}

/// Returns the server CPU per operation under a workload in each round, for the given environments.
pub fn server_cpu_by_round(record: &Record, workload: &str, environments: &[&str]) -> RoundFigures {
    let cells = Cells::of(record);
    let series = |phase| {
        let one = |name: &&str| cells.series(workload, phase, name);
        environments.iter().map(one).collect::<Vec<_>>()
    };
    let capacity = series(Phase::Capacity);
    let (phase, all) = match capacity.iter().any(|one| one.slices > 0) {
        true => (Phase::Capacity, capacity),
        false => (Phase::Latency, series(Phase::Latency)),
    };
    let busy = all.iter().all(|one| one.has_busy_time());
    let numbers: BTreeSet<u32> = all.iter().flat_map(|one| one.round_numbers()).collect();
    let figure = |round: u32| {
        all.iter().map(|one| one.cell(round).map(|cell| cell.server_cpu_us(busy))).collect()
    };
    RoundFigures {
        phase,
        is_busy_time: busy && all.iter().any(|one| one.polls()),
        us: numbers.into_iter().map(|round| (round, figure(round))).collect(),
    }
}
