//! The block device below a file system or volume: an image file behind a loop device, or a device
//! that the user allows Tare to overwrite.
//!
//! Method: the image is in the directory of the start, sparse by default. The loop device reads and
//! writes it with direct I/O, which avoids caching data twice. A real device is used only if the
//! command line names it too, and after a check (`device`).
//!
//! Limits: a loop device adds a thread and a queue. Two environments on images compare the layers
//! above them, not devices. Data written to a real device stays there.

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

/// Options that only apply to an image.
pub(super) const OF_IMAGES: [&str; 3] = [SIZE.0, ALLOCATE.0, DIRECT_IO.0];

/// The block device and how it is created.
#[derive(Debug)]
pub(super) struct Backing {
    bytes: u64,
    /// `None` for an image behind a loop device.
    device: Option<PathBuf>,
    full: bool,
    direct_io: bool,
}

/// The state of the device while it is in use.
#[derive(Debug)]
pub(super) struct BackingState {
    pub(super) device: Option<PathBuf>,
    pub(super) bytes: u64,
    /// More about it, after a semicolon; may be empty.
    pub(super) text: String,
    pub(super) in_force: bool,
}

impl Backing {
    /// Parses the options of a device, or of an image of at least `least_bytes`. `least` is that
    /// size in words, for the error.
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

    /// Returns the user's device that is overwritten; `None` for an image.
    pub(super) fn device(&self) -> Option<&Path> {
        self.device.as_deref()
    }

    pub(super) fn entry(&self, at: &At<'_>) -> Option<Entry> {
        self.is_image().then(|| Entry::loop_device(image(at)))
    }

    /// Creates it and returns its path.
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

/// Creates an image of zeros.
pub(super) fn make_image(path: &Path, bytes: u64, full: bool) -> Result<(), StorageError> {
    let fail = |source| StorageError::File { path: path.into(), source };
    let file = File::create(path).map_err(fail)?;
    match full {
        true => fallocate(&file, FallocateFlags::empty(), 0, bytes).map_err(|e| fail(e.into())),
        false => file.set_len(bytes).map_err(fail),
    }
}
