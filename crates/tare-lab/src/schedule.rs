//! In which order a study is tried: pure, and derived from the seed alone.
//!
//! A block is every environment once for every cell, where a cell is a workload in a phase. The
//! environments of a cell follow each other directly, in random order, so that a pair (environment,
//! baseline) is as close in time as it can be; baseline and control are ordinary members. With
//! whole runs (`trials`) an environment is set up afresh for its turn, so all of its cells follow
//! each other, in the same random order for every environment of the round.
//!
//! The order of a block depends on (seed, block) and on how many environments the study has, not on
//! which of them are still in it, so that a resumed study goes on in the order it began with.

use tare_std::rng::{Rng, mix64};

use crate::record::Phase;
use crate::study::{ScheduleKind, Study, WorkloadSpec};

/// Streams of the seed (`Rng::stream`), one for each purpose.
const STREAM_ORDER: u64 = 1 << 32;
const STREAM_LOAD: u64 = 2 << 32;
const STREAM_ROWS: u64 = 3 << 32;
const STREAM_CALIBRATION: u64 = 4 << 32;

/// A workload in a phase; the workload by its index in the study.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cell {
    pub workload: usize,
    pub phase: Phase,
}

/// One slice of a block; the environment by its index, the control being the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Position inside the block, from 0.
    pub position: u32,
    pub environment: usize,
    pub cell: Cell,
}

/// Whether a workload has a latency phase.
pub fn has_latency_phase(workload: &WorkloadSpec) -> bool {
    workload.rate_per_s.is_some() || workload.latency_share > 0.0
}

/// The cells of a study, in the order of its file.
pub fn cells(study: &Study) -> Vec<Cell> {
    let mut cells = Vec::new();
    for (workload, spec) in study.workloads.iter().enumerate() {
        cells.push(Cell { workload, phase: Phase::Capacity });
        if has_latency_phase(spec) {
            cells.push(Cell { workload, phase: Phase::Latency });
        }
    }
    cells
}

/// The slices of a block in their order.
pub fn block(
    kind: ScheduleKind,
    seed: u64,
    block: u32,
    environments: usize,
    cells: &[Cell],
) -> Vec<Turn> {
    let mut rng = Rng::stream(seed, STREAM_ORDER + u64::from(block));
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
    let turn = |(position, (environment, cell))| Turn { position, environment, cell };
    (0..).zip(order).map(turn).collect()
}

/// Seed of the operations of a cell in a block: the same for every environment, so that all are
/// asked the same.
pub fn load_seed(seed: u64, block: u32, cell: Cell) -> u64 {
    let phase = match cell.phase {
        Phase::Capacity => 0,
        // The same operations, so that what tracing disturbs can be seen.
        Phase::Latency | Phase::Traced => 1,
    };
    mix64(Rng::stream(seed, STREAM_LOAD + u64::from(block)).next_u64() ^ cell_number(cell, phase))
}

/// Seed of a workload's rows: the same for every environment.
pub fn rows_seed(seed: u64, workload: usize) -> u64 {
    Rng::stream(seed, STREAM_ROWS + workload as u64).next_u64()
}

/// Seed of one of the slices that find the baseline's capacity.
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
    fn a_block_is_every_environment_once_per_cell() {
        for kind in [ScheduleKind::Slices, ScheduleKind::Trials] {
            for number in 0..50 {
                let turns = block(kind, 7, number, 5, &two_cells());
                let set: BTreeSet<(usize, Cell)> =
                    turns.iter().map(|turn| (turn.environment, turn.cell)).collect();
                assert_eq!((turns.len(), set.len()), (10, 10));
                let positions: Vec<u32> = turns.iter().map(|turn| turn.position).collect();
                assert_eq!(positions, (0..10).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn the_seed_alone_decides() {
        let take = |seed, number| block(ScheduleKind::Slices, seed, number, 6, &two_cells());
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
    fn slices_of_a_cell_are_neighbours_and_trials_of_an_environment_are() {
        let slices = block(ScheduleKind::Slices, 1, 0, 4, &two_cells());
        assert!(slices.chunks(4).all(|part| part.iter().all(|turn| turn.cell == part[0].cell)));
        let trials = block(ScheduleKind::Trials, 1, 0, 4, &two_cells());
        let same = |part: &[Turn]| part.iter().all(|turn| turn.environment == part[0].environment);
        assert!(trials.chunks(2).all(same));
    }

    #[test]
    fn no_place_is_favoured() {
        // Each of 4 environments is at each of 4 places in about a quarter of 2,000 blocks.
        let mut seen = [[0u32; 4]; 4];
        let cells = &two_cells()[..1];
        for number in 0..2000 {
            for turn in block(ScheduleKind::Slices, 9, number, 4, cells) {
                seen[turn.environment][turn.position as usize] += 1;
            }
        }
        assert!(seen.iter().flatten().all(|count| (420..=580).contains(count)), "{seen:?}");
    }
}
