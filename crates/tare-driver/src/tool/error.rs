//! Errors between a driver and its tool.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::OutputError;
use crate::PlacementError;
use crate::option_reader::OptionError;
use crate::targets::NoTarget;
use tare_load::LoadError;

/// Why a tool could not run or gave no figures.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    #[error(transparent)]
    Option(#[from] OptionError),
    #[error(transparent)]
    Place(#[from] PlacementError),
    #[error("cannot find {program}; `tare doctor` says how to get it")]
    NotFound { program: String },
    #[error("cannot start {program}")]
    Spawn { program: String, source: std::io::Error },
    #[error("cannot create the directory {} for the tool's files", .path.display())]
    Scratch { path: PathBuf, source: std::io::Error },
    #[error("cannot read {}, which {tool} should have written", .path.display())]
    Read { tool: &'static str, path: PathBuf, source: std::io::Error },
    #[error("cannot connect to {address}")]
    Connect { address: SocketAddr, source: std::io::Error },
    #[error("{tool} started no load within {} s; {said}", .limit.as_secs())]
    NotBegun { tool: &'static str, limit: Duration, said: String },
    #[error("{tool} ended before its load started ({status}); {said}")]
    Unbegun { tool: &'static str, status: String, said: String },
    #[error("{tool} ended before the window did ({status}); {said}")]
    Early { tool: &'static str, status: String, said: String },
    #[error("{tool} has printed no figures for {} s; {said}", .limit.as_secs())]
    Silent { tool: &'static str, limit: Duration, said: String },
    #[error("{tool} did not end within {} s after the window and was killed; {said}", .limit.as_secs())]
    Late { tool: &'static str, limit: Duration, said: String },
    #[error("{tool} failed ({status}); {said}")]
    Failed { tool: &'static str, status: String, said: String },
    #[error("cannot use what {tool} printed; {said}")]
    Output { tool: &'static str, said: String, source: OutputError },
    #[error(
        "{tool} has no class {class} in the jars of its home; write another binding, or put its jar into lib"
    )]
    NoBinding { tool: &'static str, class: String },
    #[error("{tool} was stopped by the harness")]
    Stopped { tool: String },
    #[error("{tool} was not prepared for this slice")]
    Unprepared { tool: &'static str },
    #[error("{tool} did {done} operations of {asked}; {said}")]
    Short { tool: &'static str, asked: u64, done: u64, said: String },
    #[error(
        "{tool} says that it ran for {ran_ms} ms, less than the window of {window_ms} ms; {said}"
    )]
    Uncovered { tool: &'static str, ran_ms: u64, window_ms: u128, said: String },
    #[error(
        "{tool} does not run as long as the window: its rate changes too much to choose its operations"
    )]
    Unsteady { tool: &'static str },
    #[error(
        "{tool} is a closed loop and cannot hold a rate; write latency_share = 0 in workload {workload:?}"
    )]
    ClosedLoop { tool: &'static str, workload: String },
    #[error("the server answered {answer:?} while the rows were written")]
    Refused { answer: String },
    #[error("the server closed the connection while the rows were written")]
    Closed,
    #[error("cannot write the rows")]
    Rows { source: std::io::Error },
    #[error("cannot create its table")]
    Schema { source: Box<LoadError> },
    #[error(transparent)]
    NoTarget(#[from] NoTarget),
}
