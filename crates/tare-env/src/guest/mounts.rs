//! The usual mounts of a Linux system, and the mount of the data.

use std::ffi::CString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, mount};

use super::protocol::{DATA, DATA_MOUNT, Source};
use super::{GuestError, wait_for};

/// The mounts of every system, as (file system, path, options).
const SYSTEM: &[(&str, &str, &str)] = &[
    ("proc", "/proc", ""),
    ("sysfs", "/sys", ""),
    ("devtmpfs", "/dev", "mode=0755"),
    ("tmpfs", "/tmp", "mode=1777"),
    ("tmpfs", "/run", "mode=0755"),
    ("cgroup2", "/sys/fs/cgroup", ""),
];

pub(super) fn system() -> Result<(), GuestError> {
    SYSTEM.iter().try_for_each(|(kind, path, options)| {
        // Directories in sysfs are the kernel's own.
        let _ = fs::create_dir_all(path);
        mount_one(kind, Path::new(path), kind, options)
    })?;
    // AppArmor loads its profiles there. A kernel without security modules has no such directory.
    let security = Path::new("/sys/kernel/security");
    if security.exists() {
        mount_one("securityfs", security, "securityfs", "")?;
    }
    Ok(())
}

/// Mounts the data and creates the system's directory on it.
pub(super) fn data(source: &Source, filesystem: &str, options: &str) -> Result<(), GuestError> {
    let device = match source {
        Source::Disk(serial) => disk(serial)?.1.to_string_lossy().into_owned(),
        Source::Tag(tag) => tag.clone(),
    };
    let make = |path: &str| {
        fs::create_dir_all(path).map_err(|source| GuestError::File { path: path.into(), source })
    };
    make(DATA_MOUNT)?;
    mount_one(&device, Path::new(DATA_MOUNT), filesystem, options)?;
    make(DATA)
}

pub(super) fn mount_one(
    what: &str,
    path: &Path,
    kind: &str,
    options: &str,
) -> Result<(), GuestError> {
    let fail = |source| GuestError::Mount { what: what.into(), path: path.into(), source };
    let options = CString::new(options).map_err(|error| fail(io::Error::other(error)))?;
    mount(what, path, kind, MountFlags::empty(), Some(options.as_c_str()))
        .map_err(|error| fail(error.into()))
}

/// Waits for the disk with a serial number and returns its name (`vda`) and its device.
pub(super) fn disk(serial: &str) -> Result<(String, PathBuf), GuestError> {
    wait_for(&format!("disk with the serial number {serial}"), || {
        let disks = fs::read_dir("/sys/block").into_iter().flatten().flatten();
        disks.map(|entry| entry.path()).find_map(|folder| {
            // The paths for virtio-blk, NVMe and SCSI. SCSI's page has a binary header.
            let read = |name: &str| fs::read(folder.join(name)).unwrap_or_default();
            let found = ["serial", "device/serial", "device/vpd_pg80"].map(read);
            let ours = |bytes: &Vec<u8>| {
                let text = String::from_utf8_lossy(bytes);
                text.trim_matches(|c: char| c <= ' ').ends_with(serial)
            };
            found.iter().any(ours).then_some(())?;
            let name = folder.file_name()?.to_string_lossy().into_owned();
            let device = Path::new("/dev").join(&name);
            device.exists().then_some((name, device))
        })
    })
}
