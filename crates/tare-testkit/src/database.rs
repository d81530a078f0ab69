//! A database server as a process of its own, which ends with the test.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How often a test asks for something before it fails: for about a minute.
const TRIES: u32 = 6_000;
const BETWEEN_TRIES: Duration = Duration::from_millis(10);

/// Asks until there is an answer.
///
/// # Panics
/// After a minute without one.
#[track_caller]
pub fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    for _ in 0..TRIES {
        if let Some(found) = ask() {
            return found;
        }
        std::thread::sleep(BETWEEN_TRIES);
    }
    panic!("waited a minute in vain: {what}");
}

/// A server that is up, with its report of type `R`. It is killed when it is dropped.
#[derive(Debug)]
pub struct Server<R> {
    pub child: Child,
    pub report: R,
}

impl<R> Server<R> {
    /// Starts a command that serves, and waits until `read` finds the report in `file`.
    ///
    /// # Errors
    /// What the server printed to its standard error, if it ended instead.
    ///
    /// # Panics
    /// If the command cannot be started, or has neither ended nor written its report after a minute.
    pub fn start<E>(
        mut command: Command,
        file: &Path,
        read: impl Fn(&Path) -> Result<R, E>,
    ) -> Result<Self, String> {
        // That of a server before.
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

    /// Ends a server that serves until its standard input closes, and returns what it printed.
    ///
    /// # Panics
    /// If it does not end with success.
    pub fn stop(mut self) -> String {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
        said(&mut self.child)
    }

    /// Kills it and waits for its end.
    ///
    /// # Panics
    /// If it cannot be killed.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl<R> Drop for Server<R> {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn said(child: &mut Child) -> String {
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    said
}
