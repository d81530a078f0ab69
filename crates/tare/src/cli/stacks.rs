//! The options about sampled stacks.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tare_lab::stacks::StackKind;
use tare_probe::stacks::UserFrames;
use tare_std::cpus::CpuSet;

use super::duration;

/// What is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    OnCpu,
    OffCpu,
    InterruptCpus,
}

impl From<Kind> for StackKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::OnCpu => Self::OnCpu,
            Kind::OffCpu => Self::OffCpu,
            Kind::InterruptCpus => Self::InterruptCpus,
        }
    }
}

/// How the frames of programs are unwound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum User {
    Auto,
    Fp,
    Dwarf,
    None,
}

impl From<User> for UserFrames {
    fn from(user: User) -> Self {
        match user {
            User::Auto => Self::Auto,
            User::Fp => Self::FramePointers,
            User::Dwarf => Self::Dwarf,
            User::None => Self::None,
        }
    }
}

/// The samples that `weigh` takes after the rounds.
#[derive(Clone, Debug, Args)]
pub struct SampleStacks {
    /// After the rounds, sample stacks in slices of their own (needs perf)
    #[arg(long)]
    pub stacks: bool,
    /// What to sample: CPU time (on-cpu), waiting (off-cpu), what the CPUs kept for interrupts do,
    /// if there are any (interrupt-cpus)
    #[arg(
        long,
        value_name = "KINDS",
        requires = "stacks",
        value_delimiter = ',',
        default_value = "on-cpu,off-cpu,interrupt-cpus"
    )]
    pub stack_kinds: Vec<Kind>,
    /// How to unwind the frames of programs: frame pointers, DWARF, not at all; auto is what the
    /// system was built for
    #[arg(long, value_name = "HOW", requires = "stacks", default_value = "auto")]
    pub stacks_user: User,
    /// CPUs that handle interrupts, to count and sample beside those of the study [default: those
    /// that its `[cpus] interrupts` or the tuning keeps for interrupts]
    #[arg(long, value_name = "LIST")]
    pub interrupt_cpus: Option<CpuSet>,
    /// After the rounds, count system calls by name in slices of their own (needs BPF)
    #[arg(long, conflicts_with = "pmu")]
    pub syscalls: bool,
    /// After the rounds, count instructions, cycles, cache and TLB misses of the system in slices
    /// of their own (needs a CPU with a PMU)
    #[arg(long)]
    pub pmu: bool,
    /// Number of these rounds
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub stack_rounds: u32,
    /// Time of one stack slice
    #[arg(long, value_name = "TIME", requires = "stacks", default_value = "1s", value_parser = duration)]
    pub stack_window: Duration,
}

/// The stacks that `report` shows.
#[derive(Clone, Debug, Args)]
pub struct ShowStacks {
    /// Show the CPU time per operation by subsystem and function
    #[arg(long, conflicts_with_all = ["csv", "html"])]
    pub stacks: bool,
    /// What to show: CPU time, waiting, or the CPUs kept for interrupts
    #[arg(long, value_name = "KIND", requires = "stacks", default_value = "on-cpu")]
    pub kind: Kind,
    /// Environment to compare from [default: the baseline]
    #[arg(long, value_name = "NAME", requires = "stacks")]
    pub from: Option<String>,
    /// Environment to compare with [default: the one with the most time per operation]
    #[arg(long, value_name = "NAME", requires = "stacks")]
    pub to: Option<String>,
    /// Workload [default: the first that was sampled]
    #[arg(long, value_name = "NAME", requires = "stacks")]
    pub workload: Option<String>,
    /// Write flame graphs of both environments and of their difference to this file
    #[arg(long, value_name = "OUT.html", requires = "stacks")]
    pub flamegraph: Option<PathBuf>,
}
