//! What is around a system that runs already and may cost it something. Everything is read from
//! /proc, the cgroup and the engine: no connection is made, and nothing changes.
//!
//! Limits: how packets come into a network namespace is not known here.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use serde::Serialize;
use tare_host::cgroup::Layout;
use tare_host::{process, tcp};
use tare_lab::attach::AttachTarget;
use tare_std::cpus::CpuSet;

use super::AttachedError;
use super::target::Target;
use crate::layer::confinement;
use crate::storage::MountView;

/// The file with the CPUs of this host.
const CPUS_ONLINE: &str = "/sys/devices/system/cpu/online";
/// The mode of a process with a seccomp filter (proc_pid_status(5)).
const SECCOMP_FILTER: &str = "2";
/// What /proc/PID/fd shows of an instance of io_uring.
const IO_URING: &str = "anon_inode:[io_uring]";

/// A system that runs already, and what is around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundSystem {
    /// What it is, in words.
    pub what: String,
    /// The TCP ports on which it listens.
    pub ports: Vec<u16>,
    pub around: Vec<Around>,
}

/// Something around a system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Around {
    pub kind: AroundKind,
    /// What it is here, in words.
    pub found: String,
}

/// The kinds of layers that are looked for around a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AroundKind {
    /// A network namespace of its own.
    Network,
    /// It may use all CPUs of the host.
    SharedCpus,
    CpuQuota,
    Seccomp,
    /// The filter of a container, and the system does not use io_uring.
    SeccompWithoutIoUring,
    UserNamespace,
    Apparmor,
    Cgroup,
    MemoryLimit,
    /// Its working directory is on the file system of an image.
    ImageFileSystem,
    Sidecar,
    /// The namespaces and mounts of a container.
    Container,
}

/// Finds a system and what is around it.
///
/// # Errors
/// One line: what is not there or cannot be read, and what to do.
pub fn around(target: &AttachTarget) -> Result<FoundSystem, AttachedError> {
    let cgroups = Layout::read(Path::new("/proc"))
        .map_err(|error| AttachedError::target(format!("cannot read the cgroups: {error}")))?;
    let found = Target::find(target, &cgroups).map_err(AttachedError::target)?;
    check_readable(found.pid)?;
    let pids = found.pids();
    Ok(FoundSystem {
        what: found.what.clone(),
        ports: ports(found.pid, &pids),
        around: read(target, &found, &pids),
    })
}

fn check_readable(pid: u32) -> Result<(), AttachedError> {
    match fs::read_dir(format!("/proc/{pid}/fd")) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let why = format!("cannot read {} as this user; run as root", super::named(pid));
            Err(AttachedError::target(why))
        }
        _ => Ok(()),
    }
}

/// Returns the TCP ports on which processes listen, of which `pid` is the first.
fn ports(pid: u32, pids: &[u32]) -> Vec<u16> {
    let own: BTreeSet<u64> = pids.iter().flat_map(|pid| tcp::open_inodes(*pid)).collect();
    let sockets = tcp::sockets(&pid.to_string()).into_iter();
    let listen = sockets.filter(|one| one.state == tcp::State::Listen && own.contains(&one.inode));
    let ports: BTreeSet<u16> = listen.map(|one| one.local.port()).collect();
    ports.into_iter().collect()
}

fn read(target: &AttachTarget, found: &Target, pids: &[u32]) -> Vec<Around> {
    let (pid, group) = (found.pid, found.group.as_ref());
    let is_container = matches!(
        target,
        AttachTarget::Container { .. } | AttachTarget::Compose { .. } | AttachTarget::Pod { .. }
    );
    let mut all = Vec::new();
    let mut add = |kind: AroundKind, text: Option<String>| {
        all.extend(text.map(|found| Around { kind, found }));
    };
    add(AroundKind::Network, own_namespace(pid, "net"));
    match group.and_then(|group| group.bandwidth().ok()).flatten() {
        Some(quota) => add(AroundKind::CpuQuota, Some(quota.to_string())),
        None => add(AroundKind::SharedCpus, shared_cpus(pid)),
    }
    let has_filter = process::status_field(pid, "Seccomp").as_deref() == Some(SECCOMP_FILTER);
    let (kind, text) = match is_container && !pids.iter().any(|pid| has_io_uring(*pid)) {
        true => (AroundKind::SeccompWithoutIoUring, "a filter; io_uring is not used"),
        false => (AroundKind::Seccomp, "a filter"),
    };
    add(kind, has_filter.then(|| text.into()));
    add(AroundKind::UserNamespace, own_namespace(pid, "user"));
    let profile = confinement::profile_of(pid).filter(|profile| profile != "unconfined");
    add(AroundKind::Apparmor, profile);
    add(AroundKind::Cgroup, group.map(|group| format!("/{}", group.name())));
    let memory = group.and_then(|group| group.memory().ok()).flatten();
    add(AroundKind::MemoryLimit, memory.map(|bytes| format!("{} MiB", bytes >> 20)));
    add(AroundKind::ImageFileSystem, on_image(found));
    let sidecars = found.pod.iter().flat_map(|pod| &pod.sidecars);
    let names: Vec<&str> = sidecars.map(|one| one.name.as_str()).collect();
    add(AroundKind::Sidecar, (!names.is_empty()).then(|| names.join(", ")));
    add(AroundKind::Container, is_container.then(|| "namespaces and mounts".into()));
    all
}

/// Returns the namespace of a process if it is another one than that of this process.
fn own_namespace(pid: u32, kind: &str) -> Option<String> {
    let here = process::inode_of_link(Path::new(&format!("/proc/thread-self/ns/{kind}")));
    let inode = process::namespace_inode(pid, kind).filter(|inode| Some(*inode) != here)?;
    Some(format!("its own, {kind}:[{inode}]"))
}

/// Returns the CPUs that a process may use if they are all of the host.
fn shared_cpus(pid: u32) -> Option<String> {
    let online = CpuSet::parse_list(fs::read_to_string(CPUS_ONLINE).ok()?.trim()).ok()?;
    let allowed = process::status_field(pid, "Cpus_allowed_list")?;
    let allowed = CpuSet::parse_list(allowed.trim()).ok()?;
    (online.len() > 1 && online.is_subset(&allowed)).then(|| format!("all of the host, {online}"))
}

fn has_io_uring(pid: u32) -> bool {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    files.filter_map(|file| fs::read_link(file.path()).ok()).any(|link| link == Path::new(IO_URING))
}

/// Returns the working directory if it is on an overlay. A daemon in / has its data elsewhere.
fn on_image(found: &Target) -> Option<String> {
    let directory = fs::read_link(format!("/proc/{}/cwd", found.pid)).ok()?;
    let view = MountView::of(found.pid, &directory, &found.path_of(&directory));
    let is_data = directory != Path::new("/") && view.is("overlay");
    is_data.then(|| format!("{} on an overlay", directory.display()))
}
