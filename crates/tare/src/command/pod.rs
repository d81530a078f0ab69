//! The program as that of a pod whose image `tare image` made: it keeps the pod running, and what
//! is started in the pod goes to the node by it.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::Context;
use tare_remote::{enter_node, place_program};

use crate::cli::{PodProgram, PodTask};
use crate::exit::{Exit, ExitWith};
use crate::signals;

/// The home of root on most nodes, for programs that look for one.
const HOME: &str = "/root";

pub(crate) fn run(options: &PodProgram, out: &mut dyn Write) -> anyhow::Result<Exit> {
    match &options.task {
        PodTask::Wait => signals::wait()?,
        PodTask::Place { on_node } => {
            let placed = place_program(*on_node).exit_with(Exit::Host)?;
            writeln!(out, "{}", serde_json::to_string(&placed)?)?;
        }
        PodTask::Enter { command } => enter(command)?,
    }
    Ok(Exit::Success)
}

/// Becomes a program on the node.
fn enter(command: &[OsString]) -> anyhow::Result<()> {
    let (program, arguments) = command.split_first().context("no program is named")?;
    enter_node().exit_with(Exit::Host)?;
    let mut command = Command::new(program);
    if std::env::var_os("HOME").is_none() {
        command.env("HOME", HOME);
    }
    let error = command.args(arguments).exec();
    let failed =
        Err(error).with_context(|| format!("cannot start {} on the node", program.display()));
    failed.exit_with(Exit::Host)
}
