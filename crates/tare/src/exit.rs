//! Exit codes, and errors printed as one line.

use std::io::Write;
use std::process::ExitCode;

use tare_tune::plan::PlanError;

use crate::stream;

/// The exit codes of the program. Documented in docs/reference/exit-codes.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The command succeeded.
    Success = 0,
    /// The command failed. The message says what failed, on what, why, and what to do.
    Failure = 1,
    /// The command line is invalid.
    Usage = 2,
    /// An input file (study, record) cannot be used.
    Input = 3,
    /// This host lacks something that the command needs: root, a runtime, a tool, a free port.
    Host = 4,
    /// The system cannot meet the objective of `tare load --find-max` at any rate.
    ObjectiveMissed = 5,
    /// A claimed cost is beyond the budget of `tare check`, or a claimed difference is one that
    /// `--fail-on` names.
    Exceeded = 6,
    /// `tare check` could not tell whether a cost is within its budget.
    Undecided = 7,
    /// Ctrl-C or SIGTERM stopped the command. The record holds what was measured before.
    Interrupted = 130,
    /// The reader of standard output or standard error closed it (`tare report | head`). Shells
    /// report the same code for a program that SIGPIPE ended.
    OutputClosed = 141,
}

impl Exit {
    pub(crate) const ALL: [Self; 10] = [
        Self::Success,
        Self::Failure,
        Self::Usage,
        Self::Input,
        Self::Host,
        Self::ObjectiveMissed,
        Self::Exceeded,
        Self::Undecided,
        Self::Interrupted,
        Self::OutputClosed,
    ];
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 141")]
        let code = exit as isize as u8;
        ExitCode::from(code)
    }
}

/// An error with its exit code, for errors whose code is not `Exit::Failure`.
#[derive(Debug)]
pub struct ExitError {
    pub exit: Exit,
    source: anyhow::Error,
}

impl std::fmt::Display for ExitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#}", self.source)
    }
}

impl std::error::Error for ExitError {}

/// Sets the exit code of a result's error.
pub trait ExitWith<T> {
    fn exit_with(self, exit: Exit) -> anyhow::Result<T>;
}

impl<T, E: Into<anyhow::Error>> ExitWith<T> for Result<T, E> {
    fn exit_with(self, exit: Exit) -> anyhow::Result<T> {
        self.map_err(|error| exit_error(error, exit))
    }
}

/// Returns an error with an exit code.
pub fn exit_error(error: impl Into<anyhow::Error>, exit: Exit) -> anyhow::Error {
    anyhow::Error::new(ExitError { exit, source: error.into() })
}

/// Adds the exit code to an error of the planner.
pub(crate) fn plan_error(error: PlanError) -> anyhow::Error {
    let exit = match error {
        PlanError::UnknownKnob { .. } => Exit::Usage,
        PlanError::Topology(_) => Exit::Host,
        _ => Exit::Failure,
    };
    exit_error(error, exit)
}

/// Flushes the output of a command that has ended, prints its error, and returns its exit code.
pub fn of(result: anyhow::Result<Exit>) -> Exit {
    // The stream itself records a failure.
    let _ = stream::Output.flush();
    let exit = match result {
        _ if stream::is_closed() => Exit::OutputClosed,
        Ok(exit) => exit,
        Err(error) => report(&error),
    };
    if stream::is_closed() { Exit::OutputClosed } else { exit }
}

/// Prints the error chain as one line on stderr and returns its exit code.
fn report(error: &anyhow::Error) -> Exit {
    stream::say(&format!("tare: {error:#}"));
    let exit_error = error.chain().find_map(|cause| cause.downcast_ref::<ExitError>());
    exit_error.map_or(Exit::Failure, |error| error.exit)
}
