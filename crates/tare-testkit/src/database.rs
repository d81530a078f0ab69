//! Runs a database server as a separate process that ends with the test.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The number of tries before a test fails, which take about a minute.
const TRIES: u32 = 6_000;
const BETWEEN_TRIES: Duration = Duration::from_millis(10);

/// Calls `ask` until it returns a value.
///
/// # Panics
/// If there is no value after a minute.
#[track_caller]
pub fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    for _ in 0..TRIES {
        if let Some(found) = ask() {
            return found;
        }
        std::thread::sleep(BETWEEN_TRIES);
    }
    panic!("timed out after a minute: {what}");
}

/// A running server with its report of type `R`. Dropping it kills the server.
#[derive(Debug)]
pub struct Server<R> {
    pub child: Child,
    pub report: R,
}

impl<R> Server<R> {
    /// Starts a server and waits until `read` finds its report in `file`.
    ///
    /// # Errors
    /// If the server ends first. The error is its standard error.
    ///
    /// # Panics
    /// If the server cannot be started, or has neither ended nor written its report after a minute.
    pub fn start<E>(
        mut command: Command,
        file: &Path,
        read: impl Fn(&Path) -> Result<R, E>,
    ) -> Result<Self, String> {
        // Removes the report of an earlier server.
        let _ = fs::remove_file(file);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        for _ in 0..TRIES {
            if let Ok(report) = read(file) {
                return Ok(Self { child, report });
            }
            if child.try_wait().unwrap().is_some() {
                return Err(said(&mut child));
            }
            std::thread::sleep(BETWEEN_TRIES);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        panic!("the server has not started within a minute");
    }

    /// Ends the server by closing its standard input. Returns its standard error.
    ///
    /// # Panics
    /// If the server does not exit with success.
    pub fn stop(mut self) -> String {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
        said(&mut self.child)
    }

    /// Kills the server and waits until it ends.
    ///
    /// # Panics
    /// If the server cannot be killed.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl<R> Drop for Server<R> {
    fn drop(&mut self) {
        // Both calls fail only if the server has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn said(child: &mut Child) -> String {
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    said
}
