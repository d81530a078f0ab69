//! The memory and the disk space that a study needs and that this host has.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tare_lab::environment::EnvironmentSpec;
use tare_lab::study::{ScheduleKind, Study, WorkloadSpec};
use tare_load::workload::shipped;
use tare_std::units::parse_bytes;

use super::fit;

/// Returns `MemAvailable` of the host.
pub(crate) fn memory_available_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
}

/// Returns the environments that run, and the control.
pub(crate) fn members<'s>(study: &'s Study, absent: &[String]) -> Vec<&'s EnvironmentSpec> {
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
    pub(crate) fn lack(&self) -> Option<String> {
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
    let rows = study.workloads.iter().map(|one| one.rows * row_bytes(one)).sum::<u64>();
    let data = rows + file_bytes(&study.workloads);
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
        let is_ours = spec.attach.is_none() && spec.runtime.kind() != tare_lab::fake::NAME;
        is_ours && !elsewhere
    };
    let members: Vec<&EnvironmentSpec> =
        members(study, absent).into_iter().filter(on_disk).collect();
    let images = members.iter().map(|spec| tare_env::storage::image_bytes(spec).unwrap_or(0));
    // Every separate instance has all rows.
    let data = members.iter().map(|spec| data.saturating_mul(fit::copies_in(study, spec)));
    let (data_bytes, images_bytes) = match study.schedule.kind {
        ScheduleKind::Slices => (data.sum(), images.sum()),
        ScheduleKind::Trials => (data.max().unwrap_or(0), images.max().unwrap_or(0)),
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

/// Returns the bytes of a row, without its key.
pub(super) fn row_bytes(workload: &WorkloadSpec) -> u64 {
    let text = workload.workload_text.as_deref();
    let named = workload.workload.as_deref().map(|name| shipped::named(name, text));
    match named {
        Some(Ok(workload)) => workload.row_bytes_most(),
        _ => u64::from(workload.columns) * u64::from(workload.column_bytes),
    }
}

/// Returns the bytes of fio's files, which all workloads share.
pub(crate) fn file_bytes(workloads: &[WorkloadSpec]) -> u64 {
    let bytes = |workload: &WorkloadSpec| {
        let jobs = option_bytes(workload, "numjobs").unwrap_or(1);
        option_bytes(workload, "size").unwrap_or(0).saturating_mul(jobs)
    };
    workloads.iter().map(bytes).max().unwrap_or(0)
}

/// Returns the size of an option in bytes.
fn option_bytes(workload: &WorkloadSpec, name: &str) -> Option<u64> {
    let found = workload.options.iter().find(|(known, _)| known == name);
    parse_bytes(&found?.1).ok()
}

/// Returns an amount with its unit: `87 MiB`, `6.0 GiB`.
pub(crate) fn amount(bytes: u64) -> String {
    let gib = bytes as f64 / f64::from(1 << 30);
    if gib < 1.0 { format!("{} MiB", bytes.div_ceil(1 << 20)) } else { format!("{gib:.1} GiB") }
}
