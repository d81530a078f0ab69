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

/// A cgroup with a quota of CPU time, removed when dropped.
#[derive(Debug)]
pub(super) struct Quota(PathBuf);

impl Quota {
    /// Makes a cgroup whose processes get this share of one CPU, in percent; `None` where the
    /// kernel has no quota.
    pub(super) fn new(name: &str, percent: u32) -> Option<Self> {
        const PERIOD_US: u32 = 10_000;
        let quota_us = PERIOD_US * percent / 100;
        let (first, second) = (Path::new(ROOT).join("cpu"), Path::new(ROOT).to_path_buf());
        let (root, files) = if first.join("cpu.cfs_quota_us").exists() {
            let period = ("cpu.cfs_period_us", PERIOD_US.to_string());
            (first, vec![period, ("cpu.cfs_quota_us", quota_us.to_string())])
        } else {
            // The controller has to be on for the children of the root, as systemd has it.
            (second, vec![("cpu.max", format!("{quota_us} {PERIOD_US}"))])
        };
        let made = Self(root.join(name));
        fs::create_dir(&made.0).ok()?;
        let set = |(file, value): &(&str, String)| write_existing_file(&made.0.join(file), value);
        files.iter().all(|one| set(one).is_ok()).then_some(made)
    }

    /// Removes the cgroups of tests that were killed, by their names.
    pub(super) fn remove_abandoned(is_abandoned: impl Fn(&str) -> bool) {
        for root in [Path::new(ROOT).join("cpu"), ROOT.into()] {
            let groups = fs::read_dir(root).into_iter().flatten().flatten();
            for group in groups.filter(|group| is_abandoned(&group.file_name().to_string_lossy())) {
                // Its processes died with their machine.
                let _ = fs::remove_dir(group.path());
            }
        }
    }

    /// Moves a process into it.
    pub(super) fn add(&self, pid: u32) -> std::io::Result<()> {
        fs::write(self.0.join("cgroup.procs"), pid.to_string())
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        remove(std::slice::from_ref(&self.0));
    }
}

/// Opens a file that must exist.
fn write_existing_file(path: &Path, value: &str) -> std::io::Result<()> {
    use std::io::Write;
    fs::File::options().write(true).open(path)?.write_all(value.as_bytes())
}
