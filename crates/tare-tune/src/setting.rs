//! A setting of the host: its location, the comparison of its values, the device it belongs to, and
//! why it could not be read or written.

use serde::{Deserialize, Serialize};
use tare_std::cpus::CpuSet;

use crate::snapshot::Snapshot;

/// The location of a setting.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Key {
    /// A kernel file: an absolute path in /proc or /sys.
    File { path: String },
    /// A setting of a network device that ethtool reads and writes.
    Ethtool { nic: String, setting: EthtoolSetting },
    /// The interrupts that are banned in irqbalance through its socket: numbers in ascending order,
    /// separated by spaces.
    IrqbalanceBans,
}

/// A setting of a network device. Values are decimal numbers; those of features are `on` and `off`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "setting", content = "name", rename_all = "snake_case")]
pub enum EthtoolSetting {
    ChannelsRx,
    ChannelsCombined,
    RingRx,
    RingTx,
    /// Receive interrupt delay, µs.
    CoalesceRxUs,
    /// Whether the driver adapts the receive interrupt delay to the traffic.
    CoalesceAdaptiveRx,
    /// A feature by its name in ethtool, which can differ from the kernel's: `ntuple` is
    /// `rx-ntuple-filter` there.
    Feature(String),
}

impl EthtoolSetting {
    /// Returns its location in a snapshot: the name of the pseudo file below `/tare/ethtool/NIC`,
    /// and of the line `NAME VALUE` in it.
    pub fn pseudo(&self) -> (&'static str, &str) {
        match self {
            Self::ChannelsRx => ("channels", "rx"),
            Self::ChannelsCombined => ("channels", "combined"),
            Self::RingRx => ("rings", "rx"),
            Self::RingTx => ("rings", "tx"),
            Self::CoalesceRxUs => ("coalesce", "rx-usecs"),
            Self::CoalesceAdaptiveRx => ("coalesce", "adaptive-rx"),
            Self::Feature(name) => ("features", name),
        }
    }
}

impl Key {
    /// Returns the key of a kernel file.
    pub fn file(path: impl Into<String>) -> Self {
        Self::File { path: path.into() }
    }

    /// Returns the value in a snapshot; `None` where the host does not have the setting.
    pub fn read_from(&self, snapshot: &Snapshot) -> Option<String> {
        match self {
            Self::File { path } => snapshot.read(path).map(str::to_string),
            Self::Ethtool { nic, setting } => {
                let (file, name) = setting.pseudo();
                snapshot.ethtool(nic, file, name)
            }
            Self::IrqbalanceBans => {
                snapshot.read("/tare/irqbalance/banned-irqs").map(str::to_string)
            }
        }
    }

    /// Writes a value to a snapshot, as a write on the host would change the host's file.
    pub fn write_to(&self, snapshot: &mut Snapshot, value: &str) {
        match self {
            Self::File { path } => snapshot.write(path, value),
            Self::Ethtool { nic, setting } => {
                let (file, name) = setting.pseudo();
                let path = format!("/tare/ethtool/{nic}/{file}");
                let text = snapshot.read(&path).unwrap_or_default();
                let lines = text.lines().map(|line| match line.split_once(' ') {
                    Some((of, _)) if of == name => format!("{name} {value}"),
                    _ => line.to_string(),
                });
                let text = lines.collect::<Vec<_>>().join("\n");
                snapshot.write(&path, &text);
            }
            Self::IrqbalanceBans => snapshot.write("/tare/irqbalance/banned-irqs", value),
        }
    }
}

/// The format of a setting's values: how they are written and compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueFormat {
    /// Any text, compared without surrounding white space.
    Text,
    /// A CPU mask as the kernel writes it: `00000001,00000000`.
    Mask,
    /// One of a list, in brackets when read: `[none] mq-deadline`.
    Choice,
    /// Words or numbers separated by white space: `tcp_mem`.
    Words,
}

impl ValueFormat {
    /// Whether two texts mean the same value.
    pub fn same(self, a: &str, b: &str) -> bool {
        self.normalize(a) == self.normalize(b)
    }

    /// Returns the normal form of a value: the chosen word of a list, masks without leading zero
    /// words, single spaces.
    pub fn normalize(self, text: &str) -> String {
        let text = text.trim();
        match self {
            Self::Text => text.to_string(),
            Self::Mask => match CpuSet::parse_mask(text) {
                Ok(set) => set.to_kernel_mask(),
                Err(_) => text.to_string(),
            },
            Self::Choice => {
                let chosen = text.split_whitespace().find_map(|word| {
                    word.strip_prefix('[').and_then(|word| word.strip_suffix(']'))
                });
                chosen.unwrap_or(text).to_string()
            }
            Self::Words => text.split_whitespace().collect::<Vec<_>>().join(" "),
        }
    }

    /// Returns the text to write to restore a value exactly as it reads now.
    pub(crate) fn to_restore(self, now: &str) -> String {
        match self {
            Self::Choice => self.normalize(now),
            Self::Text | Self::Mask | Self::Words => now.trim().to_string(),
        }
    }
}

/// Identifies the device of a setting by what stays the same when numbers change, as when a device
/// is plugged in again or a driver recreates its queues.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Identity {
    /// PCI address of the device.
    pub pci: Option<String>,
    /// Name of the interrupt from the driver: `virtio2-input.0`.
    pub irq_name: Option<String>,
    /// `MAJOR:MINOR` of a block device, or the interface index of a network device.
    pub device: Option<String>,
}

/// Why a setting could not be read or written.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, thiserror::Error)]
#[error("{text}")]
pub struct SettingError {
    pub class: SettingErrorClass,
    /// What failed, on what, why.
    pub text: String,
}

/// Kinds of setting errors, each with its own advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SettingErrorClass {
    /// The kernel manages the affinity of this interrupt (EPERM or EIO on /proc/irq).
    ManagedIrq,
    /// The CPU has no interrupt vector left (ENOSPC).
    NoVector,
    /// The host, the driver or the device does not have it (ENOENT, EOPNOTSUPP, EINVAL).
    Absent,
    /// EACCES, EPERM, EROFS.
    Permission,
    /// It was written but reads back as the old value, or as a third value.
    NotTaken,
    /// Another program wrote it meanwhile.
    ChangedByOther,
    /// Any other error of the host.
    Failed,
}
