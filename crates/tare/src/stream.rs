//! Standard output and standard error, whose reader may go away (`tare list | head -1`).
//!
//! Rust ignores SIGPIPE, so a write to a pipe without a reader fails with EPIPE, and the print
//! macros of the standard library panic on that. Every line of this program goes through here
//! instead. The first such failure stops the command as Ctrl-C does: environments are removed and
//! the record is closed in good order. The program then ends with `Exit::OutputClosed`, without a
//! message.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Whether a reader of this process's output has gone away.
static CLOSED: AtomicBool = AtomicBool::new(false);

/// Flags that stop the command.
static STOPS: Mutex<Vec<Arc<AtomicBool>>> = Mutex::new(Vec::new());

/// Sets the flag when a reader goes away.
pub(crate) fn stop_with(flag: &Arc<AtomicBool>) {
    STOPS.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(flag));
    if is_closed() {
        flag.store(true, Ordering::Relaxed);
    }
}

/// Whether a write to standard output or standard error found no reader.
pub(crate) fn is_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

/// Remembers that a reader has gone, if that is why a write failed.
pub(crate) fn note<T>(written: io::Result<T>) -> io::Result<T> {
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

/// Standard output. It is not locked between writes: the load agent answers from its load threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Output;

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        note(io::stdout().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        note(io::stdout().flush())
    }
}

/// Standard error.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Errors;

impl Write for Errors {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        note(io::stderr().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        note(io::stderr().flush())
    }
}

/// A stream that drops what no reader takes any more, for a command that is stopped by its flag and
/// waited for.
pub(crate) struct UntilClosed<'s>(pub(crate) &'s mut dyn Write);

impl Write for UntilClosed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        unless_closed(self.0.write(bytes), bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        unless_closed(self.0.flush(), ())
    }
}

fn unless_closed<T>(written: io::Result<T>, whole: T) -> io::Result<T> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(whole),
        other => other,
    }
}

/// Prints a line on standard error. What cannot be printed is lost.
pub(crate) fn say(line: &str) {
    // In one write, so that lines of several processes do not mix.
    let _ = Errors.write_all(format!("{line}\n").as_bytes());
}
