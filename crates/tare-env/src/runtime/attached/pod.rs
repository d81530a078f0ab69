//! Pods of a cluster to which environments are attached. The API is only read: the right to get
//! pods is enough, and the processes are found on this host by the id of the container.

use std::cell::LazyCell;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use tare_host::cgroup::{self, Layout};
use tare_kube::{Access, Cluster, FoundPod};
use tare_lab::attach::{Attach, AttachTarget};
use tare_lab::environment::EnvironmentSpec;

use super::AttachedError;
use super::place::{below, group_of_container};
use crate::runtime::kubernetes;

/// How long the API may need to say why a container has ended.
const END_LIMIT: Duration = Duration::from_secs(5);
/// The pause between two questions meanwhile.
const PAUSE: Duration = Duration::from_millis(200);

/// A pod whose processes are on this host.
#[derive(Debug)]
pub(super) struct AttachedPod {
    cluster: Cluster,
    pub(super) found: FoundPod,
    /// The first process of its container.
    pub(super) pid: u32,
    pub(super) sidecars: Vec<Sidecar>,
}

/// Another container of the pod.
#[derive(Debug)]
pub(super) struct Sidecar {
    pub(super) name: String,
    /// Its first process.
    pub(super) pid: u32,
    /// Its directory in the cgroup hierarchy.
    folder: PathBuf,
}

/// Finds the pods to which environments are attached, and writes their addresses into those that
/// have none.
///
/// # Errors
/// One line: what is not there, and what to do.
pub fn place_pods(environments: &mut [EnvironmentSpec]) -> Result<(), AttachedError> {
    let cluster = LazyCell::new(connect);
    for attach in environments.iter_mut().filter_map(|spec| spec.attach.as_mut()) {
        let AttachTarget::Pod { namespace, name, container } = &attach.target else { continue };
        let cluster =
            cluster.as_ref().map_err(|why: &String| AttachedError::target(why.clone()))?;
        let found = find(cluster, namespace, name, container.as_deref());
        let (pod, _) = found.map_err(AttachedError::target)?;
        if attach.has_address_of_pod() {
            attach.address = address(&pod, attach).map_err(AttachedError::target)?;
        }
    }
    Ok(())
}

/// Returns the pod's own address, at the port that the study or the container names.
fn address(pod: &FoundPod, attach: &Attach) -> Result<SocketAddr, String> {
    let (full, container) = (pod.full_name(), &pod.container);
    let ip: IpAddr = pod
        .address
        .parse()
        .map_err(|_| format!("the pod {full} has no address; write address = \"IP:PORT\""))?;
    let port = match (attach.address.port(), &pod.ports[..]) {
        (0, [only]) => *only,
        (0, []) => {
            return Err(format!(
                "the container {container} of pod {full} names no port; write that of the system: port = N"
            ));
        }
        (0, several) => {
            let known: Vec<String> = several.iter().map(u16::to_string).collect();
            return Err(format!(
                "the container {container} of pod {full} has the ports {}; write that of the system: port = N",
                known.join(", ")
            ));
        }
        (port, _) => port,
    };
    Ok(SocketAddr::new(ip, port))
}

fn connect() -> Result<Cluster, String> {
    let connected = Access::find().and_then(|access| Cluster::connect(&access));
    connected.map_err(|error| error.to_string())
}

/// Finds a pod, and the first process of its container.
fn find(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
    container: Option<&str>,
) -> Result<(FoundPod, u32), String> {
    let pod = cluster.find_pod(namespace, name, container).map_err(|error| error.to_string())?;
    let pid = kubernetes::first_process(&pod.container_id);
    let pid = pid.ok_or_else(|| not_here(cluster, &pod))?;
    Ok((pod, pid))
}

/// Says where a pod is that has no process on this host.
fn not_here(cluster: &Cluster, pod: &FoundPod) -> String {
    let (full, node) = (pod.full_name(), &pod.node);
    // Without the right to list nodes it is taken to be on another one.
    match cluster.node_here() {
        Ok(here) if here.name == *node => format!(
            "no process of the pod {full} is on this host, although that is its node {node}: the runtime class {} \
             hides them in a sandbox or a guest, which cannot be attached",
            pod.runtime_class.as_deref().unwrap_or("of the cluster")
        ),
        _ => format!(
            "the pod {full} runs on the node {node}, which is not this host; take the command there with --on \
             kubernetes:{node}"
        ),
    }
}

impl AttachedPod {
    /// Finds a pod and its processes.
    ///
    /// # Errors
    /// One line: what is not there, and what to do.
    pub(super) fn find(
        namespace: &str,
        name: &str,
        container: Option<&str>,
        cgroups: &Layout,
    ) -> Result<Self, String> {
        let cluster = connect()?;
        let (found, pid) = find(&cluster, namespace, name, container)?;
        let sidecar = |other: &tare_kube::OtherContainer| {
            let pid = kubernetes::first_process(&other.id)?;
            let (root, path) = group_of_container(cgroups, pid, &other.id)?;
            Some(Sidecar { name: other.name.clone(), pid, folder: below(&root, &path) })
        };
        let sidecars = found.others.iter().filter_map(sidecar).collect();
        Ok(Self { cluster, found, pid, sidecars })
    }

    /// Returns what it is, in words.
    pub(super) fn what(&self) -> String {
        let FoundPod { node, qos_class, container, restarts, .. } = &self.found;
        let class = self.found.runtime_class.as_deref().unwrap_or("default");
        format!(
            "pod {} on node {node}, {qos_class}, runtime class {class}, {restarts} restarts, container {container}, {}",
            self.found.full_name(),
            super::named(self.pid)
        )
    }

    /// Returns the processes of its other containers.
    pub(super) fn sidecar_pids(&self) -> Vec<u32> {
        self.sidecars.iter().flat_map(|one| cgroup::pids_below(&one.folder)).collect()
    }

    /// Returns why its container has ended, as the API says it. The kubelet reports it a moment
    /// later.
    pub(super) fn end(&self) -> Option<String> {
        let deadline = Instant::now() + END_LIMIT;
        loop {
            match self.cluster.end_of_pod(&self.found) {
                Ok(None) if Instant::now() < deadline => thread::sleep(PAUSE),
                ended => return ended.ok().flatten(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_is_that_of_the_study_or_the_only_one() {
        let pod = |ports: &[u16], address: &str| FoundPod {
            namespace: "shop".into(),
            name: "db-0".into(),
            uid: "u".into(),
            node: "n1".into(),
            address: address.into(),
            host_network: false,
            qos_class: "Guaranteed".into(),
            runtime_class: None,
            container: "db".into(),
            container_id: "0a1b".into(),
            restarts: 0,
            ports: ports.to_vec(),
            others: Vec::new(),
            volumes: Vec::new(),
        };
        let check = |ports: &[u16], own: Option<u16>, expect: Result<&str, &str>| {
            let target = AttachTarget::Pid(1);
            let attach =
                Attach { target, address: Attach::of_pod(own), data: None, read_only: false };
            let found = address(&pod(ports, "10.0.0.7"), &attach);
            match expect {
                Ok(expect) => assert_eq!(found, Ok(expect.parse().unwrap())),
                Err(part) => {
                    assert!(found.clone().is_err_and(|line| line.contains(part)), "{found:?}")
                }
            }
        };
        check(&[9042], None, Ok("10.0.0.7:9042"));
        check(&[9042, 7000], Some(9042), Ok("10.0.0.7:9042"));
        check(&[], Some(9042), Ok("10.0.0.7:9042"));
        check(&[], None, Err("container db of pod shop/db-0 names no port"));
        check(&[9042, 7000], None, Err("has the ports 9042, 7000"));
        let attach = Attach {
            target: AttachTarget::Pid(1),
            address: Attach::of_pod(Some(1)),
            data: None,
            read_only: false,
        };
        assert!(address(&pod(&[], ""), &attach).is_err_and(|line| line.contains("no address")));
    }
}
