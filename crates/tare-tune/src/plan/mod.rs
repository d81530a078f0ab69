//! The plan: the changes that make a database run well on a host. Pure: snapshot and options in,
//! plan out.

mod change;
pub mod cpus;
pub mod guard;
mod kubelet;
mod operators;
pub mod queues;
pub mod spread;

use serde::{Deserialize, Serialize};
use tare_std::cpus::CpuSet;

use crate::machine::disks::DiskError;
use crate::machine::nics::NicError;
use crate::machine::{Owner, TopologyError};

pub use crate::setting::{EthtoolSetting, Identity, Key, ValueFormat};
pub use change::{Change, Requirement};
pub use cpus::{CpuSets, CpuSetsError, Mode};
pub use guard::GuardError;
pub use kubelet::{Finding, KubeletAdvice, advise};
pub use operators::leave_to_operators;

/// Options of the planner. `default()` gives the plan of `tare tune plan` without options.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Network devices; empty: every device with hardware that is up.
    pub nics: Vec<String>,
    /// Directories whose disks are tuned.
    pub directories: Vec<String>,
    /// Block devices to tune.
    pub devices: Vec<String>,
    /// CPUs that the database and its interrupts may use; `None`: all online CPUs that are not
    /// isolated.
    pub cpus: Option<CpuSet>,
    /// Interrupt CPUs; `None`: chosen by the automatic rule.
    pub irq_cpus: Option<CpuSet>,
    /// Cores per interrupt core; with more, the automatic rule adds another interrupt core; `None`:
    /// 16.
    pub ratio: Option<u32>,
    pub mode: Mode,
    /// Plan what perftune.py would do.
    pub like_perftune: bool,
    /// Receive queues of each network device; `None`: one per interrupt CPU.
    pub rx_queues: Option<u32>,
    /// Accelerated RFS; `None`: on where interrupts and compute share all CPUs.
    pub arfs: Option<bool>,
    /// `write back` (true) or `write through`; `None`: unchanged.
    pub write_back_cache: Option<bool>,
    /// Receive and transmit ring entries; `None`: unchanged.
    pub ring: Option<u32>,
    /// Receive interrupt delay in µs; `None`: unchanged.
    pub coalesce_us: Option<u32>,
    /// Share of memory that TCP buffers may use, 0 to 1; `None`: 0.03.
    pub tcp_memory_share: Option<f64>,
    /// Whether to switch the clock source too.
    pub clock: bool,
    /// Only these knobs or groups; empty: all.
    pub only: Vec<String>,
    /// Knobs or groups to leave out.
    pub except: Vec<String>,
    /// Knobs that are planned only on request and are wanted in addition to the others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub request: Vec<String>,
}

/// Knobs that are proven, applied and reverted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Group {
    /// Which CPUs interrupts may use, and which programs move them.
    Interrupts,
    Network,
    Disk,
    /// Frequency, energy, idle states, clock, scheduler.
    Cpu,
    Memory,
    /// Kernel-wide limits.
    Limits,
}

impl Group {
    pub const ALL: &[Self] =
        &[Self::Interrupts, Self::Network, Self::Disk, Self::Cpu, Self::Memory, Self::Limits];

    /// Returns its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Interrupts => "interrupts",
            Self::Network => "network",
            Self::Disk => "disk",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Limits => "limits",
        }
    }
}

/// One line of a plan: one setting of the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Item {
    /// Name of the knob.
    pub knob: String,
    pub group: Group,
    /// The device (`eth0`, `nvme0n1`), or `host`.
    pub subject: String,
    /// The setting in words: `CPUs of interrupt 38 (virtio2-input.0)`, `rps_cpus of rx-0`.
    pub what: String,
    pub action: Action,
    /// The reason for this value: one sentence with the figures of this host.
    pub why: String,
    /// Its cost or risk: one sentence; empty when none is known.
    pub risk: String,
    /// Another program that writes it.
    pub owner: Option<Owner>,
    /// Whether the value survives a reboot.
    pub survives_reboot: bool,
}

/// What the plan does about a setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum Action {
    /// It is changed.
    Change(Change),
    /// It has the wanted value already.
    #[serde(rename = "right")]
    AlreadySet { now: String },
    /// It stays unchanged: it changes only on request, or the kernel refuses changes.
    Leave { now: String, reason: String },
    /// It should change, but Tare does not change it: `how` tells the user what to do.
    Advise { now: String, wanted: String, how: String },
}

impl Item {
    /// Returns the change; `None` for any other action.
    pub fn change(&self) -> Option<&Change> {
        match &self.action {
            Action::Change(change) => Some(change),
            _ => None,
        }
    }
}

/// A whole plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub cpus: CpuSets,
    /// In the order of applying them.
    pub items: Vec<Item>,
    /// Further facts for the user, one sentence each.
    pub notes: Vec<String>,
    /// Advice about the kubelet, which Tare never changes; `None` where no kubelet runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet: Option<KubeletAdvice>,
}

impl Plan {
    /// Returns the items that are changes, in the order of applying them.
    pub fn changes(&self) -> impl Iterator<Item = (&Item, &Change)> {
        self.items.iter().filter_map(|item| Some((item, item.change()?)))
    }
}

/// Why the planner cannot make a plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error(transparent)]
    Topology(#[from] TopologyError),
    #[error(transparent)]
    CpuSets(#[from] CpuSetsError),
    #[error(transparent)]
    Nic(#[from] NicError),
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error(transparent)]
    Guard(#[from] GuardError),
    #[error("there is no knob or group {name:?}; known are {known}")]
    UnknownKnob { name: String, known: String },
}
