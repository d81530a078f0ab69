//! `tare clean` on a node, with an access to its cluster that the host which asks has sent: the
//! journals there name one that may be gone by now.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::process::Command;

use anyhow::Context;
use rustix::fs::MemfdFlags;
use tare_env::NODE_KUBECONFIG_VARIABLE;

use crate::exit::Exit;

/// Runs `tare clean` with the access that is standard input. It is a file in memory, which goes
/// with this process.
pub(super) fn run(json: bool) -> anyhow::Result<Exit> {
    let memory = rustix::fs::memfd_create("tare-kubeconfig", MemfdFlags::CLOEXEC);
    let mut file = File::from(memory.context("cannot make a file in memory")?);
    io::copy(&mut io::stdin().lock(), &mut file).context("cannot read the access")?;
    file.flush()?;
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let mut command = Command::new(crate::own_program()?);
    command.arg("clean").args(json.then_some("--json")).env(NODE_KUBECONFIG_VARIABLE, path);
    let status = command.status().context("cannot start tare clean")?;
    Ok(status.code().map_or(Exit::Failure, Exit::of_code))
}
