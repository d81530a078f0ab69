//! Finds the topmost block devices of a directory or a device name, from /proc/self/mountinfo and
//! /sys/class/block.

use tare_std::mountinfo;

use super::{DiskError, is_end_of_name};
use crate::snapshot::Snapshot;

/// One mount (proc_pid_mountinfo(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) point: String,
    /// `MAJOR:MINOR`; the major number is 0 for file systems without a device, such as btrfs.
    number: String,
    kind: String,
    source: String,
}

/// Reads the mounts in the order of the kernel: of two at one mount point the later one is on top.
pub(super) fn read(snapshot: &Snapshot) -> Vec<Mount> {
    let text = snapshot.read("/proc/self/mountinfo").unwrap_or_default();
    let mount = |mount: mountinfo::Mount<'_>| Mount {
        point: mount.point.to_string_lossy().into_owned(),
        number: mount.number.into(),
        kind: mount.file_system.into(),
        source: mount.source.to_string_lossy().into_owned(),
    };
    mountinfo::mounts(text).map(mount).collect()
}

/// Returns the names of the block devices below a directory: one, or several of a btrfs.
pub(super) fn devices(
    snapshot: &Snapshot,
    mounts: &[Mount],
    directory: &str,
) -> Result<Vec<String>, DiskError> {
    let fails = |reason: String| DiskError::NoDevice { path: directory.into(), reason };
    if !directory.starts_with('/') {
        return Err(fails("it is not an absolute path".into()));
    }
    // A directory that does not exist yet is on the mount of its nearest parent.
    let holds = |mount: &&Mount| {
        let point = mount.point.trim_end_matches('/');
        directory.strip_prefix(point).is_some_and(is_end_of_name)
    };
    // `max_by_key` returns the last of equals, which is the mount on top.
    let mount = mounts.iter().filter(holds).max_by_key(|mount| mount.point.len());
    let Some(mount) = mount else {
        return Err(fails("the host's mounts could not be read".into()));
    };
    if let Some(name) = by_number(snapshot, &mount.number) {
        return Ok(vec![name]);
    }
    if mount.source.starts_with("/dev/")
        && let Ok(name) = device(snapshot, &mount.source)
    {
        return Ok(members_of_btrfs(snapshot, &name).unwrap_or_else(|| vec![name]));
    }
    let Mount { point, kind, .. } = mount;
    let how = match kind.as_str() {
        "overlay" | "aufs" | "fuse.fuse-overlayfs" => "; name the directory of a volume instead",
        "zfs" => "; name its disks with --dev",
        _ => "",
    };
    Err(fails(format!("it is on {point:?} of type {kind}{how}")))
}

/// Returns the kernel's name of a block device given as `nvme0n1`, `/dev/nvme0n1`,
/// `/dev/mapper/data` or `/dev/vg/data`.
pub(super) fn device(snapshot: &Snapshot, requested: &str) -> Result<String, DiskError> {
    let short = requested.strip_prefix("/dev/").unwrap_or(requested);
    // sysfs writes `cciss/c0d0` as `cciss!c0d0`.
    let name = short.replace('/', "!");
    let exists = |name: &str| snapshot.exists(&format!("/sys/class/block/{name}"));
    if !name.is_empty() && exists(&name) {
        return Ok(name);
    }
    // Device mapper: the name under /dev/mapper. LVM joins group and volume and doubles the dashes
    // in both (lvm(8)).
    let mapped = match short.strip_prefix("mapper/") {
        Some(name) => Some(name.to_string()),
        None => short.split_once('/').map(|(group, volume)| {
            format!("{}-{}", group.replace('-', "--"), volume.replace('-', "--"))
        }),
    };
    let names = snapshot.names("/sys/class/block");
    let is_mapped = |name: &&&str| {
        let own = snapshot.read(&format!("/sys/class/block/{name}/dm/name"));
        own.is_some() && own == mapped.as_deref()
    };
    match names.iter().find(is_mapped) {
        Some(name) => Ok(name.to_string()),
        None => {
            // Suggests `sdb` for `sdc` and `nvme0n1` for `nvme0`.
            let near = |known: &&&str| {
                known.starts_with(short)
                    || (known.len() == short.len() && differ_by(known, short) < 2)
            };
            let nearest = names.iter().find(near).filter(|_| !short.is_empty());
            let nearest = nearest.map(|name| name.to_string());
            Err(DiskError::UnknownDevice { name: requested.into(), nearest })
        }
    }
}

fn differ_by(a: &str, b: &str) -> usize {
    a.bytes().zip(b.bytes()).filter(|(a, b)| a != b).count()
}

fn by_number(snapshot: &Snapshot, number: &str) -> Option<String> {
    let names = snapshot.names("/sys/class/block").into_iter();
    let mut names =
        names.filter(|name| snapshot.read(&format!("/sys/class/block/{name}/dev")) == Some(number));
    names.next().map(str::to_string)
}

/// Returns all devices of the btrfs that a device belongs to, from /sys/fs/btrfs/UUID/devices.
fn members_of_btrfs(snapshot: &Snapshot, name: &str) -> Option<Vec<String>> {
    let systems = snapshot.names("/sys/fs/btrfs").into_iter();
    let mut members = systems.map(|id| snapshot.names(&format!("/sys/fs/btrfs/{id}/devices")));
    let members = members.find(|members| members.contains(&name))?;
    Some(members.into_iter().map(str::to_string).collect())
}
