//! A block device without a file system: what file systems are compared with. For systems that write
//! to a device themselves (fio); what they are told as their data is the device's node.
//!
//! Method: the node `disk` is made in the data's directory, so that it is bind-mounted as any data is;
//! the container's device cgroup lets this one device through. The device is an image file behind a
//! loop device, or one that the user gives up, as for a file system.
//!
//! Limits: with an engine or a guest there is no such node; a guest's own disks are kinds of theirs.

use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, mknodat, stat};
use tare_host::block;
use tare_host::journal::Entry;

use super::options::Options;
use super::{
    At, Found, Kind, Seen, Storage, StorageError, device, make_directory, need_program, reading,
};
use crate::runtime::Unavailable;

/// The node in the data's directory.
pub(super) const NODE: &str = "disk";

pub(super) const KIND: Kind = Kind {
    name: "raw",
    help: "a block device without a file system, for a system that writes to one itself (fio)",
    options: &[
        ("size", "of the image, such as 2G (default)"),
        (
            "device",
            "loop (default), or a device named with --destroy-data-on too, such as /dev/nvme1n1",
        ),
        ("allocate", "the image's blocks: sparse (default) or full"),
        ("direct_io", "of the loop device: yes (default) or no"),
    ],
    needs: "loop devices",
    cleanup: "loop device detached, image and node removed",
    read_back: "the node inside: its number is the device's; the device's size; direct I/O of the \
                loop device in sysfs",
    parse: Some(parse),
};

#[derive(Debug)]
struct Raw {
    bytes: u64,
    /// `None`: an image behind a loop device.
    device: Option<PathBuf>,
    full: bool,
    direct_io: bool,
}

fn parse(options: &Options<'_>) -> Result<Box<dyn Storage>, StorageError> {
    let device = options.device()?;
    if device.is_some() {
        for name in ["size", "allocate", "direct_io"] {
            options.refuse(name, "for a device, only for an image behind a loop device")?;
        }
    }
    Ok(Box::new(Raw {
        bytes: options.size("size", 2 << 30, 1 << 20, "a size in MiB of at least 1M")?,
        device,
        full: options.word("allocate", &["sparse", "full"], "sparse or full")? == 1,
        direct_io: options.flag("direct_io")?,
    }))
}

impl Raw {
    fn image(at: &At<'_>) -> PathBuf {
        at.folder.join("disk.img")
    }

    /// The device that is there now.
    fn found(&self, at: &At<'_>) -> Option<PathBuf> {
        match &self.device {
            Some(device) => Some(device.clone()),
            None => {
                let name = block::loops_of(&Self::image(at)).pop()?;
                Some(Path::new("/dev").join(name))
            }
        }
    }
}

impl Storage for Raw {
    fn needs(&self) -> Result<(), Unavailable> {
        match self.device {
            Some(_) => Ok(()),
            None => need_program("raw", "losetup", "mount"),
        }
    }

    fn device(&self) -> Option<&Path> {
        self.device.as_deref()
    }

    fn node(&self) -> Option<&'static str> {
        Some(NODE)
    }

    fn entries(&self, at: &At<'_>) -> Vec<Entry> {
        let image = self.device.is_none().then(|| Entry::LoopDevice { file: Self::image(at) });
        image.into_iter().collect()
    }

    fn make(&self, at: &At<'_>) -> Result<(), StorageError> {
        let device = match &self.device {
            Some(device) => {
                device::check(device, at.ground.destroy(), Path::new("/"))?;
                device.clone()
            }
            None => {
                let image = Self::image(at);
                super::backing::make_image(&image, self.bytes, self.full)?;
                block::attach(at.ground.run(), &image, self.direct_io)?
            }
        };
        make_directory(&at.data())?;
        let path = at.data().join(NODE);
        let fail = |error: rustix::io::Errno| StorageError::File {
            path: path.clone(),
            source: error.into(),
        };
        let number = stat(&device).map_err(fail)?.st_rdev;
        let mode = Mode::RUSR | Mode::WUSR;
        mknodat(CWD, &path, FileType::BlockDevice, mode, number).map_err(fail)
    }

    fn read_back(&self, at: &At<'_>, seen: &Seen) -> Found {
        let device = self.found(at);
        let number = device.as_deref().and_then(|device| stat(device).ok()).map(|of| of.st_rdev);
        let inside = stat(seen.path_of(NODE)).ok().map(|of| of.st_rdev);
        let bytes = device.as_deref().and_then(|device| block::size_bytes(device).ok());
        let read = |file| device.as_deref().and_then(|device| reading::sysfs(device, file));
        let scheduler = read("queue/scheduler").unwrap_or_else(|| "unreadable".into());
        let name = device.as_deref().map_or("none".into(), |device| device.display().to_string());
        let mut text = format!("block device {name} of {} bytes", bytes.unwrap_or_default());
        let mut in_force = number.is_some() && number == inside;
        if self.device.is_none() {
            let direct = read("loop/dio").unwrap_or_default();
            text += &format!("; the loop device's direct I/O: {direct}");
            in_force &= direct == if self.direct_io { "1" } else { "0" };
            in_force &= bytes == Some(self.bytes);
        }
        text += &format!("; scheduler: {scheduler}");
        Found { text, in_force }
    }
}

/// `MAJOR:MINOR` of the node in a data directory, for the container's device cgroup.
pub(crate) fn number_of(data: &Path) -> Option<(u32, u32)> {
    let number = stat(data.join(NODE)).ok()?.st_rdev;
    Some((rustix::fs::major(number), rustix::fs::minor(number)))
}
