//! What the server's environment gives it: CPUs, quota, memory, and what the kernel lets it do.
//! Only read; what follows from it is decided in `placement` and `memory`, and `table` shows both
//! to whoever started the server.
//!
//! Seastar reads no quota and is throttled for it; that is why this looks at every cgroup that can
//! be seen.

mod cgroup;

use std::fmt::{self, Display};
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};
use tare_std::cpus::CpuSet;

use cgroup::Groups;

/// What was found. Written into the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// CPUs that the cpuset and the affinity mask allow.
    pub allowed_cpus: CpuSet,
    pub online_cpus: CpuSet,
    /// The tightest CPU quota of the process's cgroups.
    pub quota: Option<Quota>,
    /// Whether others may run on the allowed CPUs.
    pub ownership: Ownership,
    /// Why, in words.
    pub ownership_why: String,
    /// The tightest memory limit of the process's cgroups.
    pub memory_limit: Option<MemoryLimit>,
    /// What the host could give without swapping (`MemAvailable`).
    pub memory_available_bytes: Option<u64>,
    /// Bytes that may be locked in memory; `None` is no limit.
    pub mlock_bytes: Option<u64>,
    /// Transparent huge pages: `always`, `madvise`, `never`, or `unknown`.
    pub huge_pages: String,
    /// Open files at most.
    pub open_files_max: Option<u64>,
}

/// A bound on CPU time: `quota_us` in every `period_us`, of all CPUs together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    pub quota_us: u64,
    pub period_us: u64,
    /// Where it is set.
    pub file: PathBuf,
}

impl Quota {
    /// None where the numbers mean that there is no bound.
    fn new(quota_us: i64, period_us: u64, file: PathBuf) -> Option<Self> {
        let quota_us = u64::try_from(quota_us).ok().filter(|&quota| quota > 0)?;
        (period_us > 0).then_some(Self { quota_us, period_us, file })
    }

    /// CPUs' worth of time.
    pub fn cpus(&self) -> f64 {
        self.quota_us as f64 / self.period_us as f64
    }

    /// Whole CPUs' worth of time, but at least one.
    pub fn whole_cpus(&self) -> usize {
        usize::try_from((self.quota_us / self.period_us).max(1)).unwrap_or(usize::MAX)
    }
}

/// A bound on memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryLimit {
    pub bytes: u64,
    /// Where it is set.
    pub file: PathBuf,
}

/// To whom the allowed CPUs belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ownership {
    /// The kernel keeps others away.
    Exclusive,
    /// They are a strict part of those online, and so were given to this process; nothing here
    /// proves that nobody else was given them too.
    Presumed,
    /// Anyone may run on them.
    Shared,
}

/// Why the environment cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    #[error("cannot read which CPUs the process may use")]
    Affinity { source: std::io::Error },
}

impl Environment {
    /// Looks around on this host.
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

    /// What the files below `root` say to a process that may use these CPUs.
    pub(crate) fn below(root: &Path, allowed: CpuSet) -> Self {
        let text = |path: &str| std::fs::read_to_string(root.join(path)).ok();
        let list = |path: &str| CpuSet::parse_list(text(path)?.trim()).ok();
        let online = list("sys/devices/system/cpu/online").filter(|online| !online.is_empty());
        let online = online.unwrap_or_else(|| allowed.clone());
        let isolated = list("sys/devices/system/cpu/isolated").unwrap_or_default();
        let groups = Groups::find(root);
        let (ownership, ownership_why) = if !allowed.is_empty() && allowed.is_subset(&isolated) {
            (Ownership::Exclusive, "isolcpus keeps others away".to_string())
        } else if let Some(file) = groups.partition() {
            (Ownership::Exclusive, format!("{} keeps others away", file.display()))
        } else if allowed.len() < online.len() && allowed.is_subset(&online) {
            let why = format!("CPUs {allowed} of {online} were given to this process");
            (Ownership::Presumed, why)
        } else {
            let why = format!("CPUs {allowed} are all that are online: others use them");
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

/// One line of the table: what was looked for, what was found, what follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) what: &'static str,
    pub(crate) found: String,
    pub(crate) so: String,
}

impl Line {
    pub(crate) fn new(what: &'static str, found: impl Display, so: impl Display) -> Self {
        Self { what, found: found.to_string(), so: so.to_string() }
    }
}

/// The lines with their columns aligned, one text each.
pub(crate) fn table(lines: &[Line]) -> Vec<String> {
    let width = |cell: fn(&Line) -> &str| {
        lines.iter().map(|line| cell(line).chars().count()).max().unwrap_or(0)
    };
    let (what, found) = (width(|line| line.what), width(|line| &line.found));
    let row = |line: &Line| format!("{:what$}  {:found$}  {}", line.what, line.found, line.so);
    lines.iter().map(row).collect()
}

/// Bytes as people read them: `1.50 GiB`, `64.0 MiB`, `12 B`.
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
