//! Messages between the driver and the server inside: one JSON object per line. Both are the same
//! program, so there is no version to agree on.

use serde::{Deserialize, Serialize};

/// An order of the driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Order {
    /// Run a job file with this number of jobs, each on this many bytes.
    Run { job: String, jobs: u64, size: u64 },
    /// Let the running job end cleanly and print its output.
    Stop,
}

/// An answer of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(super) enum Answer {
    /// The first line: fio is installed.
    Ready {
        version: String,
    },
    /// All threads of the job have started.
    Running,
    /// The job still runs; sent every second.
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
