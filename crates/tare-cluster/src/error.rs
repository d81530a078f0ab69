//! Errors of a system on several hosts.

use std::io;
use std::path::PathBuf;

use tare_remote::RemoteError;

/// Why something on the hosts of a system failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ClusterError {
    #[error("{host}: {reason}")]
    Failed { host: String, reason: String },
    #[error("{host} is lost: {reason}")]
    Lost { host: String, reason: String },
    #[error("{host} did not answer {order} within {limit_s} s")]
    Silent { host: String, order: String, limit_s: u64 },
    #[error("{host} answered {order} with {answer}")]
    Answer { host: String, order: String, answer: String },
    #[error("no two ports are free on all hosts; end other programs there")]
    NoPorts,
}

/// Why the hosts of a system cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Remote(#[from] RemoteError),
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error(
        "the agent runs as root on {host}, because it makes cgroups and containers; write ssh:root@{name}"
    )]
    NoRoot { host: String, name: String },
    #[error("the address of {host} is not known; write {host}=10.0.0.5")]
    NoAddress { host: String },
    #[error("cannot start {}", .program.display())]
    Start { program: PathBuf, source: io::Error },
}
