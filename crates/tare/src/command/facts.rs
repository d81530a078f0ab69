//! Prints what is visible inside a sandbox as one line of JSON, for the process that executed this
//! program there.

use std::io::Write;

use tare_env::runtime::gvisor::SandboxView;

use crate::exit::Exit;

pub(crate) fn run(out: &mut dyn Write) -> anyhow::Result<Exit> {
    writeln!(out, "{}", serde_json::to_string(&SandboxView::read())?)?;
    Ok(Exit::Success)
}
