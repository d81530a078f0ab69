//! The storage of the data in a guest: a disk image behind a virtual device, or a shared directory
//! of the host.

use std::fs::{self, File};

use tare_host::RUN_VARIABLE;
use tare_host::exec::Command;
use tare_lab::environment::{DIRECTORY, EnvironmentSpec, LayerState};
use tare_std::units::parse_bytes;

use super::error::VmError;
use super::kernel::Need;
use super::monitor::MonitorKind;
use super::options::{OptionError, Options};
use super::qemu::Files;
use super::qemu::{DISK_FILE, escaped};
use super::uml;
use crate::guest::protocol::{DATA_SERIAL, Facts, Order, Source};
use crate::run_context::RunContext;
use crate::storage::guest;
use crate::system::state;

/// The kind of storage, with its own options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Data {
    VirtioBlk,
    VirtioScsi,
    Nvme,
    /// A directory of the host over 9p. `msize` is the largest message in bytes.
    NineP {
        msize: u64,
        cache: String,
    },
    /// A directory of the host, served by a daemon with this cache mode.
    Virtiofs {
        cache: String,
    },
    /// The disk of user-mode Linux.
    Ubd,
    /// A directory of the host that user-mode Linux opens itself.
    Hostfs,
}

/// The modules of ext4. It requests the two of crc32c from modprobe by another name; the second
/// does not load on a CPU without the instruction.
const EXT4: [Need; 3] = [
    Need { name: "crc32c_generic", what: "ext4", needed: false },
    Need { name: "crc32c-intel", what: "ext4", needed: false },
    Need { name: "ext4", what: "its data", needed: true },
];

/// The largest message in a queue of 128 pages less 3 (net/9p/trans_virtio.c); the kernel reduces a
/// larger size.
const MSIZE_MAX: u64 = 4096 * 125;

const fn need(name: &'static str) -> Need {
    Need { name, what: "its data", needed: true }
}

impl Data {
    pub(super) fn parse(spec: &EnvironmentSpec, monitor: MonitorKind) -> Result<Self, OptionError> {
        let environment = || spec.name.clone();
        let storage = &spec.storage;
        let known = match monitor {
            MonitorKind::Qemu => guest::OF_QEMU,
            MonitorKind::Uml => guest::OF_UML,
        };
        let none = || {
            let names: Vec<&str> = known.iter().map(|kind| kind.name).collect();
            let runtime = format!("vm:{}", monitor.word());
            let (kind, known) = (storage.kind.clone(), names.join(", "));
            OptionError::Storage { environment: environment(), runtime, kind, known }
        };
        if storage.kind != DIRECTORY && !known.iter().any(|kind| kind.name == storage.kind) {
            return Err(none());
        }
        let option = |name: &str| {
            storage.options.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
        };
        let bad = |name: &str, value: &str, wanted| OptionError::Value {
            environment: environment(),
            name: name.into(),
            value: value.into(),
            wanted,
        };
        match storage.kind.as_str() {
            DIRECTORY if monitor == MonitorKind::Uml => Ok(Self::Ubd),
            kind if kind == guest::UBD.name => Ok(Self::Ubd),
            kind if kind == guest::HOSTFS.name => Ok(Self::Hostfs),
            DIRECTORY => Ok(Self::VirtioBlk),
            kind if kind == guest::VIRTIO_BLK.name => Ok(Self::VirtioBlk),
            kind if kind == guest::VIRTIO_SCSI.name => Ok(Self::VirtioScsi),
            kind if kind == guest::NVME.name => Ok(Self::Nvme),
            kind if kind == guest::NINE_P.name => {
                let size = option("msize").unwrap_or("512000");
                let msize = parse_bytes(size).ok().filter(|size| (4096..=MSIZE_MAX).contains(size));
                let msize = msize.ok_or_else(|| bad("msize", size, "a size from 4K to 512000"))?;
                let cache = option("cache").unwrap_or("mmap");
                if !["none", "loose", "mmap"].contains(&cache) {
                    return Err(bad("cache", cache, "none, loose or mmap"));
                }
                Ok(Self::NineP { msize, cache: cache.into() })
            }
            kind if kind == guest::VIRTIOFS.name => {
                let cache = option("cache").unwrap_or("auto");
                if !["auto", "always", "none"].contains(&cache) {
                    return Err(bad("cache", cache, "auto, always or none"));
                }
                Ok(Self::Virtiofs { cache: cache.into() })
            }
            _ => Err(none()),
        }
    }

    /// Returns whether the guest's memory is shared with a daemon.
    pub(super) fn shares_memory(&self) -> bool {
        matches!(self, Self::Virtiofs { .. })
    }

    /// Returns the modules that the guest needs for it.
    pub(super) fn needs(&self) -> Vec<Need> {
        let mut needs: Vec<Need> = match self {
            Self::VirtioBlk => vec![need("virtio_blk")],
            Self::VirtioScsi => vec![need("virtio_scsi"), need("sd_mod")],
            Self::Nvme => vec![need("nvme")],
            Self::NineP { .. } => return vec![need("9pnet_virtio"), need("9p")],
            Self::Virtiofs { .. } => return vec![need("virtiofs")],
            Self::Ubd => Vec::new(),
            Self::Hostfs => return vec![need("hostfs")],
        };
        needs.extend(EXT4);
        needs
    }

    /// Creates the disk image or the shared directory in the environment's directory. An image is a
    /// sparse file with a fully initialised ext4, so the guest does not initialise it during the
    /// measurement.
    pub(super) fn make(
        &self,
        context: &RunContext,
        files: &Files,
        options: &Options,
    ) -> Result<(), VmError> {
        if let Self::NineP { .. } | Self::Virtiofs { .. } | Self::Hostfs = self {
            let path = files.share();
            return fs::create_dir(&path).map_err(|source| VmError::File { path, source });
        }
        let path = files.disk();
        let made = File::create(&path).and_then(|file| file.set_len(options.disk_bytes));
        made.map_err(|source| VmError::File { path: path.clone(), source })?;
        let laid_out = "lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0";
        Command::new("mkfs.ext4")
            .args(["-q", "-F", "-E", laid_out])
            .arg(&path)
            .variable(RUN_VARIABLE, context.run())
            .run()?;
        Ok(())
    }

    /// Returns QEMU's arguments for it.
    pub(super) fn words(&self, files: &Files, options: &Options) -> Vec<String> {
        let mut words: Vec<String> = Vec::new();
        let mut add = |name: &str, value: String| words.extend([format!("-{name}"), value]);
        if let Self::NineP { .. } = self {
            let path = escaped(&files.share());
            add("fsdev", format!("local,id=share,path={path},security_model=passthrough"));
            add("device", format!("virtio-9p-pci,fsdev=share,mount_tag={DATA_SERIAL}"));
            return words;
        }
        if let Self::Virtiofs { .. } = self {
            add("chardev", format!("socket,id=share,path={}", escaped(&files.share_socket())));
            add("device", format!("vhost-user-fs-pci,chardev=share,tag={DATA_SERIAL}"));
            return words;
        }
        let on = |yes: bool| if yes { "on" } else { "off" };
        let no_flush = options.cache == "unsafe";
        let cache =
            format!("cache.direct={},cache.no-flush={}", on(options.direct()), on(no_flush));
        let (aio, path) = (&options.aio, escaped(&files.disk()));
        add("blockdev", format!("driver=file,node-name=file,filename={path},aio={aio},{cache}"));
        add("blockdev", format!("driver=raw,node-name=disk,file=file,{cache}"));
        let thread = if options.iothread { ",iothread=io" } else { "" };
        if options.iothread && *self != Self::Nvme {
            add("object", "iothread,id=io".into());
        }
        let write_cache = format!("write-cache={}", on(options.write_cache()));
        let disk = format!("drive=disk,serial={DATA_SERIAL}");
        match self {
            Self::VirtioScsi => {
                add("device", format!("virtio-scsi-pci,id=scsi{thread}"));
                add("device", format!("scsi-hd,bus=scsi.0,{disk},{write_cache}"));
            }
            // QEMU's NVMe has no I/O thread, and the guest sets its write cache.
            Self::Nvme => add("device", format!("nvme,{disk}")),
            _ => add("device", format!("virtio-blk-pci,{disk},{write_cache}{thread}")),
        }
        words
    }

    /// Returns the argument of a user-mode kernel for it, if it is a disk.
    pub(super) fn user_mode_word(&self, options: &Options) -> Option<String> {
        let word = || uml::disk_word(0, DISK_FILE, DATA_SERIAL, options.write_cache());
        (*self == Self::Ubd).then(word)
    }

    /// Returns the order that mounts it.
    pub(super) fn mount(&self, files: &Files) -> Order {
        let name = DATA_SERIAL.to_string();
        match self {
            Self::Hostfs => Order::Mount {
                source: Source::Tag(name),
                filesystem: "hostfs".into(),
                options: files.share().to_string_lossy().into_owned(),
            },
            Self::NineP { msize, cache } => Order::Mount {
                source: Source::Tag(name),
                filesystem: "9p".into(),
                options: format!("trans=virtio,version=9p2000.L,msize={msize},cache={cache}"),
            },
            Self::Virtiofs { .. } => Order::Mount {
                source: Source::Tag(name),
                filesystem: "virtiofs".into(),
                options: String::new(),
            },
            _ => Order::Mount {
                source: Source::Disk(name),
                filesystem: "ext4".into(),
                options: String::new(),
            },
        }
    }

    /// Compares it with what the guest reports.
    pub(super) fn read_back(&self, facts: &Facts, options: &Options) -> LayerState {
        let fact = |name: &str| {
            let fact = facts.disk.iter().find(|(key, _)| key == name);
            fact.map(|(_, value)| value.clone()).unwrap_or_default()
        };
        if let Self::NineP { msize, cache } = self {
            let wanted = format!("9p, msize = {msize}, cache = {cache}");
            // The kernel shows no cache mode for "none".
            let mode = *cache == "none" || facts.mount.contains(cache.as_str());
            let in_force = facts.mount.contains(" 9p ")
                && facts.mount.contains(&format!("msize={msize}"))
                && mode;
            return state("storage", &wanted, facts.mount.clone(), in_force);
        }
        if let Self::Virtiofs { cache } = self {
            let in_force = facts.mount.contains(" virtiofs ");
            return state(
                "storage",
                format!("virtiofs, cache = {cache}"),
                facts.mount.clone(),
                in_force,
            );
        }
        if *self == Self::Hostfs {
            let in_force = facts.mount.contains(" hostfs ");
            return state("storage", "hostfs", facts.mount.clone(), in_force);
        }
        let driver = match self {
            Self::Ubd => "uml-blkdev",
            Self::VirtioScsi => "sd",
            Self::Nvme => "nvme",
            _ => "virtio_blk",
        };
        let want_cache = if options.write_cache() { "write back" } else { "write through" };
        // NVMe's write cache is the guest's; that of user-mode Linux is read from the host.
        let cached = matches!(self, Self::Nvme | Self::Ubd) || fact("write_cache") == want_cache;
        let wanted = format!("ext4 by {driver}, cache = {}, aio = {}", options.cache, options.aio);
        let found = format!(
            "{}; driver {}, scheduler {}, cache {}",
            facts.mount,
            fact("driver"),
            fact("scheduler"),
            fact("write_cache")
        );
        let in_force = facts.mount.contains(" ext4 ") && fact("driver") == driver && cached;
        state("storage", &wanted, found, in_force)
    }
}
