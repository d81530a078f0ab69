//! Undoes journal entries. A crate that creates its own kinds of host objects implements
//! [`UndoKinds`] for them, and the program passes the list of all implementations to every journal.
//!
//! Undoing is idempotent and refuses objects that are not named after the run.

use std::fmt;
use std::io;
use std::path::{Component, Path, PathBuf};

use crate::NAME_PREFIX;
use crate::block::BlockError;
use crate::exec::ExecError;
use crate::netns::NetnsError;
use crate::nvme::NvmeError;

mod entry;
mod host;

pub use entry::Entry;
pub(crate) use host::{HostKinds, end_processes};

/// Undoes the entries of the kinds that one crate owns.
pub trait UndoKinds: fmt::Debug + Sync {
    /// Returns the names of the kinds in journals. They never change, because old journals hold
    /// them.
    fn kinds(&self) -> &'static [&'static str];

    /// Undoes one entry of a run. An object that is gone already is no error.
    ///
    /// # Errors
    /// When the object cannot be removed or is not named after the run.
    fn undo(&self, run: &str, entry: &Entry) -> Result<(), UndoError>;
}

/// The kinds of the crates above this one that a journal can hold.
pub type KnownKinds = &'static [&'static dyn UndoKinds];

/// Why an object could not be removed.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    #[error("left {what} alone: it is not named after run {run}")]
    NotOurs { what: String, run: String },
    #[error("processes {pids:?} of run {run} did not end when killed; they may wait for a disk")]
    Unkillable { run: String, pids: Vec<u32> },
    #[error("cannot signal a process of run {run}")]
    Signal { run: String, source: io::Error },
    #[error(transparent)]
    Netns(#[from] NetnsError),
    #[error(transparent)]
    Block(#[from] BlockError),
    #[error(transparent)]
    Nvme(#[from] NvmeError),
    #[error("cannot remove {what}")]
    Command { what: String, source: ExecError },
    #[error("cannot remove {}", .path.display())]
    Remove { path: PathBuf, source: io::Error },
    #[error("cannot unmount {}", .path.display())]
    Unmount { path: PathBuf, source: io::Error },
    #[error("the journal's entry of the kind {kind} cannot be understood; it was kept")]
    Malformed { kind: String, source: serde_json::Error },
    #[error(
        "{entries} entries of the kind {kind:?} were kept, because this program does not know the \
         kind; run tare clean of the version that made the run"
    )]
    UnknownKind { kind: String, entries: usize },
    /// Only another program can undo the entries.
    #[error("{who} does not answer ({why}); journal entries that wait for it: {entries}")]
    NoAnswer { who: String, why: String, entries: usize },
    /// A kind of another crate.
    #[error(transparent)]
    OfKind(Box<dyn std::error::Error + Send + Sync>),
}

/// Whether a name belongs to the run: `tare-RUN`, alone or followed by a character that is no
/// letter or digit.
fn is_ours(run: &str, name: &str) -> bool {
    let rest = name.strip_prefix(NAME_PREFIX).and_then(|rest| rest.strip_prefix(run));
    run.len() == 4
        && rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric()))
}

/// Checks that a name belongs to the run and leads to no other directory.
///
/// # Errors
/// `NotOurs` when it does not.
pub fn check_name(run: &str, name: &str) -> Result<(), UndoError> {
    // A slash or two dots would lead to another directory.
    if is_ours(run, name) && !name.contains('/') && !name.contains("..") {
        return Ok(());
    }
    Err(UndoError::NotOurs { what: name.into(), run: run.into() })
}

/// Checks that a path is absolute, without `..`, and has a part that is named after the run.
///
/// # Errors
/// `NotOurs` when it is not.
pub fn check_path(run: &str, path: &Path) -> Result<(), UndoError> {
    let mut ours = false;
    let mut plain = path.is_absolute();
    for component in path.components() {
        match component {
            Component::Normal(name) => ours |= is_ours(run, &name.to_string_lossy()),
            Component::RootDir => {}
            _ => plain = false,
        }
    }
    if ours && plain {
        return Ok(());
    }
    Err(UndoError::NotOurs { what: path.display().to_string(), run: run.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_only_names_of_run() {
        for ours in ["tare-ab12", "tare-ab12-client", "tare-ab12:latest"] {
            assert!(is_ours("ab12", ours), "{ours}");
        }
        for other in ["tare-ab123", "tare-ab1", "ab12", "xtare-ab12", "tare-", "docker0", ""] {
            assert!(!is_ours("ab12", other), "{other}");
        }
        assert!(!is_ours("", "tare-"));
        assert!(check_path("ab12", Path::new("/var/lib/tare/tare-ab12/x")).is_ok());
        assert!(check_path("ab12", Path::new("/var/lib/tare/tare-ab12/../x")).is_err());
        assert!(check_path("ab12", Path::new("tare-ab12/x")).is_err());
    }
}
