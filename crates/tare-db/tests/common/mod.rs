//! Shared code of the tests of a real server: its process, and a connection to it.
#![allow(dead_code, reason = "each test program uses a part of this")]

pub(crate) mod connection;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tare_db::report::{self, Report};

/// Number of tries before a test fails, which take about a minute.
const TRIES: u32 = 6_000;
const BETWEEN_TRIES: Duration = Duration::from_millis(10);

/// Calls `ask` until it returns a value.
#[track_caller]
pub(crate) fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    for _ in 0..TRIES {
        if let Some(found) = ask() {
            return found;
        }
        std::thread::sleep(BETWEEN_TRIES);
    }
    panic!("no success within a minute: {what}");
}

/// A server that ends with the test.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) report: Report,
}

/// Cargo builds the example beside the tests.
pub(crate) fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().parent().unwrap().join("examples/serve")
}

impl Server {
    /// Serves a data directory with further arguments for the example. Returns the error output if
    /// the server ends.
    pub(crate) fn serve(data: &Path, arguments: &[&str]) -> Result<Self, String> {
        let mut command = Command::new(program());
        command.arg(data).args(arguments);
        Self::start(command, data)
    }

    /// Starts a command that serves a data directory. Returns the error output if the server ends.
    pub(crate) fn start(mut command: Command, data: &Path) -> Result<Self, String> {
        let file = data.join(report::FILE);
        // An earlier server may have left its report.
        let _ = std::fs::remove_file(&file);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        for _ in 0..TRIES {
            if let Ok(report) = report::read(&file) {
                return Ok(Self { child, report });
            }
            if child.try_wait().unwrap().is_some() {
                let mut said = String::new();
                child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
                return Err(said);
            }
            std::thread::sleep(BETWEEN_TRIES);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        panic!("the server has not started within a minute");
    }

    /// Ends the server as SIGTERM does, and returns its error output.
    pub(crate) fn stop(mut self) -> String {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        said
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
