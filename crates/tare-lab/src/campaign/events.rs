//! The events of a campaign, for live views.

use std::time::Duration;

use crate::analysis::Analysis;
use crate::doubt::Doubt;
use crate::record::{EnvironmentRecord, Phase, Slice};
use crate::study::{AutoWindow, Climb};

/// The stage of a campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Starting,
    WarmingUp,
    /// Finding the load that saturates the baseline.
    Climbing,
    /// Slices of several lengths, to choose the window.
    ChoosingWindow,
    Calibrating,
    Measuring,
    SamplingStacks,
    /// Slices with probes that disturb the system.
    Tracing,
    TearingDown,
}

/// An event of a campaign.
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
    /// Where the saved data of all starts is from, or why it is not kept, in one line.
    DataSaved {
        line: &'e str,
    },
    /// The requests in flight of a workload with `load = "saturate"` are known.
    Climbed {
        workload: &'e str,
        in_flight: u32,
        /// The option of a load tool that has this number.
        option: Option<&'e str>,
        climb: &'e Climb,
    },
    /// The window of slices at capacity was chosen.
    WindowChosen {
        window: Duration,
        chosen: &'e AutoWindow,
    },
    /// The environments warm up, all of them together for this long.
    WarmingUp {
        takes: Duration,
    },
    /// An environment is started again; `start` counts from 0.
    Restarting {
        name: &'e str,
        start: u32,
    },
    Calibrated {
        workload: &'e str,
        capacity_per_s: f64,
        rate_per_s: f64,
    },
    /// `rounds_expected` is the estimated total: the study's maximum, or fewer if the budget ends
    /// before. The study may still stop earlier.
    RoundStarted {
        round: u32,
        rounds_expected: u32,
        left: Duration,
    },
    /// Sent before the environment is thawed.
    SliceStarting {
        environment: &'e str,
        workload: &'e str,
        phase: Phase,
    },
    SliceDone {
        slice: &'e Slice,
        doubts: &'e [Doubt],
    },
    /// `analysis` has no latencies, which only the finished record gives.
    RoundDone {
        round: u32,
        rounds_expected: u32,
        left: Duration,
        analysis: &'e Analysis,
    },
    /// A doubt about an environment or, without a name, about the whole record. `SliceDone` has the
    /// doubts about slices, and the analysis those about claims.
    Doubted {
        environment: Option<&'e str>,
        doubt: &'e Doubt,
    },
    /// An extra round begins. `left` is the time until the end of this stage, estimated from the
    /// previous extra rounds; `None` in the first.
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

/// Receives the events of a campaign: a live view, a log, a test.
pub trait Observer {
    fn event(&mut self, event: &Event<'_>);
}

/// An observer that ignores all events.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Observer for NoObserver {
    fn event(&mut self, _event: &Event<'_>) {}
}
