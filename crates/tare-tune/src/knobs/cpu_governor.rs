//! The CPU frequency governor.
//!
//! What: `scaling_governor` of every CPU that the database or its interrupts use: `performance`.
//! Why: other governors raise the frequency only after the load has risen; a shard that sleeps
//! between requests starts each of them slowly.
//! Source: the kernel's Documentation/admin-guide/pm/cpufreq.rst; tuned's profile
//! throughput-performance; scylla_cpuscaling_setup.
//! Risk: more power and heat; less room for turbo on the other cores. Guests have no such file.

use crate::knobs::Context;
use crate::plan::{Group, Item, Key, ValueFormat};

use super::Knob;

#[derive(Debug)]
pub(super) struct CpuGovernor;

impl Knob for CpuGovernor {
    fn name(&self) -> &'static str {
        "cpu_governor"
    }

    fn group(&self) -> Group {
        Group::Cpu
    }

    fn help(&self) -> &'static str {
        "CPU frequency governor performance"
    }

    fn why(&self) -> &'static str {
        "other governors raise the frequency only after the load has risen, so each burst starts slowly"
    }

    fn risk(&self) -> &'static str {
        "more power and heat when idle; less room for turbo on other cores"
    }

    fn source(&self) -> &'static str {
        "Linux Documentation/admin-guide/pm/cpufreq.rst; tuned, throughput-performance"
    }

    fn plan(&self, context: &Context<'_>) -> Vec<Item> {
        let available = "scaling_available_governors";
        plan_policies(self, context, "scaling_governor", available, "performance")
    }
}

/// Returns an item for one file of every frequency policy that has a CPU of the plan. CPUs that
/// share a clock share a policy, and `cpuN/cpufreq` is a link to it. Policies whose driver does not
/// offer the value are left out.
pub(super) fn plan_policies(
    knob: &dyn Knob,
    context: &Context<'_>,
    file: &str,
    available: &str,
    wanted: &str,
) -> Vec<Item> {
    let mut seen = std::collections::BTreeSet::new();
    let mut items = Vec::new();
    for cpu in context.cpus.universe.iter() {
        let folder = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq");
        let Some(folder) = context.snapshot.real(&folder) else { continue };
        if !seen.insert(folder.clone()) {
            continue;
        }
        let offered = context.snapshot.read(&format!("{folder}/{available}"));
        if !offered.unwrap_or_default().split_whitespace().any(|name| name == wanted) {
            continue;
        }
        let key = Key::file(format!("{folder}/{file}"));
        let subject = format!("cpu{cpu}");
        items.extend(context.item(knob, &subject, file, key, ValueFormat::Text, wanted));
    }
    items
}
