//! Soft-RoCE: an RDMA device in software (`rdma_rxe`) on a network device of its own, where there is
//! no RDMA hardware.
//!
//! Method: a dummy device with one address, and the RDMA device on it, by iproute2's `ip` and `rdma`.
//! Limits: a CPU does what an RDMA card would do; it shows that RDMA works and how it fails, not
//! what it costs.

use std::net::Ipv4Addr;
use std::path::Path;

use crate::RUN_VARIABLE;
use crate::exec::{Command, ExecError};

const CLASS: &str = "/sys/class/infiniband";

/// What it needs of the kernel.
pub const MODULES: &[&str] = &["rdma_rxe", "dummy"];

/// Makes both devices, of the same name, which at most 15 characters long.
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

/// Removes the RDMA device. Idempotent. The network device below it is an entry of its own.
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

/// Names of the RDMA devices of this host.
pub fn devices() -> Vec<String> {
    let entries = std::fs::read_dir(CLASS).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
