//! Interrupts by CPU over the rounds, at capacity: which CPUs of a host the devices and timers
//! interrupt in each environment, and whether that stays so.

use serde::Serialize;
use tare_lab::environment::CpuPlan;
use tare_lab::record::{Phase, Record, Slice};
use tare_std::cpus::CpuSet;

/// The section and key of the host fact that lists the CPUs kept for interrupts.
const INTERRUPT_CPUS_FACT: (&str, &str) = ("cpu", "interrupt CPUs");
/// `interrupts_cpu{N}`, the sum of all sources on one CPU.
const ALL: &str = "interrupts_cpu";
/// `device_interrupts_cpu{N}`, the sum of the busiest devices, where the host's table takes too
/// long.
const DEVICES: &str = "device_interrupts_cpu";

/// The interrupts of an environment under a workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct InterruptTable {
    pub(crate) workload: String,
    pub(crate) environment: String,
    pub(crate) of: Counted,
    pub(crate) cpus: Vec<CpuInterrupts>,
}

/// Which interrupts are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Counted {
    All,
    /// Those of the devices with the most, without timers and calls between CPUs.
    BusiestDevices,
}

/// The interrupts of one CPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct CpuInterrupts {
    pub(crate) cpu: u32,
    pub(crate) role: CpuRole,
    /// Interrupts per second: the median of the rounds, and the extremes.
    pub(crate) per_s: Spread,
    pub(crate) rounds: Vec<RoundRate>,
}

/// What a CPU runs in a study.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CpuRole {
    Interrupts,
    System,
    Client,
    SystemAndClient,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) smallest: f64,
    pub(crate) largest: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct RoundRate {
    #[serde(rename = "block")]
    pub(crate) round: u32,
    pub(crate) per_s: f64,
}

impl CpuRole {
    fn of(cpu: u32, interrupts: &CpuSet, plan: &CpuPlan) -> Self {
        match (plan.system.contains(cpu), plan.client.contains(cpu)) {
            _ if interrupts.contains(cpu) => Self::Interrupts,
            (true, true) => Self::SystemAndClient,
            (true, false) => Self::System,
            (false, true) => Self::Client,
            (false, false) => Self::Other,
        }
    }

    /// Returns its word on the page.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Interrupts => "interrupts",
            Self::System => "system",
            Self::Client => "client",
            Self::SystemAndClient => "system, client",
            Self::Other => "other",
        }
    }
}

/// Returns the CPUs that are kept for interrupts, as the host's facts say.
pub(crate) fn interrupt_cpus(record: &Record) -> Option<CpuSet> {
    let mut host = record.host.iter();
    let fact = host.find(|fact| (fact.section.as_str(), fact.key.as_str()) == INTERRUPT_CPUS_FACT);
    fact.and_then(|fact| CpuSet::parse_list(&fact.value).ok())
}

/// Returns the interrupts of every environment under a workload, in the order of the page.
pub(crate) fn tables(record: &Record, workload: &str) -> Vec<InterruptTable> {
    let kept = interrupt_cpus(record).unwrap_or_else(|| record.cpu_plan.interrupts.clone());
    let environments = crate::figures::in_order(record).into_iter();
    let table = |environment: &str| {
        let counts = |slice: &&Slice| {
            slice.workload == workload
                && slice.environment == environment
                && slice.phase == Phase::Capacity
                && slice.void.is_none()
                && slice.window_ns > 0
        };
        let slices: Vec<&Slice> = record.slices.iter().filter(counts).collect();
        let of = match slices.iter().any(|slice| cpus_of(slice, ALL).next().is_some()) {
            true => Counted::All,
            false => Counted::BusiestDevices,
        };
        let counter = of.counter();
        let cpus: CpuSet = slices.iter().flat_map(|slice| cpus_of(slice, counter)).collect();
        let cpus = cpus.iter().filter_map(|cpu| {
            let role = CpuRole::of(cpu, &kept, &record.cpu_plan);
            CpuInterrupts::of(cpu, role, counter, &slices)
        });
        let (workload, environment) = (workload.to_string(), environment.to_string());
        InterruptTable { workload, environment, of, cpus: cpus.collect() }
    };
    let all = environments.map(|environment| table(&environment.spec.name));
    all.filter(|table| !table.cpus.is_empty()).collect()
}

/// Returns the interrupts of a record under all workloads, for JSON.
pub(crate) fn all(record: &Record) -> Vec<InterruptTable> {
    record.study.workloads.iter().flat_map(|one| tables(record, &one.name)).collect()
}

/// Returns the CPUs whose interrupts a slice has counted.
fn cpus_of(slice: &Slice, counter: &'static str) -> impl Iterator<Item = u32> {
    let cpu = move |name: &str| name.strip_prefix(counter)?.parse().ok();
    slice.counters.iter().filter_map(move |one| cpu(&one.name))
}

impl Counted {
    fn counter(self) -> &'static str {
        match self {
            Self::All => ALL,
            Self::BusiestDevices => DEVICES,
        }
    }
}

impl CpuInterrupts {
    fn of(cpu: u32, role: CpuRole, counter: &str, slices: &[&Slice]) -> Option<Self> {
        let name = format!("{counter}{cpu}");
        let rate = |slice: &&Slice| {
            let counter = slice.counters.iter().find(|one| one.name == name)?;
            let per_s = counter.value * 1e9 / slice.window_ns as f64;
            Some(RoundRate { round: slice.round, per_s })
        };
        let mut rounds: Vec<RoundRate> = slices.iter().filter_map(rate).collect();
        rounds.sort_by_key(|one| one.round);
        let mut sorted: Vec<f64> = rounds.iter().map(|one| one.per_s).collect();
        sorted.sort_by(f64::total_cmp);
        let (smallest, largest) = (*sorted.first()?, *sorted.last()?);
        let per_s = Spread { median: tare_stats::median(sorted)?, smallest, largest };
        Some(Self { cpu, role, per_s, rounds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_by_cpu_and_round() {
        let (record, _) = crate::fixture::interrupts();
        let tables = tables(&record, "write");
        // One was left out, and one counted none.
        assert_eq!(tables.len(), record.environments.len() - 2);
        let native = &tables[0];
        assert_eq!(native.environment, "native");
        let roles: Vec<(u32, CpuRole)> =
            native.cpus.iter().map(|one| (one.cpu, one.role)).collect();
        let (system, client) = (CpuRole::System, CpuRole::Client);
        assert_eq!(roles, [(0, client), (1, CpuRole::Interrupts), (2, system), (3, system)]);
        let first = &native.cpus[1];
        assert_eq!(first.rounds.len(), 4);
        assert!(first.per_s.smallest <= first.per_s.median);
        assert!(first.per_s.median <= first.per_s.largest);
        assert!(super::all(&crate::fixture::quick().0).is_empty());
    }

    #[test]
    fn void_slices_do_not_count() {
        let (mut record, _) = crate::fixture::interrupts();
        let void = |slice: &&mut Slice| slice.environment == "native" && slice.round == 1;
        record.slices.iter_mut().filter(void).for_each(|slice| slice.void = Some("late".into()));
        let tables = tables(&record, "write");
        assert!(tables[0].cpus.iter().all(|cpu| cpu.rounds.iter().all(|one| one.round != 1)));
        assert_eq!(tables[0].cpus[0].rounds.len(), 3);
    }

    #[test]
    fn devices_alone_are_named() {
        let (mut record, _) = crate::fixture::interrupts();
        for counter in record.slices.iter_mut().flat_map(|slice| &mut slice.counters) {
            if counter.name.starts_with(ALL) {
                counter.name = format!("device_{}", counter.name);
            }
        }
        let tables = tables(&record, "write");
        assert!(tables.iter().all(|table| table.of == Counted::BusiestDevices));
        assert_eq!(tables[0].cpus.len(), 4);
    }
}
