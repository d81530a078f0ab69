//! The program as that of a pod whose image `tare image` made: it keeps the pod running, and what
//! is started in the pod goes to the node by it.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context;
use tare_remote::{OWN_PROGRAM, enter_node, place_program};

use crate::cli::{PodProgram, PodTask};
use crate::exit::{Exit, ExitWith};
use crate::signals;

/// The home of root on most nodes, for programs that look for one.
const HOME: &str = "/root";

pub(crate) fn run(options: &PodProgram, state: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    match &options.task {
        PodTask::Wait => signals::wait()?,
        PodTask::Tune { plan: Some(plan) } => return tune(plan, state),
        PodTask::Tune { plan: None } => return tune_node(&["revert"], state, Stdio::null()),
        PodTask::Place { on_node } => {
            let placed = place_program(*on_node).exit_with(Exit::Host)?;
            writeln!(out, "{}", serde_json::to_string(&placed)?)?;
        }
        PodTask::Enter { command } => enter(command)?,
    }
    Ok(Exit::Success)
}

/// Applies a plan on the node and waits for the end of the pod, before which the container runtime
/// has it reverted. A plan that cannot be applied is reverted at once.
fn tune(plan: &Path, state: &Path) -> anyhow::Result<Exit> {
    let file = File::open(plan).with_context(|| format!("cannot read {}", plan.display()))?;
    let stored = tune_node(&["store"], state, file.into())?;
    if stored != Exit::Success {
        return Ok(stored);
    }
    let applied = tune_node(&["apply", "--stored", "--yes"], state, Stdio::null())?;
    if applied == Exit::Success {
        signals::wait()?;
    } else {
        tune_node(&["revert"], state, Stdio::null())?;
    }
    Ok(applied)
}

/// Runs `tare tune` on the node with its state directory there, from the file in the pod.
fn tune_node(words: &[&str], state: &Path, input: Stdio) -> anyhow::Result<Exit> {
    let mut command = Command::new(OWN_PROGRAM);
    command.args(["pod", "enter", "--", OWN_PROGRAM, "--state"]).arg(state).arg("tune").args(words);
    let status = command.stdin(input).status().context("cannot start this program again")?;
    Ok(status.code().map_or(Exit::Failure, Exit::of_code))
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
