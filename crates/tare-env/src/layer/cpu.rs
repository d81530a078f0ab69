//! The cpu layer: which CPUs the system may run on, and how much of them.

use tare_lab::environment::CpuPlan;
use tare_std::cpus::CpuSet;

use super::Layer;

pub const LAYER: Layer = Layer {
    name: "cpu",
    help: "which CPUs the system may run on, and how much of them",
    values: &[
        ("shared", "every CPU of the plan, the client's too, as a container gets by default"),
        ("pinned", "the system's own CPUs only: affinity, and a cpuset where it has a cgroup"),
        ("quota=*", "every CPU, but at most so many CPUs of time (CFS quota), such as quota=1.5"),
    ],
    needs: "the cpuset and cpu cgroup controllers where cgroup = \"own\"",
    cleanup: "goes with the cgroup and the process",
    read_back: "Cpus_allowed_list of every thread; the cpuset in force; the quota's file",
};

/// A value of the layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CpuLayer {
    Shared,
    Pinned,
    /// In CPUs.
    Quota(f64),
}

impl CpuLayer {
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "shared" => Some(Self::Shared),
            "pinned" => Some(Self::Pinned),
            _ => {
                let cpus: f64 = text.strip_prefix("quota=")?.parse().ok()?;
                // The kernel takes no quota under 1 ms in 100 ms.
                (cpus.is_finite() && (0.01..=4096.0).contains(&cpus)).then_some(Self::Quota(cpus))
            }
        }
    }

    /// The CPUs that the system may run on.
    pub fn set(self, plan: &CpuPlan) -> &CpuSet {
        match self {
            Self::Pinned => &plan.system,
            Self::Shared | Self::Quota(_) => &plan.all,
        }
    }
}
