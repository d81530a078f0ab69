//! The plan: what to change on a host so that a database runs well on it. Pure: snapshot and options
//! in, plan out.

pub mod cpus;
pub mod guard;
pub mod queues;
mod setting;
pub mod spread;

use serde::{Deserialize, Serialize};
use tare_std::cpus::CpuSet;

use crate::knobs::{self, Knob};
use crate::machine::disks::DiskError;
use crate::machine::nics::NicError;
use crate::machine::{self, Disk, Machine, Nic, Owner, TopologyError};
use crate::snapshot::Snapshot;

pub use cpus::{CpuSets, CpuSetsError, Mode};
pub use guard::GuardError;
pub use setting::{Change, EthtoolSetting, Form, Identity, Key, Need, ethtool_value};

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
    /// Cores for each core of interrupts, above which the automatic rule gives a second; `None`: 16.
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
    /// It is found so and left so: changed only when asked, or nobody may change it.
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

/// What a knob plans from.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    pub snapshot: &'a Snapshot,
    pub options: &'a Options,
    pub machine: &'a Machine,
    pub cpus: &'a CpuSets,
}

impl Context<'_> {
    pub fn nics(&self) -> &[Nic] {
        &self.machine.nics
    }

    pub fn disks(&self) -> &[Disk] {
        &self.machine.disks
    }

    /// An item of a knob: a change if the file's value differs from the one that is wanted, else a
    /// line that says it is right. `None` when the host has no such file.
    ///
    /// `what` is the setting in words, `key` where it stands. Owner, group and whether it survives a
    /// reboot are filled in from the knob; change them in the result where they differ.
    pub fn item(
        &self,
        knob: &dyn Knob,
        subject: &str,
        what: &str,
        key: Key,
        form: Form,
        wanted: &str,
    ) -> Option<Item> {
        let now = key.read_from(self.snapshot)?;
        let action = match form.same(&now, wanted) {
            true => Action::Right { now: form.tidy(&now) },
            false => Action::Change(Change {
                now: form.tidy(&now),
                wanted: wanted.to_string(),
                key,
                form,
                need: Need::Should,
                identity: Identity::default(),
                stage: 1,
            }),
        };
        Some(self.line(knob, subject, what, action))
    }

    /// An item with any action.
    pub fn line(&self, knob: &dyn Knob, subject: &str, what: &str, action: Action) -> Item {
        Item {
            knob: knob.name().into(),
            group: knob.group(),
            subject: subject.into(),
            what: what.into(),
            action,
            why: knob.why().into(),
            risk: knob.risk().into(),
            owner: self.machine.owners.of_setting(knob.name(), what).cloned(),
            survives_reboot: false,
        }
    }
}

/// Makes the plan of a host.
///
/// Channels come first: a device that changes its number of queues makes its interrupts anew. What
/// follows is planned on the queues that will be there; where they will be more than now, the rest is
/// planned again after the change (`Change::stage`).
///
/// # Errors
/// When devices are not there, CPU sets make no sense, or the plan would overload an interrupt CPU.
pub fn plan(snapshot: &Snapshot, options: &Options) -> Result<Plan, PlanError> {
    let chosen = chosen(options)?;
    let machine = read_machine(snapshot, options)?;
    let cpus = cpus::choose(&machine, options)?;
    let mut notes = cpus::notes(&machine, options, &cpus);
    notes.extend(machine::disks::notes(options, &machine.disks));
    guard::check(&machine, options, &cpus, &mut notes)?;
    notes.extend(machine::owners::notes(snapshot, &machine, &cpus));
    let mut items = Vec::new();
    let context = Context { snapshot, options, machine: &machine, cpus: &cpus };
    for knob in chosen {
        items.extend(knob.plan(&context));
    }
    // The sort is stable: within a stage the order of the knobs stays.
    items.sort_by_key(|item| item.change().map_or(u8::MAX, |change| change.stage));
    Ok(Plan { cpus, items, notes })
}

/// The machine of a snapshot with the devices that the options name.
///
/// # Errors
/// When devices are not there or the topology cannot be read.
pub fn read_machine(snapshot: &Snapshot, options: &Options) -> Result<Machine, PlanError> {
    let interrupts = machine::Interrupts::read(snapshot);
    // CPUs that are given by hand can be used without a topology (scylladb #11639).
    let by_hand = options.irq_cpus.is_some() || matches!(options.mode, Mode::Mq | Mode::None);
    let topology = match machine::Topology::read(snapshot) {
        Err(TopologyError::Missing { .. }) if by_hand => machine::Topology::flat(snapshot)?,
        topology => topology?,
    };
    let nics = machine::nics::find(snapshot, &interrupts, &options.nics)?;
    // perftune.py tunes nothing without hardware; Tare does where it is named.
    let without = nics.iter().find(|nic| !machine::nics::has_hardware(snapshot, &nic.name));
    if let Some(nic) = without.filter(|_| options.like_perftune) {
        return Err(NicError::VirtualForPerftune { name: nic.name.clone() }.into());
    }
    let disks =
        machine::disks::find(snapshot, &interrupts, &options.directories, &options.devices)?;
    let interrupt_share = machine::interrupt_share(snapshot);
    let owners = machine::Owners::read(snapshot);
    Ok(Machine { topology, interrupts, nics, disks, owners, interrupt_share })
}

/// The knobs that `only` and `except` leave.
fn chosen(options: &Options) -> Result<Vec<&'static dyn Knob>, PlanError> {
    let names = |knob: &dyn Knob, list: &[String]| {
        list.iter().any(|name| name == knob.name() || name == knob.group().name())
    };
    for name in options.only.iter().chain(&options.except) {
        if !knobs::ALL.iter().any(|knob| names(*knob, std::slice::from_ref(name))) {
            let groups = Group::ALL.iter().map(|group| group.name());
            let known: Vec<&str> = groups.chain(knobs::ALL.iter().map(|k| k.name())).collect();
            return Err(PlanError::UnknownKnob { name: name.clone(), known: known.join(", ") });
        }
    }
    let wanted = |knob: &dyn Knob| {
        (options.only.is_empty() || names(knob, &options.only)) && !names(knob, &options.except)
    };
    let of_perftune = |knob: &dyn Knob| !options.like_perftune || knob.in_perftune();
    Ok(knobs::ALL.iter().copied().filter(|k| wanted(*k) && of_perftune(*k)).collect())
}
