//! The order of a study's slices: pure, and derived from the seed alone.
//!
//! A round runs every environment once for every cell, where a cell is a workload in a phase. The
//! environments of a cell follow each other directly, in random order, so that the slices of a pair
//! (environment, baseline) are as close in time as possible. Baseline and control are ordinary
//! members. With whole runs (`trials`) an environment starts fresh in each round, so all of its
//! cells follow each other, in the same random order for every environment of the round.
//!
//! The order of a round depends on (seed, round) and on the number of environments in the study,
//! not on which of them are left out, so that a resumed study continues in its original order.

use tare_std::rng::{Rng, mix64};

use crate::record::Phase;
use crate::study::{ScheduleKind, Study, WorkloadSpec};

/// Streams of the seed (`Rng::stream`), one for each purpose.
const STREAM_ORDER: u64 = 1 << 32;
const STREAM_LOAD: u64 = 2 << 32;
const STREAM_ROWS: u64 = 3 << 32;
const STREAM_CALIBRATION: u64 = 4 << 32;
/// The order of the slices that choose the window.
pub const STREAM_WINDOW: u64 = 5 << 32;

/// A workload in a phase. `workload` is its index in the study.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cell {
    pub workload: usize,
    pub phase: Phase,
}

/// One slice of a round. `environment` is an index in the study; the control is the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduledSlice {
    /// Position inside the round, from 0.
    pub position: u32,
    pub environment: usize,
    pub cell: Cell,
}

/// Returns whether a workload has a latency phase.
pub fn has_latency_phase(workload: &WorkloadSpec) -> bool {
    workload.rate_per_s.is_some() || workload.latency_share > 0.0
}

/// Returns the cells of a study, in the order of its file.
pub fn cells(study: &Study) -> Vec<Cell> {
    let mut cells = Vec::new();
    for (workload, spec) in study.workloads.iter().enumerate() {
        if !spec.rate_only {
            cells.push(Cell { workload, phase: Phase::Capacity });
        }
        if has_latency_phase(spec) {
            cells.push(Cell { workload, phase: Phase::Latency });
        }
        if spec.slo.is_some() {
            cells.push(Cell { workload, phase: Phase::Slo });
        }
    }
    cells
}

/// Returns the slices of a round in the order in which they run.
pub fn round(
    kind: ScheduleKind,
    seed: u64,
    round: u32,
    environments: usize,
    cells: &[Cell],
) -> Vec<ScheduledSlice> {
    let mut rng = Rng::stream(seed, STREAM_ORDER + u64::from(round));
    let mut cells = cells.to_vec();
    rng.shuffle(&mut cells);
    let mut members: Vec<usize> = (0..environments).collect();
    let mut order = Vec::with_capacity(cells.len() * environments);
    match kind {
        ScheduleKind::Slices => {
            for cell in cells {
                rng.shuffle(&mut members);
                order.extend(members.iter().map(|environment| (*environment, cell)));
            }
        }
        ScheduleKind::Trials => {
            rng.shuffle(&mut members);
            for environment in members {
                order.extend(cells.iter().map(|cell| (environment, *cell)));
            }
        }
    }
    let scheduled =
        |(position, (environment, cell))| ScheduledSlice { position, environment, cell };
    (0..).zip(order).map(scheduled).collect()
}

/// Returns the seed of the operations of a cell in a round. It is the same for every environment,
/// so that all of them receive the same operations.
pub fn load_seed(seed: u64, round: u32, cell: Cell) -> u64 {
    let phase = match cell.phase {
        Phase::Capacity => 0,
        // The same operations, so that the effect of tracing is visible.
        Phase::Latency | Phase::Traced | Phase::Slo => 1,
    };
    mix64(Rng::stream(seed, STREAM_LOAD + u64::from(round)).next_u64() ^ cell_number(cell, phase))
}

/// Returns the seed of a workload's rows, the same for every environment.
pub fn rows_seed(seed: u64, workload: usize) -> u64 {
    Rng::stream(seed, STREAM_ROWS + workload as u64).next_u64()
}

/// Returns the seed of one of the slices that find the baseline's capacity.
pub fn calibration_seed(seed: u64, workload: usize, slice: u32) -> u64 {
    let stream = STREAM_CALIBRATION + ((workload as u64) << 8) + u64::from(slice);
    Rng::stream(seed, stream).next_u64()
}

fn cell_number(cell: Cell, phase: u64) -> u64 {
    (cell.workload as u64) << 1 | phase
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn two_cells() -> Vec<Cell> {
        [Phase::Capacity, Phase::Latency].map(|phase| Cell { workload: 0, phase }).to_vec()
    }

    #[test]
    fn round_has_every_environment_once_per_cell() {
        for kind in [ScheduleKind::Slices, ScheduleKind::Trials] {
            for number in 0..50 {
                let slices_in_order = round(kind, 7, number, 5, &two_cells());
                let set: BTreeSet<(usize, Cell)> = slices_in_order
                    .iter()
                    .map(|scheduled| (scheduled.environment, scheduled.cell))
                    .collect();
                assert_eq!((slices_in_order.len(), set.len()), (10, 10));
                let positions: Vec<u32> =
                    slices_in_order.iter().map(|scheduled| scheduled.position).collect();
                assert_eq!(positions, (0..10).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn order_depends_on_seed_alone() {
        let take = |seed, number| round(ScheduleKind::Slices, seed, number, 6, &two_cells());
        assert_eq!(take(1, 3), take(1, 3));
        assert_ne!(take(1, 3), take(1, 4));
        assert_ne!(take(1, 3), take(2, 3));
        let cell = Cell { workload: 0, phase: Phase::Capacity };
        let latency = Cell { workload: 0, phase: Phase::Latency };
        assert_eq!(load_seed(1, 2, cell), load_seed(1, 2, cell));
        assert_ne!(load_seed(1, 2, cell), load_seed(1, 2, latency));
        assert_ne!(load_seed(1, 2, cell), load_seed(1, 3, cell));
    }

    #[test]
    fn groups_slices_by_cell_and_trials_by_environment() {
        let slices = round(ScheduleKind::Slices, 1, 0, 4, &two_cells());
        assert!(
            slices
                .chunks(4)
                .all(|part| part.iter().all(|scheduled| scheduled.cell == part[0].cell))
        );
        let trials = round(ScheduleKind::Trials, 1, 0, 4, &two_cells());
        let same = |part: &[ScheduledSlice]| {
            part.iter().all(|scheduled| scheduled.environment == part[0].environment)
        };
        assert!(trials.chunks(2).all(same));
    }

    #[test]
    fn positions_are_uniform() {
        // Each of 4 environments takes each of 4 positions in about a quarter of 2,000 rounds.
        let mut seen = [[0u32; 4]; 4];
        let cells = &two_cells()[..1];
        for number in 0..2000 {
            for scheduled in round(ScheduleKind::Slices, 9, number, 4, cells) {
                seen[scheduled.environment][scheduled.position as usize] += 1;
            }
        }
        assert!(seen.iter().flatten().all(|count| (420..=580).contains(count)), "{seen:?}");
    }
}
