//! The weight with which a process competes for CPU time with the rest of the host.
//!
//! The scheduler divides a CPU between groups before it divides a group's share between threads. A
//! process in a cgroup of the cpu controller belongs to that group. Any other process belongs to
//! the group of its session while `kernel.sched_autogroup_enabled` is 1 (sched(7)). Two processes
//! with the same work in groups of different weight, or with different neighbours in their group,
//! get different shares of a busy CPU.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use super::{CgroupError, Layout, Version};

/// The default of `cpu.shares` (v1).
const SHARES_DEFAULT: u64 = 1024;
/// The default of `cpu.weight` (v2).
const WEIGHT_DEFAULT: u64 = 100;

/// The scheduler's groups of a process, from the topmost to its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuWeight {
    /// Path and weight of each cgroup with the cpu controller, without the root.
    pub levels: Vec<(String, u64)>,
    /// The group of its session, such as `/autogroup-12`, if the scheduler uses it.
    pub session: Option<String>,
    pub nice: i64,
    /// The weight of a new cgroup.
    default: u64,
}

impl CpuWeight {
    /// Whether the process competes in the cgroup `top` directly below the root, and it and every
    /// cgroup below it has the default weight.
    pub fn is_default_in(&self, top: &str) -> bool {
        let first = self.levels.first().map(|(path, _)| path.trim_start_matches('/'));
        first == Some(top) && self.levels.iter().all(|(_, weight)| *weight == self.default)
    }

    /// Whether the process competes in the cgroup `top` directly below the root, which has the
    /// default weight, and every cgroup below it has this weight.
    pub fn is_weighted_in(&self, top: &str, weight: u64) -> bool {
        match self.levels.split_first() {
            Some(((path, of_top), below)) => {
                path.trim_start_matches('/') == top
                    && *of_top == self.default
                    && !below.is_empty()
                    && below.iter().all(|(_, found)| *found == weight)
            }
            None => false,
        }
    }
}

impl fmt::Display for CpuWeight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let levels = self.levels.iter().map(|(path, weight)| format!("{path} {weight}"));
        let groups: Vec<String> = levels.chain(self.session.clone()).collect();
        match groups.is_empty() {
            true => write!(f, "no group, nice {}", self.nice),
            false => write!(f, "{}, nice {}", groups.join(", "), self.nice),
        }
    }
}

impl Layout {
    /// Returns the mount point of the hierarchy that has the cpu controller.
    pub(super) fn cpu_root(&self) -> Option<&PathBuf> {
        match self.version() {
            Version::V2 => self.v2.as_ref(),
            _ => self.v1.get("cpu"),
        }
    }

    /// Reads the weights of a process.
    ///
    /// # Errors
    /// When `PROC/PID` cannot be read.
    pub fn cpu_weight(&self, proc: &Path, pid: u32) -> Result<CpuWeight, CgroupError> {
        let is_v2 = self.version() == Version::V2;
        let (file, default) = match is_v2 {
            true => ("cpu.weight", WEIGHT_DEFAULT),
            false => ("cpu.shares", SHARES_DEFAULT),
        };
        let paths = self.of_process(proc, &pid.to_string())?;
        let path = paths.into_iter().find(|(root, _)| Some(root) == self.cpu_root());
        let mut levels = Vec::new();
        if let Some((root, path)) = path {
            let path = Path::new(path.trim_start_matches('/'));
            for level in path.ancestors().filter(|level| level.file_name().is_some()) {
                // On v2 a cgroup has no weight where its parent does not divide CPU time.
                let text = fs::read_to_string(root.join(level).join(file)).unwrap_or_default();
                let weight = text.trim().parse().ok();
                levels.extend(weight.map(|weight| (format!("/{}", level.display()), weight)));
            }
            levels.reverse();
        }
        let enabled = fs::read_to_string(proc.join("sys/kernel/sched_autogroup_enabled"));
        let of_session = enabled.is_ok_and(|text| text.trim() == "1") && levels.is_empty();
        let autogroup = fs::read_to_string(proc.join(pid.to_string()).join("autogroup"));
        let autogroup = autogroup.ok().and_then(|text| Some(text.split_once(' ')?.0.to_string()));
        let path = proc.join(pid.to_string()).join("stat");
        let stat = fs::read_to_string(&path);
        let stat = stat.map_err(|source| CgroupError::Read { path, source })?;
        // The fields after the name, which is in parentheses, start with the third; nice is the
        // 19th (proc_pid_stat(5)).
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let nice = fields.split_whitespace().nth(16).and_then(|nice| nice.parse().ok());
        let session = autogroup.filter(|_| of_session);
        Ok(CpuWeight { levels, session, nice: nice.unwrap_or(0), default })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const STAT: &str = "7 (a b) c) S 1 7 7 0 -1 4 0 0 0 0 1 2 0 0 20 -5 1 0 9 0 0\n";

    #[test]
    fn reads_weights_of_both_versions() {
        let host = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = host.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("proc/7/stat", STAT);
        put("proc/7/autogroup", "/autogroup-12 nice 0\n");
        put("proc/sys/kernel/sched_autogroup_enabled", "1\n");
        put("proc/7/cgroup", "2:memory:/x\n1:cpu:/tare-ab12/e1\n0::/tare-ab12/e1\n");
        put("cpu/tare-ab12/cpu.shares", "1024\n");
        put("cpu/tare-ab12/e1/cpu.shares", "1024\n");
        put("v2/tare-ab12/cpu.weight", "100\n");
        put("v2/tare-ab12/e1/cpu.weight", "50\n");
        let proc = host.path().join("proc");
        let cpu = ("cpu".to_string(), host.path().join("cpu"));
        let v1 = Layout { v1: BTreeMap::from([cpu]), v2: None };
        let found = v1.cpu_weight(&proc, 7).unwrap();
        assert_eq!(found.to_string(), "/tare-ab12 1024, /tare-ab12/e1 1024, nice -5");
        assert!(found.is_default_in("tare-ab12") && !found.is_default_in("tare-ab13"));
        let v2 = Layout { v1: BTreeMap::new(), v2: Some(host.path().join("v2")) };
        let found = v2.cpu_weight(&proc, 7).unwrap();
        assert_eq!(found.to_string(), "/tare-ab12 100, /tare-ab12/e1 50, nice -5");
        assert!(!found.is_default_in("tare-ab12"), "half of the weight");
        assert!(found.is_weighted_in("tare-ab12", 50) && !found.is_weighted_in("tare-ab12", 100));
    }

    #[test]
    fn session_counts_without_cgroup() {
        let host = tempfile::tempdir().unwrap();
        let proc = host.path();
        fs::create_dir_all(proc.join("7")).unwrap();
        fs::create_dir_all(proc.join("sys/kernel")).unwrap();
        fs::write(proc.join("7/stat"), STAT).unwrap();
        fs::write(proc.join("7/autogroup"), "/autogroup-12 nice 0\n").unwrap();
        fs::write(proc.join("7/cgroup"), "1:cpu:/\n").unwrap();
        let cpu = ("cpu".to_string(), proc.join("cpu"));
        let layout = Layout { v1: BTreeMap::from([cpu]), v2: None };
        let read = |enabled: &str| {
            fs::write(proc.join("sys/kernel/sched_autogroup_enabled"), enabled).unwrap();
            layout.cpu_weight(proc, 7).unwrap()
        };
        let found = read("1\n");
        assert_eq!(found.to_string(), "/autogroup-12, nice -5");
        assert!(!found.is_default_in("tare-ab12"));
        assert_eq!(read("0\n").to_string(), "no group, nice -5");
    }

    #[test]
    fn reads_this_process() {
        let layout = Layout::read(Path::new("/proc")).unwrap();
        let found = layout.cpu_weight(Path::new("/proc"), std::process::id()).unwrap();
        assert!(!found.to_string().is_empty() && (-20..20).contains(&found.nice), "{found}");
    }
}
