//! The contract of runtimes: their entries in the list, their errors, and the undoing of their
//! journal entries.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tare_host::journal::EntryId;
use tare_host::{UndoError, error_line};
use tare_lab::PartError;
use tare_lab::environment::{Environment, EnvironmentSpec};

use crate::layer::Layers;
use crate::run_context::RunContext;
use crate::unavailable::Unavailable;

/// How long a killed process may take to end. At worst it waits for its disk.
pub(crate) const KILL_LIMIT: Duration = Duration::from_secs(10);

/// A kind of runtime. In a study it is written `name` or `name:argument`.
#[derive(Clone, Copy)]
pub struct Runtime {
    pub name: &'static str,
    /// One line for `tare list`.
    pub help: &'static str,
    /// What follows the colon.
    pub argument: Argument,
    /// Layer values and other options that it supports or restricts, as (name, one line).
    pub options: &'static [(&'static str, &'static str)],
    /// Checks that this host can run it with this argument, and reports what is missing.
    pub needs: fn(Option<&str>) -> Result<(), Unavailable>,
    /// What it removes at the end.
    pub cleanup: &'static str,
    /// How Tare verifies that it is in force.
    pub read_back: &'static str,
    /// Returns the names that work on this host, as studies write them.
    pub found: fn() -> Vec<String>,
    pub(super) make: Make,
}

/// Creates an environment. The layers are those of the specification, parsed and checked.
pub type Make = fn(
    &Arc<RunContext>,
    EnvironmentSpec,
    Layers,
    Option<&str>,
) -> Result<Box<dyn Environment>, PartError>;

/// Whether a runtime takes an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    None,
    /// Holds the description of the argument.
    Optional(&'static str),
    /// Holds the description of the argument.
    Required(&'static str),
}

/// Why a runtime's name in a study is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeError {
    #[error("unknown runtime {name:?}; known runtimes: {known}")]
    Unknown { name: String, known: String },
    #[error("runtime {name:?} needs an argument: write {name}:{what}")]
    NoArgument { name: String, what: &'static str },
    #[error("runtime {name:?} takes no argument, but {argument:?} was given")]
    Argument { name: String, argument: String },
}

/// An environment could not be removed completely. What is left stays in the journal.
#[derive(Debug, thiserror::Error)]
#[error("environment {environment:?} was not removed completely, run tare clean: {errors}")]
pub struct LeftBehind {
    environment: String,
    errors: String,
}

/// Undoes an environment's journal entries, as part of `stop`. Idempotent. Those that need a
/// program which does not answer are no error here: the end of the run tries them again, and says
/// once what is left.
pub(crate) fn undo(
    context: &RunContext,
    environment: &str,
    entries: &mut Vec<EntryId>,
) -> Result<(), LeftBehind> {
    let mut errors = context.journal().undo(&std::mem::take(entries));
    errors.retain(|error| !matches!(error, UndoError::NoAnswer { .. }));
    if errors.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = errors.iter().map(|error| error_line(error)).collect();
    Err(LeftBehind { environment: environment.into(), errors: lines.join("; ") })
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("name", &self.name).finish_non_exhaustive()
    }
}
