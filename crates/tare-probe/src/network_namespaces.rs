//! The network namespaces of processes. Several instances of a system have one each.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the namespace of the process with this directory; `None` if that cannot be read.
pub(crate) fn of(process: &Path) -> Option<PathBuf> {
    fs::read_link(process.join("ns/net")).ok()
}

/// Returns the directories of the first process in each network namespace: that of the first
/// process in any case, and of others if their namespace can be read.
pub(crate) fn one_process_of_each(proc: &Path, pids: &[u32]) -> Vec<PathBuf> {
    let mut seen = Vec::new();
    let mut found = Vec::new();
    for pid in pids {
        let process = proc.join(pid.to_string());
        let own = of(&process);
        if found.is_empty() || (own.is_some() && !seen.contains(&own)) {
            seen.push(own);
            found.push(process);
        }
    }
    found
}
