//! The parts of the guest: its devices as arguments, its kernel's modules, its disks.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tare_host::RUN_VARIABLE;
use tare_host::exec::Command;

use super::options::{Card, CardModel};
use super::{InsideError, Options};
use crate::guest::protocol::{DATA_SERIAL, EXPORT_TAG, ROOT_TAG};
use crate::runtime::vm::{DISK_FILE, Files, Kernel, Need, escaped, uml};

const fn need(name: &'static str, needed: bool) -> Need {
    Need { name, what: "taking the host's root", needed }
}

/// The modules that the guest needs before it has modprobe. ext4 requests the two of crc32c by
/// another name.
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

/// The same for a user-mode kernel, which has the drivers of its devices and file systems built in.
pub(super) const NEEDS_UML: &[Need] = &[need("overlay", true)];

/// The modules that storage needs and that the kernel does not request automatically.
const LOAD: &[&str] = &["configfs", "dm_thin_pool"];

/// The name of the guest's network card. Nothing renames it in the guest.
pub(super) const CARD: &str = "eth0";

/// Returns the modules that the guest loads once it has the host's root.
pub(super) fn load(options: &Options) -> Vec<String> {
    let card = options.card.iter().map(|card| card.model.module());
    LOAD.iter().copied().chain(card).map(String::from).collect()
}

/// Serial numbers of the overwritable disks.
pub(super) const RAW_SERIAL: &str = "tare-raw";
pub(super) const NVME_SERIAL: &str = "tare-nvme";

/// How long depmod may take. Many thousand modules take long on a slow disk.
const DEPMOD_LIMIT: Duration = Duration::from_secs(300);

/// Returns the host's path of the export directory.
pub(super) fn export(folder: &Path) -> PathBuf {
    folder.join("export")
}

/// Creates the index of the kernel's modules for modprobe, unless it exists. A kernel that is
/// unpacked but not installed has none.
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

/// Creates the sparse disks. Only the one for state and scratch files gets a file system.
pub(super) fn make_disks(files: &Files, options: &Options, run: &str) -> Result<(), InsideError> {
    let make = |path: PathBuf, bytes: u64| -> Result<PathBuf, InsideError> {
        let made = File::create(&path).and_then(|file| file.set_len(bytes));
        made.map_err(|source| InsideError::File { path: path.clone(), source })?;
        Ok(path)
    };
    let disk = make(files.disk(), options.disk_bytes)?;
    // Fully initialised, so that the guest does not do it during a measurement.
    let words = ["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0"];
    let command = Command::new("mkfs.ext4").args(words).arg(disk).variable(RUN_VARIABLE, run);
    command.time_limit(Duration::from_secs(120)).run().map_err(InsideError::Disk)?;
    for (_, file, bytes) in overwritable_disks(files, options) {
        make(file, bytes)?;
    }
    let share = export(&folder(files));
    fs::create_dir(&share).map_err(|source| InsideError::File { path: share, source })
}

fn folder(files: &Files) -> PathBuf {
    files.disk().parent().map(Path::to_path_buf).unwrap_or_default()
}

/// Returns serial number, file and size of each disk that a study may overwrite.
fn overwritable_disks(files: &Files, options: &Options) -> Vec<(&'static str, PathBuf, u64)> {
    let disks = [(RAW_SERIAL, options.raw_bytes), (NVME_SERIAL, options.nvme_bytes)];
    let file = |serial: &str| folder(files).join(format!("{serial}.img"));
    disks.into_iter().filter_map(|(serial, bytes)| Some((serial, file(serial), bytes?))).collect()
}

/// Returns the serial numbers of the overwritable disks.
pub(super) fn serials(files: &Files, options: &Options) -> Vec<String> {
    overwritable_disks(files, options).into_iter().map(|(serial, ..)| serial.to_string()).collect()
}

/// Returns the arguments of a user-mode kernel for its disks.
pub(super) fn user_mode_disks(files: &Files, options: &Options) -> Vec<String> {
    let mut disks = vec![(DISK_FILE.to_string(), DATA_SERIAL)];
    let name = |file: PathBuf| file.file_name().map(|name| name.to_string_lossy().into_owned());
    let overwritable_disks = overwritable_disks(files, options).into_iter();
    disks.extend(overwritable_disks.filter_map(|(serial, file, _)| Some((name(file)?, serial))));
    let word = |(number, (file, serial)): (usize, (String, &str))| {
        uml::disk_word(number, &file, serial, true)
    };
    disks.into_iter().enumerate().map(word).collect()
}

/// Returns QEMU's arguments for the devices.
pub(super) fn devices(files: &Files, options: &Options) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut add = |name: &str, value: String| words.extend([format!("-{name}"), value]);
    // The share joins several of the host's file systems, so inode numbers are remapped.
    let root = "path=/,security_model=passthrough,readonly=on,multidevs=remap";
    add("fsdev", format!("local,id=root,{root}"));
    add("device", format!("virtio-9p-pci,fsdev=root,mount_tag={ROOT_TAG}"));
    let share = escaped(&export(&folder(files)));
    add("fsdev", format!("local,id=back,path={share},security_model=none"));
    add("device", format!("virtio-9p-pci,fsdev=back,mount_tag={EXPORT_TAG}"));
    let mut disk = |device: &str, serial: &str, file: &Path| {
        let cache = "cache.direct=on,cache.no-flush=off";
        let file = escaped(file);
        let node = format!("node-name={serial}-file,filename={file},aio=native");
        add("blockdev", format!("driver=file,{node},{cache}"));
        add("blockdev", format!("driver=raw,node-name={serial},file={serial}-file,{cache}"));
        add("device", format!("{device},drive={serial},serial={serial}"));
    };
    disk("virtio-blk-pci", DATA_SERIAL, &files.disk());
    for (serial, file, _) in overwritable_disks(files, options) {
        let device = if serial == NVME_SERIAL { "nvme" } else { "virtio-blk-pci" };
        disk(device, serial, &file);
    }
    words.extend(options.card.iter().flat_map(card));
    words
}

/// Returns QEMU's arguments for a network card. The tap device exists and belongs to the user, so
/// QEMU runs no script for it.
fn card(card: &Card) -> [String; 4] {
    let Card { tap, model, queues, .. } = card;
    let backend = format!("tap,id=network,ifname={tap},script=no,downscript=no,vhost=off");
    let device = "netdev=network,mac=52:54:00:74:61:72";
    let (backend, device) = match (model, queues) {
        (CardModel::VirtioNet, 2..) => {
            // A vector for each queue of each pair, one for changes of the device, one for control.
            let vectors = 2 * queues + 2;
            let queued = format!("{backend},queues={queues}");
            (queued, format!("virtio-net-pci,mq=on,vectors={vectors},{device}"))
        }
        (CardModel::VirtioNet, _) => (backend, format!("virtio-net-pci,{device}")),
        (CardModel::E1000e, _) => (backend, format!("e1000e,{device}")),
    };
    ["-netdev".into(), backend, "-device".into(), device]
}
