//! Makes a disk steady before it is measured. A flash disk is fast while it has erased blocks, and
//! only what comes after hours of writing lasts.
//!
//! Method: that of the SNIA's Solid State Storage Performance Test Specification, version 2.0.2
//! (<https://www.snia.org/tech_activities/standards/curr_standards/pts>). The whole range is
//! written twice in sequence (workload independent preconditioning), then at random in rounds of
//! the same length (workload dependent preconditioning), until five of them have the same rate
//! ([`SteadyWindow`]), at most 25 rounds.
//!
//! Limits: a range that is a part of the disk makes that part steady only, and nothing is erased
//! before, which no file system allows.

use std::time::{Duration, Instant};

use tare_stats::steady_state::{SteadyWindow, WINDOW_ROUNDS};

use crate::doubt::Doubt;
use crate::engine::{EngineError, Outcome, Pacing, Stream, Window};
use crate::report::SteadyReport;

/// How often the range is written in sequence.
const PASSES: u32 = 2;
/// The most rounds.
const ROUNDS_MAX: u32 = 25;
/// The writes of a round: as a database's, and as many in flight as a disk has use for.
const BLOCK_BYTES: u32 = 4 << 10;
const DEPTH: usize = 32;
/// The part of a round that shows what a round will write.
const PARTS: u32 = 20;

/// How a disk is made steady.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steady {
    /// The length of a round. The specification has a minute.
    pub round: Duration,
    /// The most bytes that may be written for it; `u64::MAX`: any number.
    pub writes_max: u64,
}

impl Steady {
    /// What may be written without asking, in bytes. Flash wears with every byte.
    pub const UNASKED_BYTES: u64 = 100_000_000_000;

    /// Returns what the sequential writes of a range write.
    pub fn sequential_bytes(bytes: u64) -> u64 {
        bytes.saturating_mul(PASSES.into())
    }

    /// Returns what it costs, in words, before anything is written.
    pub fn cost(self, bytes: u64) -> String {
        let least = self.round * u32::try_from(WINDOW_ROUNDS).unwrap_or(u32::MAX);
        let most = self.round * ROUNDS_MAX;
        let limit = match self.writes_max {
            u64::MAX => String::new(),
            bytes => format!("; at most {} GB are written", bytes / 1_000_000_000),
        };
        format!(
            "making the disk steady: {PASSES} x {} MiB in sequence, then {} KiB at random for {:.0} to \
             {:.0} s, beside the budget{limit}",
            bytes >> 20,
            BLOCK_BYTES >> 10,
            least.as_secs_f64(),
            most.as_secs_f64(),
        )
    }
}

/// A disk that is written, with what sees it.
pub(crate) trait WrittenDisk {
    /// The bytes that were written so far.
    fn written_bytes(&self) -> u64;

    /// Writes the first bytes of the target in sequence.
    fn write_over(&mut self, bytes: u64) -> Result<(), EngineError>;

    /// Writes for a while.
    fn run_one(&mut self, stream: Stream, window: Window) -> Result<Outcome, EngineError>;

    fn report_progress(&mut self, what: String);
}

/// Writes a range of so many bytes until the disk is steady. One that never is has a doubt.
pub(crate) fn make(
    session: &mut impl WrittenDisk,
    how: Steady,
    bytes: u64,
) -> Result<(SteadyReport, Option<Doubt>), EngineError> {
    let began = Instant::now();
    let before = session.written_bytes();
    let mut report = SteadyReport { round_s: how.round.as_secs_f64(), ..SteadyReport::default() };
    for pass in 1..=PASSES {
        session.report_progress(format!("making the disk steady: pass {pass} of {PASSES}"));
        session.write_over(bytes)?;
        report.passes = pass;
    }
    let pacing = Pacing::Closed { depth: DEPTH };
    let stream = Stream { write: true, random: true, block: BLOCK_BYTES, pacing };
    let window = Window { most: how.round, until_steady: false, longer: Duration::ZERO };
    // A part writes no more than writing in sequence does, and a round as many times the part, or
    // as much as the largest one so far.
    let in_sequence = session.written_bytes() - before;
    let part = Window { most: how.round / PARTS, ..window };
    let part_bytes = in_sequence as f64 * part.most.as_secs_f64() / began.elapsed().as_secs_f64();
    let has_room = |written_bytes: u64, bytes: f64| {
        (written_bytes - before) as f64 + bytes <= how.writes_max as f64
    };
    let mut largest = f64::INFINITY;
    if has_room(session.written_bytes(), part_bytes) {
        largest = session.run_one(stream, part)?.bytes_all as f64 * f64::from(PARTS);
    }
    for round in 1..=ROUNDS_MAX {
        if !has_room(session.written_bytes(), largest) {
            break;
        }
        session.report_progress(format!("making the disk steady: round {round}"));
        let outcome = session.run_one(stream, window)?;
        largest = largest.max(outcome.bytes_all as f64);
        report.rounds_per_s.push(outcome.operations_per_s());
        report.last_rounds = SteadyWindow::of(&report.rounds_per_s);
        report.is_steady = report.last_rounds.is_some_and(SteadyWindow::is_steady);
        if report.is_steady {
            break;
        }
    }
    report.written_bytes = session.written_bytes() - before;
    report.seconds = began.elapsed().as_secs_f64();
    let rounds = report.rounds_per_s.len();
    let is_cut = rounds < ROUNDS_MAX as usize;
    let writes_max = is_cut.then_some(how.writes_max);
    let doubt = Doubt::NotSteady { rounds, last_rounds: report.last_rounds, writes_max };
    let doubt = (!report.is_steady).then_some(doubt);
    Ok((report, doubt))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_is_told_before() {
        let how = Steady { round: Duration::from_secs(60), writes_max: Steady::UNASKED_BYTES };
        assert_eq!(Steady::sequential_bytes(4 << 30), 8 << 30);
        assert_eq!(
            how.cost(4 << 30),
            "making the disk steady: 2 x 4096 MiB in sequence, then 4 KiB at random for 300 to \
             1500 s, beside the budget; at most 100 GB are written"
        );
        let allowed = Steady { writes_max: u64::MAX, ..how };
        assert!(allowed.cost(4 << 30).ends_with("beside the budget"));
    }
}
