//! What every runtime is: the entry that it gives to the list, its errors, and how it ends.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tare_host::error_line;
use tare_host::journal::EntryId;
use tare_lab::PartError;
use tare_lab::environment::{Environment, EnvironmentSpec};

use crate::layer::Layers;
use crate::run_context::RunContext;
use crate::unavailable::Unavailable;

/// How long a killed process may take to end. It is at most waiting for its disk.
pub(crate) const KILL_LIMIT: Duration = Duration::from_secs(10);

/// A kind of runtime. In a study it is written `name` or `name:argument`.
#[derive(Clone, Copy)]
pub struct Runtime {
    pub name: &'static str,
    /// One line: what it is.
    pub help: &'static str,
    /// What stands after the colon, if anything may or must.
    pub argument: Argument,
    /// Values of layers and other options that it understands, as (name, one line).
    pub options: &'static [(&'static str, &'static str)],
    /// Whether this host can run it (with this argument); otherwise what is missing.
    pub needs: fn(Option<&str>) -> Result<(), Unavailable>,
    /// How it cleans up.
    pub cleanup: &'static str,
    /// How it is read back that it is in force.
    pub read_back: &'static str,
    /// Names that work on this host, as a study writes them.
    pub found: fn() -> Vec<String>,
    pub(super) make: Make,
}

/// Makes an environment. The layers are those of the specification, parsed and checked.
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
    /// May be given; the text says what it is.
    Optional(&'static str),
    Required(&'static str),
}

/// Why a runtime's name in a study means nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeError {
    #[error("unknown runtime {name:?}; known are {known}")]
    Unknown { name: String, known: String },
    #[error("runtime {name:?} needs an argument: write {name}:{what}")]
    NoArgument { name: String, what: &'static str },
    #[error("runtime {name:?} takes no argument, but {argument:?} was given")]
    Argument { name: String, argument: String },
}

/// Why an environment is not gone without trace. What is left stays in the journal.
#[derive(Debug, thiserror::Error)]
#[error("environment {environment:?} left something behind, try tare clean: {errors}")]
pub struct LeftBehind {
    environment: String,
    errors: String,
}

/// Undoes an environment's journal entries, in `stop`. Idempotent.
pub(crate) fn undo(
    context: &RunContext,
    environment: &str,
    entries: &mut Vec<EntryId>,
) -> Result<(), LeftBehind> {
    let errors = context.journal().undo(&std::mem::take(entries));
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
