//! Errors of other hosts.

use std::io;
use std::path::PathBuf;

/// Why something on another host failed.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    #[error("cannot connect to {host}; try: ssh {destination} true")]
    Connect { host: String, destination: String, source: openssh::Error },
    #[error("the connection to {host} is lost")]
    Lost { host: String, source: openssh::Error },
    #[error("cannot run {program} on {host}")]
    Run { program: String, host: String, source: openssh::Error },
    #[error("{program} on {host} failed ({status}){}", said(.stderr))]
    Failed { program: String, host: String, status: String, stderr: String },
    #[error("cannot exchange data with {host}")]
    Pipe { host: String, source: io::Error },
    #[error("cannot read {}", .path.display())]
    Program { path: PathBuf, source: io::Error },
    #[error("{host} is a machine of {theirs}, and this program is for {ours}")]
    Architecture { host: String, theirs: String, ours: &'static str },
    #[error("the copy of Tare on {host} at {path} differs from this program; remove it there")]
    Copy { host: String, path: String },
    #[error("cannot set up connections through ssh")]
    Runtime { source: io::Error },
}

fn said(stderr: &str) -> String {
    match stderr.trim() {
        "" => String::new(),
        text => format!(": {text}"),
    }
}
