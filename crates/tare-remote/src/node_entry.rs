//! The way of a process of a pod onto its node, by Tare's own program.
//!
//! Method: what the shell lines of `tare_kube`'s pods do on nodes with a shell. The process enters
//! the namespaces of the kubelet, or of the node's first process where there is none of that name,
//! and leaves the cgroups of the pod.
//!
//! Limits: the pod has to be privileged and to share the node's processes and network, and the
//! process may have one thread alone.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tare_kube::KUBELETS;

/// The namespaces of the node, as `/proc/PID/ns` names them. That of the mounts is the last one,
/// because `/proc` is the node's after it.
const NAMESPACES: [(&str, LinkNameSpaceType); 4] = [
    ("uts", LinkNameSpaceType::HostNameAndNISDomainName),
    ("ipc", LinkNameSpaceType::InterProcessCommunication),
    ("net", LinkNameSpaceType::Network),
    ("mnt", LinkNameSpaceType::Mount),
];

/// Why a process cannot enter its node.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot enter the namespace {namespace} of process {process} of the node; the pod has to be \
     privileged, with the node's processes"
)]
pub struct NodeEntryError {
    process: u32,
    namespace: &'static str,
    source: io::Error,
}

/// Takes this process, which has to have one thread, from its pod to the node.
///
/// # Errors
/// If the pod may not enter the node's namespaces.
pub fn enter_node() -> Result<(), NodeEntryError> {
    let process = process_of_node(Path::new("/proc"));
    let fail = |namespace| move |source| NodeEntryError { process, namespace, source };
    let mut opened = Vec::new();
    for (name, kind) in NAMESPACES {
        let file = File::open(format!("/proc/{process}/ns/{name}"));
        opened.push((name, kind, file.map_err(fail(name))?));
    }
    for (name, kind, file) in opened {
        let moved = move_into_link_name_space(file.as_fd(), Some(kind));
        moved.map_err(|error| fail(name)(error.into()))?;
    }
    leave_cgroups(Path::new("/sys/fs/cgroup"));
    // The class of a pod has a place among the victims of the OOM killer.
    write_existing(Path::new("/proc/self/oom_score_adj"));
    Ok(())
}

/// Returns the process whose namespaces are those of the node. The pod has the network of its node,
/// which tells its kubelet from that of another node on the same kernel.
fn process_of_node(proc: &Path) -> u32 {
    let network = |process: &str| {
        let found = fs::metadata(proc.join(process).join("ns/net")).ok()?;
        Some((found.dev(), found.ino()))
    };
    let own = network("self");
    let is_kubelet = |pid: &u32| {
        let pid = pid.to_string();
        let name = fs::read_to_string(proc.join(&pid).join("comm")).unwrap_or_default();
        KUBELETS.contains(&name.trim_end()) && own.is_some() && network(&pid) == own
    };
    let entries = fs::read_dir(proc).into_iter().flatten().flatten();
    let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.find(is_kubelet).unwrap_or(1)
}

/// Moves this process into the root of every hierarchy. Version 1 of cgroups has one for each
/// controller. One that does not take it holds nothing of the pod.
fn leave_cgroups(root: &Path) {
    let hierarchies: Vec<PathBuf> = match root.join("cgroup.controllers").exists() {
        true => vec![root.into()],
        false => {
            let entries = fs::read_dir(root).into_iter().flatten().flatten();
            entries.map(|entry| entry.path()).collect()
        }
    };
    for hierarchy in hierarchies {
        write_existing(&hierarchy.join("cgroup.procs"));
    }
}

/// Writes 0 to a file of the kernel, if it is there: to `cgroup.procs` it is this process.
fn write_existing(path: &Path) {
    if let Ok(mut file) = OpenOptions::new().write(true).open(path) {
        let _ = file.write_all(b"0");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a `/proc` with this process in the network `a`, and others by number, name and
    /// network.
    fn proc(others: &[(u32, &str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let network = |name: &str| root.path().join(format!("network-{name}"));
        for name in ["a", "b"] {
            fs::write(network(name), "").unwrap();
        }
        let own = [("self".to_string(), "tare", "a")];
        let others = others.iter().map(|(pid, comm, network)| (pid.to_string(), *comm, *network));
        for (pid, comm, name) in own.into_iter().chain(others) {
            let folder = root.path().join(pid);
            fs::create_dir_all(folder.join("ns")).unwrap();
            fs::write(folder.join("comm"), format!("{comm}\n")).unwrap();
            fs::hard_link(network(name), folder.join("ns/net")).unwrap();
        }
        root
    }

    #[test]
    fn the_node_is_where_its_kubelet_is() {
        let check = |others: &[(u32, &str, &str)], expect: u32| {
            assert_eq!(process_of_node(proc(others).path()), expect, "{others:?}");
        };
        check(&[(1, "systemd", "a"), (7, "kubelet", "a")], 7);
        check(&[(7, "kubelet", "b"), (8, "k3s-server", "a")], 8);
        check(&[(7, "kubelet", "b"), (8, "kubelets", "a")], 1);
        check(&[], 1);
    }

    #[test]
    fn every_hierarchy_is_left() {
        let root = tempfile::tempdir().unwrap();
        for name in ["cpu", "memory", "other"] {
            fs::create_dir(root.path().join(name)).unwrap();
        }
        let procs = |name: &str| root.path().join(name).join("cgroup.procs");
        for name in ["cpu", "memory"] {
            fs::write(procs(name), "").unwrap();
        }
        leave_cgroups(root.path());
        for name in ["cpu", "memory"] {
            assert_eq!(fs::read_to_string(procs(name)).unwrap(), "0");
        }
        assert!(!procs("other").exists(), "nothing is made");
    }
}
