//! The facts about the server's environment: CPUs, quota, memory, and what the kernel allows. This
//! module only reads; `placement` and `memory` draw the conclusions, and `table` shows both in the
//! log.
//!
//! Seastar reads no quota and is throttled; that is why this module reads every cgroup that it can
//! see.

mod cgroup;

use std::fmt::{self, Display};
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};
use tare_std::cpus::CpuSet;

use cgroup::Groups;

/// The facts, which the report includes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// CPUs that the cpuset and the affinity mask allow.
    pub allowed_cpus: CpuSet,
    pub online_cpus: CpuSet,
    /// The tightest CPU quota of the process's cgroups.
    pub quota: Option<Quota>,
    /// Whether others may run on the allowed CPUs.
    pub ownership: Ownership,
    /// The reason for `ownership`, in words.
    pub ownership_why: String,
    /// The tightest memory limit of the process's cgroups.
    pub memory_limit: Option<MemoryLimit>,
    /// Memory that the host could give without swapping (`MemAvailable`).
    pub memory_available_bytes: Option<u64>,
    /// Bytes that may be locked in memory; `None` means no limit.
    pub mlock_bytes: Option<u64>,
    /// Transparent huge pages: `always`, `madvise`, `never`, or `unknown`.
    pub huge_pages: String,
    /// Files that may be open at a time.
    pub open_files_max: Option<u64>,
}

/// A limit on CPU time: `quota_us` in every `period_us`, over all CPUs together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    pub quota_us: u64,
    pub period_us: u64,
    /// The file that sets it.
    pub file: PathBuf,
}

impl Quota {
    /// `None` if the numbers mean that there is no limit.
    fn new(quota_us: i64, period_us: u64, file: PathBuf) -> Option<Self> {
        let quota_us = u64::try_from(quota_us).ok().filter(|&quota| quota > 0)?;
        (period_us > 0).then_some(Self { quota_us, period_us, file })
    }

    /// The quota as a number of CPUs.
    pub fn cpus(&self) -> f64 {
        self.quota_us as f64 / self.period_us as f64
    }

    /// The quota as a number of whole CPUs, at least one.
    pub fn whole_cpus(&self) -> usize {
        usize::try_from((self.quota_us / self.period_us).max(1)).unwrap_or(usize::MAX)
    }
}

/// A limit on memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryLimit {
    pub bytes: u64,
    /// The file that sets it.
    pub file: PathBuf,
}

/// Who may use the allowed CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ownership {
    /// The kernel keeps other processes away.
    Exclusive,
    /// The CPUs are a strict subset of those online, so somebody chose them for this process;
    /// nothing proves that no other process may use them.
    Presumed,
    /// Any process may use them.
    Shared,
}

/// Why the facts cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    #[error("cannot read which CPUs the process may use")]
    Affinity { source: std::io::Error },
}

impl Environment {
    /// Reads the facts about this host.
    pub fn find() -> Result<Self, EnvironmentError> {
        let mask = rustix::thread::sched_getaffinity(None)
            .map_err(|error| EnvironmentError::Affinity { source: error.into() })?;
        let highest = u32::try_from(rustix::thread::CpuSet::MAX_CPU).unwrap_or(u32::MAX);
        let allowed = (0..highest).filter(|&cpu| mask.is_set(cpu as usize)).collect();
        Ok(Self {
            mlock_bytes: match has_capability(IPC_LOCK) {
                true => None,
                false => getrlimit(Resource::Memlock).current,
            },
            open_files_max: getrlimit(Resource::Nofile).current,
            ..Self::below(Path::new("/"), allowed)
        })
    }

    /// Reads the files below `root`, for a process that may use these CPUs.
    pub(crate) fn below(root: &Path, allowed: CpuSet) -> Self {
        let text = |path: &str| std::fs::read_to_string(root.join(path)).ok();
        let list = |path: &str| CpuSet::parse_list(text(path)?.trim()).ok();
        let online = list("sys/devices/system/cpu/online").filter(|online| !online.is_empty());
        let online = online.unwrap_or_else(|| allowed.clone());
        let isolated = list("sys/devices/system/cpu/isolated").unwrap_or_default();
        let groups = Groups::find(root);
        let (ownership, ownership_why) = if !allowed.is_empty() && allowed.is_subset(&isolated) {
            (Ownership::Exclusive, "isolcpus keeps other processes away".to_string())
        } else if let Some(file) = groups.partition() {
            (Ownership::Exclusive, format!("{} keeps other processes away", file.display()))
        } else if allowed.len() < online.len() && allowed.is_subset(&online) {
            let why = format!("CPUs {allowed} of {online} were given to this process");
            (Ownership::Presumed, why)
        } else {
            let why = format!("CPUs {allowed} are all online CPUs: other processes use them");
            (Ownership::Shared, why)
        };
        let available = text("proc/meminfo").and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
            let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
            Some(kilobytes << 10)
        });
        let huge_pages = text("sys/kernel/mm/transparent_hugepage/enabled")
            .and_then(|text| Some(text.split_once('[')?.1.split_once(']')?.0.to_string()));
        Self {
            allowed_cpus: allowed,
            online_cpus: online,
            quota: groups.quota(),
            ownership,
            ownership_why,
            memory_limit: groups.memory_limit(),
            memory_available_bytes: available,
            mlock_bytes: Some(0),
            huge_pages: huge_pages.unwrap_or_else(|| "unknown".into()),
            open_files_max: None,
        }
    }
}

/// Number of the capability to lock memory without limit (linux/capability.h).
const IPC_LOCK: u32 = 14;

fn has_capability(number: u32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    effective.is_some_and(|set| set & (1 << number) != 0)
}

/// One line of the table: the subject, what was found, what follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) what: &'static str,
    pub(crate) found: String,
    pub(crate) effect: String,
}

impl Line {
    pub(crate) fn new(what: &'static str, found: impl Display, effect: impl Display) -> Self {
        Self { what, found: found.to_string(), effect: effect.to_string() }
    }
}

/// The lines with aligned columns.
pub(crate) fn table(lines: &[Line]) -> Vec<String> {
    let width = |cell: fn(&Line) -> &str| {
        lines.iter().map(|line| cell(line).chars().count()).max().unwrap_or(0)
    };
    let (what, found) = (width(|line| line.what), width(|line| &line.found));
    let row = |line: &Line| format!("{:what$}  {:found$}  {}", line.what, line.found, line.effect);
    lines.iter().map(row).collect()
}

/// A number of bytes for people: `1.50 GiB`, `64.0 MiB`, `12 B`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes(pub(crate) u64);

impl Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
        match units.iter().find(|(shift, _)| self.0 >> shift > 0) {
            Some((shift, unit)) => {
                let value = self.0 as f64 / (1u64 << shift) as f64;
                write!(f, "{} {unit}", tare_std::units::significant(value, 3))
            }
            None => write!(f, "{} B", self.0),
        }
    }
}

#[cfg(test)]
mod tests;
