//! One directory of a cgroup, of either cgroup version: its processes, and thawing it.

use std::fs;
use std::path::Path;

/// Thaws one cgroup directory of either version. On v1 a frozen process cannot be killed.
pub(crate) fn thaw(folder: &Path) {
    for (file, value) in [("freezer.state", "THAWED"), ("cgroup.freeze", "0")] {
        let path = folder.join(file);
        if path.exists() {
            // A process that cannot be thawed cannot be killed either, and killing reports it.
            let _ = fs::write(path, value);
        }
    }
}

/// Lists the processes in one cgroup directory, without those in the directories below it.
pub(crate) fn pids(folder: &Path) -> Vec<u32> {
    let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid != 0).collect()
}

/// Lists the processes in a cgroup directory and in all directories below it.
pub(crate) fn pids_of_tree(folder: &Path) -> Vec<u32> {
    let mut all = pids(folder);
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            all.extend(pids_of_tree(&entry.path()));
        }
    }
    all
}
