//! Finds the physical disks below a directory or a device, through md, dm, LVM and loop.
//!
//! Method: a directory's mount is found in /proc/self/mountinfo and its device in /sys/class/block.
//! From there `slaves/` (md, dm, LVM, crypt), `loop/backing_file` and the paths of an NVMe
//! subsystem lead down to devices with hardware. A loop device has its own queue with a scheduler,
//! so it counts as a disk, and so does the disk that holds its file.
//!
//! Limits: the directory must be named by its real path (a snapshot has no links outside of /sys);
//! the devices of ZFS and network file systems are not found.

mod chain;
mod mounts;

use crate::snapshot::Snapshot;

use super::{Interrupts, Irq};

/// One physical disk (or virtual disk of a hypervisor).
#[derive(Clone, Debug, PartialEq)]
pub struct Disk {
    /// `nvme0n1`, `vda`, `sda`.
    pub name: String,
    /// The directory or device that was requested, for which it was found.
    pub requested: String,
    /// Real path of its folder in sysfs: `/sys/devices/.../block/nvme0n1`.
    pub path: String,
    /// Devices between the requested one and this disk, the topmost first: `dm-0`, `md0`.
    pub above: Vec<String>,
    /// PCI address of its controller, if it has one.
    pub pci: Option<String>,
    pub nvme: bool,
    /// Whether it is reached over a network (iSCSI and the like) and has no interrupts.
    pub remote: bool,
    /// Interrupts of its controller.
    pub irqs: Vec<Irq>,
}

/// Why a directory or device leads to no disk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiskError {
    #[error("there is no block device {name:?}{}", .nearest.as_ref().map(|n| format!("; did you mean {n:?}?")).unwrap_or_default())]
    UnknownDevice { name: String, nearest: Option<String> },
    #[error("{path:?} has no block device: {reason}")]
    NoDevice { path: String, reason: String },
    #[error("block device {name:?} is stacked on more than {depth} others: {chain}")]
    TooDeep { name: String, depth: usize, chain: String },
}

/// The default data directories of databases.
const DIRECTORIES: &[&str] = &[
    "/var/lib/scylla",
    "/var/lib/cassandra",
    "/var/lib/tare",
    "/var/lib/redis",
    "/var/lib/valkey",
    "/var/lib/postgresql",
    "/var/lib/pgsql",
    "/var/lib/mysql",
    "/var/lib/mongodb",
    "/var/lib/mongo",
    "/var/lib/clickhouse",
];

/// Returns the disks below directories and devices (`nvme0n1` or `/dev/nvme0n1`). Without either,
/// those below the default data directories of databases that are mounts of their own: a disk with
/// the whole system is tuned only on request.
///
/// A disk that is found twice is returned once, for the first request.
///
/// # Errors
/// When a requested directory or device leads to no disk.
pub fn find(
    snapshot: &Snapshot,
    interrupts: &Interrupts,
    directories: &[String],
    devices: &[String],
) -> Result<Vec<Disk>, DiskError> {
    let mounts = mounts::read(snapshot);
    let mut disks: Vec<Disk> = Vec::new();
    let mut add = |found: Vec<Disk>| {
        for disk in found {
            if !disks.iter().any(|known| known.path == disk.path) {
                disks.push(disk);
            }
        }
    };
    if directories.is_empty() && devices.is_empty() {
        for mount in &mounts {
            let of_database = |directory: &&&str| {
                mount.point.strip_prefix(**directory).is_some_and(is_end_of_name)
            };
            if DIRECTORIES.iter().find(of_database).is_none() {
                continue;
            }
            // A mount that the user did not name and that has no disk (tmpfs, NFS) is not tuned.
            if let Ok(tops) = mounts::devices(snapshot, &mounts, &mount.point)
                && let Ok(found) = chain::disks(snapshot, interrupts, &mount.point, &tops)
            {
                add(found);
            }
        }
        return Ok(disks);
    }
    for directory in directories {
        let tops = mounts::devices(snapshot, &mounts, directory)?;
        add(chain::disks(snapshot, interrupts, directory, &tops)?);
    }
    for device in devices {
        let top = mounts::device(snapshot, device)?;
        add(chain::disks(snapshot, interrupts, device, &[top])?);
    }
    Ok(disks)
}

/// Returns notes about the choice of disks for the user.
pub fn notes(requested: bool, disks: &[Disk]) -> Vec<String> {
    let mut notes = Vec::new();
    if disks.is_empty() && !requested {
        notes.push(
            "no disk is tuned: none of the default data directories of databases is a mount of its \
             own; name one with --dir or --dev"
                .into(),
        );
    }
    for disk in disks.iter().filter(|disk| disk.remote) {
        let name = &disk.name;
        notes.push(format!("{name} is reached over the network and has no interrupts of its own"));
    }
    notes
}

impl Disk {
    /// Returns the path of a setting: in the disk's folder in sysfs, or in the nearest parent that
    /// has it. `None` when none has it.
    pub fn setting(&self, snapshot: &Snapshot, name: &str) -> Option<String> {
        let mut folder = self.path.as_str();
        while folder.starts_with("/sys/devices/") {
            let path = format!("{folder}/{name}");
            if snapshot.read(&path).is_some() {
                return Some(path);
            }
            folder = &folder[..folder.rfind('/')?];
        }
        None
    }

    /// Whether it is a disk of the hypervisor (virtio-blk, Xen, Hyper-V, disks on virtio-scsi). Its
    /// `queue/rotational` is a default and shows nothing about the hardware.
    pub fn is_virtual(&self) -> bool {
        let of_hypervisor = |part: &str| {
            chain::number_after(part, "virtio").is_some()
                || part.starts_with("vbd-")
                || part.starts_with("VMBUS")
        };
        self.path.split('/').any(of_hypervisor) || self.path.starts_with("/sys/devices/virtual/")
    }

    /// Whether the disk is known to be rotational.
    pub fn is_rotational(&self, snapshot: &Snapshot) -> bool {
        let path = self.setting(snapshot, "queue/rotational");
        !self.is_virtual() && path.and_then(|path| snapshot.read(&path)) == Some("1")
    }

    /// Returns `MAJOR:MINOR`.
    pub fn number<'a>(&self, snapshot: &'a Snapshot) -> Option<&'a str> {
        snapshot.read(&format!("{}/dev", self.path))
    }
}

fn is_end_of_name(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with('/')
}
