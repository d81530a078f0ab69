//! How many CPUs a system gets. Pure.

use crate::environment::CpuPlan;
use crate::layer::Cpu;
use crate::study::Study;

/// Returns the number of CPUs for which every environment of a study starts its system: those of
/// the baseline.
pub fn system_cpus(study: &Study, plan: &CpuPlan) -> usize {
    let cpu = study.baseline_environment().map_or(Cpu::Shared, |spec| spec.cpu);
    cpu.whole_cpus(cpu.set(plan).len())
}

/// Returns the number of CPUs of one of `count` instances.
pub fn instance_cpus(system_cpus: usize, count: u32) -> usize {
    match count {
        0 | 1 => system_cpus,
        _ => (system_cpus / usize::try_from(count).unwrap_or(usize::MAX)).max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_share_cpus_and_have_at_least_one() {
        assert_eq!([1, 2, 3, 40].map(|count| instance_cpus(32, count)), [32, 16, 10, 1]);
    }
}
