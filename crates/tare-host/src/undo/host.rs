//! The kinds of journal entries of this crate, and the code that undoes each.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::mount::{UnmountFlags, unmount};
use serde::{Deserialize, Serialize};

use super::{Entry, UndoError, UndoKinds, check_name, check_path};
use crate::exec::{Command, ExecError};
use crate::nvme::{self, Target, soft_roce};
use crate::process::{self, ProcessHandle};
use crate::{RUN_VARIABLE, block, cgroup_folder, mounts, netns};

/// How long a killed process may take to end. Only disk I/O can delay it.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// The kinds of entries of this crate, as they are written in a journal.
///
/// Every name starts with `tare-RUN`; undoing checks that before it touches anything.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
enum HostEntry {
    /// Processes with `TARE_RUN=RUN` in their environment.
    Processes,
    /// A named network namespace.
    NetworkNamespace {
        name: String,
    },
    /// A network device, in the host's namespace or in the one behind the path.
    Link {
        name: String,
        namespace: Option<PathBuf>,
    },
    /// A table in the host's namespace, or in the one behind the path.
    NftTable {
        family: String,
        name: String,
        namespace: Option<PathBuf>,
    },
    /// One cgroup as its directories (one per hierarchy on cgroup v1), with all below it.
    Cgroup {
        paths: Vec<PathBuf>,
    },
    /// Controllers that were enabled for the children of a cgroup that is not ours.
    SubtreeControl {
        path: PathBuf,
        controllers: Vec<String>,
    },
    Mount {
        path: PathBuf,
    },
    /// A mount on a path in the mount namespace of another process, such as an engine.
    MountElsewhere {
        path: PathBuf,
        pid: u32,
    },
    /// The loop devices on a file of the run.
    LoopDevice {
        file: PathBuf,
    },
    /// A mapping of the device mapper.
    Mapping {
        name: String,
    },
    /// A target of NVMe over fabrics in this kernel: subsystem, namespace and port.
    NvmeTarget {
        name: String,
    },
    /// The controllers of a connection of this name.
    NvmeController {
        name: String,
    },
    /// An RDMA device in software.
    RdmaDevice {
        name: String,
    },
    /// A directory with its content.
    Directory {
        path: PathBuf,
    },
    File {
        path: PathBuf,
    },
}

/// Creates entries of this crate's kinds.
impl Entry {
    /// Processes with `TARE_RUN=RUN` in their environment.
    pub fn processes() -> Self {
        Self::new(&HostEntry::Processes)
    }

    /// A named network namespace.
    pub fn network_namespace(name: String) -> Self {
        Self::new(&HostEntry::NetworkNamespace { name })
    }

    /// A network device, in the host's namespace or in the one behind the path.
    pub fn link(name: String, namespace: Option<PathBuf>) -> Self {
        Self::new(&HostEntry::Link { name, namespace })
    }

    /// A table in the host's namespace, or in the one behind the path.
    pub fn nft_table(family: &str, name: String, namespace: Option<PathBuf>) -> Self {
        Self::new(&HostEntry::NftTable { family: family.into(), name, namespace })
    }

    /// One cgroup as its directories (one per hierarchy on cgroup v1), with all below it.
    pub fn cgroup(paths: Vec<PathBuf>) -> Self {
        Self::new(&HostEntry::Cgroup { paths })
    }

    /// Controllers that were enabled for the children of a cgroup that is not ours.
    pub fn subtree_control(path: PathBuf, controllers: Vec<String>) -> Self {
        Self::new(&HostEntry::SubtreeControl { path, controllers })
    }

    /// All mounts at a path and below it.
    pub fn mount(path: PathBuf) -> Self {
        Self::new(&HostEntry::Mount { path })
    }

    /// A mount on a path in the mount namespace of another process, such as an engine.
    pub fn mount_elsewhere(path: PathBuf, pid: u32) -> Self {
        Self::new(&HostEntry::MountElsewhere { path, pid })
    }

    /// The loop devices on a file of the run.
    pub fn loop_device(file: PathBuf) -> Self {
        Self::new(&HostEntry::LoopDevice { file })
    }

    /// A mapping of the device mapper.
    pub fn mapping(name: String) -> Self {
        Self::new(&HostEntry::Mapping { name })
    }

    /// A target of NVMe over fabrics in this kernel: subsystem, namespace and port.
    pub fn nvme_target(name: String) -> Self {
        Self::new(&HostEntry::NvmeTarget { name })
    }

    /// The controllers of a connection of this name.
    pub fn nvme_controller(name: String) -> Self {
        Self::new(&HostEntry::NvmeController { name })
    }

    /// An RDMA device in software.
    pub fn rdma_device(name: String) -> Self {
        Self::new(&HostEntry::RdmaDevice { name })
    }

    /// A directory with its content.
    pub fn directory(path: PathBuf) -> Self {
        Self::new(&HostEntry::Directory { path })
    }

    /// A file.
    pub fn file(path: PathBuf) -> Self {
        Self::new(&HostEntry::File { path })
    }
}

/// Undoes the kinds of this crate, which every journal accepts.
#[derive(Debug)]
pub(crate) struct HostKinds;

impl UndoKinds for HostKinds {
    fn kinds(&self) -> &'static [&'static str] {
        &[
            "processes",
            "network_namespace",
            "link",
            "nft_table",
            "cgroup",
            "subtree_control",
            "mount",
            "mount_elsewhere",
            "loop_device",
            "mapping",
            "nvme_target",
            "nvme_controller",
            "rdma_device",
            "directory",
            "file",
        ]
    }

    fn undo(&self, run: &str, entry: &Entry) -> Result<(), UndoError> {
        undo(run, &entry.read()?)
    }
}

/// Kills every marked process of the run, so that none creates more objects. Thaws the run's
/// cgroups first, because on cgroup v1 a frozen process cannot be killed.
pub(crate) fn end_processes(run: &str, entries: &[Entry]) -> Result<(), UndoError> {
    let mut has_processes = false;
    for entry in entries {
        match entry.read() {
            Ok(HostEntry::Cgroup { paths }) => {
                for path in &paths {
                    check_path(run, path)?;
                    folders(path).iter().for_each(|folder| cgroup_folder::thaw(folder));
                }
            }
            Ok(HostEntry::Processes) => has_processes = true,
            // Other kinds start no process that lacks the run's mark.
            Ok(_) | Err(_) => {}
        }
    }
    if has_processes { kill_run(run) } else { Ok(()) }
}

/// Undoes one entry of a run.
fn undo(run: &str, entry: &HostEntry) -> Result<(), UndoError> {
    match entry {
        HostEntry::Processes => kill_run(run),
        HostEntry::NetworkNamespace { name } => {
            check_name(run, name)?;
            Ok(netns::remove(name)?)
        }
        HostEntry::Link { name, namespace } => {
            check_name(run, name)?;
            remove_link(name, namespace.as_deref())
        }
        HostEntry::NftTable { family, name, namespace } => {
            check_name(run, name)?;
            remove_table(family, name, namespace.as_deref())
        }
        HostEntry::Cgroup { paths } => {
            paths.iter().try_for_each(|path| check_path(run, path))?;
            // All are thawed first: a process that one hierarchy freezes cannot be killed through
            // another.
            let folders: Vec<PathBuf> = paths.iter().flat_map(|path| folders(path)).collect();
            folders.iter().for_each(|folder| cgroup_folder::thaw(folder));
            folders.iter().rev().try_for_each(|folder| remove_cgroup(run, folder))
        }
        HostEntry::SubtreeControl { path, controllers } => {
            disable_controllers(path, controllers);
            Ok(())
        }
        HostEntry::Mount { path } => {
            check_path(run, path)?;
            unmount_below(path)
        }
        HostEntry::MountElsewhere { path, pid } => {
            check_path(run, path)?;
            mounts::hide_from(*pid, path)
                .map_err(|source| UndoError::Unmount { path: path.clone(), source })
        }
        HostEntry::LoopDevice { file } => {
            check_path(run, file)?;
            Ok(block::detach(file)?)
        }
        HostEntry::Mapping { name } => {
            check_name(run, name)?;
            Ok(block::unmap(name)?)
        }
        HostEntry::NvmeTarget { name } => {
            check_name(run, name)?;
            Target::open()?.map_or(Ok(()), |target| Ok(target.remove(name)?))
        }
        HostEntry::NvmeController { name } => {
            check_name(run, name)?;
            Ok(nvme::disconnect(name)?)
        }
        HostEntry::RdmaDevice { name } => {
            check_name(run, name)?;
            let removed = soft_roce::remove(name);
            removed.map_err(|source| UndoError::Command {
                what: format!("RDMA device {name}"),
                source,
            })
        }
        HostEntry::Directory { path } => {
            check_path(run, path)?;
            unmount_below(path)?;
            remove_directory(path)
        }
        HostEntry::File { path } => {
            check_path(run, path)?;
            gone(path, fs::remove_file(path))
        }
    }
}

/// Returns a result without the error that the path is gone already.
fn gone(path: &Path, result: io::Result<()>) -> Result<(), UndoError> {
    match result {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(UndoError::Remove { path: path.into(), source })
        }
        _ => Ok(()),
    }
}

/// Removes a directory. Retries, because a process that is ending may write once more meanwhile.
fn remove_directory(path: &Path) -> Result<(), UndoError> {
    let deadline = Instant::now() + Duration::from_secs(2);
    loop {
        match fs::remove_dir_all(path) {
            Err(error)
                if error.kind() == io::ErrorKind::DirectoryNotEmpty
                    && Instant::now() < deadline =>
            {
                thread::sleep(Duration::from_millis(5));
            }
            result => return gone(path, result),
        }
    }
}

/// Kills every process with the run's mark until two scans in a row find none: the second finds a
/// process that was forking, or was inside execve and showed no environment, during the first.
fn kill_run(run: &str) -> Result<(), UndoError> {
    let own = std::process::id();
    let mut alive = Vec::new();
    let mut looks_without = 0;
    for _ in 0..50 {
        // The handle is opened before the check, so that the checked process is the one killed.
        let marked = |pid: u32| {
            let handle = ProcessHandle::open(pid)?;
            (process::variable(pid, RUN_VARIABLE).as_deref() == Some(run)).then_some(handle)
        };
        let handles: Vec<ProcessHandle> =
            process::all().into_iter().filter(|pid| *pid != own).filter_map(marked).collect();
        if handles.is_empty() {
            looks_without += 1;
            if looks_without == 2 {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(2));
            continue;
        }
        looks_without = 0;
        alive = process::kill_handles(&handles, KILL_LIMIT)
            .map_err(|source| UndoError::Signal { run: run.into(), source })?;
        if !alive.is_empty() {
            break;
        }
    }
    match alive.is_empty() {
        true => Ok(()),
        false => Err(UndoError::Unkillable { run: run.into(), pids: alive }),
    }
}

fn remove_link(name: &str, namespace: Option<&Path>) -> Result<(), UndoError> {
    let devices = || fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let devices = match namespace {
        None => devices(),
        Some(path) => match netns::within(path, devices) {
            Ok(devices) => devices,
            // The namespace is gone and has taken the device with it.
            Err(_) => return Ok(()),
        },
    };
    let there = |line: &str| line.trim_start().split_once(':').is_some_and(|(n, _)| n == name);
    if !devices.lines().any(there) {
        return Ok(());
    }
    let mut command = Command::new("ip").args(["link", "delete", "dev", name]);
    if let Some(path) = namespace {
        command = command.in_namespace(path);
    }
    match command.run() {
        // It vanished meanwhile together with its peer.
        Err(ExecError::Failed { stderr, .. }) if stderr.contains("Cannot find device") => Ok(()),
        Err(source) => Err(UndoError::Command { what: format!("link {name}"), source }),
        Ok(_) => Ok(()),
    }
}

fn remove_table(family: &str, name: &str, namespace: Option<&Path>) -> Result<(), UndoError> {
    if namespace.is_some_and(|path| !path.exists()) {
        return Ok(());
    }
    let mut command = Command::new("nft").args(["delete", "table", family, name]);
    if let Some(path) = namespace {
        command = command.in_namespace(path);
    }
    match command.run() {
        Err(ExecError::Failed { stderr, .. }) if stderr.contains("No such file") => Ok(()),
        Err(source) => Err(UndoError::Command { what: format!("nft table {name}"), source }),
        Ok(_) => Ok(()),
    }
}

/// Lists a cgroup directory and all below it, parents first; empty when it is gone.
fn folders(path: &Path) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = path.exists().then(|| path.into()).into_iter().collect();
    let mut next = 0;
    while next < folders.len() {
        let below = fs::read_dir(&folders[next]).into_iter().flatten().flatten();
        let below = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let below: Vec<PathBuf> = below.map(|entry| entry.path()).collect();
        folders.extend(below);
        next += 1;
    }
    folders
}

/// Kills the processes in one cgroup directory and removes it.
fn remove_cgroup(run: &str, folder: &Path) -> Result<(), UndoError> {
    let deadline = Instant::now() + KILL_LIMIT;
    loop {
        let pids = cgroup_folder::pids(folder);
        let alive = process::kill(&pids, KILL_LIMIT)
            .map_err(|source| UndoError::Signal { run: run.into(), source })?;
        if !alive.is_empty() {
            return Err(UndoError::Unkillable { run: run.into(), pids: alive });
        }
        match fs::remove_dir(folder) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            // A process in it is still ending.
            Err(_) if Instant::now() < deadline => thread::sleep(Duration::from_millis(1)),
            Err(source) => return Err(UndoError::Remove { path: folder.into(), source }),
        }
    }
}

/// Disables controllers. A controller that another program uses by now stays enabled (EBUSY).
fn disable_controllers(path: &Path, controllers: &[String]) {
    for controller in controllers {
        let _ = fs::write(path.join("cgroup.subtree_control"), format!("-{controller}"));
    }
}

/// Unmounts everything at and below a path, the last mount first, so that removing the directory
/// cannot delete files of a mounted file system.
fn unmount_below(path: &Path) -> Result<(), UndoError> {
    let fail = |path: &Path, source| UndoError::Unmount { path: path.into(), source };
    let mounts = mounts::points().map_err(|source| fail(path, source))?;
    for mount in mounts.iter().rev().filter(|mount| mount.starts_with(path)) {
        match unmount(mount, UnmountFlags::DETACH) {
            Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(fail(mount, error.into())),
        }
    }
    Ok(())
}
