//! Knobs: host settings that the tuner can read, write and restore. One file each; `ALL` drives
//! the plan, `tare list knobs`, help and docs/reference.
//!
//! A knob only plans: it returns the location of its settings (`Key`), the wanted values and the
//! reasons. Applying, reading back, journalling and reverting are the same for all knobs.

mod clock_source;
mod coalescing;
mod coalescing_adaptive;
mod coalescing_off;
mod context;
mod cpu_governor;
mod disk_irqs;
mod disk_nomerges;
mod disk_scheduler;
mod disk_write_cache;
mod energy_preference;
mod idle_states;
mod irqbalance;
mod limits;
mod nic_channels;
mod nic_irqs;
mod ntuple;
mod numa_balancing;
#[cfg(test)]
mod reference;
mod rfs;
mod rings;
mod rps;
mod swap;
mod sysctls;
mod tcp_memory;
mod transparent_hugepages;
mod wakeup_granularity;
mod xps;

use crate::plan::{Group, Item};

pub use context::Context;

/// Plans one kind of host setting.
pub trait Knob: Sync + std::fmt::Debug {
    /// Returns its name on the command line, such as `rps`.
    fn name(&self) -> &'static str;

    fn group(&self) -> Group;

    /// Returns one line: what it sets.
    fn help(&self) -> &'static str;

    /// Returns why a database needs it, in one or two sentences. An item may give a more exact
    /// reason.
    fn why(&self) -> &'static str;

    /// Returns what it costs or risks.
    fn risk(&self) -> &'static str;

    /// Returns the source: a file of the kernel's documentation, a man page, a thread.
    fn source(&self) -> &'static str;

    /// Whether perftune.py sets it too.
    fn in_perftune(&self) -> bool {
        false
    }

    /// Whether the change only affects a database that starts after it (limits that are read at
    /// `listen`, memory that is mapped once).
    fn takes_effect_at_start(&self) -> bool {
        false
    }

    /// Whether it only affects packets that cross a network card.
    fn is_of_network_cards(&self) -> bool {
        false
    }

    /// Whether a plan has it only if the options name it (`--only`, `tuned=KNOB`), because it is an
    /// alternative to another knob.
    fn on_request(&self) -> bool {
        false
    }

    /// Returns its items of the plan. Empty where the host does not have the setting.
    fn plan(&self, context: &Context<'_>) -> Vec<Item>;
}

/// Every knob, in the order in which they are applied.
pub const ALL: &[&dyn Knob] = &[
    // First, because irqbalance would move interrupts that are placed before they are banned.
    &irqbalance::Irqbalance,
    &nic_channels::NicChannels,
    &nic_irqs::NicIrqs,
    &rps::Rps,
    &rfs::Rfs,
    &xps::Xps,
    &ntuple::Ntuple,
    &rings::Rings,
    &coalescing::Coalescing,
    &coalescing_off::CoalescingOff,
    &coalescing_adaptive::CoalescingAdaptive,
    &disk_irqs::DiskIrqs,
    &disk_scheduler::DiskScheduler,
    &disk_nomerges::DiskNomerges,
    &disk_write_cache::DiskWriteCache,
    &clock_source::ClockSource,
    &energy_preference::EnergyPreference,
    &cpu_governor::CpuGovernor,
    &idle_states::IdleStates,
    &wakeup_granularity::WakeupGranularity,
    &numa_balancing::NumaBalancing,
    &transparent_hugepages::TransparentHugepages,
    &swap::Swap,
    &sysctls::Sysctls,
    &tcp_memory::TcpMemory,
    &limits::Limits,
];

/// Returns the knob of this name.
pub fn find(name: &str) -> Option<&'static dyn Knob> {
    ALL.iter().copied().find(|knob| knob.name() == name)
}

/// Returns whether a plan has the knob of this name only on request.
pub fn is_on_request(name: &str) -> bool {
    find(name).is_some_and(|knob| knob.on_request())
}

/// Returns whether a name selects an item: the name of its group or of its knob. A group does not
/// select knobs that are planned only on request.
pub fn selects(name: &str, item: &Item) -> bool {
    item.knob == name || item.group.name() == name && !is_on_request(&item.knob)
}

/// Returns the names that select knobs: those of the groups, then those of the knobs.
pub fn names() -> Vec<&'static str> {
    let groups: Vec<&str> = Group::ALL.iter().map(|group| group.name()).collect();
    let own = ALL.iter().map(|knob| knob.name()).filter(|name| !groups.contains(name));
    groups.iter().copied().chain(own).collect()
}
