//! Helpers of the program tests: running the built binary and reading its output.
#![allow(dead_code, reason = "each test program uses a part of this")]

pub(crate) mod guest;
pub(crate) mod slices;
pub(crate) mod terminal;

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};

/// The built program, which keeps no data on the host for later studies.
pub(crate) fn tare() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tare"));
    command.env("TARE_DATA_CACHE", "off");
    command
}

/// Runs the program with arguments in a directory and returns its output and exit code.
pub(crate) fn run_in<S: AsRef<OsStr>>(
    directory: &Path,
    arguments: impl IntoIterator<Item = S>,
) -> Output {
    tare().args(arguments).current_dir(directory).output().expect("the built program starts")
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A latte script that writes rows that consist of a key.
pub(crate) const LATTE_SCRIPT: &str = r#"
pub async fn schema(db) {
    db.execute(`CREATE KEYSPACE IF NOT EXISTS k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}`).await?;
    db.execute(`CREATE TABLE IF NOT EXISTS k.rows (id bigint PRIMARY KEY)`).await?;
}
pub async fn prepare(db) {
    db.prepare("write", `INSERT INTO k.rows (id) VALUES (:id)`).await?;
}
pub async fn load(db, i) {}
pub async fn run(db, i) {
    db.execute_prepared("write", [i]).await?
}
"#;
