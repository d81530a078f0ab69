//! The mount below a system's data, as the system's process sees it: the line of its mount table
//! (proc_pid_mountinfo(5)), the superblock's size (statfs(2)), and the queue of the block device.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::statfs;
use tare_std::mountinfo;

/// The mount below the data, as a process sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MountView {
    /// The file system's type, such as `ext4`; empty when the mount table could not be read.
    pub(super) filesystem: String,
    /// The mount's source, such as `/dev/loop3`.
    pub(super) source: String,
    /// The directory within the file system that is mounted.
    pub(super) root: String,
    /// The mount point, as the process sees it.
    pub(super) point: String,
    /// Options of the mount and of the superblock.
    pub(super) options: Vec<String>,
    /// `MAJOR:MINOR` of the file system.
    pub(super) number: String,
    /// The superblock's size; `None` if it cannot be read.
    pub(super) size_bytes: Option<u64>,
    /// `MAJOR:MINOR` of the directory's file system as the host sees it.
    host_number: String,
    /// The data's directory as the host reaches it through the process.
    path: PathBuf,
    /// Why this is not the system's own view; empty if it is.
    note: &'static str,
}

impl MountView {
    /// Returns the view of the process at `inside`, with the host's device number at `data`.
    pub(crate) fn of(pid: u32, inside: &Path, data: &Path) -> Self {
        let table = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
        let mut seen = Self::parse(&table, inside).unwrap_or_default();
        let path = PathBuf::from(format!("/proc/{pid}/root"));
        seen.path = path.join(inside.strip_prefix("/").unwrap_or(inside));
        seen.size_bytes = size(&seen.path);
        seen.host_number = host_number(data);
        seen
    }

    /// Returns a file of the data's directory, as the process sees it.
    pub(super) fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Returns the mount of a process's root.
    pub(crate) fn root(pid: u32) -> Self {
        Self::of(pid, Path::new("/"), Path::new("/"))
    }

    /// Returns whether the file system is of this type.
    pub(crate) fn is(&self, filesystem: &str) -> bool {
        self.filesystem == filesystem
    }

    /// Returns the host's view at `data`, for systems whose own view cannot be read (gVisor).
    pub(crate) fn from_host(data: &Path) -> Self {
        let mut seen = Self::of(std::process::id(), data, data);
        seen.note = " (the host's view; direct I/O inside gVisor passes its own cache by, and not the host's)";
        seen
    }

    /// Returns what the host has mounted at a directory that the system does not see itself.
    pub(crate) fn of_host(path: &Path) -> Self {
        Self::of(std::process::id(), path, path)
    }

    /// Returns whether this is the host's view, not the system's own.
    pub(super) fn is_from_host(&self) -> bool {
        !self.note.is_empty()
    }

    /// Returns the mount that a path is on.
    fn parse(table: &str, path: &Path) -> Option<Self> {
        let mount = mountinfo::mount_of(table, path)?;
        let options = mount.options.split(',').chain(mount.super_options.split(','));
        let mut options: Vec<String> = options.map(Into::into).collect();
        options.sort();
        options.dedup();
        Some(Self {
            filesystem: mount.file_system.into(),
            source: mount.source.to_string_lossy().into_owned(),
            root: mount.root.to_string_lossy().into_owned(),
            point: mount.point.to_string_lossy().into_owned(),
            options,
            number: mount.number.into(),
            ..Self::default()
        })
    }

    /// Returns whether the path of the mounted directory in its file system has this part.
    pub(crate) fn is_in(&self, part: &str) -> bool {
        !part.is_empty() && self.root.contains(part)
    }

    /// Returns whether both the mount table and the superblock could be read.
    pub(super) fn is_whole(&self) -> bool {
        !self.filesystem.is_empty() && self.size_bytes.is_some()
    }

    /// Returns whether the data has the same file system inside and on the host.
    pub(super) fn same_device_as_host(&self) -> bool {
        self.number == self.host_number
    }

    /// Returns whether both are mounts of one file system.
    pub(crate) fn is_mount_of(&self, other: &Self) -> bool {
        !self.number.is_empty() && self.number == other.number
    }

    /// Returns a text such as `ext4 from /dev/vda (rw,relatime), 252.00 GiB`.
    pub(crate) fn text(&self) -> String {
        let Self { filesystem, source, options, .. } = self;
        if !self.is_whole() {
            return "neither mount table nor superblock can be read".into();
        }
        let gib = self.size_bytes.unwrap_or_default() as f64 / (1u64 << 30) as f64;
        let options = options.join(",");
        format!("{filesystem} from {source} ({options}), {gib:.2} GiB{}", self.note)
    }
}

/// Returns the number of the file system that a path of the host is on, from the mount table.
fn host_number(path: &Path) -> String {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    MountView::parse(&table, path).map(|seen| seen.number).unwrap_or_default()
}

/// Returns the size of the file system that a path is on, in bytes.
fn size(path: &Path) -> Option<u64> {
    let found = statfs(path).ok()?;
    // The type is signed on some architectures, the value never is.
    let block = u64::try_from(found.f_bsize).ok()?;
    Some(found.f_blocks * block)
}

/// Returns one line of a block device's queue or loop settings in sysfs, such as `queue/scheduler`.
pub(super) fn sysfs(device: &Path, file: &str) -> Option<String> {
    let name = device.file_name()?.to_string_lossy().into_owned();
    let text = fs::read_to_string(format!("/sys/class/block/{name}/{file}")).ok()?;
    Some(text.trim().to_string())
}
