//! The hint between energy and performance.
//!
//! What: `energy_performance_preference` of every CPU of the plan: `performance`.
//! Why: with hardware-managed frequencies (Intel HWP, AMD CPPC) this hint, not the governor,
//! decides how eagerly the CPU speeds up.
//! Source: the kernel's Documentation/admin-guide/pm/intel_pstate.rst and amd-pstate.rst.
//! Risk: more power and heat.
//!
//! It precedes the governor in the order of knobs. While the governor is `performance` the drivers
//! refuse any other hint, so a revert, which runs backwards, must restore the governor first.

use crate::knobs::Context;
use crate::plan::{Group, Item};

use super::Knob;
use super::cpu_governor::plan_policies;

#[derive(Debug)]
pub(super) struct EnergyPreference;

impl Knob for EnergyPreference {
    fn name(&self) -> &'static str {
        "energy_preference"
    }

    fn group(&self) -> Group {
        Group::Cpu
    }

    fn help(&self) -> &'static str {
        "preference for performance where the hardware chooses the frequency"
    }

    fn why(&self) -> &'static str {
        "this hint decides how eagerly a CPU with hardware-managed frequencies speeds up"
    }

    fn risk(&self) -> &'static str {
        "more power and heat when idle"
    }

    fn source(&self) -> &'static str {
        "Linux Documentation/admin-guide/pm/intel_pstate.rst and amd-pstate.rst"
    }

    fn plan(&self, context: &Context<'_>) -> Vec<Item> {
        let available = "energy_performance_available_preferences";
        plan_policies(self, context, "energy_performance_preference", available, "performance")
    }
}
