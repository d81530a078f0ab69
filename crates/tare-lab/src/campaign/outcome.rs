//! The outcomes and errors of a campaign.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::error_line;
use crate::PartError;
use crate::record::RecordError;

/// Why a campaign ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    RoundsDone,
    IntervalsNarrow,
    /// The caller's question is answered.
    GoalReached,
    BudgetSpent,
    Interrupted,
}

impl Ending {
    /// Returns the text of the ending in the record.
    pub fn text(self) -> &'static str {
        match self {
            Self::RoundsDone => "rounds done",
            Self::IntervalsNarrow => "intervals narrow enough",
            Self::GoalReached => "question answered",
            Self::BudgetSpent => "budget spent",
            Self::Interrupted => "interrupted",
        }
    }
}

/// How a campaign ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub ending: Ending,
    /// Complete rounds in the record, including those from before a resume.
    pub rounds: u32,
    pub record: PathBuf,
    /// Environments that could not be ended: (name, reason). `tare clean` removes them.
    pub leftovers: Vec<(String, String)>,
}

/// Why a campaign failed. The record stores the reason, and can be read and resumed.
#[derive(Debug, thiserror::Error)]
pub enum CampaignError {
    #[error("{environments} environments at once need about {} MiB of memory and {} MiB are available; use fewer rows, limits.memory, or schedule.kind = \"trials\"", .needed_bytes >> 20, .available_bytes >> 20)]
    Memory { environments: usize, needed_bytes: u64, available_bytes: u64 },
    #[error("cannot {step} \"{environment}\"")]
    Start {
        environment: String,
        step: &'static str,
        #[source]
        source: PartError,
    },
    #[error("the baseline \"{environment}\" lacks a layer: {reason}")]
    BaselineNotInForce { environment: String, reason: String },
    #[error(
        "\"{environment}\" failed {failures} times in a row, and every comparison needs it; last failure: {reason}"
    )]
    BaselineFailed { environment: String, failures: u32, reason: String },
    #[error(
        "{reason}; what was measured is in the record, and tare weigh --resume goes on with it"
    )]
    HostLost { reason: String },
    #[error("\"{environment}\": {reason}; the slices before it are in the record")]
    SystemGone { environment: String, reason: String },
    #[error(
        "\"{environment}\": {target} runs, but does not serve the load at {address} any more: {failure}; see what it logs, and go on with tare weigh --resume once it answers"
    )]
    AttachedFails { environment: String, target: String, address: SocketAddr, failure: String },
    #[error("cannot find the baseline's capacity under \"{workload}\": {reason}")]
    Calibration { workload: String, reason: String },
    #[error("the load cannot go on: {reason}; tare weigh --resume continues the record")]
    DriverLost { reason: String },
    #[error("cannot write the record")]
    Record(#[from] RecordError),
}

/// Why an environment did not start.
#[derive(Debug)]
pub(super) enum StartError {
    Part {
        step: &'static str,
        source: PartError,
    },
    NotInForce {
        reason: String,
    },
    /// The campaign ends, whichever environment it is.
    Ends(CampaignError),
}

impl StartError {
    pub(super) fn text(&self) -> String {
        match self {
            Self::Part { step, source } => format!("cannot {step} it: {}", error_line(&**source)),
            Self::NotInForce { reason } => reason.clone(),
            Self::Ends(error) => error_line(error),
        }
    }
}
