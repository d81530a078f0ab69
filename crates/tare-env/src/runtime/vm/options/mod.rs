//! The options of a virtual machine, `vm = { vcpus = 2, memory = "1G" }`, parsed and checked
//! against the other layers.

use std::path::PathBuf;

use tare_lab::environment::EnvironmentSpec;
use tare_lab::layer::Security;
use tare_std::units::parse_bytes;

use super::monitor::MonitorKind;
use crate::layer::Layers;
use tare_lab::layer::Network;

/// Every option as (name, one line).
pub const OPTIONS: &[(&str, &str)] = &[
    ("vcpus", "virtual CPUs (default: as many as the cpu layer allows; vm:uml has one)"),
    ("memory", "the guest's memory, such as 1G (default)"),
    ("disk", "size of the disk that holds the data, such as 2G (default)"),
    ("aio", "how QEMU does disk I/O: native (default), threads, io_uring"),
    (
        "cache",
        "cache mode of the disk: none (default), writeback, writethrough, directsync, unsafe; \
         vm:uml has writeback (default) and writethrough",
    ),
    ("iothread", "whether QEMU has a separate thread for the disk: yes (default), no"),
    ("huge_pages", "whether QEMU puts the guest's memory in huge pages: no (default), yes"),
    (
        "accelerator",
        "QEMU's accelerator: auto (default: KVM if a guest boots with it, else TCG), kvm, tcg",
    ),
    (
        "kernel",
        "the guest's kernel image (default: the host's own, else the one downloaded for guests); \
         for vm:uml the kernel's program (default: linux.uml)",
    ),
    (
        "container",
        "an OCI runtime of the host, such as runc or crun: the system runs in a container inside the guest",
    ),
];

/// Options that only QEMU has.
const OF_QEMU: &[&str] = &["aio", "iothread", "huge_pages", "accelerator"];

/// The smallest guest that boots with two copies of the program in memory.
const MEMORY_BYTES_MIN: u64 = 256 << 20;

/// The memory of the monitor itself, in addition to the guest's.
const MONITOR_BYTES: u64 = 192 << 20;

/// Why the options of a virtual machine are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    #[error(
        "environment {environment:?}: only a virtual machine has storage {kind:?}; \
         set runtime = \"{runtime}\""
    )]
    NoMachineForStorage { environment: String, kind: String, runtime: &'static str },
    #[error("environment {environment:?}: {runtime} has no storage {kind:?}; it has {known}")]
    Storage { environment: String, runtime: String, kind: String, known: String },
    #[error(
        "environment {environment:?}: only a virtual machine has vm options; set \
         runtime = \"vm:qemu\" or \"vm:uml\""
    )]
    NoMachine { environment: String },
    #[error(
        "environment {environment:?}: user-mode Linux has no {name}, only runtime = \"vm:qemu\" \
         has; leave it out"
    )]
    OfQemu { environment: String, name: String },
    #[error(
        "environment {environment:?}: user-mode Linux has no seccomp filter for its own process; \
         set security = \"none\""
    )]
    NoFilter { environment: String },
    #[error(
        "environment {environment:?}: a virtual machine has no option {name:?}; it has {known}"
    )]
    Unknown { environment: String, name: String, known: String },
    #[error("environment {environment:?}: {name} = {value:?} is not {wanted}")]
    Value { environment: String, name: String, value: String, wanted: &'static str },
    #[error(
        "environment {environment:?}: a guest does not share the host's network; \
         set network = \"bridge\""
    )]
    HostNetwork { environment: String },
    #[error(
        "environment {environment:?}: aio = \"native\" needs a cache mode that bypasses the \
         host's page cache: cache = \"none\" or \"directsync\""
    )]
    NativeThroughCache { environment: String },
    #[error(
        "environment {environment:?}: {memory_bytes} bytes for the guest and {MONITOR_BYTES} for \
         its monitor do not fit into the limit of {limit_bytes} bytes"
    )]
    Memory { environment: String, memory_bytes: u64, limit_bytes: u64 },
}

/// The accelerator that the study requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AcceleratorChoice {
    Auto,
    Kvm,
    Tcg,
}

impl AcceleratorChoice {
    /// Returns its name in a study.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }
}

/// The options with their defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) vcpus: Option<u32>,
    pub(crate) memory_bytes: u64,
    pub(crate) disk_bytes: u64,
    pub(crate) aio: String,
    pub(crate) cache: String,
    pub(crate) iothread: bool,
    pub(crate) huge_pages: bool,
    pub(crate) accelerator: AcceleratorChoice,
    pub(crate) kernel: Option<PathBuf>,
    /// The OCI runtime that runs the system inside.
    pub(crate) container: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            vcpus: None,
            memory_bytes: 1 << 30,
            disk_bytes: 2 << 30,
            aio: "native".into(),
            cache: "none".into(),
            iothread: true,
            huge_pages: false,
            accelerator: AcceleratorChoice::Auto,
            kernel: None,
            container: None,
        }
    }
}

impl Options {
    /// Returns the defaults of a monitor. A user-mode kernel accesses its disk through the host's
    /// page cache, in a separate process.
    fn of(monitor: MonitorKind) -> Self {
        match monitor {
            MonitorKind::Qemu => Self::default(),
            MonitorKind::Uml => Self {
                vcpus: Some(1),
                aio: "threads".into(),
                cache: "writeback".into(),
                ..Self::default()
            },
        }
    }

    /// Parses and checks the options of a virtual machine.
    pub(super) fn parse(
        spec: &EnvironmentSpec,
        layers: &Layers,
        monitor: MonitorKind,
    ) -> Result<Self, OptionError> {
        let environment = || spec.name.clone();
        let mut options = Self::of(monitor);
        let uml = monitor == MonitorKind::Uml;
        let mut aio_named = false;
        for (name, value) in &spec.vm {
            if uml && OF_QEMU.contains(&name.as_str()) {
                let name = name.clone();
                return Err(OptionError::OfQemu { environment: environment(), name });
            }
            let bad = |wanted| OptionError::Value {
                environment: environment(),
                name: name.clone(),
                value: value.clone(),
                wanted,
            };
            let size = |least: u64, wanted: &'static str| {
                let bytes = parse_bytes(value).ok().filter(|bytes| *bytes >= least);
                bytes.ok_or_else(|| bad(wanted))
            };
            match name.as_str() {
                "vcpus" if uml && value != "1" => {
                    return Err(bad("1: a user-mode kernel runs on one CPU"));
                }
                "vcpus" => {
                    let count = value.parse().ok().filter(|count| (1..=1024).contains(count));
                    options.vcpus = Some(count.ok_or_else(|| bad("a number from 1 to 1024"))?);
                }
                "memory" => {
                    // Whole MiB, as QEMU counts.
                    options.memory_bytes =
                        size(MEMORY_BYTES_MIN, "a size of at least 256M")? & !0xf_ffff;
                }
                "disk" => options.disk_bytes = size(64 << 20, "a size of at least 64M")?,
                "aio" => {
                    let known = ["native", "threads", "io_uring"];
                    options.aio =
                        word(value, &known).ok_or_else(|| bad("native, threads or io_uring"))?;
                    aio_named = true;
                }
                "cache" if uml => {
                    let known = ["writeback", "writethrough"];
                    options.cache = word(value, &known).ok_or_else(|| {
                        bad("writeback or writethrough, the modes of user-mode Linux")
                    })?;
                }
                "cache" => {
                    let known = ["none", "writeback", "writethrough", "directsync", "unsafe"];
                    options.cache = word(value, &known).ok_or_else(|| {
                        bad("none, writeback, writethrough, directsync or unsafe")
                    })?;
                }
                "iothread" => options.iothread = flag(value).ok_or_else(|| bad("yes or no"))?,
                "huge_pages" => options.huge_pages = flag(value).ok_or_else(|| bad("yes or no"))?,
                "accelerator" => {
                    options.accelerator = match value.as_str() {
                        "auto" => AcceleratorChoice::Auto,
                        "kvm" => AcceleratorChoice::Kvm,
                        "tcg" => AcceleratorChoice::Tcg,
                        _ => return Err(bad("auto, kvm or tcg")),
                    }
                }
                "kernel" => options.kernel = Some(value.into()),
                "container" => options.container = Some(value.clone()),
                _ => {
                    let known: Vec<&str> = OPTIONS.iter().map(|(name, _)| *name).collect();
                    let (name, known) = (name.clone(), known.join(", "));
                    return Err(OptionError::Unknown { environment: environment(), name, known });
                }
            }
        }
        if layers.network == Network::Host {
            return Err(OptionError::HostNetwork { environment: environment() });
        }
        if uml && layers.security != Security::None {
            return Err(OptionError::NoFilter { environment: environment() });
        }
        if options.aio == "native" && !options.direct() {
            if aio_named {
                return Err(OptionError::NativeThroughCache { environment: environment() });
            }
            options.aio = "threads".into();
        }
        match layers.limits.memory_bytes {
            Some(limit_bytes) if limit_bytes < options.memory_bytes + MONITOR_BYTES => {
                let memory_bytes = options.memory_bytes;
                Err(OptionError::Memory { environment: environment(), memory_bytes, limit_bytes })
            }
            _ => Ok(options),
        }
    }

    /// Returns whether the disk bypasses the host's page cache.
    pub(crate) fn direct(&self) -> bool {
        matches!(self.cache.as_str(), "none" | "directsync")
    }

    /// Returns whether the guest sees a disk with a write cache.
    pub(crate) fn write_cache(&self) -> bool {
        !matches!(self.cache.as_str(), "writethrough" | "directsync")
    }
}

fn word(value: &str, known: &[&str]) -> Option<String> {
    known.contains(&value).then(|| value.to_string())
}

fn flag(value: &str) -> Option<bool> {
    match value {
        "yes" | "true" => Some(true),
        "no" | "false" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
