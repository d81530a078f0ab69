//! Standard output and standard error, whose reader may go away (`tare list | head -1`).
//!
//! Rust ignores SIGPIPE, so a write to a pipe without a reader fails with EPIPE, and the print
//! macros of the standard library panic on that. This program therefore prints every line through
//! this module. The first such failure stops the command as Ctrl-C does: environments are removed
//! and the record is closed cleanly. The program then exits with `Exit::OutputClosed`, without a
//! message.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;

/// Whether a reader of this process's output has closed it.
static CLOSED: AtomicBool = AtomicBool::new(false);

/// The flags that stop the command.
static STOPS: Mutex<Vec<Arc<AtomicBool>>> = Mutex::new(Vec::new());

/// Where a text went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    ToFile,
    /// To the command's output, because the path was `-`.
    Printed,
}

/// Writes a text to the file that an option names, or to `out` if it names `-`.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn write_file(path: &Path, text: &str, out: &mut dyn Write) -> anyhow::Result<Written> {
    if path == Path::new("-") {
        out.write_all(text.as_bytes())?;
        return Ok(Written::Printed);
    }
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(Written::ToFile)
}

/// Sets the flag when a reader closes the output, or at once if one has.
pub(crate) fn stop_with(flag: &Arc<AtomicBool>) {
    STOPS.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(flag));
    if is_closed() {
        flag.store(true, Ordering::Relaxed);
    }
}

/// Returns whether a write to standard output or standard error found no reader.
pub(crate) fn is_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

/// Stops the command if a write failed because the reader closed the output.
pub(crate) fn check_closed<T>(written: io::Result<T>) -> io::Result<T> {
    if let Err(error) = &written
        && error.kind() == io::ErrorKind::BrokenPipe
    {
        CLOSED.store(true, Ordering::Relaxed);
        for flag in STOPS.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            flag.store(true, Ordering::Relaxed);
        }
    }
    written
}

/// Standard output. It is not locked between writes: the load agent writes from its load threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Output;

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        check_closed(io::stdout().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        check_closed(io::stdout().flush())
    }
}

/// Standard error.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Errors;

impl Write for Errors {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        check_closed(io::stderr().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        check_closed(io::stderr().flush())
    }
}

/// A stream that drops what is written after its reader closed it. For a caller that the stop flag
/// ends and that must not fail before.
pub(crate) struct DropWhenClosed<'s>(pub(crate) &'s mut dyn Write);

impl Write for DropWhenClosed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        ignore_closed(self.0.write(bytes), bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        ignore_closed(self.0.flush(), ())
    }
}

fn ignore_closed<T>(written: io::Result<T>, whole: T) -> io::Result<T> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(whole),
        other => other,
    }
}

/// Prints a line on standard error, and ignores failures.
pub(crate) fn say(line: &str) {
    // One write keeps the lines of several processes apart.
    let _ = Errors.write_all(format!("{line}\n").as_bytes());
}

/// Prints a line on standard error, with the program's name before it.
pub(crate) fn warn(line: &str) {
    say(&format!("tare: {line}"));
}
