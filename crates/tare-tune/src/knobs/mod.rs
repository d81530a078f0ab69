//! Knobs: host settings that the tuner can read, write and put back. One file each; `ALL` drives
//! the plan, `tare list knobs`, help and docs/reference.
//!
//! A knob only plans: it says where its settings stand (`Key`), what they should be and why.
//! Reading back, undoing and journalling are the same for all of them (`tune`).

mod clock_source;
mod coalescing;
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

/// A knob.
pub trait Knob: Sync + std::fmt::Debug {
    /// Its name on the command line: `rps`.
    fn name(&self) -> &'static str;

    fn group(&self) -> Group;

    /// One line: what it sets.
    fn help(&self) -> &'static str;

    /// Why a database wants it: one or two sentences. An item may say it more exactly.
    fn why(&self) -> &'static str;

    /// What it costs or risks.
    fn risk(&self) -> &'static str;

    /// Where that is known from: a file of the kernel's documentation, a man page, a thread.
    fn source(&self) -> &'static str;

    /// Whether perftune.py has it.
    fn in_perftune(&self) -> bool {
        false
    }

    /// True when a running database does not notice the change: it has to be started again (limits
    /// that are read at `listen`, memory that is mapped once).
    fn takes_effect_at_start(&self) -> bool {
        false
    }

    /// Its lines of the plan. Empty where the host does not have the setting.
    fn plan(&self, context: &Context<'_>) -> Vec<Item>;
}

/// Every knob, in the order in which they are applied.
pub const ALL: &[&dyn Knob] = &[
    // First: what is placed before the bans would be moved again.
    &irqbalance::Irqbalance,
    &nic_channels::NicChannels,
    &nic_irqs::NicIrqs,
    &rps::Rps,
    &rfs::Rfs,
    &xps::Xps,
    &ntuple::Ntuple,
    &rings::Rings,
    &coalescing::Coalescing,
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
