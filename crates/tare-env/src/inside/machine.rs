//! What the guest is made of: its devices as QEMU's words, its kernel's modules, its disks.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tare_host::RUN_VARIABLE;
use tare_host::exec::Command;

use super::{InsideError, Options};
use crate::guest::protocol::{DATA_SERIAL, HAND_BACK_TAG, ROOT_TAG};
use crate::runtime::vm::{DISK_FILE, Files, Kernel, Need, escaped, uml};

const fn need(name: &'static str, needed: bool) -> Need {
    Need { name, what: "taking the host's root", needed }
}

/// Modules that the guest needs until it has modprobe. The two of crc32c are what ext4 asks
/// modprobe for by another name.
pub(super) const NEEDS: &[Need] = &[
    need("9pnet_virtio", true),
    need("9p", true),
    need("overlay", true),
    need("virtio_blk", true),
    need("nvme", false),
    need("crc32c_generic", false),
    need("crc32c-intel", false),
    need("ext4", true),
];

/// The same for a user-mode kernel, which has built in what its devices and their file systems
/// need.
pub(super) const NEEDS_UML: &[Need] = &[need("overlay", true)];

/// Modules that nothing asks for by itself, and that storage needs.
pub(super) const LOAD: &[&str] = &["configfs", "dm_thin_pool"];

/// Serial numbers of the disks that may be written over.
pub(super) const RAW_SERIAL: &str = "tare-raw";
pub(super) const NVME_SERIAL: &str = "tare-nvme";

/// An index of many thousand modules takes its time on a slow disk.
const DEPMOD_LIMIT: Duration = Duration::from_secs(300);

/// The directory whose content is handed back.
pub(super) fn hand_back(folder: &Path) -> PathBuf {
    folder.join("hand-back")
}

/// Makes sure that modprobe finds its way among the kernel's modules: a kernel that was only
/// unpacked comes without that index, and gets it beside its modules, once.
pub(super) fn index_modules(kernel: &Kernel) -> Result<(), InsideError> {
    let Some(modules) = &kernel.modules else { return Ok(()) };
    if modules.join("modules.dep.bin").exists() {
        return Ok(());
    }
    // BASE/lib/modules/RELEASE
    let base = modules.ancestors().nth(3).unwrap_or(Path::new("/"));
    let command = Command::new("depmod").arg("--basedir").arg(base).arg(&kernel.release);
    command.time_limit(DEPMOD_LIMIT).run().map(drop).map_err(InsideError::Depmod)
}

/// Makes the disks, sparse. Only the one for state and scratch files gets a file system.
pub(super) fn make_disks(files: &Files, options: &Options, run: &str) -> Result<(), InsideError> {
    let make = |path: PathBuf, bytes: u64| -> Result<PathBuf, InsideError> {
        let made = File::create(&path).and_then(|file| file.set_len(bytes));
        made.map_err(|source| InsideError::File { path: path.clone(), source })?;
        Ok(path)
    };
    let disk = make(files.disk(), options.disk_bytes)?;
    // Laid out in full, so that the guest does not go on with it while something is measured.
    let words = ["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0"];
    let command = Command::new("mkfs.ext4").args(words).arg(disk).variable(RUN_VARIABLE, run);
    command.time_limit(Duration::from_secs(120)).run().map_err(InsideError::Disk)?;
    for (_, file, bytes) in given_up(files, options) {
        make(file, bytes)?;
    }
    let share = hand_back(&folder(files));
    fs::create_dir(&share).map_err(|source| InsideError::File { path: share, source })
}

fn folder(files: &Files) -> PathBuf {
    files.disk().parent().map(Path::to_path_buf).unwrap_or_default()
}

/// Serial number, file and size of each disk that may be written over.
fn given_up(files: &Files, options: &Options) -> Vec<(&'static str, PathBuf, u64)> {
    let disks = [(RAW_SERIAL, options.raw_bytes), (NVME_SERIAL, options.nvme_bytes)];
    let file = |serial: &str| folder(files).join(format!("{serial}.img"));
    disks.into_iter().filter_map(|(serial, bytes)| Some((serial, file(serial), bytes?))).collect()
}

/// Serial numbers of the disks that may be written over.
pub(super) fn serials(files: &Files, options: &Options) -> Vec<String> {
    given_up(files, options).into_iter().map(|(serial, ..)| serial.to_string()).collect()
}

/// The words of a user-mode kernel for its disks.
pub(super) fn user_mode_disks(files: &Files, options: &Options) -> Vec<String> {
    let mut disks = vec![(DISK_FILE.to_string(), DATA_SERIAL)];
    let name = |file: PathBuf| file.file_name().map(|name| name.to_string_lossy().into_owned());
    let given_up = given_up(files, options).into_iter();
    disks.extend(given_up.filter_map(|(serial, file, _)| Some((name(file)?, serial))));
    let word = |(number, (file, serial)): (usize, (String, &str))| {
        uml::disk_word(number, &file, serial, true)
    };
    disks.into_iter().enumerate().map(word).collect()
}

/// QEMU's words for the devices.
pub(super) fn devices(files: &Files, options: &Options) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut add = |name: &str, value: String| words.extend([format!("-{name}"), value]);
    // Several of the host's file systems are one here: their inode numbers are kept apart.
    let root = "path=/,security_model=passthrough,readonly=on,multidevs=remap";
    add("fsdev", format!("local,id=root,{root}"));
    add("device", format!("virtio-9p-pci,fsdev=root,mount_tag={ROOT_TAG}"));
    let share = escaped(&hand_back(&folder(files)));
    add("fsdev", format!("local,id=back,path={share},security_model=none"));
    add("device", format!("virtio-9p-pci,fsdev=back,mount_tag={HAND_BACK_TAG}"));
    let mut disk = |device: &str, serial: &str, file: &Path| {
        let cache = "cache.direct=on,cache.no-flush=off";
        let file = escaped(file);
        let node = format!("node-name={serial}-file,filename={file},aio=native");
        add("blockdev", format!("driver=file,{node},{cache}"));
        add("blockdev", format!("driver=raw,node-name={serial},file={serial}-file,{cache}"));
        add("device", format!("{device},drive={serial},serial={serial}"));
    };
    disk("virtio-blk-pci", DATA_SERIAL, &files.disk());
    for (serial, file, _) in given_up(files, options) {
        let device = if serial == NVME_SERIAL { "nvme" } else { "virtio-blk-pci" };
        disk(device, serial, &file);
    }
    words
}
