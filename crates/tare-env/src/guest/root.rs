//! Switching to the host's root, so that all of the host's programs are there without an image.
//!
//! Method: the host shares its root read-only over 9p or hostfs. It becomes the lower layer of an
//! overlay whose upper layer is in memory, so writes work and do not reach the host. The usual
//! mounts are moved into the overlay, which then replaces the initramfs as the root, as
//! switch_root(8) does. The kernel runs its helper (modprobe) in the root of the first process, so
//! from then on modules are loaded on demand.
//!
//! Limits: the sockets of the host's daemons exist as files, but nothing listens on them.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use rustix::mount::{MountFlags, mount, mount_move};
use rustix::process::chroot;

use super::info::{GUEST_INFO_FILE, GuestInfo, RESULTS, SCRATCH};
use super::mounts::{disk, mount_one};
use super::protocol::{DATA_SERIAL, EXPORT_TAG, ROOT_TAG, Root, Share};
use super::{GuestError, facts, network};

/// The largest messages save round trips. The root does not change, so everything may be cached.
const ROOT_OPTIONS: &str = "trans=virtio,version=9p2000.L,msize=512000,cache=loose";

/// Without a cache, exported files are on the host once they are written.
const EXPORT_OPTIONS: &str = "trans=virtio,version=9p2000.L,msize=512000,cache=none";

/// The mounts of the initramfs that move to the new root.
const MOVED: &[&str] = &["/proc", "/sys", "/dev", "/run"];

/// The mounts that need the new root or its modules. Those that the kernel lacks are left out.
const MORE: &[(&str, &str, &str)] = &[
    ("devpts", "/dev/pts", "mode=0620,ptmxmode=0666"),
    ("tmpfs", "/dev/shm", "mode=1777"),
    ("mqueue", "/dev/mqueue", ""),
    ("configfs", "/sys/kernel/config", ""),
    ("debugfs", "/sys/kernel/debug", ""),
    ("tracefs", "/sys/kernel/tracing", ""),
    ("bpf", "/sys/fs/bpf", "mode=0700"),
];

pub(super) fn take(order: &Root) -> Result<(), GuestError> {
    for folder in ["/lower", "/upper", "/root"] {
        make(Path::new(folder))?;
    }
    let lower = Path::new("/lower");
    let fail = |what: &str, path: &Path, source: rustix::io::Errno| GuestError::Mount {
        what: what.into(),
        path: path.into(),
        source: source.into(),
    };
    let (kind, options, back_options) = match &order.share {
        Share::NineP => ("9p", ROOT_OPTIONS, EXPORT_OPTIONS.into()),
        // The only option is the directory. A file is on the host once it is closed.
        Share::Hostfs { export } => ("hostfs", "/", export.to_string_lossy()),
    };
    let options = std::ffi::CString::new(options).unwrap_or_default();
    mount(ROOT_TAG, lower, kind, MountFlags::RDONLY, Some(options.as_c_str()))
        .map_err(|error| fail(ROOT_TAG, lower, error))?;
    mount_one("tmpfs", Path::new("/upper"), "tmpfs", "mode=0755")?;
    make(Path::new("/upper/data"))?;
    make(Path::new("/upper/work"))?;
    let layers = "lowerdir=/lower,upperdir=/upper/data,workdir=/upper/work";
    mount_one("overlay", Path::new("/root"), "overlay", layers)?;
    for from in MOVED {
        let to = PathBuf::from(format!("/root{from}"));
        make(&to)?;
        mount_move(*from, &to).map_err(|error| fail(from, &to, error))?;
    }
    // Frees memory.
    let _ = fs::remove_dir_all("/modules");
    let new = Path::new("/root");
    let step = |error: rustix::io::Errno| fail("the host's root", new, error);
    rustix::process::chdir(new).map_err(step)?;
    mount_move(".", "/").map_err(step)?;
    chroot(".").map_err(step)?;
    rustix::process::chdir("/").map_err(step)?;

    let device = disk(DATA_SERIAL)?.1.to_string_lossy().into_owned();
    make(&order.disk)?;
    mount_one(&device, &order.disk, "ext4", "")?;
    make(Path::new(SCRATCH))?;
    make(Path::new(RESULTS))?;
    make(&order.export)?;
    mount_one(EXPORT_TAG, &order.export, kind, &back_options)?;
    if let Some(modules) = &order.modules {
        show_modules(modules)?;
        load(&order.load);
    }
    for (kind, path, options) in MORE {
        let _ = fs::create_dir_all(path);
        let _ = mount_one(kind, Path::new(path), kind, options);
    }
    network::set_up_loopback()?;
    // Records must not show the host's name.
    let _ = rustix::system::sethostname(b"tare-guest");
    write_info(order)
}

fn make(path: &Path) -> Result<(), GuestError> {
    fs::create_dir_all(path).map_err(|source| GuestError::File { path: path.into(), source })
}

/// Links the kernel's modules to modprobe's directory, and creates the device files that load a
/// module when they are opened (`modules.devname`, kmod's static-nodes). udev creates them on other
/// systems.
fn show_modules(modules: &Path) -> Result<(), GuestError> {
    let place = Path::new("/lib/modules").join(facts::kernel());
    if !place.exists() {
        make(Path::new("/lib/modules"))?;
        symlink(modules, &place)
            .map_err(|source| GuestError::File { path: place.clone(), source })?;
    }
    let list = fs::read_to_string(place.join("modules.devname")).unwrap_or_default();
    for (name, kind, major, minor) in list.lines().filter_map(device_file) {
        let path = Path::new("/dev").join(name);
        let _ = path.parent().map(fs::create_dir_all);
        let mode = Mode::RUSR | Mode::WUSR;
        // An existing file is the kernel's.
        let _ = mknodat(CWD, &path, kind, mode, makedev(major, minor));
    }
    Ok(())
}

/// Parses a line such as `loop loop-control c10:237` into name, kind and numbers.
fn device_file(line: &str) -> Option<(&str, FileType, u32, u32)> {
    let mut words = line.split(' ').skip(1);
    let (name, numbers) = (words.next()?, words.next()?);
    let kind = match numbers.chars().next()? {
        'c' => FileType::CharacterDevice,
        'b' => FileType::BlockDevice,
        _ => return None,
    };
    let (major, minor) = numbers.get(1..)?.split_once(':')?;
    Some((name, kind, major.parse().ok()?, minor.parse().ok()?))
}

fn load(names: &[String]) {
    for name in names {
        let _ = Command::new("/sbin/modprobe").args(["--quiet", name]).status();
    }
}

/// Writes the description of the guest for the programs in it.
fn write_info(order: &Root) -> Result<(), GuestError> {
    let device = |serial: &String| disk(serial).map(|(_, path)| path);
    let here = GuestInfo {
        kernel: facts::kernel(),
        accelerator: order.accelerator.clone(),
        devices: order.devices.iter().map(device).collect::<Result<_, _>>()?,
        export: order.export.clone(),
    };
    let path = PathBuf::from(GUEST_INFO_FILE);
    let text = serde_json::to_string(&here).map_err(io::Error::other);
    let written = text.and_then(|text| {
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(&path, text)
    });
    written.map_err(|source| GuestError::File { path, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_files_are_parsed() {
        let loops = device_file("loop loop-control c10:237");
        assert_eq!(loops, Some(("loop-control", FileType::CharacterDevice, 10, 237)));
        let mapper = device_file("dm_mod mapper/control c10:236");
        assert_eq!(mapper, Some(("mapper/control", FileType::CharacterDevice, 10, 236)));
        assert_eq!(device_file("# Device nodes to trigger on-demand module loading."), None);
    }
}
