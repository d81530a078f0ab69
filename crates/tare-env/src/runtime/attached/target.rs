//! The processes of an attached system.

use std::fs;
use std::path::{Path, PathBuf};

use tare_host::cgroup::{self, Cgroup, Layout};
use tare_host::{error_line, process};
use tare_lab::attach::AttachTarget;

use super::place::{below, cgroup_of, folders_of, group_of_container, roots};
use super::pod::AttachedPod;
use crate::runtime::docker;

/// A system that was found.
#[derive(Debug)]
pub(super) struct Target {
    /// Its first process.
    pub(super) pid: u32,
    /// What it is, in words.
    pub(super) what: String,
    members: Members,
    /// Its cgroup; `None` if the system is in the root of the hierarchies.
    pub(super) group: Option<Cgroup>,
    /// The pod that it is in, if it was found by it.
    pub(super) pod: Option<AttachedPod>,
}

/// Which processes belong to the system.
#[derive(Debug)]
enum Members {
    /// The first process and its descendants.
    Tree,
    /// Those of a directory of the cgroup hierarchy, and of all below it.
    Folder(PathBuf),
}

impl Members {
    /// Returns those of a cgroup, by the root of its hierarchy and the path below it.
    fn of_group(group: Option<&(PathBuf, PathBuf)>) -> Self {
        group.map_or(Self::Tree, |(root, path)| Self::Folder(below(root, path)))
    }
}

impl Target {
    /// Finds the processes.
    ///
    /// # Errors
    /// One line: what is not there, and what to do.
    pub(super) fn find(target: &AttachTarget, cgroups: &Layout) -> Result<Self, String> {
        match target {
            AttachTarget::Pid(pid) => Self::of_pid(*pid, cgroups),
            AttachTarget::Container { engine, name } => Self::of_container(engine, name, cgroups),
            AttachTarget::Compose { file, service } => docker::find_service(file, service)
                .and_then(|(engine, name)| Self::of_container(engine, &name, cgroups)),
            AttachTarget::Pod { namespace, name, container } => {
                AttachedPod::find(namespace, name, container.as_deref(), cgroups)
                    .map(|pod| Self::of_pod(pod, cgroups))
            }
            AttachTarget::Cgroup(path) => {
                let found = folders_of(cgroups, path);
                Self::of_folder(found, target, "write its path below the root of the hierarchy")
            }
            AttachTarget::Unit(name) => {
                let found = roots(cgroups).into_iter().map(|root| {
                    let mut found = Vec::new();
                    find_named(&root, &root, name, &mut found);
                    found
                });
                let found = found.flatten().collect();
                Self::of_folder(found, target, "systemctl status shows whether it is active")
            }
        }
        .map(|(found, path)| {
            let path = path.filter(|path| path != Path::new("/"));
            let group = path.map(|path| cgroups.group(&path.to_string_lossy()));
            Self { group, ..found }
        })
    }

    fn of_pid(pid: u32, cgroups: &Layout) -> Result<(Self, Option<PathBuf>), String> {
        let name = process::name(pid).ok_or_else(|| {
            format!(
                "there is no process {pid} on this host; see ps, or attach by unit or container"
            )
        })?;
        let what = format!("process {pid} ({name})");
        let group = cgroup_of(cgroups, pid).map(|(_, path)| path);
        Ok((Self { pid, what, members: Members::Tree, group: None, pod: None }, group))
    }

    fn of_container(
        engine: &str,
        name: &str,
        cgroups: &Layout,
    ) -> Result<(Self, Option<PathBuf>), String> {
        let found = docker::find_container(engine, name).map_err(|error| error_line(&*error))?;
        let pid = found.pid.ok_or_else(|| {
            format!("the container {name} does not run; {engine} start {name} starts it")
        })?;
        let what = format!("{}, process {pid}", found.what);
        let own = cgroup_of(cgroups, pid).filter(|(_, path)| path != Path::new("/"));
        let members = Members::of_group(own.as_ref());
        Ok((Self { pid, what, members, group: None, pod: None }, own.map(|(_, path)| path)))
    }

    fn of_pod(pod: AttachedPod, cgroups: &Layout) -> (Self, Option<PathBuf>) {
        let own = group_of_container(cgroups, pod.pid, &pod.found.container_id);
        let members = Members::of_group(own.as_ref());
        let (pid, what) = (pod.pid, pod.what());
        let found = Self { pid, what, members, group: None, pod: Some(pod) };
        (found, own.map(|(_, path)| path))
    }

    /// Takes the processes of the first directory that has any. `found` are roots of hierarchies
    /// and paths below them.
    fn of_folder(
        found: Vec<(PathBuf, PathBuf)>,
        target: &AttachTarget,
        advice: &str,
    ) -> Result<(Self, Option<PathBuf>), String> {
        let mut paths: Vec<&PathBuf> = found.iter().map(|(_, path)| path).collect();
        paths.sort();
        paths.dedup();
        if let [first, second, ..] = paths[..] {
            return Err(format!(
                "{target} has several cgroups, {} and {}; write cgroup = \"PATH\"",
                first.display(),
                second.display()
            ));
        }
        let processes = |(root, path): &(PathBuf, PathBuf)| {
            let folder = below(root, path);
            Some((process::oldest(&cgroup::pids_below(&folder))?, folder, path.clone()))
        };
        let (pid, folder, path) = found
            .iter()
            .find_map(processes)
            .ok_or_else(|| format!("{target} has no process in a cgroup of this host; {advice}"))?;
        let what = format!("{target}, {}", super::named(pid));
        let members = Members::Folder(folder);
        Ok((Self { pid, what, members, group: None, pod: None }, Some(path)))
    }

    /// Returns the processes of the system; none once the first one has ended.
    pub(super) fn pids(&self) -> Vec<u32> {
        match &self.members {
            Members::Tree => process::tree(self.pid),
            Members::Folder(folder) => cgroup::pids_below(folder),
        }
    }

    /// Returns the processes of the other containers of its pod; `None` if it has none.
    pub(super) fn sidecar_pids(&self) -> Option<Vec<u32>> {
        let pod = self.pod.as_ref().filter(|pod| !pod.sidecars.is_empty())?;
        Some(pod.sidecar_pids())
    }

    /// Returns the time for which a quota throttled it, in ns; `None` without a quota.
    pub(super) fn throttled_ns(&self) -> Option<u64> {
        let group = self.group.as_ref()?;
        group.bandwidth().ok()??;
        group.throttled_ns().ok()
    }

    /// Returns a path of the system as the host reaches it.
    pub(super) fn path_of(&self, inside: &Path) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.pid));
        root.join(inside.strip_prefix("/").unwrap_or(inside))
    }
}

/// Finds the directories of this name below `folder`.
fn find_named(root: &Path, folder: &Path, name: &str, found: &mut Vec<(PathBuf, PathBuf)>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let path = entry.path();
        if entry.file_name() == name {
            let below = path.strip_prefix(root).unwrap_or(&path);
            found.push((root.to_path_buf(), Path::new("/").join(below)));
        } else {
            find_named(root, &path, name, found);
        }
    }
}
