//! Checks whether a block device may be overwritten: the user named it and nothing uses it.
//!
//! Method: reads the kernel's lists below a root that tests can choose: mounts, swaps, and the
//! holders of the device and of its partitions (device mapper, md, bcache). Then opens the device
//! for exclusive use, which the kernel refuses for every other use (a btrfs of several devices, a
//! running swap). mkfs relies on the same refusal.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use tare_std::mountinfo;

/// Why a device must not be overwritten.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    #[error(
        "all data on {} would be destroyed; to allow that, add --destroy-data-on {}",
        .device.display(), .device.display()
    )]
    NotNamed { device: PathBuf },
    #[error("{} is not a block device", .device.display())]
    NoBlockDevice { device: PathBuf },
    #[error("cannot inspect {}", .device.display())]
    Look { device: PathBuf, source: io::Error },
    #[error("{} is left alone: {part} is mounted on {point}", .device.display())]
    Mounted { device: PathBuf, part: String, point: String },
    #[error("{} is left alone: {part} holds the root file system", .device.display())]
    Root { device: PathBuf, part: String },
    #[error("{} is left alone: {part} is swap space (/proc/swaps)", .device.display())]
    Swap { device: PathBuf, part: String },
    #[error("{} is left alone: {part} is part of {holder} (device mapper, md or another)", .device.display())]
    Held { device: PathBuf, part: String, holder: String },
    #[error("{} is left alone: it is read-only", .device.display())]
    ReadOnly { device: PathBuf },
    #[error("{} is left alone: the kernel reports that it is in use", .device.display())]
    InUse { device: PathBuf, source: io::Error },
}

/// Checks that the user named a device and that nothing uses it. `root` is the directory that holds
/// /proc and /sys.
///
/// # Errors
/// The first check that fails.
pub fn check(device: &Path, named: &[PathBuf], root: &Path) -> Result<(), DeviceError> {
    let look = |source| DeviceError::Look { device: device.into(), source };
    let real = fs::canonicalize(device).map_err(look)?;
    let is_it = |other: &PathBuf| fs::canonicalize(other).is_ok_and(|other| other == real);
    if !named.iter().any(is_it) {
        return Err(DeviceError::NotNamed { device: device.into() });
    }
    if !fs::metadata(&real).map_err(look)?.file_type().is_block_device() {
        return Err(DeviceError::NoBlockDevice { device: device.into() });
    }
    let name = real.file_name().unwrap_or_default().to_string_lossy().into_owned();
    is_unused(device, &name, root)?;
    // The kernel refuses O_EXCL without O_CREAT on a block device in use (open(2)).
    let exclusive = File::options().read(true).custom_flags(exclusive_flag()).open(&real);
    exclusive.map(drop).map_err(|source| DeviceError::InUse { device: device.into(), source })
}

/// O_EXCL as the `i32` that the standard library takes.
fn exclusive_flag() -> i32 {
    i32::try_from(rustix::fs::OFlags::EXCL.bits()).unwrap_or_default()
}

/// The checks that read the kernel's lists.
fn is_unused(device: &Path, name: &str, root: &Path) -> Result<(), DeviceError> {
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let class = root.join("sys/class/block").join(name);
    let parts = parts(&class, name);
    let device = || device.to_path_buf();

    let mounts = read("proc/self/mountinfo");
    for mountinfo::Mount { number, point, source, .. } in mountinfo::mounts(&mounts) {
        let source_name = source.strip_prefix("/dev/").unwrap_or(Path::new(""));
        let is_it = |part: &&Part| part.number == number || Path::new(&part.name) == source_name;
        let Some(part) = parts.iter().find(is_it) else { continue };
        let part = part.name.clone();
        return Err(match point == Path::new("/") {
            true => DeviceError::Root { device: device(), part },
            false => {
                let point = point.display().to_string();
                DeviceError::Mounted { device: device(), part, point }
            }
        });
    }
    for line in read("proc/swaps").lines().skip(1) {
        let swap = line.split_whitespace().next().unwrap_or_default();
        if let Some(part) = parts.iter().find(|part| swap == format!("/dev/{}", part.name)) {
            return Err(DeviceError::Swap { device: device(), part: part.name.clone() });
        }
    }
    for part in &parts {
        let holders = fs::read_dir(part.folder.join("holders")).into_iter().flatten().flatten();
        if let Some(holder) = holders.into_iter().next() {
            let holder = holder.file_name().to_string_lossy().into_owned();
            return Err(DeviceError::Held { device: device(), part: part.name.clone(), holder });
        }
    }
    match fs::read_to_string(class.join("ro")) {
        Ok(text) if text.trim() != "0" => Err(DeviceError::ReadOnly { device: device() }),
        _ => Ok(()),
    }
}

/// The device, or one of its partitions.
struct Part {
    name: String,
    /// `MAJOR:MINOR`.
    number: String,
    folder: PathBuf,
}

fn parts(class: &Path, name: &str) -> Vec<Part> {
    let part = |name: String, folder: PathBuf| {
        let number = fs::read_to_string(folder.join("dev")).unwrap_or_default();
        Part { name, number: number.trim().into(), folder }
    };
    let mut parts = vec![part(name.into(), class.into())];
    for entry in fs::read_dir(class).into_iter().flatten().flatten() {
        if entry.path().join("partition").exists() {
            parts.push(part(entry.file_name().to_string_lossy().into_owned(), entry.path()));
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host on which `vdb` has one partition, with these lists.
    fn host(mounts: &str, swaps: &str, holder: Option<&str>) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/self/mountinfo", mounts);
        write("proc/swaps", &format!("Filename Type Size Used Priority\n{swaps}"));
        write("sys/class/block/vdb/dev", "254:16\n");
        write("sys/class/block/vdb/ro", "0\n");
        write("sys/class/block/vdb/vdb1/dev", "254:17\n");
        write("sys/class/block/vdb/vdb1/partition", "1\n");
        if let Some(holder) = holder {
            write(&format!("sys/class/block/{holder}"), "");
        }
        root
    }

    fn refusal(mounts: &str, swaps: &str, holder: Option<&str>) -> String {
        let root = host(mounts, swaps, holder);
        let result = is_unused(Path::new("/dev/vdb"), "vdb", root.path());
        result.err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn refuses_device_in_use_with_reason() {
        let root = "1 0 254:0 / / rw - ext4 /dev/vda rw";
        for (mounts, swaps, holder, words) in [
            ("1 0 254:17 / / rw - ext4 /dev/root rw", "", None, "vdb1 holds the root"),
            ("2 1 254:16 / /srv rw - xfs /dev/vdb rw", "", None, "vdb is mounted on /srv"),
            ("2 1 0:44 / /srv rw - btrfs /dev/vdb1 rw", "", None, "vdb1 is mounted on /srv"),
            (root, "/dev/vdb1 partition 1 0 -2\n", None, "vdb1 is swap"),
            (root, "", Some("vdb/holders/dm-0"), "vdb is part of dm-0"),
            (root, "", Some("vdb/vdb1/holders/md0"), "vdb1 is part of md0"),
        ] {
            let said = refusal(mounts, swaps, holder);
            assert!(said.contains(words), "{words:?} in {said:?}");
        }
        assert_eq!(refusal(root, "/dev/vda2 partition 1 0 -2\n", None), "");
    }

    #[test]
    fn refuses_unnamed_device() {
        let said = check(Path::new("/dev/null"), &[], Path::new("/")).unwrap_err().to_string();
        assert!(said.contains("--destroy-data-on /dev/null"), "{said}");
        let named = [PathBuf::from("/dev/null")];
        let said = check(Path::new("/dev/null"), &named, Path::new("/")).unwrap_err().to_string();
        assert!(said.contains("not a block device"), "{said}");
    }
}
