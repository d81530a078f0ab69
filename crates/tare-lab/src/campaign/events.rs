//! What a live view is told while a campaign runs.

use std::time::Duration;

use crate::analysis::Analysis;
use crate::doubt::Doubt;
use crate::record::{EnvironmentRecord, Phase, Slice};

/// What a campaign is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Starting,
    WarmingUp,
    Calibrating,
    Measuring,
    SamplingStacks,
    /// Slices in which probes look on that disturb.
    Tracing,
    TearingDown,
}

/// What a live view is told.
#[derive(Debug)]
pub enum Event<'e> {
    Stage(Stage),
    EnvironmentStarting {
        name: &'e str,
    },
    EnvironmentStarted {
        environment: &'e EnvironmentRecord,
    },
    EnvironmentLeftOut {
        name: &'e str,
        reason: &'e str,
    },
    Populating {
        environment: &'e str,
        workload: &'e str,
        done: u64,
        all: u64,
    },
    Calibrated {
        workload: &'e str,
        capacity_per_s: f64,
        rate_per_s: f64,
    },
    /// `blocks_expected` is how many there will be: the most that the study allows, or fewer where
    /// the budget ends before. An early stop may come sooner.
    BlockStarted {
        block: u32,
        blocks_expected: u32,
        left: Duration,
    },
    /// Comes before the environment is thawed: nothing is measured yet.
    SliceStarting {
        environment: &'e str,
        workload: &'e str,
        phase: Phase,
    },
    SliceDone {
        slice: &'e Slice,
        doubts: &'e [Doubt],
    },
    /// `analysis` has no latencies: those are drawn from the finished record.
    BlockDone {
        block: u32,
        blocks_expected: u32,
        left: Duration,
        analysis: &'e Analysis,
    },
    /// A doubt about an environment or, without a name, about the whole record. Those about a slice
    /// come with it; those about claims are in the analysis.
    Doubted {
        environment: Option<&'e str>,
        doubt: &'e Doubt,
    },
    /// A round of the slices after the rounds begins. `left`: the time until all of this stage are
    /// done, as the rounds before took; `None` in the first.
    ExtraRoundStarted {
        round: u32,
        rounds: u32,
        left: Option<Duration>,
    },
    TeardownFailed {
        name: &'e str,
        reason: &'e str,
    },
}

/// Someone who watches: a live view, a log, a test.
pub trait Observer {
    fn event(&mut self, event: &Event<'_>);
}

/// An observer that looks away.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Observer for NoObserver {
    fn event(&mut self, _event: &Event<'_>) {}
}
