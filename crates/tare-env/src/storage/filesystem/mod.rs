//! A file system for the environment, on an image file behind a loop device or on a block device
//! that the user allows Tare to overwrite (`backing`). This file has the common code; each file
//! system has its own file.

use std::path::Path;

use rustix::mount::MountFlags;
use tare_host::RUN_VARIABLE;
use tare_host::exec::Command;
use tare_host::journal::Entry;

use super::backing::{self, Backing};
use super::options::Options;
use super::{
    At, MountView, ReadBack, Storage, StorageError, make_directory, mount_view, need_program,
};
use crate::unavailable::Unavailable;

pub(super) mod btrfs;
pub(super) mod ext4;
pub(super) mod f2fs;
pub(super) mod xfs;

/// Name of the option for a file system below storage that may have one of its own.
pub(super) const FILESYSTEM: &str = "filesystem";

/// The options that every file system has.
pub(super) const OPTIONS: &[(&str, &str)] = &[
    backing::SIZE,
    backing::DEVICE,
    backing::ALLOCATE,
    backing::DIRECT_IO,
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
    /// Options of every mkfs: quiet, and overwrite an existing file system.
    pub(super) words: &'static [&'static str],
    /// Options that keep mkfs from discarding the blocks of a new image.
    pub(super) keep_blocks: &'static [&'static str],
    pub(super) least_bytes: u64,
    pub(super) least: &'static str,
    /// Mount options that the kernel shows by another name.
    pub(super) shown_as: &'static [(&'static str, &'static str)],
    /// Returns every option in force. The mount table leaves out those that are the default.
    pub(super) all_options: Option<fn(device: &str) -> String>,
}

/// A file system on a device.
#[derive(Debug)]
pub(super) struct FileSystem {
    format: &'static Format,
    backing: Backing,
    options: Vec<String>,
    mkfs: Vec<String>,
}

/// Parses the options of a file system.
pub(super) fn parse(
    format: &'static Format,
    options: &Options<'_>,
) -> Result<Box<dyn Storage>, StorageError> {
    Ok(Box::new(FileSystem::parse(format, options)?))
}

impl FileSystem {
    pub(super) fn parse(
        format: &'static Format,
        options: &Options<'_>,
    ) -> Result<Self, StorageError> {
        Ok(Self {
            format,
            backing: Backing::parse(options, format.least_bytes, format.least)?,
            options: options.mount_options()?,
            mkfs: options.mkfs_words()?,
        })
    }

    /// Parses the option [`FILESYSTEM`], `None` without it. `why` refuses its size and its device
    /// then.
    pub(super) fn named(
        options: &Options<'_>,
        why: &'static str,
    ) -> Result<Option<Self>, StorageError> {
        let words = ["none", "ext4", "xfs", "btrfs", "f2fs"];
        let format = match options.word(FILESYSTEM, &words, "none, ext4, xfs, btrfs or f2fs")? {
            0 => {
                for name in [backing::SIZE.0, backing::DEVICE.0] {
                    options.refuse(name, why)?;
                }
                return Ok(None);
            }
            1 => &ext4::FORMAT,
            2 => &xfs::FORMAT,
            3 => &btrfs::FORMAT,
            _ => &f2fs::FORMAT,
        };
        Self::parse(format, options).map(Some)
    }
}

impl Storage for FileSystem {
    fn needs(&self) -> Result<(), Unavailable> {
        self.format.needs()?;
        self.backing.needs(self.format.name)
    }

    fn device(&self) -> Option<&Path> {
        self.backing.device()
    }

    fn entries(&self, at: &At<'_>) -> Vec<Entry> {
        self.backing.entry(at).into_iter().chain([Entry::mount(at.data())]).collect()
    }

    fn make(&self, at: &At<'_>) -> Result<(), StorageError> {
        let device = self.backing.make(at)?;
        self.format.create(at, &device, &self.mkfs, self.backing.is_image())?;
        self.format.mount(at, &device, &self.options)
    }

    fn read_back(&self, at: &At<'_>, seen: &MountView) -> ReadBack {
        let below = self.backing.read_back(at);
        let device = below.device.as_deref();
        let scheduler = device.and_then(|device| mount_view::sysfs(device, "queue/scheduler"));
        let mut text = seen.text() + &below.text;
        text += &format!("; scheduler: {}", scheduler.unwrap_or_else(|| "unreadable".into()));
        let on_it = device.is_some_and(|device| self.format.is_seen(seen, device, below.bytes));
        let missing = self.format.missing_options(seen, &self.options);
        if !missing.is_empty() {
            text += &format!("; not in force: {}", missing.join(","));
        }
        ReadBack { text, in_force: below.in_force && on_it && missing.is_empty() }
    }
}

impl Format {
    /// Checks that mkfs is installed and the kernel has the file system.
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

    /// Creates the file system on a device.
    pub(super) fn create(
        &self,
        at: &At<'_>,
        device: &Path,
        words: &[String],
        is_image: bool,
    ) -> Result<(), StorageError> {
        let keep = if is_image { self.keep_blocks } else { &[] };
        let command = Command::new(self.mkfs).args(self.words).args(keep).args(words).arg(device);
        // Discarding the blocks of a large device takes long.
        let command = command.time_limit(std::time::Duration::from_secs(300));
        let command = command.variable(RUN_VARIABLE, at.context.run());
        command.run().map(drop).map_err(StorageError::Format)
    }

    /// Mounts it on the data's directory.
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

    /// Returns whether the mount is this file system on this device, with a plausible size.
    pub(super) fn is_seen(&self, seen: &MountView, device: &Path, bytes: u64) -> bool {
        // Some file systems do not count their own structures as part of their size.
        let fits = seen.size_bytes.is_some_and(|size| size <= bytes && size >= bytes / 2);
        seen.is_whole() && fits && seen.filesystem == self.name && Path::new(&seen.source) == device
    }

    /// Returns the requested options that are not in force.
    pub(super) fn missing_options(&self, seen: &MountView, options: &[String]) -> Vec<String> {
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

/// Mounts a device or file system. `options` are those of the file system.
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

/// Separates the options that are flags of the mount from the file system's own (mount(8)).
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

/// Returns whether the running kernel has a file system, built in or as a module, which it loads at
/// the first mount.
fn kernel_has(name: &str) -> bool {
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if known.lines().any(|line| line.split('\t').nth(1) == Some(name)) {
        return true;
    }
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let modules = std::fs::read_to_string(format!("/lib/modules/{release}/modules.dep"));
    modules.unwrap_or_default().contains(&format!("/{name}.ko"))
}
