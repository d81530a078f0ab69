//! Network devices: from the name that a user gives to the physical functions behind it, with their
//! queues and interrupts.

use crate::snapshot::Snapshot;

use super::{Interrupts, Irq};

/// One tunable network device: it has hardware (or a paravirtual device) of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Nic {
    /// `eth0`.
    pub name: String,
    /// The name that was asked for: the bond, VLAN or synthetic device that this one serves; its own
    /// name otherwise.
    pub asked: String,
    /// Kernel driver: `virtio_net`, `ena`, `mlx5_core`, ...
    pub driver: String,
    /// PCI address, where it has one.
    pub pci: Option<String>,
    /// Receive queues `rx-N`, ascending by N.
    pub rx_queues: Vec<u32>,
    /// Transmit queues `tx-N`, ascending by N.
    pub tx_queues: Vec<u32>,
    /// Interrupts of its queues in the order of the queues; others of the device (configuration,
    /// flow director) after them.
    pub irqs: Vec<Irq>,
    /// How many of `irqs`, from the front, are of queues.
    pub irqs_of_queues: usize,
    /// Channels as ethtool tells them; `None` where the driver does not.
    pub channels: Option<Channels>,
}

/// Channel counts of a device (`ethtool -l`). 0 of 0: the device has no such kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channels {
    pub rx: u32,
    pub rx_max: u32,
    pub tx: u32,
    pub tx_max: u32,
    pub combined: u32,
    pub combined_max: u32,
}

/// Why a network device cannot be tuned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NicError {
    #[error("there is no network device {name:?}{}", .nearest.as_ref().map(|n| format!("; did you mean {n:?}?")).unwrap_or_default())]
    Unknown { name: String, nearest: Option<String> },
    #[error("network device {name:?} has no hardware behind it to tune")]
    Virtual { name: String },
}

/// The tunable devices behind the names; without names, every device with hardware that is up.
///
/// # Errors
/// When a name is unknown or has nothing behind it that can be tuned.
pub fn find(
    snapshot: &Snapshot,
    interrupts: &Interrupts,
    names: &[String],
) -> Result<Vec<Nic>, NicError> {
    let _ = (snapshot, interrupts, names);
    Ok(Vec::new())
}
