//! Becomes the command of a run.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use rustix::process::{Signal, ioctl_tiocsctty, set_parent_process_death_signal, setsid};
use tare_lab::record::HostFact;

use super::session::{self, VARIABLE};

/// The section of the facts about it in the record.
const SECTION: &str = "on";

/// Executes the command that was asked for. It ends cleanly when its supervisor is killed.
pub(super) fn become_command(directory: &Path, parent: u32) -> anyhow::Result<()> {
    session::check(directory)?;
    let spec = session::read_spec(directory)?;
    set_parent_process_death_signal(Some(Signal::INT))?;
    // It may have been killed before that.
    if rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().cast_unsigned())
        != Some(parent)
    {
        bail!("the process that watches over this run has ended");
    }
    setsid().context("cannot start a session")?;
    if spec.terminal.is_some() {
        ioctl_tiocsctty(std::io::stdin()).context("cannot take the terminal")?;
    }
    let mut command = Command::new(crate::own_program()?);
    let kubeconfig = directory.join(session::KUBECONFIG);
    if kubeconfig.exists() {
        command.env("KUBECONFIG", kubeconfig);
    }
    Err(command.args(&spec.arguments).env(VARIABLE, directory).exec())
        .context("cannot start the command")
}

/// Returns the access to the cluster that came with this command; `None` without `--on` or without
/// an access.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn kubeconfig() -> anyhow::Result<Option<String>> {
    let Some(directory) = std::env::var_os(VARIABLE) else { return Ok(None) };
    let path = Path::new(&directory).join(session::KUBECONFIG);
    if !path.exists() {
        return Ok(None);
    }
    let text = fs::read_to_string(&path);
    text.map(Some).with_context(|| format!("cannot read {}", path.display()))
}

/// Returns how the command came to this host, as facts for a record; none without `--on`.
pub(crate) fn facts() -> Vec<HostFact> {
    let Some(directory) = std::env::var_os(VARIABLE) else { return Vec::new() };
    let spec = session::read_spec(Path::new(&directory)).unwrap_or_default();
    let fact = |(key, value)| HostFact { section: SECTION.into(), key, value };
    spec.facts.into_iter().map(fact).collect()
}
