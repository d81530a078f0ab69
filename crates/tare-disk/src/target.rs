//! Decides whether a measurement of a path would measure a disk. Refuses paths on file systems in
//! memory, on another machine, or with a cache below direct I/O, and paths without a block device.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::Serialize;
use tare_std::mountinfo;

use crate::device::Device;
use crate::throttle::{self, Limit};

/// The smallest size that is measured: twice the most bytes in flight (64 operations of 1 MiB).
pub const SIZE_MIN_BYTES: u64 = 128 << 20;

/// The kind of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A directory; a file is created in it.
    Directory,
    /// A file, which is only read.
    File,
    /// A block device, which is only read unless its data may be destroyed.
    Device,
}

/// A path that can be measured.
#[derive(Clone, Debug)]
pub struct Target {
    pub path: PathBuf,
    pub kind: Kind,
    /// The mount of a directory or a file.
    pub mount: Option<Mount>,
    pub device: Device,
    pub(crate) limits: Vec<Limit>,
}

/// The mount that a path is on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mount {
    pub point: PathBuf,
    pub file_system: String,
    #[serde(skip)]
    number: String,
    #[serde(skip)]
    source: PathBuf,
}

/// Why a path cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    #[error("cannot read {}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is not a directory, regular file or block device", .path.display())]
    Kind { path: PathBuf },
    #[error("{} is on {file_system}, {why}; give a path on a disk", .path.display())]
    FileSystem { path: PathBuf, file_system: String, why: &'static str },
    #[error("{} has no block device in /sys below it ({file_system})", .path.display())]
    NoDevice { path: PathBuf, file_system: String },
    #[error("{} is on {device}, which is memory; give a path on a disk", .path.display())]
    Memory { path: PathBuf, device: String },
    #[error(
        "{} has {} MiB; less than {} MiB fits into the device's cache: give a larger file",
        .path.display(), .bytes >> 20, SIZE_MIN_BYTES >> 20
    )]
    Small { path: PathBuf, bytes: u64 },
}

/// File systems that are refused, and why. A trailing `*` matches any rest.
const REFUSED: [(&str, &str); 20] = [
    ("tmpfs", MEMORY),
    ("ramfs", MEMORY),
    ("rootfs", MEMORY),
    ("devtmpfs", MEMORY),
    ("hugetlbfs", MEMORY),
    ("nfs*", REMOTE),
    ("cifs", REMOTE),
    ("smb3", REMOTE),
    ("ceph", REMOTE),
    ("lustre", REMOTE),
    ("afs", REMOTE),
    ("gfs*", REMOTE),
    ("9p", HOST),
    ("virtiofs", HOST),
    ("overlay", OVERLAY),
    ("aufs", OVERLAY),
    ("zfs", CACHE),
    ("ecryptfs", CACHE),
    ("fuse*", FUSE),
    ("vboxsf", HOST),
];
const MEMORY: &str = "which is memory, not a disk";
const REMOTE: &str = "whose disk is another machine's: its cache and the network would be measured";
const HOST: &str = "whose disk is the host's: the host's page cache would be measured";
const OVERLAY: &str =
    "which is stacked on another file system: give a directory of that one, or a volume";
const CACHE: &str = "which serves direct I/O from its own cache";
const FUSE: &str = "a program whose cache would be measured";

fn refusal(file_system: &str) -> Option<&'static str> {
    let is = |pattern: &str| match pattern.strip_suffix('*') {
        Some(start) => file_system.starts_with(start),
        None => file_system == pattern,
    };
    // A fuseblk file system has a block device, but a program serves it.
    REFUSED.iter().find(|(pattern, _)| is(pattern)).map(|(_, why)| *why)
}

impl Target {
    /// Examines a path, with /proc and /sys below `root`.
    ///
    /// # Errors
    /// If it cannot be measured, or is not on a disk.
    pub fn find(path: &Path, root: &Path) -> Result<Self, TargetError> {
        let read = |source| TargetError::Read { path: path.into(), source };
        let real = fs::canonicalize(path).map_err(read)?;
        let metadata = fs::metadata(&real).map_err(read)?;
        let kind = match metadata.file_type() {
            kind if kind.is_dir() => Kind::Directory,
            kind if kind.is_file() => Kind::File,
            kind if kind.is_block_device() => Kind::Device,
            _ => return Err(TargetError::Kind { path: path.into() }),
        };
        let mut mount = None;
        let number = if kind == Kind::Device {
            number(metadata.rdev())
        } else {
            let table = root.join("proc/self/mountinfo");
            let text = fs::read_to_string(&table)
                .map_err(|source| TargetError::Read { path: table, source })?;
            let found = mount_of(&text, &real).ok_or_else(|| TargetError::NoDevice {
                path: path.into(),
                file_system: "?".into(),
            })?;
            if let Some(why) = refusal(&found.file_system) {
                let file_system = found.file_system;
                return Err(TargetError::FileSystem { path: path.into(), file_system, why });
            }
            let number = found.device_number();
            mount = Some(found);
            number
        };
        let Some(device) = Device::read(root, &number) else {
            let file_system = mount.map_or_else(String::new, |mount| mount.file_system);
            return Err(TargetError::NoDevice { path: path.into(), file_system });
        };
        if device.is_memory() {
            return Err(TargetError::Memory { path: path.into(), device: device.name });
        }
        let bytes = match kind {
            Kind::Directory => u64::MAX,
            Kind::File => metadata.len(),
            Kind::Device => device.size_bytes,
        };
        if bytes < SIZE_MIN_BYTES {
            return Err(TargetError::Small { path: path.into(), bytes });
        }
        let limits = throttle::limits(root, &device.number);
        Ok(Self { path: real, kind, mount, device, limits })
    }
}

impl Mount {
    /// Returns the device's number. The number of a file system on several devices (btrfs) belongs
    /// to no disk; then this is the number of the mounted source.
    fn device_number(&self) -> String {
        let source = fs::metadata(&self.source).ok().filter(|m| m.file_type().is_block_device());
        match source {
            Some(source) if self.number.starts_with("0:") => number(source.rdev()),
            _ => self.number.clone(),
        }
    }
}

fn number(device: u64) -> String {
    format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device))
}

/// Returns the mount of a path.
fn mount_of(table: &str, path: &Path) -> Option<Mount> {
    let mount = mountinfo::mount_of(table, path)?;
    Some(Mount {
        point: mount.point,
        file_system: mount.file_system.into(),
        number: mount.number.into(),
        source: mount.source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_longest_and_last_mount() {
        let table = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
            30 27 0:30 / /data rw - tmpfs none rw\n\
            31 27 8:1 / /data rw shared:2 - xfs /dev/sda1 rw\n\
            32 27 0:40 / /data/a\\040b rw - nfs4 host:/x rw\n";
        let check = |path: &str, expect: &str| {
            assert_eq!(mount_of(table, Path::new(path)).unwrap().file_system, expect, "{path}");
        };
        check("/etc", "ext4");
        check("/data", "xfs");
        check("/data/x", "xfs");
        check("/database", "ext4");
        check("/data/a b/c", "nfs4");
        assert_eq!(mount_of("", Path::new("/")), None);
    }

    #[test]
    fn refuses_file_systems_without_disk() {
        for name in
            ["tmpfs", "ramfs", "nfs", "nfs4", "overlay", "9p", "fuse.sshfs", "fuseblk", "zfs"]
        {
            assert!(refusal(name).is_some(), "{name}");
        }
        for name in ["ext4", "xfs", "btrfs", "f2fs", "ext2"] {
            assert!(refusal(name).is_none(), "{name}");
        }
    }
}
