//! Block devices that a run creates (loop devices on files and device mapper mappings), and the
//! disk below a path.
//!
//! Method: `losetup` and `dmsetup` create them, so that no ioctl is built by hand; sysfs lists
//! existing ones. A loop device has no name of its own: the file behind it, which is below the
//! run's work directory, identifies it.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use tare_std::mountinfo;

use crate::RUN_VARIABLE;
use crate::exec::{Command, ExecError};

/// The unit of /sys/class/block/X/size and of device mapper tables for every device.
pub const SECTOR_BYTES: u64 = 512;

/// How long a detached device may stay in use by a file system that is being unmounted.
const DETACH_LIMIT: Duration = Duration::from_secs(10);

/// Why a block device could not be created or removed.
#[derive(Debug, thiserror::Error)]
pub enum BlockError {
    #[error("cannot create a loop device of {}", .file.display())]
    Attach { file: PathBuf, source: ExecError },
    #[error("losetup named no device for {}, but said {said:?}", .file.display())]
    NoDevice { file: PathBuf, said: String },
    #[error("cannot detach the loop device of {}", .file.display())]
    Detach { file: PathBuf, source: ExecError },
    #[error(
        "{device} of {} is still in use, perhaps by a mount in another namespace; try tare clean \
         later",
        .file.display()
    )]
    InUse { file: PathBuf, device: String },
    #[error("cannot remove the mapping {name}")]
    Unmap { name: String, source: ExecError },
    #[error("cannot create the mapping {name}")]
    Map { name: String, source: ExecError },
}

/// Attaches a loop device to a file and returns its path, such as `/dev/loop3`.
///
/// # Errors
/// When no loop device is free, or `direct_io` is set and the file system does not support it.
pub fn attach(run: &str, file: &Path, direct_io: bool) -> Result<PathBuf, BlockError> {
    let direct = if direct_io { "--direct-io=on" } else { "--direct-io=off" };
    let command = Command::new("losetup").args(["--find", "--show", direct]).arg(file);
    let output = command
        .variable(RUN_VARIABLE, run)
        .run()
        .map_err(|source| BlockError::Attach { file: file.into(), source })?;
    let device = PathBuf::from(output.stdout.trim());
    match device.starts_with("/dev") {
        true => Ok(device),
        false => Err(BlockError::NoDevice { file: file.into(), said: output.stdout }),
    }
}

/// Lists every loop device in use, such as `loop3`, with its backing file, which may be deleted.
pub fn loops() -> Vec<(String, PathBuf)> {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let with_file = |name: String| {
        let file = fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).ok()?;
        let file = file.trim_end_matches('\n').trim_end_matches(" (deleted)");
        Some((name, PathBuf::from(file)))
    };
    let names = devices.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter_map(with_file).collect()
}

/// Names of the loop devices on a file.
pub fn loops_of(file: &Path) -> Vec<String> {
    let on_file = loops().into_iter().filter(|(_, found)| found == file);
    on_file.map(|(name, _)| name).collect()
}

/// Detaches every loop device of a file and waits until they are gone. Idempotent.
pub(crate) fn detach(file: &Path) -> Result<(), BlockError> {
    let deadline = Instant::now() + DETACH_LIMIT;
    loop {
        let Some(device) = loops_of(file).pop() else { return Ok(()) };
        let detached = Command::new("losetup").args(["--detach", &format!("/dev/{device}")]).run();
        // The kernel detaches a device in use when its last user closes it (LO_FLAGS_AUTOCLEAR).
        let still = || loops_of(file).contains(&device);
        match detached {
            Err(source) if still() && Instant::now() > deadline => {
                return Err(BlockError::Detach { file: file.into(), source });
            }
            Ok(_) if still() && Instant::now() > deadline => {
                return Err(BlockError::InUse { file: file.into(), device });
            }
            _ if still() => thread::sleep(Duration::from_millis(20)),
            _ => {}
        }
    }
}

/// Creates a mapping with this table (dmsetup(8)); the device is `/dev/mapper/NAME`.
///
/// # Errors
/// When the kernel refuses the table.
pub fn map(run: &str, name: &str, table: &str) -> Result<PathBuf, BlockError> {
    let command = dmsetup().args(["create", name, "--table", table]).variable(RUN_VARIABLE, run);
    command.run().map_err(|source| BlockError::Map { name: name.into(), source })?;
    Ok(Path::new("/dev/mapper").join(name))
}

/// Sends a message to a mapping, such as `create_thin 0` to a pool.
///
/// # Errors
/// When the target refuses it.
pub fn message(run: &str, name: &str, message: &str) -> Result<(), BlockError> {
    let command = dmsetup().args(["message", name, "0", message]).variable(RUN_VARIABLE, run);
    command.run().map(drop).map_err(|source| BlockError::Map { name: name.into(), source })
}

/// Removes a mapping. Idempotent. While its file system is being unmounted the mapping is busy for
/// a moment, for which `--retry` waits.
pub(crate) fn unmap(name: &str) -> Result<(), BlockError> {
    if !is_mapped(name) {
        return Ok(());
    }
    match dmsetup().args(["remove", "--retry", name]).run() {
        Err(source) if is_mapped(name) => Err(BlockError::Unmap { name: name.into(), source }),
        _ => Ok(()),
    }
}

/// Lists the names of all device mapper mappings.
pub fn mappings() -> Vec<String> {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let name = |path: PathBuf| fs::read_to_string(path.join("dm/name")).ok();
    devices.filter_map(|device| Some(name(device.path())?.trim_end().to_string())).collect()
}

fn is_mapped(name: &str) -> bool {
    mappings().iter().any(|mapping| mapping == name)
}

/// The `dmsetup` command. Where udev does not run, it must be disabled, or dmsetup waits for udev
/// and creates no node below /dev/mapper.
fn dmsetup() -> Command {
    match Path::new("/run/udev/control").exists() {
        true => Command::new("dmsetup"),
        false => Command::new("dmsetup").variable("DM_DISABLE_UDEV", "1"),
    }
}

/// Returns the size of a block device in bytes.
///
/// # Errors
/// When sysfs does not have it.
pub fn size_bytes(device: &Path) -> io::Result<u64> {
    let name = device.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let text = fs::read_to_string(format!("/sys/class/block/{name}/size"))?;
    let sectors: u64 = text.trim().parse().map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(sectors * SECTOR_BYTES)
}

/// A whole disk: the device that has a queue, which the kernel's I/O controller limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Such as `vda`.
    pub name: String,
    /// Such as `254:0`.
    pub number: String,
}

impl Disk {
    /// Returns the whole disk below a file or directory, or that of a device node. A loop device or
    /// a mapping is a disk of its own. `None` if no block device is below it, such as on a tmpfs,
    /// an overlay or a network file system.
    ///
    /// # Errors
    /// When the path or the mount table cannot be read.
    pub fn below(path: &Path) -> io::Result<Option<Self>> {
        let found = fs::metadata(path)?;
        let device = match found.file_type().is_block_device() {
            true => found.rdev(),
            false => found.dev(),
        };
        if let Some(disk) = Self::of_number(device) {
            return Ok(Some(disk));
        }
        // btrfs reports a number of its own for each subvolume.
        let table = fs::read_to_string("/proc/self/mountinfo")?;
        let path = fs::canonicalize(path)?;
        let source = mountinfo::mount_of(&table, &path).map(|mount| mount.source);
        let source = source.and_then(|source| fs::metadata(source).ok());
        let device = source.filter(|found| found.file_type().is_block_device());
        Ok(device.and_then(|device| Self::of_number(device.rdev())))
    }

    fn of_number(device: u64) -> Option<Self> {
        let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
        let mut folder = fs::canonicalize(format!("/sys/dev/block/{number}")).ok()?;
        if folder.join("partition").exists() {
            folder.pop();
        }
        let number = fs::read_to_string(folder.join("dev")).ok()?.trim().to_string();
        let name = folder.file_name()?.to_string_lossy().into_owned();
        Some(Self { name, number })
    }

    /// Returns its I/O scheduler, such as `bfq`; `none` if it has none.
    pub fn scheduler(&self) -> String {
        let text = fs::read_to_string(format!("/sys/block/{}/queue/scheduler", self.name));
        let text = text.unwrap_or_default();
        let active = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        active.map_or("none", |(active, _)| active).to_string()
    }
}

impl fmt::Display for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/dev/{} ({})", self.name, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_disk_of_each_device() {
        assert_eq!(Disk::below(Path::new("/proc")).unwrap(), None);
        assert!(Disk::below(Path::new("/no/such/path")).is_err());
        for entry in fs::read_dir("/sys/block").unwrap().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let node = Path::new("/dev").join(&name);
            // A container has no nodes of the host's devices.
            if !node.exists() {
                continue;
            }
            let disk = Disk::below(&node).unwrap().unwrap();
            assert_eq!(disk.name, name);
            assert!(disk.number.contains(':') && !disk.scheduler().is_empty(), "{disk}");
        }
    }
}
