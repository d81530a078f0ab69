//! How much a workload asks for at once: requests in flight, and connections.
//!
//! A number that is right for one CPU starves 32 polling shards, so what a study does not name
//! grows with the CPUs of the system.

use serde::{Deserialize, Serialize};

use super::{Study, WorkloadSpec};
use crate::environment::CpuPlan;
use crate::layer::Cpu;
use crate::system::Instances;

/// How the requests in flight and the connections of a workload are found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadSize {
    /// The study does not name `in_flight`: until [`scale_load`] its value is that for one CPU.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_flight_per_cpu: bool,
    /// The same for `connections`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub connections_per_cpu: bool,
    /// The study does not name `rows`: they follow from the share of reads from disk. Until they
    /// are chosen, their value is the default.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rows_from_disk_share: bool,
    /// `load = "saturate"`: the campaign finds `in_flight` before the rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saturate: Option<Saturate>,
}

/// A load that a campaign finds by itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Saturate {
    /// The option of the driver that sets the requests in flight; `None` for the load generator,
    /// whose workloads have them as [`WorkloadSpec::in_flight`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub option: Option<String>,
    /// How it was found; `None` before that.
    pub climb: Option<Climb>,
}

/// A climb to the load from which on the baseline's throughput does not grow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Climb {
    /// At least one, each with twice the load of the one before.
    pub steps: Vec<ClimbStep>,
    pub end: ClimbEnd,
}

/// The baseline's throughput with this many requests in flight, closed loop.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClimbStep {
    pub in_flight: u32,
    pub operations_per_s: f64,
}

/// Why a climb ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum ClimbEnd {
    /// Throughput stopped growing.
    Knee,
    /// It still grew with the most that is tried.
    Most,
    /// Its share of the budget was spent.
    Time,
    /// The next step failed.
    Failed { reason: String },
}

impl LoadSize {
    pub(super) fn is_named(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the climb that found this load, if one did.
    pub fn climb(&self) -> Option<&Climb> {
        self.saturate.as_ref()?.climb.as_ref()
    }

    /// Returns whether a climb has shown that more load does not help.
    pub fn suffices(&self) -> bool {
        self.climb().is_some_and(|climb| climb.end == ClimbEnd::Knee)
    }
}

impl WorkloadSpec {
    /// Sets the requests in flight, in the driver's option too if that has them.
    pub fn set_in_flight(&mut self, in_flight: u32) {
        self.in_flight = in_flight;
        let option = self.load.saturate.as_ref().and_then(|saturate| saturate.option.clone());
        let Some(option) = option else { return };
        match self.options.iter_mut().find(|(name, _)| *name == option) {
            Some((_, value)) => *value = in_flight.to_string(),
            None => self.options.push((option, in_flight.to_string())),
        }
    }
}

/// The CPUs for which a load is sized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadCpus {
    /// CPUs of the system that one driver loads: of one instance, or of a whole cluster.
    pub system: u32,
    /// CPUs of the client.
    pub client: u32,
}

impl LoadCpus {
    /// One CPU each: the load of a simulated system, which is the same on every host.
    pub const ONE: Self = Self { system: 1, client: 1 };

    /// Returns the CPUs of a study in this plan. Separate instances have a driver each, and share
    /// the CPUs of the system.
    pub fn of(study: &Study, plan: &CpuPlan, instances: Instances) -> Self {
        let cpu = study.baseline_environment().map_or(Cpu::Shared, |spec| spec.cpu);
        let cpus = cpu.whole_cpus(plan.system.len().max(1));
        let whole = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let drivers = if instances.cluster { 1 } else { instances.count.max(1) };
        Self { system: (whole(cpus) / drivers).max(1), client: whole(plan.client.len()).max(1) }
    }
}

/// The most connections of a workload that does not name them: the load generator's own limit.
const CONNECTIONS_MAX: u32 = 10_000;

/// Multiplies what a workload does not name by the CPUs of the system. At least one connection for
/// each CPU of the client, because a connection belongs to one of its threads.
pub fn scale_load(workload: &mut WorkloadSpec, cpus: LoadCpus) {
    let load = &mut workload.load;
    if std::mem::take(&mut load.in_flight_per_cpu) {
        workload.in_flight = workload.in_flight.saturating_mul(cpus.system);
    }
    if std::mem::take(&mut load.connections_per_cpu) {
        let connections = workload.connections.saturating_mul(cpus.system).max(cpus.client);
        workload.connections = connections.min(CONNECTIONS_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::defaults;
    use tare_std::cpus::CpuSet;

    fn plan(system: &str, client: &str) -> CpuPlan {
        let list = |text: &str| CpuSet::parse_list(text).unwrap();
        let (system, client) = (list(system), list(client));
        CpuPlan { all: system.union(&client), system, client, ..CpuPlan::default() }
    }

    fn study(lines: &str, cpu: &str) -> Study {
        let text = format!(
            "name = \"s\"\nbaseline = \"a\"\ndriver = \"tare-load\"\n\
             [[environment]]\nname = \"a\"\nruntime = \"process\"\ncpu = \"{cpu}\"\n\
             [[workload]]\nname = \"w\"\n{lines}\n"
        );
        crate::study::parse(&text, "s.toml", &crate::study::tests::vocabulary()).unwrap()
    }

    fn scaled(lines: &str, cpu: &str, plan: &CpuPlan, instances: Instances) -> (u32, u32) {
        let mut study = study(lines, cpu);
        let cpus = LoadCpus::of(&study, plan, instances);
        let workload = &mut study.workloads[0];
        scale_load(workload, cpus);
        let once = workload.clone();
        scale_load(workload, cpus);
        assert_eq!(*workload, once, "a second time changes nothing");
        (workload.in_flight, workload.connections)
    }

    #[test]
    fn load_that_saturates_excludes_in_flight() {
        let found = study("load = \"saturate\"", "pinned").workloads.remove(0);
        assert_eq!(found.load.saturate, Some(Saturate::default()));
        assert!(!found.load.suffices());
        assert_eq!(study("load = \"fixed\"", "pinned").workloads[0].load.saturate, None);
        let text = "name = \"s\"\nbaseline = \"a\"\n[[environment]]\nname = \"a\"\n\
                    runtime = \"process\"\n[[workload]]\nname = \"w\"\n";
        let refused = |lines: &str| {
            let text = format!("{text}{lines}\n");
            let known = crate::study::tests::vocabulary();
            crate::study::parse(&text, "s.toml", &known).unwrap_err().to_string()
        };
        let error = refused("load = \"saturate\"\nin_flight = 5");
        assert!(error.contains("load = \"saturate\" finds it"), "{error}");
        let error = refused("load = \"saturated\"");
        assert!(error.contains("did you mean \"saturate\"?"), "{error}");
    }

    #[test]
    fn load_grows_with_cpus_of_system_unless_named() {
        let (one, big) = (plan("1", "0"), plan("16-31", "0-15"));
        let (in_flight, connections) = (defaults::IN_FLIGHT, defaults::CONNECTIONS);
        assert_eq!(scaled("", "pinned", &one, Instances::ONE), (in_flight, connections));
        // On 1 and 2 CPUs a shared baseline is loaded as a pinned one.
        assert_eq!(scaled("", "shared", &one, Instances::ONE), (in_flight, connections));
        let all = (16 * in_flight, 16 * connections);
        assert_eq!(scaled("", "pinned", &big, Instances::ONE), all);
        assert_eq!(scaled("", "quota=2.5", &big, Instances::ONE), (3 * in_flight, 24));
        let named = |lines| scaled(lines, "pinned", &big, Instances::ONE);
        assert_eq!(named("in_flight = 5"), (5, 16 * connections));
        assert_eq!(named("connections = 3"), (16 * in_flight, 3));
        let of = |count, cluster| scaled("", "pinned", &big, Instances { count, cluster });
        assert_eq!(of(4, false), (4 * in_flight, 4 * connections));
        assert_eq!(of(4, true), all);
        // A connection for each thread of the client.
        assert_eq!(scaled("", "pinned", &plan("31", "0-29"), Instances::ONE), (in_flight, 30));
    }
}
