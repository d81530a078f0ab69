//! Finds the disks with hardware below a block device.

use super::{Disk, DiskError, mounts};
use crate::machine::{Interrupts, Irq, last_pci_address};
use crate::snapshot::Snapshot;

/// The maximum of stacked devices. The kernel allows 8 levels of stacked file systems and limits
/// the recursion of bios; 16 is more than any real stack, and ends a cycle of loop devices.
const DEPTH_MAX: usize = 16;

/// Returns the disks below block devices, each once, in the order of finding them.
pub(super) fn disks(
    snapshot: &Snapshot,
    interrupts: &Interrupts,
    requested: &str,
    tops: &[String],
) -> Result<Vec<Disk>, DiskError> {
    let mut walk = Walk { snapshot, interrupts, requested, disks: Vec::new() };
    for top in tops {
        walk.down(top, &mut Vec::new())?;
    }
    Ok(walk.disks)
}

struct Walk<'a> {
    snapshot: &'a Snapshot,
    interrupts: &'a Interrupts,
    requested: &'a str,
    disks: Vec<Disk>,
}

impl Walk<'_> {
    fn down(&mut self, name: &str, above: &mut Vec<String>) -> Result<(), DiskError> {
        if above.len() >= DEPTH_MAX {
            let chain = above.join(", ");
            return Err(DiskError::TooDeep { name: name.into(), depth: DEPTH_MAX, chain });
        }
        let Some(path) = self.snapshot.real(&format!("/sys/class/block/{name}")) else {
            return Err(DiskError::UnknownDevice { name: name.into(), nearest: None });
        };
        // A partition's folder is in the folder of its disk.
        if self.snapshot.read(&format!("{path}/partition")).is_some()
            && let Some((disk, _)) = path.rsplit_once('/')
        {
            let disk = disk.rsplit('/').next().unwrap_or(disk).to_string();
            return self.down(&disk, above);
        }
        let slaves = self.snapshot.names(&format!("{path}/slaves"));
        if !slaves.is_empty() {
            above.push(name.into());
            for slave in slaves {
                self.down(slave, above)?;
            }
            above.pop();
            return Ok(());
        }
        if let Some(paths) = paths_of_nvme(self.snapshot, name, &path) {
            for (name_of_path, path) in paths {
                let above = above.iter().cloned().chain([name.to_string()]).collect();
                self.add(&name_of_path, path, above);
            }
            return Ok(());
        }
        let backing = self.snapshot.read(&format!("{path}/loop/backing_file")).map(str::to_string);
        self.add(name, path, above.clone());
        let Some(backing) = backing else { return Ok(()) };
        above.push(name.into());
        self.below_loop(&backing, above)?;
        above.pop();
        Ok(())
    }

    /// Adds the disks below a loop device, which is backed by a block device or by a file on a
    /// mount. A file in memory or on the network has no disk below it.
    fn below_loop(&mut self, backing: &str, above: &mut Vec<String>) -> Result<(), DiskError> {
        if backing.starts_with("/dev/")
            && let Ok(device) = mounts::device(self.snapshot, backing)
        {
            return self.down(&device, above);
        }
        // The kernel appends this to the name of a file that was removed while in use.
        let file = backing.strip_suffix(" (deleted)").unwrap_or(backing);
        let mounts = mounts::read(self.snapshot);
        let devices = mounts::devices(self.snapshot, &mounts, file).unwrap_or_default();
        devices.iter().try_for_each(|device| self.down(device, above))
    }

    fn add(&mut self, name: &str, path: String, above: Vec<String>) {
        if self.disks.iter().any(|disk| disk.path == path) {
            return;
        }
        self.disks.push(Disk {
            name: name.to_string(),
            requested: self.requested.to_string(),
            above,
            pci: last_pci_address(&path).map(str::to_string),
            nvme: name.starts_with("nvme"),
            remote: is_remote(&path),
            irqs: irqs(self.interrupts, &path),
            path,
        });
    }
}

/// Whether a disk is reached over a network: iSCSI (also by an adapter with its own initiator),
/// NVMe over fabrics, nbd, rbd.
fn is_remote(path: &str) -> bool {
    let far = |part: &str| {
        part == "nvme-fabrics"
            || part == "rbd"
            || number_after(part, "session").is_some()
            || number_after(part, "nbd").is_some()
    };
    path.split('/').any(far)
}

/// Returns the interrupts of a disk's controller.
///
/// A virtio device is identified by its whole name: `virtio1` has `virtio1-req.0`, and `virtio10`
/// is another device. Other controllers are identified by their PCI address. Xen's block front end
/// has only one name that all its disks share.
fn irqs(interrupts: &Interrupts, path: &str) -> Vec<Irq> {
    if is_remote(path) {
        return Vec::new();
    }
    let all = interrupts.irqs.values();
    if let Some(virtio) = path.split('/').find(|part| number_after(part, "virtio").is_some()) {
        let own = |irq: &&Irq| {
            let rest = irq.name.strip_prefix(virtio);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        return all.filter(own).cloned().collect();
    }
    if path.split('/').any(|part| number_after(part, "vbd-").is_some()) {
        return all.filter(|irq| irq.name.ends_with("blkif")).cloned().collect();
    }
    let Some(pci) = last_pci_address(path) else { return Vec::new() };
    all.filter(|irq| irq.pci.as_deref() == Some(pci)).cloned().collect()
}

/// Returns the paths of an NVMe namespace that the kernel shows as one device of a subsystem
/// (native multipath): the hidden devices `nvme0c1n1` below the controllers. `None` for any other
/// device.
///
/// Such a namespace `nvmeSnN` is in /sys/devices/virtual/nvme-subsystem/nvme-subsysS, next to links
/// to the controllers (the kernel's drivers/nvme/host/multipath.c and core.c).
fn paths_of_nvme(snapshot: &Snapshot, name: &str, path: &str) -> Option<Vec<(String, String)>> {
    let (subsystem, _) = path.rsplit_once('/')?;
    let id = subsystem.strip_prefix("/sys/devices/virtual/nvme-subsystem/nvme-subsys")?;
    let namespace = name.strip_prefix(&format!("nvme{id}n"))?;
    let mut paths = Vec::new();
    for controller in snapshot.names(subsystem) {
        if number_after(controller, "nvme").is_none() {
            continue;
        }
        let Some(folder) = snapshot.real(&format!("{subsystem}/{controller}")) else { continue };
        for child in snapshot.names(&folder) {
            let of_namespace = child
                .strip_prefix(&format!("nvme{id}c"))
                .and_then(|rest| rest.split_once('n'))
                .is_some_and(|(_, of)| of == namespace);
            if of_namespace {
                paths.push((child.to_string(), format!("{folder}/{child}")));
            }
        }
    }
    (!paths.is_empty()).then_some(paths)
}

/// Parses a text of a prefix and a number, such as `virtio12` with the prefix `virtio`.
pub(super) fn number_after(text: &str, prefix: &str) -> Option<u64> {
    let digits = text.strip_prefix(prefix)?;
    let whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    whole.then(|| digits.parse().ok()).flatten()
}
