//! Limits of the host: memory, open files, locked memory.

use super::compare::Limit;
use crate::snapshot::Snapshot;

/// The kernel's default of `fs.nr_open` (Documentation/admin-guide/sysctl/fs.rst).
const NR_OPEN_DEFAULT: u64 = 1_048_576;

/// Limits of the host that flags must respect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    pub memory_bytes: Option<u64>,
    /// `fs.nr_open`: the maximum of any limit on open files.
    pub nr_open: Option<u64>,
    /// The hard limit on open files if it cannot be raised for lack of CAP_SYS_RESOURCE; `None` if
    /// it can be raised.
    pub files_max: Option<u64>,
    /// The same limit on locked memory, in bytes.
    pub locked_max: Option<u64>,
    /// The same limit on processes of a user.
    pub processes_max: Option<u64>,
}

impl Host {
    /// Reads the limits from a snapshot: the smaller of those of process 1, which limits every
    /// service, and of the process that took the snapshot (`/proc/1/{limits,status}`,
    /// `/proc/self/...`).
    pub fn read(snapshot: &Snapshot) -> Self {
        let memory = snapshot.read("/proc/meminfo").unwrap_or_default();
        let total = memory.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let kib: Option<u64> = total.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        let mut host = Self {
            memory_bytes: kib.map(|kib| kib * 1024),
            nr_open: snapshot.read_number("/proc/sys/fs/nr_open"),
            ..Self::default()
        };
        for process in ["1", "self"] {
            let status = snapshot.read(&format!("/proc/{process}/status"));
            let limits = snapshot.read(&format!("/proc/{process}/limits"));
            let (Some(status), Some(limits)) = (status, limits) else { continue };
            if may_raise(status) {
                continue;
            }
            host.files_max = least(host.files_max, hard_limit(limits, "Max open files"));
            let processes = hard_limit(limits, "Max processes");
            host.processes_max = least(host.processes_max, processes);
            host.locked_max = least(host.locked_max, hard_limit(limits, "Max locked memory"));
        }
        host
    }

    /// Returns the limit on open files to request: that of Scylla's unit, or the host's maximum.
    pub fn files(&self) -> u64 {
        const WANTED: u64 = 800_000;
        let ceiling = self.nr_open.unwrap_or(NR_OPEN_DEFAULT);
        WANTED.min(ceiling).min(self.files_max.unwrap_or(u64::MAX))
    }
}

/// Returns the smaller of the known values.
fn least(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}

/// Whether limits can be raised: CAP_SYS_RESOURCE (bit 24) is in the bounding set (man 7
/// capabilities).
fn may_raise(status: &str) -> bool {
    let set = status.lines().find_map(|line| line.strip_prefix("CapBnd:"));
    let bits = set.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    bits.is_none_or(|bits| bits & (1 << 24) != 0)
}

/// Returns the hard limit in a line of /proc/PID/limits; `None` if unlimited or unknown.
fn hard_limit(limits: &str, name: &str) -> Option<u64> {
    process_limit(limits, name).and_then(|(_, hard)| hard)
}

/// Returns the soft and the hard limit in a line of /proc/PID/limits, each `None` if unlimited;
/// `None` without the line.
pub(super) fn process_limit(limits: &str, name: &str) -> Option<(Limit, Limit)> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    let mut words = line.split_whitespace().map(|word| word.parse().ok());
    Some((words.next()?, words.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Node;

    const LIMITS: &str = "Limit                     Soft Limit           Hard Limit           Units\n\
        Max processes             100                  96365                processes\n\
        Max open files            1024                 20000                files\n\
        Max locked memory         8388608              unlimited            bytes\n";

    fn snapshot(capabilities: &str) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let mut file = |path: &str, text: &str| snapshot.insert(path, Node::File(text.into()));
        file("/proc/meminfo", "MemTotal:       65536 kB\nMemFree: 1 kB\n");
        file("/proc/sys/fs/nr_open", "1048576\n");
        file("/proc/self/limits", LIMITS);
        file("/proc/self/status", &format!("Name:\tx\nCapBnd:\t{capabilities}\n"));
        snapshot
    }

    #[test]
    fn limits_bind_without_cap_sys_resource() {
        let bound = Host::read(&snapshot("000001fffeffffff"));
        assert_eq!(bound.memory_bytes, Some(64 << 20));
        assert_eq!((bound.files_max, bound.locked_max), (Some(20_000), None));
        assert_eq!((bound.files(), bound.processes_max), (20_000, Some(96_365)));
        let free = Host::read(&snapshot("000001ffffffffff"));
        assert_eq!((free.files_max, free.files()), (None, 800_000));
        assert_eq!(Host::default().files(), 800_000);
        assert_eq!(Host { nr_open: Some(4096), ..Host::default() }.files(), 4096);
    }
}
