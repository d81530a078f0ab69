//! The layers of an attached system as they are found.

use std::fs;
use std::path::Path;

use tare_host::cgroup::Cgroup;
use tare_host::process;
use tare_lab::environment::{AS_FOUND, LayerState};
use tare_lab::judge::CPUS_ALLOWED;

use super::pod::{AttachedPod, Sidecar};
use super::target::Target;
use crate::layer::{confinement, limits};
use crate::storage::MountView;
use crate::system::{WEIGHT, state};

/// Reads every layer of a system. `data` is the directory of its data, as it sees it.
pub(super) fn read(target: &Target, data: Option<&Path>) -> Vec<LayerState> {
    let pid = target.pid;
    let group = target.group.as_ref();
    let field = |name: &str| process::status_field(pid, name).unwrap_or("unreadable".into());
    let capabilities = ["CapEff", "CapBnd"].map(|name| format!("{name}: {}", field(name)));
    let path = group.map_or("/".into(), |group| format!("/{}", group.name()));
    let mut layers = vec![
        found("runtime", target.what.clone()),
        found("network", network(target)),
        found("cpu", cpus(pid, group)),
        found("security", format!("Seccomp: {}", field("Seccomp"))),
        found("security.capabilities", capabilities.join(", ")),
        found("user", format!("its namespace {}, Uid: {}", namespace(pid, "user"), field("Uid"))),
        found("apparmor", confinement::profile_of(pid).unwrap_or("no profile".into())),
        found("cgroup", path),
        found("rootfs", MountView::root(pid).text()),
        found("storage", storage(target, data)),
    ];
    layers.extend(group.map(|group| found("limits.memory", memory(group))));
    if let Some(pod) = &target.pod {
        layers.extend(group.map(|group| found(WEIGHT, weight(group))));
        layers.extend(group.map(limits::read_memory_qos));
        layers.push(found("sidecar", sidecars(pod)));
    }
    layers
}

fn found(layer: &str, text: String) -> LayerState {
    state(layer, AS_FOUND, text, true)
}

/// Returns the inode of a namespace of a process, and whether it is the host's.
fn namespace(pid: u32, kind: &str) -> String {
    let own = process::inode_of_link(Path::new(&format!("/proc/thread-self/ns/{kind}")));
    match process::namespace_inode(pid, kind) {
        Some(inode) if Some(inode) == own => format!("is the host's, {kind}:[{inode}]"),
        Some(inode) => format!("is its own, {kind}:[{inode}]"),
        None => "is unreadable".into(),
    }
}

/// Returns the network namespace, and what the manifest of a pod says about it.
fn network(target: &Target) -> String {
    let own = format!("its namespace {}", namespace(target.pid, "net"));
    match &target.pod {
        Some(pod) if pod.found.host_network => format!("hostNetwork: {own}"),
        Some(pod) => format!("the pod's own, {}: {own}", pod.found.address),
        None => own,
    }
}

fn weight(group: &Cgroup) -> String {
    let found = group.cpu_weight_found();
    found.map_or("unreadable".into(), |found| format!("{} {found}", group.cpu_weight_file()))
}

/// Returns the other containers of a pod that have processes.
fn sidecars(pod: &AttachedPod) -> String {
    let text = |one: &Sidecar| format!("{}: {}", one.name, super::named(one.pid));
    let all: Vec<String> = pod.sidecars.iter().map(text).collect();
    if all.is_empty() { "none".into() } else { all.join(", ") }
}

/// Returns the affinity of the first process, the cpuset and the quota.
fn cpus(pid: u32, group: Option<&Cgroup>) -> String {
    let allowed = process::status_field(pid, "Cpus_allowed_list").unwrap_or_default();
    let mut text = format!("{CPUS_ALLOWED} {allowed}");
    if let Some(cpuset) = group.and_then(|group| group.cpuset_effective().ok()) {
        text += &format!("; cpuset in force: {cpuset}");
    }
    let quota = group.and_then(|group| group.bandwidth().ok()).flatten();
    text + &quota.map_or("; no quota".into(), |quota| format!("; quota: {quota}"))
}

fn memory(group: &Cgroup) -> String {
    match group.memory() {
        Ok(Some(bytes)) => format!("{} MiB", bytes >> 20),
        Ok(None) => "none".into(),
        Err(_) => "unreadable".into(),
    }
}

/// Returns the file system of the data, or of the working directory.
fn storage(target: &Target, data: Option<&Path>) -> String {
    let cwd = fs::read_link(format!("/proc/{}/cwd", target.pid)).unwrap_or_default();
    let (path, which) = match data {
        Some(path) => (path, "its data"),
        None => (cwd.as_path(), "its working directory"),
    };
    let view = |path: &Path| MountView::of(target.pid, path, &target.path_of(path)).text();
    let mut text = format!("{which} {}: {}", path.display(), view(path));
    for volume in target.pod.iter().flat_map(|pod| &pod.found.volumes) {
        text += &format!("; {} at {}: {}", volume.kind, volume.path, view(volume.path.as_ref()));
    }
    text
}
