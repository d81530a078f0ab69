//! CPUs, memory and disk of a plan.

use std::path::{Path, PathBuf};

use serde::Serialize;
use tare_lab::campaign::Memory;
use tare_lab::cpus::CpuTopology;
use tare_lab::environment::{CpuPlan, EnvironmentSpec};
use tare_lab::study::{ScheduleKind, Study, WorkloadSpec};
use tare_load::workload::shipped;
use tare_std::cpus::CpuSet;

use super::times::option_bytes;
use crate::campaign::{CampaignConfig, run};

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
    let memory = Memory {
        available_bytes: run::memory_available_bytes()?,
        per_environment_bytes: config.memory_per_environment(cpus),
    };
    let study = &config.study;
    let (at_once, needed_bytes) =
        memory.needed(study.schedule.kind, members(study, absent).into_iter());
    let Memory { available_bytes, per_environment_bytes } = memory;
    Some(MemoryPlan { needed_bytes, available_bytes, per_environment_bytes, at_once })
}

/// Returns the environments that run, and the control.
fn members<'s>(study: &'s Study, absent: &[String]) -> Vec<&'s EnvironmentSpec> {
    let runs = study.environments.iter().filter(|spec| !absent.contains(&spec.name));
    runs.chain(study.baseline_environment()).collect()
}

/// The disk space below the state directory.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct DiskPlan {
    /// The rows or files of the environments that are up at once: the least that is written.
    pub(crate) data_bytes: u64,
    /// The images of these environments, if all of their blocks are written.
    pub(crate) images_bytes: u64,
    /// `None` if the file system cannot be read.
    pub(crate) free_bytes: Option<u64>,
    /// The state directory.
    pub(crate) directory: PathBuf,
}

impl DiskPlan {
    /// Returns what to do if it is not enough.
    pub(super) fn lack(&self) -> Option<String> {
        let free = self.free_bytes.filter(|free| *free < self.data_bytes)?;
        Some(format!(
            "{} of disk space is needed and {} is free in {}: use fewer rows, or --state on another \
             disk",
            amount(self.data_bytes),
            amount(free),
            self.directory.display()
        ))
    }
}

/// Returns the disk space that a study needs.
pub(crate) fn disk(study: &Study, absent: &[String], state: &Path) -> DiskPlan {
    let data = row_bytes(&study.workloads) + file_bytes(&study.workloads);
    let on_disk = |spec: &&EnvironmentSpec| {
        let engine = matches!(spec.runtime.kind(), "docker" | "podman");
        let device = spec
            .storage
            .options
            .iter()
            .any(|(name, value)| matches!(name.as_str(), "device" | "nqn") && value != "loop");
        let elsewhere = match spec.storage.kind.as_str() {
            "tmpfs" | "volume" => true,
            "rootfs" => engine,
            _ => device,
        };
        !elsewhere && spec.runtime.kind() != tare_lab::fake::NAME
    };
    let members: Vec<&EnvironmentSpec> =
        members(study, absent).into_iter().filter(on_disk).collect();
    let images = members.iter().map(|spec| tare_env::storage::image_bytes(spec).unwrap_or(0));
    let (data_bytes, images_bytes) = match study.schedule.kind {
        ScheduleKind::Slices => (data * members.len() as u64, images.sum()),
        ScheduleKind::Trials => {
            (if members.is_empty() { 0 } else { data }, images.max().unwrap_or(0))
        }
    };
    // The directory may not exist yet.
    let existing = state.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let existing = if existing.as_os_str().is_empty() { Path::new(".") } else { existing };
    let free = rustix::fs::statvfs(existing).ok();
    DiskPlan {
        data_bytes,
        images_bytes,
        free_bytes: free.map(|found| found.f_bavail * found.f_frsize),
        directory: state.to_path_buf(),
    }
}

/// Returns the bytes of all rows.
fn row_bytes(workloads: &[WorkloadSpec]) -> u64 {
    let bytes = |workload: &WorkloadSpec| {
        let shipped = workload.workload.as_deref().and_then(shipped::find);
        let row = match shipped.and_then(|shipped| shipped.read().ok()) {
            Some(workload) => workload.row_bytes_most(),
            None => u64::from(workload.columns) * u64::from(workload.column_bytes),
        };
        workload.rows * row
    };
    workloads.iter().map(bytes).sum()
}

/// Returns the bytes of fio's files, which all workloads share.
pub(super) fn file_bytes(workloads: &[WorkloadSpec]) -> u64 {
    let bytes = |workload: &WorkloadSpec| {
        let jobs = option_bytes(workload, "numjobs").unwrap_or(1);
        option_bytes(workload, "size").unwrap_or(0).saturating_mul(jobs)
    };
    workloads.iter().map(bytes).max().unwrap_or(0)
}

/// Returns an amount with its unit: `87 MiB`, `6.0 GiB`.
pub(crate) fn amount(bytes: u64) -> String {
    let gib = bytes as f64 / f64::from(1 << 30);
    if gib < 1.0 { format!("{} MiB", bytes.div_ceil(1 << 20)) } else { format!("{gib:.1} GiB") }
}
