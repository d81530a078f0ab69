//! Control groups, v1 (also hybrid) and v2, behind one small API.
//!
//! On v1 a cgroup is one directory in each hierarchy; on v2 it is one directory, and controllers
//! must be enabled from the root down. Sources: the kernel's cgroup-v1/*.rst and cgroup-v2.rst.
//!
//! Limits: on v2 the cgroup is directly below the root of the mounted hierarchy. In a container
//! with its own cgroup namespace, enabling a controller therefore fails while that root has
//! processes.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use tare_std::cpus::CpuSet;
use tare_std::mountinfo;

use crate::cgroup_folder;
use crate::journal::{Entry, EntryId, Journal, JournalError};
use crate::process;

mod limits;
mod weight;

pub use limits::{Bandwidth, DeviceLimit, MemoryQos, shares_of_weight};
pub use weight::CpuWeight;

/// The controllers that the cgroups of a run use.
const CONTROLLERS: [&str; 4] = ["cpu", "cpuset", "io", "memory"];

const FREEZE_LIMIT: Duration = Duration::from_secs(5);

/// The cgroup version of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    None,
    V1,
    /// v1 controllers and a v2 tree.
    Hybrid,
    V2,
}

/// Where the hierarchies are mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// v1: mount point by controller. The key of `name=systemd` is `systemd`.
    v1: BTreeMap<String, PathBuf>,
    v2: Option<PathBuf>,
}

/// Why a cgroup could not be used.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    #[error("cannot read where cgroups are mounted from {}", .path.display())]
    Layout { path: PathBuf, source: io::Error },
    #[error("this host has no {controller} cgroup controller; {}", advice(.controller))]
    NoController { controller: &'static str },
    #[error("this kernel has no {} in its cgroups: it needs {needs}", .path.display())]
    NoFile { path: PathBuf, needs: &'static str },
    #[error("cannot create cgroup {}; this needs root and a writable cgroup tree", .path.display())]
    Make { path: PathBuf, source: io::Error },
    #[error("cannot write {value:?} to {}", .path.display())]
    Write { path: PathBuf, value: String, source: io::Error },
    #[error("cannot read {}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cgroup {} did not freeze within {} s", .path.display(), FREEZE_LIMIT.as_secs())]
    NotFrozen { path: PathBuf },
    #[error(transparent)]
    Journal(#[from] JournalError),
}

fn advice(controller: &str) -> String {
    format!("mount it (v1) or add it to the root's cgroup.subtree_control (v2: +{controller})")
}

impl Layout {
    /// Reads the cgroup mounts of this process.
    ///
    /// # Errors
    /// When `PROC/self/mountinfo` cannot be read.
    pub fn read(proc: &Path) -> Result<Self, CgroupError> {
        let path = proc.join("self/mountinfo");
        let text = fs::read_to_string(&path);
        Ok(Self::parse(&text.map_err(|source| CgroupError::Layout { path, source })?))
    }

    fn parse(table: &str) -> Self {
        let mut layout = Self { v1: BTreeMap::new(), v2: None };
        for mountinfo::Mount { point, file_system, super_options, .. } in mountinfo::mounts(table) {
            match file_system {
                "cgroup" => {
                    let options = super_options.split(',').filter(|o| !matches!(*o, "rw" | "ro"));
                    for name in options.filter(|o| !matches!(*o, "xattr" | "clone_children")) {
                        let name = name.strip_prefix("name=").unwrap_or(name);
                        if !name.contains('=') {
                            layout.v1.entry(name.into()).or_insert_with(|| point.clone());
                        }
                    }
                }
                "cgroup2" if layout.v2.is_none() => layout.v2 = Some(point),
                _ => {}
            }
        }
        layout
    }

    /// Returns the cgroup version of the host.
    pub fn version(&self) -> Version {
        match (self.v1.is_empty(), &self.v2) {
            (true, None) => Version::None,
            (true, Some(_)) => Version::V2,
            (false, None) => Version::V1,
            (false, Some(_)) => Version::Hybrid,
        }
    }

    /// Returns the mount point of the v2 tree on v2 and hybrid hosts.
    pub fn unified(&self) -> Option<&Path> {
        self.v2.as_deref()
    }

    /// Returns the mount point of a controller's hierarchy of v1, or of `name=systemd`.
    pub fn root_of(&self, controller: &str) -> Option<PathBuf> {
        self.v1.get(controller.strip_prefix("name=").unwrap_or(controller)).cloned()
    }

    /// Lists the available controllers.
    pub fn controllers(&self) -> Vec<String> {
        match &self.v2 {
            Some(root) if self.v1.is_empty() => {
                let text = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
                text.split_whitespace().map(str::to_string).collect()
            }
            _ => self.v1.keys().cloned().collect(),
        }
    }

    /// Returns the directories of the cgroup of this name, which need not exist.
    pub fn folders(&self, name: &str) -> Vec<PathBuf> {
        let name = name.trim_start_matches('/');
        let mut folders: Vec<PathBuf> = self.v1.values().map(|root| root.join(name)).collect();
        folders.extend(self.v2.iter().map(|root| root.join(name)));
        folders.sort();
        folders.dedup();
        folders
    }

    /// Returns the journal entry that undoes the cgroup of this name and all below it.
    pub fn entry(&self, name: &str) -> Entry {
        Entry::cgroup(self.folders(name))
    }

    /// Creates the run's root cgroup, the parent of its environments' cgroups, and on v2 enables
    /// the controllers in it. The journal has the entries first and undoes them.
    pub fn make_root(&self, journal: &Journal) -> Result<Vec<EntryId>, CgroupError> {
        let name = journal.prefix();
        let mut entries = Vec::new();
        let mut enable = Vec::new();
        let mut enabled_here = None;
        if let (Version::V2, Some(root)) = (self.version(), &self.v2) {
            let enabled = fs::read_to_string(root.join("cgroup.subtree_control"));
            let enabled = enabled.unwrap_or_default();
            let enabled: Vec<&str> = enabled.split_whitespace().collect();
            enable = self.controllers();
            enable.retain(|c| CONTROLLERS.contains(&c.as_str()));
            let missing = enable.iter().filter(|c| !enabled.contains(&c.as_str()));
            let controllers: Vec<String> = missing.cloned().collect();
            if !controllers.is_empty() {
                entries.push(Entry::subtree_control(root.clone(), controllers.clone()));
                enabled_here = Some((root.join("cgroup.subtree_control"), controllers));
            }
        }
        entries.push(self.entry(&name));
        let ids = journal.write(entries)?;
        if let Some((path, controllers)) = enabled_here {
            for controller in controllers {
                write(&path, &format!("+{controller}"))?;
            }
        }
        let group = self.group(&name);
        group.make_folders()?;
        if self.version() == Version::V2 {
            for controller in enable {
                let root = self.v2.as_ref().map(|root| root.join(&name)).unwrap_or_default();
                write(&root.join("cgroup.subtree_control"), &format!("+{controller}"))?;
            }
        }
        Ok(ids)
    }

    /// Returns the cgroup of this name, which need not exist.
    pub fn group(&self, name: &str) -> Cgroup {
        Cgroup { layout: self.clone(), name: name.trim_start_matches('/').into(), only_cpu: false }
    }

    /// Returns the cgroup of this name for the scheduler alone. On v1 it is a directory of the cpu
    /// hierarchy only, so that its processes stay in their cgroups of the other controllers. v2 has
    /// one hierarchy, so that the directory there is a whole cgroup.
    pub fn cpu_group(&self, name: &str) -> Cgroup {
        Cgroup { only_cpu: true, ..self.group(name) }
    }

    /// Moves a process into this process's own cgroup in every hierarchy.
    pub fn move_to_ours(&self, pid: u32) -> Result<(), CgroupError> {
        for (root, path) in self.of_process(Path::new("/proc"), "self")? {
            let folder = root.join(path.trim_start_matches('/'));
            // Behind a cgroup namespace or a bind mount, our own path may not exist.
            let folder = if folder.exists() { folder } else { root };
            write(&folder.join("cgroup.procs"), &pid.to_string())?;
        }
        Ok(())
    }

    /// Returns the mount point and the cgroup path of a process in each hierarchy.
    pub fn of_process(
        &self,
        proc: &Path,
        pid: &str,
    ) -> Result<Vec<(PathBuf, String)>, CgroupError> {
        let path = proc.join(pid).join("cgroup");
        let text = fs::read_to_string(&path);
        let text = text.map_err(|source| CgroupError::Read { path, source })?;
        let mut found = Vec::new();
        for line in text.lines() {
            let mut parts = line.splitn(3, ':');
            let (Some(_), Some(names), Some(path)) = (parts.next(), parts.next(), parts.next())
            else {
                continue;
            };
            let root = match names {
                "" => self.v2.as_ref(),
                names => names
                    .split(',')
                    .find_map(|name| self.v1.get(name.strip_prefix("name=").unwrap_or(name))),
            };
            found.extend(root.map(|root| (root.clone(), path.to_string())));
        }
        Ok(found)
    }
}

/// One cgroup: a directory in every hierarchy.
#[derive(Clone, Debug)]
pub struct Cgroup {
    layout: Layout,
    name: String,
    /// Whether the cgroup exists in the hierarchy of the cpu controller alone.
    only_cpu: bool,
}

impl Cgroup {
    /// Returns the path below the root of each hierarchy, without a leading slash.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Creates the directories. The caller has journalled this cgroup or a parent of it.
    ///
    /// # Errors
    /// When the tree is not writable.
    pub fn make_folders(&self) -> Result<(), CgroupError> {
        for folder in self.folders() {
            fs::create_dir_all(&folder)
                .map_err(|source| CgroupError::Make { path: folder.clone(), source })?;
        }
        self.inherit_cpuset()?;
        self.enable_controllers()
    }

    /// Creates the directories above this cgroup, as `make_folders` does, so that another program
    /// can create this one.
    pub fn make_parents(&self) -> Result<(), CgroupError> {
        let parent = Path::new(&self.name).parent().and_then(Path::to_str).unwrap_or_default();
        if !parent.is_empty() {
            Self { name: parent.into(), ..self.clone() }.make_folders()?;
        }
        self.enable_controllers()
    }

    /// Returns the directories of the cgroup.
    fn folders(&self) -> Vec<PathBuf> {
        match self.only_cpu {
            true => self.layout.cpu_root().map(|root| root.join(&self.name)).into_iter().collect(),
            false => self.layout.folders(&self.name),
        }
    }

    /// Enables the controllers of a run in the directories above a cgroup on v2. The topmost of
    /// them is the run's own (`Layout::make_root`), where they are enabled already.
    fn enable_controllers(&self) -> Result<(), CgroupError> {
        let Some(root) = self.layout.v2.as_ref().filter(|_| self.is_v2()) else { return Ok(()) };
        let mut above: Vec<&Path> = Path::new(&self.name).ancestors().skip(1).collect();
        above.retain(|path| path.components().count() > 1);
        for path in above.into_iter().rev() {
            let folder = root.join(path);
            let available = read(&folder.join("cgroup.controllers"))?;
            let available = available.split_whitespace().filter(|c| CONTROLLERS.contains(c));
            for controller in available {
                write(&folder.join("cgroup.subtree_control"), &format!("+{controller}"))?;
            }
        }
        Ok(())
    }

    /// Copies the parent's cpuset on v1, where a new cpuset is empty and accepts no process until
    /// it has CPUs and memory nodes.
    fn inherit_cpuset(&self) -> Result<(), CgroupError> {
        let Some(root) = self.layout.v1.get("cpuset") else { return Ok(()) };
        if !self.folders().contains(&root.join(&self.name)) {
            return Ok(());
        }
        let mut folder = root.clone();
        for part in Path::new(&self.name).components() {
            let parent = folder.clone();
            folder.push(part);
            for file in ["cpuset.cpus", "cpuset.mems"] {
                if read(&folder.join(file))?.trim().is_empty() {
                    write(&folder.join(file), read(&parent.join(file))?.trim())?;
                }
            }
        }
        Ok(())
    }

    fn folder(&self, controller: &'static str) -> Result<PathBuf, CgroupError> {
        let root = match self.layout.version() {
            Version::V2 => self.layout.v2.as_ref(),
            _ => self.layout.v1.get(controller),
        };
        root.map(|root| root.join(&self.name)).ok_or(CgroupError::NoController { controller })
    }

    fn is_v2(&self) -> bool {
        self.layout.version() == Version::V2
    }

    /// Restricts the cgroup to these CPUs.
    pub fn set_cpuset(&self, cpus: &CpuSet) -> Result<(), CgroupError> {
        write(&self.folder("cpuset")?.join("cpuset.cpus"), &cpus.to_string())
    }

    /// Restricts the cgroup to the memory of these NUMA nodes.
    pub fn set_memory_nodes(&self, nodes: &CpuSet) -> Result<(), CgroupError> {
        write(&self.folder("cpuset")?.join("cpuset.mems"), &nodes.to_string())
    }

    /// Returns the effective CPUs as a list.
    pub fn cpuset_effective(&self) -> Result<String, CgroupError> {
        let folder = self.folder("cpuset")?;
        let file = if self.is_v2() { "cpuset.cpus.effective" } else { "cpuset.effective_cpus" };
        Ok(read(&folder.join(file))?.trim().to_string())
    }

    /// Limits the memory, in bytes.
    pub fn set_memory(&self, bytes: u64) -> Result<(), CgroupError> {
        let file = if self.is_v2() { "memory.max" } else { "memory.limit_in_bytes" };
        write(&self.folder("memory")?.join(file), &bytes.to_string())
    }

    /// Returns the memory limit in force in bytes; `None` means no limit.
    pub fn memory(&self) -> Result<Option<u64>, CgroupError> {
        let file = if self.is_v2() { "memory.max" } else { "memory.limit_in_bytes" };
        let text = read(&self.folder("memory")?.join(file))?;
        // v1 shows "no limit" as the largest whole number of pages.
        Ok(text.trim().parse().ok().filter(|bytes| *bytes < 1 << 62))
    }

    /// Moves a process with all its threads into the cgroup.
    pub fn add(&self, pid: u32) -> Result<(), CgroupError> {
        self.folders()
            .iter()
            .try_for_each(|folder| write(&folder.join("cgroup.procs"), &pid.to_string()))
    }

    /// Removes the directories that hold no process; the journal removes the others later.
    pub fn remove_empty(&self) {
        for folder in self.folders() {
            let _ = fs::remove_dir(folder);
        }
    }

    /// Lists the processes in the cgroup and in all cgroups below it.
    pub fn pids(&self) -> Vec<u32> {
        let folder = ["cpuset", "cpu", "freezer", "memory"]
            .into_iter()
            .find_map(|controller| self.folder(controller).ok());
        folder.map(|folder| cgroup_folder::pids_of_tree(&folder)).unwrap_or_default()
    }

    /// Whether the kernel can freeze its processes.
    pub fn can_freeze(&self) -> bool {
        match self.is_v2() {
            true => self.folder("cgroup").is_ok_and(|f| f.join("cgroup.freeze").exists()),
            false => self.folder("freezer").is_ok_and(|f| f.join("freezer.state").exists()),
        }
    }

    /// Freezes every process in the cgroup and waits until the kernel reports it frozen.
    ///
    /// # Errors
    /// `NotFrozen` when a process does not stop because it is in uninterruptible sleep.
    pub fn freeze(&self) -> Result<(), CgroupError> {
        let folder = self.folder("freezer")?;
        let (file, value) =
            if self.is_v2() { ("cgroup.freeze", "1") } else { ("freezer.state", "FROZEN") };
        write(&folder.join(file), value)?;
        let deadline = Instant::now() + FREEZE_LIMIT;
        for attempt in 1.. {
            if is_frozen(&folder)? {
                break;
            }
            if Instant::now() > deadline {
                cgroup_folder::thaw(&folder);
                return Err(CgroupError::NotFrozen { path: folder });
            }
            thread::sleep(process::stop_poll(attempt));
            // On v1 a process that forks or executes meanwhile can keep the cgroup in FREEZING
            // forever; cgroup-v1/freezer-subsystem.rst advises to write again, or to thaw and
            // retry.
            if !self.is_v2() {
                if attempt % 50 == 0 {
                    cgroup_folder::thaw(&folder);
                    thread::sleep(Duration::from_millis(2));
                }
                write(&folder.join(file), value)?;
            }
        }
        Ok(())
    }

    /// Thaws every process in the cgroup.
    pub fn thaw(&self) -> Result<(), CgroupError> {
        let folder = self.folder("freezer")?;
        let (file, value) =
            if self.is_v2() { ("cgroup.freeze", "0") } else { ("freezer.state", "THAWED") };
        write(&folder.join(file), value)
    }

    /// Returns the CPU time of every process that is or was in the cgroup, in ns: `cpuacct.usage`
    /// (v1), or `usage_usec` of `cpu.stat` (v2), which exists without the cpu controller too
    /// (cgroup-v2.rst).
    pub fn cpu_ns(&self) -> Result<u64, CgroupError> {
        let folder = self.folder("cpuacct")?;
        let (file, of_text): (_, fn(&str) -> Option<u64>) = match self.is_v2() {
            true => ("cpu.stat", |text| {
                let line = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
                Some(line.trim().parse::<u64>().ok()? * 1000)
            }),
            false => ("cpuacct.usage", |text| text.trim().parse().ok()),
        };
        let path = folder.join(file);
        let found = of_text(&read(&path)?);
        found.ok_or_else(|| {
            let source = io::Error::new(io::ErrorKind::InvalidData, "it has no CPU time");
            CgroupError::Read { path, source }
        })
    }

    /// Returns the time for which the CPU quota throttled the cgroup, in ns.
    pub fn throttled_ns(&self) -> Result<u64, CgroupError> {
        let text = read(&self.folder("cpu")?.join("cpu.stat"))?;
        let field = |name: &str| {
            let mut words = text.lines().filter_map(|line| line.split_once(' '));
            words.find(|(key, _)| *key == name).and_then(|(_, value)| value.trim().parse().ok())
        };
        let us: Option<u64> = field("throttled_usec");
        Ok(us.map(|us| us * 1000).or_else(|| field("throttled_time")).unwrap_or(0))
    }
}

/// Lists the processes in one directory of a hierarchy and in all directories below it.
pub fn pids_below(folder: &Path) -> Vec<u32> {
    cgroup_folder::pids_of_tree(folder)
}

fn is_frozen(folder: &Path) -> Result<bool, CgroupError> {
    let v1 = folder.join("freezer.state");
    if v1.exists() {
        return Ok(read(&v1)?.trim() == "FROZEN");
    }
    Ok(read(&folder.join("cgroup.events"))?.lines().any(|line| line == "frozen 1"))
}

fn read(path: &Path) -> Result<String, CgroupError> {
    fs::read_to_string(path).map_err(|source| CgroupError::Read { path: path.into(), source })
}

fn write(path: &Path, value: &str) -> Result<(), CgroupError> {
    fs::write(path, value).map_err(|source| CgroupError::Write {
        path: path.into(),
        value: value.into(),
        source,
    })
}

#[cfg(test)]
mod tests;
