//! Soft-RoCE: a software RDMA device (`rdma_rxe`) on its own network device, for hosts without RDMA
//! hardware.
//!
//! Method: iproute2's `ip` and `rdma` create a dummy device with one address and the RDMA device on
//! it. Limits: a CPU does the work of an RDMA card, so tests show that RDMA works and how it fails,
//! but not what it costs.

use std::net::Ipv4Addr;
use std::path::Path;

use crate::RUN_VARIABLE;
use crate::exec::{Command, ExecError};

const CLASS: &str = "/sys/class/infiniband";

/// The kernel modules that it needs.
pub const MODULES: &[&str] = &["rdma_rxe", "dummy"];

/// Creates both devices with the same name of at most 15 characters.
///
/// # Errors
/// When the kernel refuses one.
pub fn make(run: &str, name: &str, address: Ipv4Addr) -> Result<(), ExecError> {
    let text = format!(
        "link add {name} type dummy\naddr add {address}/32 dev {name}\nlink set {name} up\n"
    );
    let links = Command::new("ip").args(["-batch", "-"]).input(text).variable(RUN_VARIABLE, run);
    links.run()?;
    let device = Command::new("rdma").args(["link", "add", name, "type", "rxe", "netdev", name]);
    device.variable(RUN_VARIABLE, run).run().map(drop)
}

/// Removes the RDMA device. Idempotent. The network device below it has its own journal entry.
pub(crate) fn remove(name: &str) -> Result<(), ExecError> {
    let there = || Path::new(CLASS).join(name).exists();
    if !there() {
        return Ok(());
    }
    match Command::new("rdma").args(["link", "delete", name]).run() {
        Err(error) if there() => Err(error),
        _ => Ok(()),
    }
}

/// Lists the names of the RDMA devices of this host.
pub fn devices() -> Vec<String> {
    let entries = std::fs::read_dir(CLASS).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
