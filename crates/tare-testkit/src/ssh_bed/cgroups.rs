//! The cgroups of a machine: all machines of a bed share those of this host, and a frozen process
//! does not die before it is thawed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::children;

const ROOT: &str = "/sys/fs/cgroup";
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the cgroups of the runs that processes below these are in: `tare-RUN` in each hierarchy.
pub(super) fn of_runs(first: &[u32]) -> Vec<PathBuf> {
    let mut names = BTreeSet::new();
    let mut waiting = first.to_vec();
    while let Some(pid) = waiting.pop() {
        waiting.extend(children(pid));
        let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let groups = text.lines().filter_map(|line| line.splitn(3, ':').nth(2));
        let tops = groups.filter_map(|path| path.split('/').nth(1));
        names.extend(tops.filter(|name| name.starts_with("tare-")).map(String::from));
    }
    let hierarchies = fs::read_dir(ROOT).into_iter().flatten().flatten().map(|entry| entry.path());
    let roots: Vec<PathBuf> = hierarchies.chain([ROOT.into()]).collect();
    let all = names.iter().flat_map(|name| roots.iter().map(move |root| root.join(name)));
    all.filter(|path| path.is_dir()).collect()
}

/// Thaws what is frozen in these cgroups, so that it can die.
pub(super) fn thaw(groups: &[PathBuf]) {
    for group in groups {
        each(group, &mut |at| {
            // Only one of the two exists, in one hierarchy.
            let _ = write_existing(&at.join("freezer.state"), "THAWED");
            let _ = write_existing(&at.join("cgroup.freeze"), "0");
        });
    }
}

/// Removes cgroups whose processes have been killed.
pub(super) fn remove(groups: &[PathBuf]) {
    let started = Instant::now();
    for group in groups {
        while group.is_dir() && started.elapsed() < PATIENCE {
            each(group, &mut |at| {
                let _ = fs::remove_dir(at);
            });
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Visits a cgroup after the ones below it.
fn each(group: &Path, visit: &mut dyn FnMut(&Path)) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            each(&entry.path(), visit);
        }
    }
    visit(group);
}

fn write_existing(path: &Path, value: &str) -> std::io::Result<()> {
    if path.exists() { fs::write(path, value) } else { Ok(()) }
}
