//! How a campaign ends, well or not.

use std::path::PathBuf;

use crate::PartError;
use crate::record::RecordError;

/// Why a campaign ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    RoundsDone,
    IntervalsNarrow,
    BudgetSpent,
    Interrupted,
}

impl Ending {
    /// As the record has it.
    pub fn text(self) -> &'static str {
        match self {
            Self::RoundsDone => "rounds done",
            Self::IntervalsNarrow => "intervals narrow enough",
            Self::BudgetSpent => "budget spent",
            Self::Interrupted => "interrupted",
        }
    }
}

/// How a campaign ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub ending: Ending,
    /// Complete blocks in the record, those from before a resume included.
    pub blocks: u32,
    pub record: PathBuf,
    /// What could not be ended: (environment, why). `tare clean` takes care of it.
    pub leftovers: Vec<(String, String)>,
}

/// Why a campaign could not be run. The record says so too, and can be read and resumed.
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
    #[error("the baseline \"{environment}\" cannot be what it is compared as: {reason}")]
    BaselineNotInForce { environment: String, reason: String },
    #[error(
        "\"{environment}\" failed {failures} times in a row, and nothing can be compared without it; the last time: {reason}"
    )]
    BaselineFailed { environment: String, failures: u32, reason: String },
    #[error("cannot find the baseline's capacity under \"{workload}\": {reason}")]
    Calibration { workload: String, reason: String },
    #[error("cannot keep the results")]
    Record(#[from] RecordError),
}
