//! Server CPU per operation, round by round, for several environments.

use std::collections::{BTreeMap, BTreeSet};

use super::cells::Cells;
use crate::record::{Phase, Record};

/// Server CPU per operation of several environments in every round.
#[derive(Clone, Debug, PartialEq)]
pub struct RoundFigures {
    /// The phase it was measured in: at capacity, where there is any figure at capacity.
    pub phase: Phase,
    /// Idle polling was subtracted by the system's own account, as every slice has one.
    pub is_busy_time: bool,
    /// µs per operation of each environment, in their order; `None` where it has no slice that
    /// counts in this round.
    pub us: BTreeMap<u32, Vec<Option<f64>>>,
}

/// Server CPU per operation under a workload, in every round, for each of the environments.
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
    let busy = all.iter().all(|one| one.keeps_account());
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
