//! The CPUs that probes observe.

use tare_lab::environment::CpuPlan;
use tare_std::cpus::CpuSet;

/// The CPUs that probes observe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeCpus {
    /// The CPUs of the plan: those of the system and of the client.
    pub plan: CpuSet,
    /// The CPUs that handle interrupts and run neither. Empty if the host has none.
    pub interrupts: CpuSet,
}

impl ProbeCpus {
    /// Returns the CPUs of a plan, and those that it keeps for interrupts.
    pub fn new(plan: &CpuPlan) -> Self {
        Self { plan: plan.all.clone(), interrupts: plan.interrupts.clone() }
    }

    /// Returns the CPUs of the plan and the interrupt CPUs.
    pub fn all(&self) -> CpuSet {
        self.plan.union(&self.interrupts)
    }
}

impl From<CpuSet> for ProbeCpus {
    /// Observes these CPUs of a plan, and no interrupt CPUs.
    fn from(plan: CpuSet) -> Self {
        Self { plan, interrupts: CpuSet::new() }
    }
}
