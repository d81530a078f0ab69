//! Finds the disks below a data directory.
//!
//! Method: the device of the directory's file system, and below it the `slaves` of sysfs (RAID,
//! device mapper: LVM, dm-crypt) down to devices that have none. A partition of a disk ends the
//! walk: it has statistics of its own. All devices of a btrfs count.
//!
//! Limits: a loop device ends the walk. What it does to the disk that holds its file is the I/O of
//! its own thread, and belongs to the layer.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::Roots;

/// A block device: its major and minor number.
pub(crate) type Device = (u32, u32);

/// The file in a data directory that replaces the data if the system gets a block device.
const NODE: &str = "disk";
/// The most devices on top of each other, which ends a cycle.
const DEPTH_MAX: usize = 16;

/// The places that tell which devices are below a directory.
#[derive(Clone, Debug)]
pub(crate) struct BlockStack {
    mounts: PathBuf,
    sys: PathBuf,
}

impl BlockStack {
    pub(crate) fn new(roots: &Roots) -> Self {
        Self { mounts: roots.proc.join("self/mountinfo"), sys: roots.sys.clone() }
    }

    /// The disks and partitions below some directories, each once, in ascending order. Directories
    /// in memory have none.
    pub(crate) fn disks_below(&self, data: &[PathBuf]) -> Vec<Device> {
        let mut disks = Vec::new();
        for top in data.iter().flat_map(|data| self.tops(data)) {
            self.descend(top, 0, &mut disks);
        }
        disks.sort_unstable();
        disks.dedup();
        disks
    }

    /// The devices of a directory's file system: more than one for btrfs.
    fn tops(&self, data: &Path) -> Vec<Device> {
        let Some((top, source)) = top_of(data, &self.mounts) else { return Vec::new() };
        let of_btrfs = source.and_then(|source| self.devices_of_btrfs(&source));
        of_btrfs.unwrap_or_else(|| vec![top])
    }

    /// The devices of the btrfs that has this one, from `/sys/fs/btrfs/UUID/devices`.
    fn devices_of_btrfs(&self, source: &Path) -> Option<Vec<Device>> {
        let name = fs::canonicalize(source).ok()?.file_name()?.to_os_string();
        let systems = fs::read_dir(self.sys.join("fs/btrfs")).ok()?.flatten();
        let mut folders = systems.map(|entry| entry.path().join("devices"));
        let folder = folders.find(|folder| folder.join(&name).exists())?;
        let devices = fs::read_dir(folder).ok()?.flatten();
        Some(devices.filter_map(|device| number(&device.path().join("dev"))).collect())
    }

    fn descend(&self, device: Device, depth: usize, disks: &mut Vec<Device>) {
        let slaves = fs::read_dir(self.folder(device).join("slaves"));
        let slaves = slaves.into_iter().flatten().flatten();
        let below: Vec<Device> =
            slaves.filter_map(|slave| number(&slave.path().join("dev"))).collect();
        match below.is_empty() || depth == DEPTH_MAX {
            true => disks.push(device),
            false => below.into_iter().for_each(|one| self.descend(one, depth + 1, disks)),
        }
    }

    /// The disk of a partition; any other device is its own.
    pub(crate) fn whole(&self, device: Device) -> Device {
        let folder = self.folder(device);
        let disk = folder.join("partition").exists().then(|| number(&folder.join("../dev")));
        disk.flatten().unwrap_or(device)
    }

    fn folder(&self, (major, minor): Device) -> PathBuf {
        self.sys.join(format!("dev/block/{major}:{minor}"))
    }
}

/// Reads the numbers of a device from a file such as `259:0`.
fn number(file: &Path) -> Option<Device> {
    let text = fs::read_to_string(file).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The device that holds a directory, or whose node the directory contains.
pub(crate) fn device_below(data: &Path, mounts: &Path) -> Option<Device> {
    top_of(data, mounts).map(|(device, _)| device)
}

/// The device of a directory, and its node if the mount table had to name it, as for btrfs.
fn top_of(data: &Path, mounts: &Path) -> Option<(Device, Option<PathBuf>)> {
    let numbers = |number| (rustix::fs::major(number), rustix::fs::minor(number));
    if let Ok(node) = fs::metadata(data.join(NODE))
        && node.file_type().is_block_device()
    {
        return Some((numbers(node.rdev()), None));
    }
    let number = fs::metadata(data).ok()?.dev();
    let (major, minor) = numbers(number);
    if major != 0 {
        return Some(((major, minor), None));
    }
    // Major number 0 is not a block device. The mount table names the device behind it.
    let text = fs::read_to_string(mounts).ok()?;
    let wanted = format!("{major}:{minor}");
    let mount = tare_std::mountinfo::mounts(&text).find(|mount| mount.number == wanted)?;
    let found = fs::metadata(&mount.source).ok()?.rdev();
    (found != 0).then(|| (numbers(found), Some(mount.source)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A /sys with devices by number, as the kernel lays it out.
    struct Sys(tempfile::TempDir);

    impl Sys {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            fs::create_dir_all(root.path().join("dev/block")).unwrap();
            Self(root)
        }

        /// Adds a device below `devices/`, such as `nvme0n1/nvme0n1p1` for a partition.
        fn add(&self, path: &str, (major, minor): Device, slaves: &[&str]) -> &Self {
            let folder = self.0.path().join("devices").join(path);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("dev"), format!("{major}:{minor}\n")).unwrap();
            match path.contains('/') {
                true => fs::write(folder.join("partition"), "1\n").unwrap(),
                false => fs::create_dir(folder.join("slaves")).unwrap(),
            }
            for slave in slaves {
                let name = Path::new(slave).file_name().unwrap();
                symlink(
                    self.0.path().join("devices").join(slave),
                    folder.join("slaves").join(name),
                )
                .unwrap();
            }
            symlink(&folder, self.0.path().join(format!("dev/block/{major}:{minor}"))).unwrap();
            self
        }

        fn stack(&self) -> BlockStack {
            BlockStack { mounts: "/proc/self/mountinfo".into(), sys: self.0.path().into() }
        }

        fn below(&self, top: Device) -> Vec<Device> {
            let mut disks = Vec::new();
            self.stack().descend(top, 0, &mut disks);
            disks.sort_unstable();
            disks.dedup();
            disks
        }
    }

    #[test]
    fn raid_has_the_disks_of_its_slaves() {
        let sys = Sys::new();
        let names = ["nvme0n1", "nvme1n1", "nvme2n1", "nvme3n1"];
        for (minor, name) in (0..).zip(names) {
            sys.add(name, (259, minor), &[]);
        }
        sys.add("md0", (9, 0), &names);
        assert_eq!(sys.below((9, 0)), [(259, 0), (259, 1), (259, 2), (259, 3)]);
        assert_eq!(sys.below((259, 2)), [(259, 2)], "a disk is its own");
    }

    #[test]
    fn encrypted_volume_has_its_partition_and_the_partition_its_disk() {
        let sys = Sys::new();
        sys.add("sda", (8, 0), &[]).add("sda/sda3", (8, 3), &[]);
        sys.add("dm-0", (252, 0), &["sda/sda3"]).add("dm-1", (252, 1), &["dm-0"]);
        assert_eq!(sys.below((252, 1)), [(8, 3)]);
        assert_eq!(sys.stack().whole((8, 3)), (8, 0));
        assert_eq!(sys.stack().whole((252, 1)), (252, 1));
    }

    #[test]
    fn a_disk_below_two_volumes_counts_once() {
        let sys = Sys::new();
        sys.add("sda", (8, 0), &[]).add("sdb", (8, 16), &[]);
        sys.add("dm-0", (252, 0), &["sda"]).add("dm-1", (252, 1), &["sda", "sdb"]);
        sys.add("dm-2", (252, 2), &["dm-0", "dm-1"]);
        assert_eq!(sys.below((252, 2)), [(8, 0), (8, 16)]);
    }

    #[test]
    fn a_cycle_and_an_unknown_device_end() {
        let sys = Sys::new();
        sys.add("dm-0", (252, 0), &["dm-1"]).add("dm-1", (252, 1), &["dm-0"]);
        assert_eq!(sys.below((252, 0)).len(), 1);
        assert_eq!(sys.below((7, 7)), [(7, 7)]);
    }

    #[test]
    fn btrfs_has_all_its_devices() {
        let sys = Sys::new();
        sys.add("sda", (8, 0), &[]).add("sdb", (8, 16), &[]);
        let folder = sys.0.path().join("fs/btrfs/6d1c/devices");
        fs::create_dir_all(&folder).unwrap();
        for name in ["sda", "sdb"] {
            symlink(sys.0.path().join("devices").join(name), folder.join(name)).unwrap();
        }
        // Only the name of the node counts.
        let node = sys.0.path().join("sda");
        fs::write(&node, "").unwrap();
        let mut found = sys.stack().devices_of_btrfs(&node).unwrap();
        found.sort_unstable();
        assert_eq!(found, [(8, 0), (8, 16)]);
        assert_eq!(sys.stack().devices_of_btrfs(Path::new("/dev/null")), None);
    }
}
