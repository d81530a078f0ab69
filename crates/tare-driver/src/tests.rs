//! What the tests of several drivers share.

use tare_lab::study::{KeyDistribution, WorkloadSpec};
use tare_std::cpus::CpuSet;

/// Returns a small workload.
pub(crate) fn workload() -> WorkloadSpec {
    WorkloadSpec {
        name: "test".into(),
        workload: None,
        write_share: 0.5,
        rows: 1_000,
        columns: 3,
        column_bytes: 20,
        keys: KeyDistribution::Uniform,
        connections: 4,
        in_flight: 32,
        load: tare_lab::study::LoadSize::default(),
        latency_share: 0.0,
        reads_from_disk: None,
        rate_per_s: None,
        options: Vec::new(),
    }
}

/// Returns at most so many CPUs that this process may use.
pub(crate) fn cpus(most: usize) -> CpuSet {
    let affinity = rustix::thread::sched_getaffinity(None).unwrap();
    let numbers = (0u32..1_024).filter(|&cpu| affinity.is_set(cpu as usize));
    numbers.take(most).collect()
}
