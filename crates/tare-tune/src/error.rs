//! The error of applying, inspecting and reverting a tuning.

use std::io;
use std::path::PathBuf;

use super::outcome::Reverted;
use crate::plan::PlanError;
use crate::setting::SettingError;

/// Why a tuning could not be applied, inspected or reverted.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    #[error("cannot take the lock {}; run as root or choose another directory with --state", .path.display())]
    Lock { path: PathBuf, source: io::Error },
    #[error("another tuning of this host is in progress (process {pid} holds {}); wait for it to end", .path.display())]
    Busy { pid: u32, path: PathBuf },
    #[error("cannot read the journal {}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write the journal {}; nothing was changed", .path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("the journal {} has no header that this version can read; revert it with the version that wrote it", .path.display())]
    Header { path: PathBuf },
    #[error("there is no tuning {id:?}; applied: {known}")]
    Unknown { id: String, known: String },
    #[error("nothing was changed: {reason}; {} of {of} settings cannot be written ({}); leave them out with --except, or run as root outside of a container", .what.len(), first(.what))]
    NotAllowed { reason: String, of: usize, what: Vec<String> },
    #[error("required setting failed ({what}): {error}; {}", rolled_back(.reverted))]
    RolledBack { what: String, error: SettingError, reverted: Box<Reverted> },
    #[error(transparent)]
    Plan(#[from] PlanError),
}

fn first(what: &[String]) -> String {
    let more = if what.len() > 3 { ", ..." } else { "" };
    format!("{}{more}", what[..what.len().min(3)].join(", "))
}

fn rolled_back(reverted: &Reverted) -> String {
    let left = reverted.settings.iter().filter(|setting| !setting.outcome.is_done()).count();
    match left {
        0 => "everything was rolled back".into(),
        left => format!("{left} settings could not be restored: see tare tune status"),
    }
}
