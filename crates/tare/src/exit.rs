//! Exit codes, and how an error becomes one line.

use std::io::Write;
use std::process::ExitCode;

use crate::stream;

/// What the program's exit code says. Documented in docs/reference/exit-codes.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The command did what it was asked.
    Success = 0,
    /// The command failed: the message says what, on what, why and what to do.
    Failure = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// A file that was given (study, record) cannot be used.
    Input = 3,
    /// This host lacks something that was asked for: root, a runtime, a tool, a free port.
    Host = 4,
    /// What was asked of the system cannot be kept: the objective of `tare load --find-max`.
    Unkept = 5,
    /// Ended by Ctrl-C or SIGTERM; what was measured until then is in the record.
    Interrupted = 130,
    /// Standard output or standard error was closed by its reader (`tare report | head`). Shells
    /// report the same for a program that SIGPIPE ends.
    OutputClosed = 141,
}

impl Exit {
    pub(crate) const ALL: [Self; 8] = [
        Self::Success,
        Self::Failure,
        Self::Usage,
        Self::Input,
        Self::Host,
        Self::Unkept,
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

/// An error with the exit code that it asks for. Wraps errors where the command knows better than
/// `Exit::Failure`.
#[derive(Debug)]
pub struct Coded {
    pub exit: Exit,
    source: anyhow::Error,
}

impl std::fmt::Display for Coded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#}", self.source)
    }
}

impl std::error::Error for Coded {}

/// Gives the error of a result an exit code.
pub trait ExitWith<T> {
    fn exit_with(self, exit: Exit) -> anyhow::Result<T>;
}

impl<T, E: Into<anyhow::Error>> ExitWith<T> for Result<T, E> {
    fn exit_with(self, exit: Exit) -> anyhow::Result<T> {
        self.map_err(|error| coded(error, exit))
    }
}

/// An error with an exit code.
pub fn coded(error: impl Into<anyhow::Error>, exit: Exit) -> anyhow::Error {
    anyhow::Error::new(Coded { exit, source: error.into() })
}

/// The exit code of a command that has ended. Its output is flushed, and its error printed, first.
pub fn of(result: anyhow::Result<Exit>) -> Exit {
    // A failure is noted by the stream itself.
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
    let coded = error.chain().find_map(|cause| cause.downcast_ref::<Coded>());
    coded.map_or(Exit::Failure, |coded| coded.exit)
}
