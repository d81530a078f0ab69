//! The server process that the tests of this crate drive: the example `serve`.
#![allow(dead_code, reason = "each test program uses a part of this")]

use std::path::{Path, PathBuf};
use std::process::Command;

use tare_db::report::{self, Report};

/// A server that ends with the test.
pub(crate) type Server = tare_testkit::database::Server<Report>;

/// The example is built beside the tests.
pub(crate) fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().parent().unwrap().join("examples/serve")
}

/// Serves a data directory with the example's further arguments, or returns what it printed instead.
pub(crate) fn serve(data: &Path, arguments: &[&str]) -> Result<Server, String> {
    let mut command = Command::new(program());
    command.arg(data).args(arguments);
    serve_with(command, data)
}

/// Starts a command that serves a data directory, or returns what it printed instead.
pub(crate) fn serve_with(command: Command, data: &Path) -> Result<Server, String> {
    Server::start(command, &data.join(report::FILE), report::read)
}
