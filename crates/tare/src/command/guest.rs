//! Runs as the first process of a virtual machine (`vm:qemu`, `vm:uml`), started by its kernel.

use crate::exit::Exit;

pub(crate) fn run() -> anyhow::Result<Exit> {
    tare_env::guest::run()?;
    Ok(Exit::Success)
}
