//! The options of `--inside`, such as `vm:qemu,memory=2G,nvme=1G` or `vm:uml`.

use std::path::PathBuf;
use std::str::FromStr;

use tare_std::units::{UnitError, parse_bytes};

use crate::runtime::vm::{AcceleratorChoice, MonitorKind, Shape};

/// The names of all options.
const KNOWN: &str = "vcpus, nodes, threads, memory, disk, raw, nvme, accelerator, kernel";

/// The options that only QEMU has. A user-mode kernel runs on one CPU.
const OF_QEMU: &[&str] = &["vcpus", "nodes", "threads", "nvme", "accelerator"];

/// The smallest guest that boots with two copies of the program in memory.
const MEMORY_BYTES_MIN: u64 = 512 << 20;

/// Why the options of a guest are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    #[error("{word:?} is not a kind of guest; write vm:qemu or vm:uml")]
    Guest { word: String },
    #[error("{word:?} is not NAME=VALUE")]
    Pair { word: String },
    #[error("there is no option {name:?}; known options: {KNOWN}")]
    Unknown { name: String },
    #[error("user-mode Linux has no {name}; leave it out, or write vm:qemu")]
    OfQemu { name: String },
    #[error("{name}={value} is not a size")]
    Size { name: String, value: String, source: UnitError },
    #[error(
        "nodes={nodes} and threads={threads} need a multiple of {each} vCPUs; write vcpus={each} or \
         another"
    )]
    Shape { nodes: u32, threads: u32, each: u32 },
    #[error("{name}={value} is not {wanted}")]
    Value { name: String, value: String, wanted: &'static str },
}

/// The options of a guest, with their defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub(crate) monitor: MonitorKind,
    /// `None` means as many as this process may use.
    pub vcpus: Option<u32>,
    pub(crate) shape: Shape,
    /// `None` means half of the available memory, at most 4 GiB.
    pub memory_bytes: Option<u64>,
    /// The size of the disk for state and scratch files.
    pub disk_bytes: u64,
    /// The size of an empty virtio disk that a study may overwrite.
    pub raw_bytes: Option<u64>,
    /// The size of an empty emulated NVMe disk that a study may overwrite.
    pub nvme_bytes: Option<u64>,
    pub(crate) accelerator: AcceleratorChoice,
    pub kernel: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            monitor: MonitorKind::Qemu,
            vcpus: None,
            shape: Shape::default(),
            memory_bytes: None,
            disk_bytes: 8 << 30,
            raw_bytes: None,
            nvme_bytes: None,
            accelerator: AcceleratorChoice::Auto,
            kernel: None,
        }
    }
}

impl FromStr for Options {
    type Err = OptionsError;

    fn from_str(text: &str) -> Result<Self, OptionsError> {
        let mut words = text.split(',');
        let guest = words.next().unwrap_or_default();
        let monitor = guest.strip_prefix("vm:").and_then(MonitorKind::parse);
        let monitor = monitor.ok_or_else(|| OptionsError::Guest { word: guest.into() })?;
        let mut options = Self { monitor, ..Self::default() };
        for word in words {
            let (name, value) =
                word.split_once('=').ok_or_else(|| OptionsError::Pair { word: word.into() })?;
            if monitor == MonitorKind::Uml && OF_QEMU.contains(&name) {
                return Err(OptionsError::OfQemu { name: name.into() });
            }
            let bad =
                |wanted| OptionsError::Value { name: name.into(), value: value.into(), wanted };
            let size = |least: u64, wanted| {
                let bytes = parse_bytes(value).map_err(|source| OptionsError::Size {
                    name: name.into(),
                    value: value.into(),
                    source,
                })?;
                // Whole MiB, as QEMU counts.
                if bytes >= least { Ok(bytes & !0xf_ffff) } else { Err(bad(wanted)) }
            };
            match name {
                "vcpus" => {
                    let count = value.parse().ok().filter(|count| (1..=1024).contains(count));
                    options.vcpus = Some(count.ok_or_else(|| bad("a number from 1 to 1024"))?);
                }
                "nodes" | "threads" => {
                    let count = value.parse().ok().filter(|count| (1..=64).contains(count));
                    let count: u32 = count.ok_or_else(|| bad("a number from 1 to 64"))?;
                    let shape = &mut options.shape;
                    *(if name == "nodes" { &mut shape.nodes } else { &mut shape.threads }) = count;
                }
                "memory" => {
                    options.memory_bytes = Some(size(MEMORY_BYTES_MIN, "a size of at least 512M")?);
                }
                "disk" => options.disk_bytes = size(1 << 30, "a size of at least 1G")?,
                "raw" => options.raw_bytes = Some(size(64 << 20, "a size of at least 64M")?),
                "nvme" => options.nvme_bytes = Some(size(64 << 20, "a size of at least 64M")?),
                "accelerator" => {
                    options.accelerator = match value {
                        "auto" => AcceleratorChoice::Auto,
                        "kvm" => AcceleratorChoice::Kvm,
                        "tcg" => AcceleratorChoice::Tcg,
                        _ => return Err(bad("auto, kvm or tcg")),
                    }
                }
                "kernel" => options.kernel = Some(value.into()),
                _ => return Err(OptionsError::Unknown { name: name.into() }),
            }
        }
        let Shape { nodes, threads } = options.shape;
        let each = nodes * threads;
        if each > 1 && options.vcpus.is_none_or(|vcpus| !vcpus.is_multiple_of(each)) {
            return Err(OptionsError::Shape { nodes, threads, each });
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_parsed() {
        assert_eq!("vm:qemu".parse(), Ok(Options::default()));
        let typed: Options = "vm:qemu,vcpus=3,memory=1G,raw=64M,accelerator=tcg".parse().unwrap();
        assert_eq!((typed.vcpus, typed.memory_bytes), (Some(3), Some(1 << 30)));
        assert_eq!((typed.raw_bytes, typed.nvme_bytes), (Some(64 << 20), None));
        assert_eq!(typed.accelerator, AcceleratorChoice::Tcg);
        let typed: Options = "vm:qemu,vcpus=16,nodes=2,threads=2".parse().unwrap();
        assert_eq!(typed.shape, Shape { nodes: 2, threads: 2 });
        let typed: Options = "vm:uml,memory=1G,raw=64M".parse().unwrap();
        assert_eq!((typed.monitor, typed.raw_bytes), (MonitorKind::Uml, Some(64 << 20)));
    }

    #[test]
    fn errors_name_the_invalid_word() {
        for (text, part) in [
            ("vm:vmware", "write vm:qemu"),
            ("vm:uml,nvme=64M", "has no nvme"),
            ("vm:uml,vcpus=2", "has no vcpus"),
            ("vm:uml,nodes=2", "has no nodes"),
            ("vm:qemu,nodes=2", "write vcpus=2"),
            ("vm:qemu,vcpus=6,nodes=2,threads=2", "a multiple of 4 vCPUs"),
            ("vm:qemu,threads=0", "1 to 64"),
            ("vm:qemu,fast", "NAME=VALUE"),
            ("vm:qemu,colour=red", "known options: vcpus"),
            ("vm:qemu,memory=1M", "at least 512M"),
            ("vm:qemu,memory=much", "not a size"),
            ("vm:qemu,vcpus=0", "1 to 1024"),
        ] {
            let error = text.parse::<Options>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
