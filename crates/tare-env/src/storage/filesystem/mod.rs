//! A file system of the environment's own, on an image file behind a loop device or on a block
//! device that the user gives up. What the file systems share; one file for each beside it.
//!
//! Method: the image lies in the directory of the start, sparse unless asked otherwise; the loop
//! device reads and writes it with direct I/O, so that nothing is cached twice. A real device is
//! taken only when it was named on the command line too, and looked at first (`device`).
//!
//! Limits: a loop device adds a thread and a queue of its own; two environments on images compare
//! file systems, not devices. What was laid on a real device stays there.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::mount::MountFlags;
use tare_host::RUN_VARIABLE;
use tare_host::block;
use tare_host::exec::Command;
use tare_host::journal::Entry;

use super::options::Options;
use super::{
    At, Found, Seen, Storage, StorageError, device, make_directory, need_program, reading,
};
use crate::runtime::Unavailable;

pub(super) mod btrfs;
pub(super) mod ext4;
pub(super) mod f2fs;
pub(super) mod xfs;

/// The options that every file system has.
pub(super) const OPTIONS: &[(&str, &str)] = &[
    ("size", "of the image, such as 2G (default)"),
    (
        "device",
        "loop (default), or a device named with --destroy-data-on too, such as /dev/nvme1n1",
    ),
    ("allocate", "the image's blocks: sparse (default) or full"),
    ("direct_io", "of the loop device: yes (default) or no"),
    ("options", "mount options, such as nodatacow"),
    ("mkfs", "more options of mkfs, such as \"-b 4096\""),
];
pub(super) const NEEDS: &str = "its mkfs, the file system in the kernel, and loop devices";
pub(super) const CLEANUP: &str = "unmounted; loop device detached, image removed";
pub(super) const READ_BACK: &str = "the mount table inside: type, device, options; the superblock's size; \
                                    direct I/O of the loop device in sysfs";

/// One file system.
#[derive(Clone, Copy, Debug)]
pub(super) struct Format {
    pub(super) name: &'static str,
    pub(super) mkfs: &'static str,
    pub(super) package: &'static str,
    /// Always given to mkfs: quiet, and over whatever is there.
    pub(super) words: &'static [&'static str],
    /// Keeps mkfs from giving the blocks of a new image back.
    pub(super) keep_blocks: &'static [&'static str],
    pub(super) least_bytes: u64,
    pub(super) least: &'static str,
    /// Mount options that the kernel shows by another name.
    pub(super) shown_as: &'static [(&'static str, &'static str)],
    /// A file with every option in force, for names that the mount table leaves out as usual.
    pub(super) all_options: Option<fn(device: &str) -> String>,
}

/// A file system on a device.
#[derive(Debug)]
pub(super) struct FileSystem {
    format: &'static Format,
    bytes: u64,
    /// `None`: an image behind a loop device.
    device: Option<PathBuf>,
    full: bool,
    direct_io: bool,
    options: Vec<String>,
    mkfs: Vec<String>,
}

/// A kind that is a file system with its options.
pub(super) fn parse(
    format: &'static Format,
    options: &Options<'_>,
) -> Result<Box<dyn Storage>, StorageError> {
    let device = options.device()?;
    if device.is_some() {
        for name in ["size", "allocate", "direct_io"] {
            options.refuse(name, "for a device, only for an image behind a loop device")?;
        }
    }
    Ok(Box::new(FileSystem {
        format,
        bytes: options.size("size", 2 << 30, format.least_bytes, format.least)?,
        device,
        full: options.word("allocate", &["sparse", "full"], "sparse or full")? == 1,
        direct_io: options.flag("direct_io")?,
        options: options.mount_options()?,
        mkfs: options.mkfs_words()?,
    }))
}

impl FileSystem {
    fn image(&self, at: &At<'_>) -> PathBuf {
        at.folder.join("disk.img")
    }
}

impl Storage for FileSystem {
    fn needs(&self) -> Result<(), Unavailable> {
        self.format.needs()?;
        if self.device.is_none() {
            need_program(self.format.name, "losetup", "mount")?;
        }
        Ok(())
    }

    fn device(&self) -> Option<&Path> {
        self.device.as_deref()
    }

    fn entries(&self, at: &At<'_>) -> Vec<Entry> {
        let image = self.device.is_none().then(|| Entry::LoopDevice { file: self.image(at) });
        image.into_iter().chain([Entry::Mount { path: at.data() }]).collect()
    }

    fn make(&self, at: &At<'_>) -> Result<(), StorageError> {
        let device = match &self.device {
            Some(device) => {
                device::check(device, at.ground.destroy(), Path::new("/"))?;
                device.clone()
            }
            None => {
                let image = self.image(at);
                make_image(&image, self.bytes, self.full)?;
                block::attach(at.ground.run(), &image, self.direct_io)?
            }
        };
        self.format.lay(at, &device, &self.mkfs, self.device.is_none())?;
        self.format.mount(at, &device, &self.options)
    }

    fn read_back(&self, at: &At<'_>, seen: &Seen) -> Found {
        let mut text = seen.text();
        let (device, bytes, mut in_force) = match &self.device {
            Some(device) => (Some(device.clone()), block::size_bytes(device).unwrap_or(0), true),
            None => {
                let device = block::loops_of(&self.image(at)).pop();
                let device = device.map(|name| Path::new("/dev").join(name));
                let direct =
                    device.as_deref().and_then(|device| reading::sysfs(device, "loop/dio"));
                let direct = direct.unwrap_or_default();
                text += &format!("; the loop device's direct I/O: {direct}");
                (device, self.bytes, direct == if self.direct_io { "1" } else { "0" })
            }
        };
        let scheduler =
            device.as_deref().and_then(|device| reading::sysfs(device, "queue/scheduler"));
        text += &format!("; scheduler: {}", scheduler.unwrap_or_else(|| "unreadable".into()));
        in_force &= device.is_some_and(|device| self.format.is_seen(seen, &device, bytes));
        let missing = self.format.missing_options(seen, &self.options);
        if !missing.is_empty() {
            text += &format!("; not in force: {}", missing.join(","));
        }
        Found { text, in_force: in_force && missing.is_empty() }
    }
}

impl Format {
    /// Whether mkfs and kernel have it.
    pub(super) fn needs(&self) -> Result<(), Unavailable> {
        need_program(self.name, self.mkfs, self.package)?;
        if kernel_has(self.name) {
            return Ok(());
        }
        Err(Unavailable {
            what: format!("storage {}", self.name),
            why: format!("this kernel has no {} (neither built in nor as a module)", self.name),
            remedy: "boot a kernel that has it".into(),
        })
    }

    /// Lays the file system on a device.
    pub(super) fn lay(
        &self,
        at: &At<'_>,
        device: &Path,
        words: &[String],
        is_image: bool,
    ) -> Result<(), StorageError> {
        let keep = if is_image { self.keep_blocks } else { &[] };
        let command = Command::new(self.mkfs).args(self.words).args(keep).args(words).arg(device);
        // A large device takes its time where blocks are discarded first.
        let command = command.time_limit(std::time::Duration::from_secs(300));
        let command = command.variable(RUN_VARIABLE, at.ground.run());
        command.run().map(drop).map_err(StorageError::Format)
    }

    /// Mounts it where the data stands.
    pub(super) fn mount(
        &self,
        at: &At<'_>,
        device: &Path,
        options: &[String],
    ) -> Result<(), StorageError> {
        let data = at.data();
        make_directory(&data)?;
        let (flags, own) = split_flags(options);
        mount(device, &data, self.name, flags, &own.join(","))
    }

    /// Whether what is seen is this file system on this device, with a size that fits.
    pub(super) fn is_seen(&self, seen: &Seen, device: &Path, bytes: u64) -> bool {
        // A file system's own structures are not counted as its size by some.
        let fits = seen.size_bytes.is_some_and(|size| size <= bytes && size >= bytes / 2);
        seen.is_whole() && fits && seen.filesystem == self.name && Path::new(&seen.source) == device
    }

    /// Options that were asked for and are not in force.
    pub(super) fn missing_options(&self, seen: &Seen, options: &[String]) -> Vec<String> {
        let name = Path::new(&seen.source).file_name().unwrap_or_default().to_string_lossy();
        let all = self.all_options.map(|read| read(&name)).unwrap_or_default();
        let is_there = |option: &&String| {
            let alias = self.shown_as.iter().find(|(name, _)| *name == option.as_str());
            let shown = alias.map_or(option.as_str(), |(_, shown)| shown);
            let shown_by_mount = seen.options.iter().any(|found| found == shown);
            shown_by_mount || all.lines().any(|line| line == shown)
        };
        options.iter().filter(|option| !is_there(option)).cloned().collect()
    }
}

/// Makes an image of zeros.
pub(super) fn make_image(path: &Path, bytes: u64, full: bool) -> Result<(), StorageError> {
    let fail = |source| StorageError::File { path: path.into(), source };
    let file = File::create(path).map_err(fail)?;
    match full {
        true => fallocate(&file, FallocateFlags::empty(), 0, bytes).map_err(|e| fail(e.into())),
        false => file.set_len(bytes).map_err(fail),
    }
}

/// Mounts something. `options` are those of the file system.
pub(super) fn mount(
    what: &Path,
    path: &Path,
    filesystem: &str,
    flags: MountFlags,
    options: &str,
) -> Result<(), StorageError> {
    let fail = |source: std::io::Error| StorageError::Mount {
        what: what.display().to_string(),
        options: options.into(),
        path: path.into(),
        source,
    };
    let data = std::ffi::CString::new(options).map_err(|error| fail(error.into()))?;
    let mounted = rustix::mount::mount(what, path, filesystem, flags, data.as_c_str());
    mounted.map_err(|error| fail(error.into()))
}

/// Takes out the options that are flags of the mount and not the file system's own (mount(8)).
fn split_flags(options: &[String]) -> (MountFlags, Vec<&str>) {
    let mut flags = MountFlags::empty();
    let mut own = Vec::new();
    for option in options {
        match option.as_str() {
            "noatime" => flags |= MountFlags::NOATIME,
            "nodiratime" => flags |= MountFlags::NODIRATIME,
            "relatime" => flags |= MountFlags::RELATIME,
            "strictatime" => flags |= MountFlags::STRICTATIME,
            "lazytime" => flags |= MountFlags::LAZYTIME,
            "sync" => flags |= MountFlags::SYNCHRONOUS,
            "dirsync" => flags |= MountFlags::DIRSYNC,
            "nosuid" => flags |= MountFlags::NOSUID,
            "nodev" => flags |= MountFlags::NODEV,
            other => own.push(other),
        }
    }
    (flags, own)
}

/// Whether the running kernel has a file system, built in or as a module that it loads when one is
/// mounted.
fn kernel_has(name: &str) -> bool {
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if known.lines().any(|line| line.split('\t').nth(1) == Some(name)) {
        return true;
    }
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let modules = std::fs::read_to_string(format!("/lib/modules/{release}/modules.dep"));
    modules.unwrap_or_default().contains(&format!("/{name}.ko"))
}
