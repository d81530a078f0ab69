//! The cpu layer: which CPUs the system may run on, and how much of them.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use tare_std::cpus::CpuSet;

use super::Layer;
use super::text::{BadLayerValue, serde_as_text};
use crate::cpus::CpuPlan;

/// Valid quotas in CPUs. The kernel refuses less than 1 ms in 100 ms.
const QUOTAS: RangeInclusive<f64> = 0.01..=4096.0;

/// A value of the cpu layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cpu {
    /// Every CPU of the plan that is not the client's, if there are more than two cores.
    Shared,
    /// The system's own CPUs only.
    Pinned,
    /// The CPUs of `Shared`, limited to this many CPUs of time.
    Quota(f64),
}

impl Cpu {
    pub(super) const VALUES: &'static [(&'static str, &'static str)] = &[
        (
            "shared",
            "not pinned: every CPU of the plan but the client's, those of interrupts included; with at \
             most two cores also the client's",
        ),
        ("pinned", "the system's own CPUs only: affinity, and a cpuset where it has a cgroup"),
        (
            "quota=*",
            "the CPUs of `shared`, limited to this many CPUs of time (CFS quota), such as quota=1.5",
        ),
    ];

    /// Returns a quota in CPUs, or `None` if the kernel would refuse it.
    pub fn quota(cpus: f64) -> Option<Self> {
        QUOTAS.contains(&cpus).then_some(Self::Quota(cpus))
    }

    /// Returns the CPUs on which the system may run.
    pub fn set(self, plan: &CpuPlan) -> &CpuSet {
        match self {
            Self::Pinned => &plan.system,
            Self::Shared | Self::Quota(_) if plan.shared.is_empty() => &plan.all,
            Self::Shared | Self::Quota(_) => &plan.shared,
        }
    }
}

impl Cpu {
    /// Returns how many of `usable` CPUs a system has the time of, in whole CPUs: a quota is
    /// rounded up.
    pub fn whole_cpus(self, usable: usize) -> usize {
        match self {
            Self::Quota(quota) => (1..=usable).find(|cpus| *cpus as f64 >= quota).unwrap_or(usable),
            Self::Pinned | Self::Shared => usable,
        }
    }
}

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shared => f.pad("shared"),
            Self::Pinned => f.pad("pinned"),
            Self::Quota(cpus) => f.pad(&format!("quota={cpus}")),
        }
    }
}

impl FromStr for Cpu {
    type Err = BadLayerValue;

    fn from_str(text: &str) -> Result<Self, BadLayerValue> {
        match text {
            "shared" => Ok(Self::Shared),
            "pinned" => Ok(Self::Pinned),
            _ => {
                let unknown = || BadLayerValue::unknown(Layer::Cpu, text);
                let quota = text.strip_prefix("quota=").ok_or_else(unknown)?;
                let wanted = "a quota is a number of CPUs such as quota=1.5";
                let bad = || BadLayerValue::new(Layer::Cpu, text, wanted);
                quota.parse().ok().and_then(Self::quota).ok_or_else(bad)
            }
        }
    }
}

serde_as_text!(Cpu);
