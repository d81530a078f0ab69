//! The block device that something is laid on: an image file behind a loop device, or a device that
//! the user gives up.
//!
//! Method: the image lies in the directory of the start, sparse unless asked otherwise; the loop
//! device reads and writes it with direct I/O, so that nothing is cached twice. A real device is
//! taken only when it was named on the command line too, and looked at first (`device`).
//!
//! Limits: a loop device adds a thread and a queue of its own; two environments on images compare
//! what lies above, not devices. What was laid on a real device stays there.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};
use tare_host::block;
use tare_host::journal::Entry;

use super::options::Options;
use super::{At, StorageError, device, mount_view, need_program};
use crate::unavailable::Unavailable;

pub(super) const SIZE: (&str, &str) = ("size", "of the image, such as 2G (default)");
pub(super) const DEVICE: (&str, &str) = (
    "device",
    "loop (default), or a device named with --destroy-data-on too, such as /dev/nvme1n1",
);
pub(super) const ALLOCATE: (&str, &str) =
    ("allocate", "the image's blocks: sparse (default) or full");
pub(super) const DIRECT_IO: (&str, &str) = ("direct_io", "of the loop device: yes (default) or no");

/// Options that mean nothing where the device is not an image.
pub(super) const OF_IMAGES: [&str; 3] = [SIZE.0, ALLOCATE.0, DIRECT_IO.0];

/// Where blocks are.
#[derive(Debug)]
pub(super) struct Backing {
    bytes: u64,
    /// `None`: an image behind a loop device.
    device: Option<PathBuf>,
    full: bool,
    direct_io: bool,
}

/// What is found of it while it is in use.
#[derive(Debug)]
pub(super) struct BackingState {
    pub(super) device: Option<PathBuf>,
    pub(super) bytes: u64,
    /// What is special about it, after a semicolon; may be empty.
    pub(super) text: String,
    pub(super) in_force: bool,
}

impl Backing {
    /// The options of an image of at least so many bytes, as the words say, or of a device.
    pub(super) fn parse(
        options: &Options<'_>,
        least_bytes: u64,
        least: &'static str,
    ) -> Result<Self, StorageError> {
        let device = options.device()?;
        if device.is_some() {
            for name in OF_IMAGES {
                options.refuse(name, "for a device, only for an image behind a loop device")?;
            }
        }
        Ok(Self {
            bytes: options.size("size", 2 << 30, least_bytes, least)?,
            device,
            full: options.word("allocate", &["sparse", "full"], "sparse or full")? == 1,
            direct_io: options.flag("direct_io")?,
        })
    }

    pub(super) fn needs(&self, what: &str) -> Result<(), Unavailable> {
        match self.is_image() {
            true => need_program(what, "losetup", "mount"),
            false => Ok(()),
        }
    }

    pub(super) fn is_image(&self) -> bool {
        self.device.is_none()
    }

    /// The device that is written over, if it is not made.
    pub(super) fn device(&self) -> Option<&Path> {
        self.device.as_deref()
    }

    pub(super) fn entry(&self, at: &At<'_>) -> Option<Entry> {
        self.is_image().then(|| Entry::loop_device(image(at)))
    }

    /// Makes it; its path.
    pub(super) fn make(&self, at: &At<'_>) -> Result<PathBuf, StorageError> {
        match &self.device {
            Some(device) => {
                device::check(device, at.context.destroy(), Path::new("/"))?;
                Ok(device.clone())
            }
            None => {
                let image = image(at);
                make_image(&image, self.bytes, self.full)?;
                Ok(block::attach(at.context.run(), &image, self.direct_io)?)
            }
        }
    }

    pub(super) fn read_back(&self, at: &At<'_>) -> BackingState {
        if let Some(device) = &self.device {
            let bytes = block::size_bytes(device).unwrap_or(0);
            let (device, text) = (Some(device.clone()), String::new());
            return BackingState { device, bytes, text, in_force: true };
        }
        let device = block::loops_of(&image(at)).pop().map(|name| Path::new("/dev").join(name));
        let direct = device.as_deref().and_then(|device| mount_view::sysfs(device, "loop/dio"));
        let direct = direct.unwrap_or_default();
        BackingState {
            device,
            bytes: self.bytes,
            text: format!("; the loop device's direct I/O: {direct}"),
            in_force: direct == if self.direct_io { "1" } else { "0" },
        }
    }
}

fn image(at: &At<'_>) -> PathBuf {
    at.folder.join("disk.img")
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
