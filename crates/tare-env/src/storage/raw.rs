//! A block device without a file system, the baseline for file systems. For systems that write to
//! a device themselves (fio), which get the path of the device's node as their data.
//!
//! Method: the node `disk` is created in the data's directory, which is bind-mounted as for any
//! data. The container's device cgroup allows this one device. As for a file system, the device is
//! an image file behind a loop device, or one that the user allows Tare to overwrite.
//!
//! Limits: engines and guests have no such node; the disks of guests are separate kinds.

use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat, stat};
use tare_host::block;
use tare_host::journal::Entry;

use super::backing::{self, Backing};
use super::options::Options;
use super::{At, Kind, MountView, ReadBack, Storage, StorageError, make_directory, mount_view};
use crate::unavailable::Unavailable;

/// The node in the data's directory. Probes look for the device below the data under this name
/// (`tare_probe`).
pub(super) const NODE: &str = "disk";

pub(super) const KIND: Kind = Kind {
    name: "raw",
    help: "a block device without a file system, for a system that writes to one itself (fio)",
    options: &[backing::SIZE, backing::DEVICE, backing::ALLOCATE, backing::DIRECT_IO],
    needs: "loop devices",
    cleanup: "loop device detached, image and node removed",
    read_back: "the node inside: its number is the device's; the device's size; direct I/O of the \
                loop device in sysfs",
    parse: Some(|options: &Options<'_>| {
        Ok(Box::new(Raw(Backing::parse(options, LEAST_BYTES, LEAST)?)))
    }),
};

/// The size of the smallest image.
pub(super) const LEAST_BYTES: u64 = 1 << 20;
pub(super) const LEAST: &str = "a size in MiB of at least 1M";

#[derive(Debug)]
struct Raw(Backing);

impl Storage for Raw {
    fn needs(&self) -> Result<(), Unavailable> {
        self.0.needs("raw")
    }

    fn device(&self) -> Option<&Path> {
        self.0.device()
    }

    fn node(&self) -> Option<&'static str> {
        Some(NODE)
    }

    fn entries(&self, at: &At<'_>) -> Vec<Entry> {
        self.0.entry(at).into_iter().collect()
    }

    fn make(&self, at: &At<'_>) -> Result<(), StorageError> {
        make_node(at, &self.0.make(at)?)
    }

    fn read_back(&self, at: &At<'_>, seen: &MountView) -> ReadBack {
        let below = self.0.read_back(at);
        let (text, is_there) = read_node(seen, below.device.as_deref());
        let device = below.device.as_deref();
        let bytes = device.and_then(|device| block::size_bytes(device).ok());
        let scheduler = device.and_then(|device| mount_view::sysfs(device, "queue/scheduler"));
        let scheduler = scheduler.unwrap_or_else(|| "unreadable".into());
        let text = format!("{text}{}; scheduler: {scheduler}", below.text);
        ReadBack { text, in_force: is_there && below.in_force && bytes == Some(below.bytes) }
    }
}

/// Creates the node of a device in the data's directory.
pub(super) fn make_node(at: &At<'_>, device: &Path) -> Result<(), StorageError> {
    make_directory(&at.data())?;
    let path = at.data().join(NODE);
    let fail =
        |error: rustix::io::Errno| StorageError::File { path: path.clone(), source: error.into() };
    let number = stat(device).map_err(fail)?.st_rdev;
    let mode = Mode::RUSR | Mode::WUSR;
    mknodat(CWD, &path, FileType::BlockDevice, mode, number).map_err(fail)
}

/// Describes the node that the system sees as its data, and returns whether it is this device.
pub(super) fn read_node(seen: &MountView, device: Option<&Path>) -> (String, bool) {
    let number = device.and_then(|device| stat(device).ok()).map(|of| of.st_rdev);
    let inside = stat(seen.path_of(NODE)).ok().map(|of| of.st_rdev);
    let name = device.map_or("none".into(), |device| device.display().to_string());
    let bytes = device.and_then(|device| block::size_bytes(device).ok()).unwrap_or_default();
    let text = format!("block device {name} of {bytes} bytes");
    (text, number.is_some() && number == inside)
}

/// Returns the major and minor number of the node in a data directory, for the container's device
/// cgroup.
pub(crate) fn number_of(data: &Path) -> Option<(u32, u32)> {
    let number = stat(data.join(NODE)).ok()?.st_rdev;
    Some((rustix::fs::major(number), rustix::fs::minor(number)))
}
