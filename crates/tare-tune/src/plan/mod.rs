//! The plan: what to change on a host so that a database runs well on it. Pure: snapshot and
//! options in, plan out.

mod change;
pub mod cpus;
pub mod guard;
pub mod queues;
pub mod spread;

use serde::{Deserialize, Serialize};
use tare_std::cpus::CpuSet;

use crate::machine::disks::DiskError;
use crate::machine::nics::NicError;
use crate::machine::{Owner, TopologyError};

pub use crate::setting::{EthtoolSetting, Form, Identity, Key};
pub use change::{Change, Need};
pub use cpus::{CpuSets, CpuSetsError, Mode};
pub use guard::GuardError;

/// What is asked of the planner. `default()` asks for what `tare tune plan` does without options.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Network devices; empty: every one with hardware that is up.
    pub nics: Vec<String>,
    /// Directories whose disks are tuned.
    pub directories: Vec<String>,
    /// Block devices to tune.
    pub devices: Vec<String>,
    /// CPUs that the database and its interrupts may use; `None`: all that are online and not
    /// isolated.
    pub cpus: Option<CpuSet>,
    /// CPUs of interrupts; `None`: by the automatic rule.
    pub irq_cpus: Option<CpuSet>,
    /// Cores for each core of interrupts, above which the automatic rule gives a second; `None`:
    /// 16.
    pub ratio: Option<u32>,
    pub mode: Mode,
    /// Plan what perftune.py would do instead.
    pub like_perftune: bool,
    /// Receive queues of each network device; `None`: one per CPU of interrupts.
    pub rx_queues: Option<u32>,
    /// Accelerated RFS; `None`: on where interrupts and compute share all CPUs.
    pub arfs: Option<bool>,
    /// `write back` (true) or `write through`; `None`: as it is.
    pub write_back_cache: Option<bool>,
    /// Receive and transmit ring entries; `None`: as they are.
    pub ring: Option<u32>,
    /// Receive interrupt delay in µs; `None`: as it is.
    pub coalesce_us: Option<u32>,
    /// Share of memory that TCP buffers may use; `None`: 0.03.
    pub tcp_memory_share: Option<f64>,
    /// Switch the clock source too.
    pub clock: bool,
    /// Only these knobs or groups; empty: all.
    pub only: Vec<String>,
    /// Not these knobs or groups.
    pub except: Vec<String>,
}

/// Knobs that are proven, applied and put back together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Group {
    /// Which CPUs interrupts may use, and who else moves them.
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
    /// The device it is about (`eth0`, `nvme0n1`), or `host`.
    pub subject: String,
    /// The setting in words: `CPUs of interrupt 38 (virtio2-input.0)`, `rps_cpus of rx-0`.
    pub what: String,
    pub action: Action,
    /// Why this value: one sentence with the figures of this host.
    pub why: String,
    /// What it costs or risks: one sentence; empty when nothing is known.
    pub risk: String,
    /// Who else writes it.
    pub owner: Option<Owner>,
    /// The value is still there after a reboot.
    pub survives_reboot: bool,
}

/// What the plan does about a setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum Action {
    /// It is changed.
    Change(Change),
    /// It is as wanted.
    Right { now: String },
    /// It stays unchanged: it changes only on request, or the kernel forbids it.
    Leave { now: String, reason: String },
    /// It should change, but not by Tare: `how` says what the user can do.
    Advise { now: String, wanted: String, how: String },
}

impl Item {
    /// The change, if it is one.
    pub fn change(&self) -> Option<&Change> {
        match &self.action {
            Action::Change(change) => Some(change),
            _ => None,
        }
    }
}

/// A plan, whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub cpus: CpuSets,
    /// In the order in which they are applied.
    pub items: Vec<Item>,
    /// What the user should know besides, one sentence each.
    pub notes: Vec<String>,
}

impl Plan {
    /// Items that change something, in the order in which they are applied.
    pub fn changes(&self) -> impl Iterator<Item = (&Item, &Change)> {
        self.items.iter().filter_map(|item| Some((item, item.change()?)))
    }
}

/// Why no plan can be made.
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
