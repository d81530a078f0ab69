//! CPUs and memory of a plan.

use serde::Serialize;
use tare_lab::campaign::Memory;
use tare_lab::cpus::CpuTopology;
use tare_lab::environment::CpuPlan;
use tare_std::cpus::CpuSet;

use crate::campaign::CampaignConfig;
use crate::campaign::space::{amount, members, memory_available_bytes};

/// The CPUs of one purpose.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct CpuGroup {
    pub(super) name: &'static str,
    pub(super) cpus: String,
    pub(super) count: usize,
    /// Cores of which it has a hardware thread.
    pub(super) cores: usize,
    /// Last-level caches of these cores.
    pub(super) caches: usize,
    pub(super) nodes: Vec<u32>,
}

impl CpuGroup {
    /// Returns the groups of a plan, and the CPUs that it leaves idle.
    pub(super) fn of(topology: &CpuTopology, plan: &CpuPlan) -> Vec<Self> {
        let idle = topology.cpus().difference(&plan.system).difference(&plan.client);
        let idle = idle.difference(&plan.interrupts);
        let groups = [
            ("system", &plan.system),
            ("client", &plan.client),
            ("interrupts", &plan.interrupts),
            ("not used", &idle),
        ];
        let used = groups.into_iter().filter(|(_, cpus)| !cpus.is_empty());
        used.map(|(name, cpus)| Self::new(topology, name, cpus)).collect()
    }

    fn new(topology: &CpuTopology, name: &'static str, cpus: &CpuSet) -> Self {
        let part = topology.restrict(cpus);
        Self {
            name,
            cpus: cpus.to_string(),
            count: cpus.len(),
            cores: part.cores().count(),
            caches: part.nodes.iter().map(|node| node.caches.len()).sum(),
            nodes: part.nodes.iter().map(|node| node.id).collect(),
        }
    }
}

/// The memory that the environments need.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct MemoryPlan {
    pub(super) needed_bytes: u64,
    pub(super) available_bytes: u64,
    /// The need of one environment without a limit.
    pub(super) per_environment_bytes: u64,
    /// The number of environments that are up at once, with the control.
    pub(super) at_once: usize,
}

impl MemoryPlan {
    /// Returns what to do if it is not enough.
    pub(super) fn lack(&self) -> Option<String> {
        let lacks = self.needed_bytes > self.available_bytes;
        lacks.then(|| {
            format!(
                "{} of memory is needed and {} is available: use fewer rows, limits.memory, or \
                 schedule.kind = \"trials\"",
                amount(self.needed_bytes),
                amount(self.available_bytes)
            )
        })
    }
}

/// Returns the memory that a study needs; `None` on the fake host.
pub(super) fn memory(
    config: &CampaignConfig,
    absent: &[String],
    cpus: &CpuPlan,
) -> Option<MemoryPlan> {
    if config.is_fake().unwrap_or(true) {
        return None;
    }
    let memory = config.memory(memory_available_bytes()?, cpus);
    let study = &config.study;
    let (at_once, needed_bytes) =
        memory.needed(study.schedule.kind, members(study, absent).into_iter());
    let Memory { available_bytes, per_environment_bytes, .. } = memory;
    Some(MemoryPlan { needed_bytes, available_bytes, per_environment_bytes, at_once })
}
