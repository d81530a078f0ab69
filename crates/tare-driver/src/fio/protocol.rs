//! What the driver and the server inside say to each other: one JSON object a line. Both are the
//! same program, so there is no version to agree on.

use serde::{Deserialize, Serialize};

/// What the driver wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Order {
    /// Runs a job file of so many jobs, each on so many bytes.
    Run { job: String, jobs: u64, size: u64 },
    /// Lets the job that runs end in good order and print its output.
    Stop,
}

/// What the server says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(super) enum Answer {
    /// The first line: fio is there.
    Ready {
        version: String,
    },
    /// All of the job's threads are there.
    Running,
    /// The job still runs; said every second.
    Alive,
    /// The job has ended.
    Done {
        output: String,
        stderr: String,
        status: String,
    },
    Failed {
        error: String,
    },
}
