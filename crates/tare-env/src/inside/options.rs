//! The options of `--inside`, such as `vm:qemu,memory=2G,nvme=1G` or `vm:uml`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use tare_std::units::{UnitError, parse_bytes};

use crate::runtime::vm::{AcceleratorChoice, MonitorKind, Shape};

/// The names of all options.
const KNOWN: &str = "vcpus, nodes, threads, memory, disk, raw, nvme, tap, queues, card, address, accelerator, kernel";

/// The options that only QEMU has. A user-mode kernel runs on one CPU.
const OF_QEMU: &[&str] =
    &["vcpus", "nodes", "threads", "nvme", "tap", "queues", "card", "address", "accelerator"];

/// The longest name of a network device (IFNAMSIZ of the kernel, without the zero).
const DEVICE_NAME_MAX: usize = 15;

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
    #[error("{name} is an option of the guest's network card; write tap=NAME too")]
    NoTap { name: &'static str },
    #[error("a card {card} has one queue; leave queues out, or write card=virtio-net")]
    OneQueue { card: &'static str },
    #[error("{name}={value} is not {wanted}")]
    Value { name: String, value: String, wanted: &'static str },
}

/// A network card of the guest, on a tap device of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// The name of the tap device, which exists. With several queues it was made with
    /// `multi_queue`.
    pub tap: String,
    pub model: CardModel,
    /// Pairs of a receive and a transmit queue.
    pub queues: u32,
    /// Its address in the guest with the length of the network's prefix. `None`: the command in
    /// the guest sets one.
    pub address: Option<(IpAddr, u8)>,
}

/// What a guest sees as its network card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CardModel {
    /// The paravirtual card, with as many queues as the tap device has.
    #[default]
    VirtioNet,
    /// Intel's 82574L, emulated: one queue, and a delay of its interrupt that can be set.
    E1000e,
}

impl CardModel {
    /// Returns its word in the options.
    fn word(self) -> &'static str {
        match self {
            Self::VirtioNet => "virtio-net",
            Self::E1000e => "e1000e",
        }
    }

    /// Returns the guest's module for it.
    pub(super) fn module(self) -> &'static str {
        match self {
            Self::VirtioNet => "virtio_net",
            Self::E1000e => "e1000e",
        }
    }
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
    /// The guest's network card.
    pub card: Option<Card>,
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
            card: None,
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
        let (mut tap, mut queues, mut model, mut address) = (None, None, None, None);
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
                "tap" => {
                    let fits = (1..=DEVICE_NAME_MAX).contains(&value.len())
                        && value.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
                    let wanted = "the name of a tap device";
                    tap = Some(fits.then(|| value.to_string()).ok_or_else(|| bad(wanted))?);
                }
                "queues" => {
                    let count = value.parse().ok().filter(|count| (1..=256).contains(count));
                    queues = Some(count.ok_or_else(|| bad("a number from 1 to 256"))?);
                }
                "card" => {
                    let all = [CardModel::VirtioNet, CardModel::E1000e];
                    let found = all.into_iter().find(|model| model.word() == value);
                    model = Some(found.ok_or_else(|| bad("virtio-net or e1000e"))?);
                }
                "address" => {
                    let wanted = "an address and the length of its prefix, such as 10.0.0.2/24";
                    address = Some(prefix(value).ok_or_else(|| bad(wanted))?);
                }
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
        options.card = card(tap, queues, model, address)?;
        Ok(options)
    }
}

/// Reads `ADDRESS/LENGTH`.
fn prefix(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let length: u8 = length.parse().ok()?;
    (length <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, length))
}

/// Returns the card that the options name.
fn card(
    tap: Option<String>,
    queues: Option<u32>,
    model: Option<CardModel>,
    address: Option<(IpAddr, u8)>,
) -> Result<Option<Card>, OptionsError> {
    let Some(tap) = tap else {
        let named = [
            ("queues", queues.is_some()),
            ("card", model.is_some()),
            ("address", address.is_some()),
        ];
        let alone = named.into_iter().find(|(_, named)| *named);
        return alone.map_or(Ok(None), |(name, _)| Err(OptionsError::NoTap { name }));
    };
    let (model, queues) = (model.unwrap_or_default(), queues.unwrap_or(1));
    if queues > 1 && model != CardModel::VirtioNet {
        return Err(OptionsError::OneQueue { card: model.word() });
    }
    Ok(Some(Card { tap, model, queues, address }))
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
        assert_eq!(typed.card, None);
        let typed: Options = "vm:qemu,tap=tap0,queues=4,address=10.1.0.2/24".parse().unwrap();
        let (tap, model) = ("tap0".into(), CardModel::VirtioNet);
        let address = Some(([10, 1, 0, 2].into(), 24));
        let card = Card { tap, model, queues: 4, address };
        assert_eq!(typed.card, Some(card));
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
            ("vm:qemu,queues=2", "write tap=NAME too"),
            ("vm:qemu,tap=a/b", "the name of a tap device"),
            ("vm:qemu,tap=t0,address=10.0.0.2/33", "such as 10.0.0.2/24"),
            ("vm:qemu,tap=t0,script=x", "no option \"script\""),
            ("vm:qemu,tap=t0,card=e1000e,queues=2", "has one queue"),
            ("vm:uml,tap=t0", "has no tap"),
        ] {
            let error = text.parse::<Options>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
