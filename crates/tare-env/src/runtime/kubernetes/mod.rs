//! Pods of a Kubernetes cluster, on the node that this host is.
//!
//! Method: Tare runs on the node, in its namespaces, with access to the API. It creates a namespace
//! `tare-RUN` and a pod per start, bound to this node. The pod's image is that of the pause
//! program, which every node has: Tare's program is mounted into it as a file of the node, as with
//! all other runtimes, so that nothing is built, loaded or pulled. The pod is found on the node by
//! the id of its container, which names its cgroup; everything else is read there, in /proc and in
//! the cgroup, as for a container of an engine.
//!
//! Layers become what a manifest has for them:
//! - `network`: `host` is `hostNetwork`, `bridge` the pod's own network. The client dials the pod's
//!   address, through the node. `service` and `node-port` have a service for the pod and dial its
//!   cluster IP or the node's port, `host-port` is a `hostPort` of the node.
//! - `cpu`: `shared` requests nothing, `request=N` requests N, and `request=N..M` has the limit M
//!   besides; `quota=N` is a request and the same limit, `pinned` and `cpus=N` are a whole number
//!   of CPUs for a kubelet with static CPU manager (Guaranteed, so a memory limit is needed).
//! - `security`: `default` is `RuntimeDefault`, `none` is `Unconfined`, `default+io_uring` is
//!   `Localhost`: a file below the kubelet's folder of profiles, for the time of the run.
//!   `security.capabilities` drops all; `user` is `hostUsers: false`; `apparmor` is
//!   `appArmorProfile`: `Unconfined`, `Localhost` with a profile that Tare loads, `RuntimeDefault`.
//! - `storage`: a `volume` is an emptyDir, `tmpfs` an emptyDir in memory, `class` a volume of a
//!   storage class, by a claim; all others are made on the node and mounted (hostPath).
//!
//! - `sidecar` is a second container: the pause program, or Tare's proxy before the system.
//!
//! Freezing is by signal, because a kubelet cannot end a frozen container.
//!
//! A runtime class may be gVisor's. Its sandbox is found by its processes in the pod's cgroup, with
//! which all is read that is otherwise read with those of the container; `runsc` pauses it, and
//! runs Tare's program in it for what only a process inside sees (`PodSandbox`). A pod of
//! any other class whose processes are not on the node (Kata) is refused after its start.
//!
//! Several instances are as many pods, started one after the other. In the pods' own network each
//! learns its address from the kubelet, and those of the ones before it from Tare. On several
//! nodes each node's agent starts its own; in the network of the nodes they have the addresses of
//! these.
//!
//! Loaders on other hosts have to be in the cluster, where they reach pods as the client does. In
//! the node's network a pod then listens at the address at which they see this host.
//!
//! Limits: the pods of one node. A pod competes with the weight that the kubelet
//! gives its class, which is read back: a pod without a request has almost none. A kubelet with
//! static CPU manager takes the CPUs of pinned pods away from all others while they exist, frozen
//! or not, so that a study with both on a small node needs `schedule.kind = "trials"`; the
//! read-back of the cpu layer sees it.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::sync::Arc;

use tare_host::journal::EntryId;
use tare_kube::{Access, Cluster, Cpus, KubeError, Node, RunningPod, Volume};
use tare_lab::PartError;
use tare_lab::environment::{Environment, EnvironmentSpec};
use tare_lab::layer::{
    Cpu, HUGE_PAGE_BYTES, Layer, Limit, Network, Quota, Security, Sidecar, User,
};

use self::profile::Profile;
use super::contract::{Argument, Runtime};
use super::gvisor::SandboxView;
use crate::layer::{self, Layers};
use crate::pod_sandbox::PodSandbox;
use crate::run_context::RunContext;
use crate::storage::{self, InitialData, Storage};
use crate::system::System;
use crate::unavailable::Unavailable;

mod environment;
mod port;
mod profile;
mod read_back;
mod sidecar;
mod start;
mod volume;

pub(super) use start::first_process;

pub const RUNTIME: Runtime = Runtime {
    name: "kubernetes",
    help: "a pod of a Kubernetes cluster, on the node that this host is",
    argument: Argument::Optional("RUNTIMECLASS"),
    options: &[
        (
            "network",
            "bridge is the pod's own network, host the node's (hostNetwork); service, node-port and host-port \
             are other ways to the pod's own",
        ),
        (
            "cpu",
            "shared requests nothing; request=N and request=N..M are Burstable; quota=N is request and limit; \
             pinned and cpus=N are whole CPUs of \
             a static CPU manager, and need limits.memory",
        ),
        (
            "security",
            "default is RuntimeDefault, none is Unconfined, default+io_uring is Localhost: Moby's profile with \
             io_uring, written below the kubelet's folder",
        ),
        (
            "storage",
            "volume is an emptyDir, tmpfs one in memory, class a volume of a storage class, others are mounted \
             (hostPath)",
        ),
        ("limits", "memory and huge_pages alone, which are also the requests"),
        (
            "sidecar",
            "a second container; in a Guaranteed pod it has limits too: idle 0.01 CPUs, a proxy as many as the system. A \
             proxy listens at a port of its own, to which service, node-port and host-port lead",
        ),
        ("cgroup", "only own: the kubelet puts every pod into a cgroup"),
    ],
    needs: |_| find().map(drop),
    cleanup: "pod and namespace are deleted through the API, and waited for",
    read_back: "the API's status of the pod, and /proc/PID and the cgroup of its process",
    found: || find().map(|_| vec!["kubernetes".to_string()]).unwrap_or_default(),
    make,
};

/// Why an environment cannot be a pod, or a pod failed.
#[derive(Debug, thiserror::Error)]
pub enum KubernetesError {
    #[error("environment {environment:?}: a pod cannot have {layer} = \"{value}\": {why}")]
    Layer { environment: String, layer: &'static str, value: String, why: &'static str },
    #[error(
        "environment {environment:?}: a pod with CPUs of its own is Guaranteed, for which it needs a \
         memory limit; set limits = {{ memory = \"...\" }}"
    )]
    NoMemory { environment: String },
    #[error(
        "environment {environment:?}: a pod with limits.huge_pages needs a request of CPU or memory too; set \
         limits.memory"
    )]
    HugePagesAlone { environment: String },
    #[error(
        "environment {environment:?}: node {node} has no huge pages of 2 MiB for pods (hugepages-2Mi); its administrator \
         has to reserve some (sysctl vm.nr_hugepages) and to restart its kubelet, or leave out limits.huge_pages"
    )]
    NoHugePages { environment: String, node: String },
    #[error(
        "environment {environment:?}: the kubelet of node {node} gives no pod CPUs of its own \
         (cpuManagerPolicy is {policy}); its administrator has to set static, or set cpu = \"shared\""
    )]
    NoStaticCpus { environment: String, node: String, policy: String },
    #[error(
        "environment {environment:?}: the address {address} of the pod, its service or its node is not IPv4"
    )]
    Address { environment: String, address: String },
    #[error(
        "environment {environment:?}: the container runtime of node {node} ({runtime}) has no user namespaces \
         for pods; they need containerd 2.0 or CRI-O 1.25, runc 1.2 or crun 1.9, Linux 6.3 and a kubelet of 1.33, or \
         set user = \"host\""
    )]
    NoUserNamespaces { environment: String, node: String, runtime: String },
    #[error(
        "environment {environment:?}: no process of the pod {pod} is on this host; pods of a runtime class with \
         guests (Kata) are not measured"
    )]
    NoProcess { environment: String, pod: String },
    #[error(
        "environment {environment:?}: the runtime class is gVisor's, and {layer} = \"{value}\" of its pods is not \
         measured: {why}"
    )]
    Sandbox { environment: String, layer: Layer, value: String, why: &'static str },
    #[error("environment {environment:?}: {why}; its last output: {log}")]
    Ended { environment: String, why: String, log: String },
    #[error(
        "environment {environment:?}: security = \"{security}\" of a pod is a file below the folder of the kubelet, and \
         no kubelet of root runs on this host as a process of its own; write default or none"
    )]
    NoKubelet { environment: String, security: Security },
    #[error("cannot create {}", .path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("environment {environment:?} is not started")]
    NotStarted { environment: String },
}

/// A cluster that answers, and the node of it that this host is.
struct Found {
    access: Access,
    cluster: Cluster,
    node: Node,
    /// The image of the pods.
    image: String,
}

fn find() -> Result<Found, Unavailable> {
    let missing = |why: String, remedy: &str| Unavailable {
        what: "kubernetes".into(),
        why,
        remedy: remedy.into(),
    };
    // The errors of the API end in what to do.
    let failed = |error: KubeError| {
        let text = error.to_string();
        let (why, remedy) =
            text.split_once("; ").unwrap_or((&text, "see docs/guides/kubernetes.md"));
        missing(why.to_string(), remedy)
    };
    let access = crate::kubernetes::access().map_err(failed)?;
    let cluster = Cluster::connect(&access).map_err(failed)?;
    let node = cluster.node_here().map_err(failed)?;
    let image = node.pause_image().map(str::to_owned).ok_or_else(|| {
        let why = format!("node {} does not list the image of the pause program", node.name);
        missing(why, "raise nodeStatusMaxImages of its kubelet")
    })?;
    Ok(Found { access, cluster, node, image })
}

/// Returns the CPU time to request for a cpu layer, and whether it is whole CPUs for the pod alone.
fn cpus(environment: &str, layers: &Layers, own: usize) -> Result<(Cpus, bool), KubernetesError> {
    let refuse = |why| KubernetesError::Layer {
        environment: environment.into(),
        layer: "cpu",
        value: layers.cpu.to_string(),
        why,
    };
    match layers.cpu {
        Cpu::Shared => Ok((Cpus::None, false)),
        Cpu::Request(request) => {
            let wrong = || refuse("requests and limits of a pod are in thousandths of a CPU");
            let cpus = thousandths(request.cpus).ok_or_else(wrong)?;
            match request.limit.map(|limit| thousandths(limit).ok_or_else(wrong)).transpose()? {
                None => Ok((Cpus::Request(cpus), false)),
                Some(limit) => Ok((Cpus::RequestAndLimit(cpus, limit), false)),
            }
        }
        Cpu::Pinned | Cpu::Cpus(_) => {
            let milli = u64::try_from(own).unwrap_or(u64::MAX).saturating_mul(1000);
            Ok((Cpus::Limit(milli), true))
        }
        Cpu::Quota(quota) if quota.period_us != Quota::PERIOD_US || quota.burst_us > 0 => {
            Err(refuse("the kubelet sets the period for all pods; write quota=N alone"))
        }
        Cpu::Quota(quota) => {
            let milli = thousandths(quota.cpus);
            let milli = milli.ok_or_else(|| refuse("a pod's limit is in thousandths of a CPU"))?;
            if milli.is_multiple_of(1000) {
                return Err(refuse(
                    "a whole number of CPUs may become CPUs of its own; write pinned, or a fraction",
                ));
            }
            Ok((Cpus::Limit(milli), false))
        }
    }
}

/// Returns a number of CPUs in thousandths, if it is a whole number of them.
fn thousandths(cpus: f64) -> Option<u64> {
    let milli = cpus * 1000.0;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 10 and 4,096,000"
    )]
    let whole = milli.round() as u64;
    ((milli - milli.round()).abs() < 1e-6).then_some(whole)
}

fn make(
    context: &Arc<RunContext>,
    spec: EnvironmentSpec,
    layers: Layers,
    argument: Option<&str>,
) -> Result<Box<dyn Environment>, PartError> {
    let Found { access, cluster, node, image } = find()?;
    check(&spec, &layers, context)?;
    if layers.confinement.user == User::Namespace && !node.has_user_namespaces {
        let (environment, runtime) = (spec.name.clone(), node.runtime);
        return Err(
            KubernetesError::NoUserNamespaces { environment, node: node.name, runtime }.into()
        );
    }
    let own = layers.cpu.set(context.cpus()).len();
    let (cpus, exclusive) = cpus(&spec.name, &layers, own)?;
    check_huge_pages(&spec, cpus, &node)?;
    if exclusive {
        check_exclusive(&spec, &layers, &cluster, &node)?;
    }
    let storage = storage::parse(&spec)?;
    let number = context.next_environment();
    let profile = Profile::of(&spec, context)?;
    Ok(Box::new(Pod {
        namespace: context.prefix(),
        name: format!("e{number}"),
        context: Arc::clone(context),
        access,
        cluster,
        node,
        image,
        runtime_class: argument.map(str::to_owned),
        cpus,
        spec,
        layers,
        storage,
        profile,
        initial_data: InitialData::default(),
        number,
        data: PathBuf::new(),
        entries: Vec::new(),
        config: None,
        running: None,
    }))
}

/// Checks that a manifest has a field for every layer.
fn check(
    spec: &EnvironmentSpec,
    layers: &Layers,
    context: &RunContext,
) -> Result<(), KubernetesError> {
    let refuse = |layer, value: String, why| {
        Err(KubernetesError::Layer { environment: spec.name.clone(), layer, value, why })
    };
    if layers.network == (Network::Bridge { proxy: true }) {
        return refuse("network", layers.network.to_string(), "it has no userland proxy");
    }
    if let Some((name, value)) = spec.sandbox.first() {
        let why = "the runtime class configures gVisor; leave out sandbox";
        return refuse("sandbox", format!("{name} = {value}"), why);
    }
    if layers.cgroup == layer::Cgroup::None {
        let why = "the kubelet puts every pod into a cgroup; set cgroup = \"own\"";
        return refuse("cgroup", layers.cgroup.to_string(), why);
    }
    if layers.confinement.user == User::Namespace && layers.network == Network::Host {
        let why = "a pod in the node's network has the node's users too; set network = \"bridge\"";
        return refuse("user", layers.confinement.user.to_string(), why);
    }
    let is_in_manifest = |limit| matches!(limit, Limit::Memory | Limit::HugePages);
    if let Some((limit, value)) = layers.limits.all().find(|(limit, _)| !is_in_manifest(*limit)) {
        let value = format!("{} = {value}", limit.name());
        return refuse("limits", value, "a manifest has limits of memory and huge pages alone");
    }
    let huge = layers.limits.huge_pages_bytes;
    if let Some(bytes) = huge.filter(|bytes| !bytes.is_multiple_of(HUGE_PAGE_BYTES)) {
        return refuse("limits", format!("huge_pages = {bytes}"), "it is no multiple of 2M");
    }
    if spec.storage.kind == "volume" && !spec.storage.options.is_empty() {
        let why = "the kubelet makes an emptyDir on its own file system";
        return refuse("storage", spec.storage.to_string(), why);
    }
    let is_among_hosts = context.slot().peers().is_some();
    let is_several = context.slot().count() > 1 || is_among_hosts;
    if is_several && layers.network.is_of_pods() {
        let why = "clients of several instances dial the pods themselves; write bridge or host";
        return refuse("network", layers.network.to_string(), why);
    }
    if is_several && spec.sidecar == Sidecar::Proxy {
        let why = "clients of several instances dial the systems themselves; write idle or none";
        return refuse("sidecar", spec.sidecar.to_string(), why);
    }
    if !context.reaches_pods() {
        let why = "a loader outside of the cluster does not reach pods; name loaders as pod:NODE";
        return refuse("runtime", spec.runtime.to_string(), why);
    }
    let on_one_node = is_several && !is_among_hosts;
    if on_one_node && context.reach().is_some() && layers.network == Network::Host {
        let why =
            "loaders elsewhere dial several instances at addresses of their own; write bridge";
        return refuse("network", layers.network.to_string(), why);
    }
    Ok(())
}

/// Checks that the node has the huge pages of a pod, and that the API takes its request.
fn check_huge_pages(
    spec: &EnvironmentSpec,
    cpus: Cpus,
    node: &Node,
) -> Result<(), KubernetesError> {
    let environment = spec.name.clone();
    match (spec.limits.huge_pages_bytes, spec.limits.memory_bytes, cpus) {
        (None, ..) => Ok(()),
        (_, None, Cpus::None) => Err(KubernetesError::HugePagesAlone { environment }),
        _ if !node.has_huge_pages => {
            Err(KubernetesError::NoHugePages { environment, node: node.name.clone() })
        }
        _ => Ok(()),
    }
}

/// Checks that the kubelet gives a pod CPUs of its own.
fn check_exclusive(
    spec: &EnvironmentSpec,
    layers: &Layers,
    cluster: &Cluster,
    node: &Node,
) -> Result<(), KubernetesError> {
    let environment = spec.name.clone();
    if layers.limits.memory_bytes.is_none() {
        return Err(KubernetesError::NoMemory { environment });
    }
    // Without the right to ask the kubelet, the read-back of the cpu layer decides.
    let Ok(configuration) = cluster.kubelet_configuration(&node.name) else { return Ok(()) };
    let policy = configuration["cpuManagerPolicy"].as_str().unwrap_or("none").to_string();
    match policy.as_str() {
        "static" => Ok(()),
        _ => Err(KubernetesError::NoStaticCpus { environment, node: node.name.clone(), policy }),
    }
}

struct Pod {
    context: Arc<RunContext>,
    access: Access,
    cluster: Cluster,
    node: Node,
    image: String,
    runtime_class: Option<String>,
    cpus: Cpus,
    spec: EnvironmentSpec,
    layers: Layers,
    storage: Box<dyn Storage>,
    /// The seccomp profile that is a file of the node, if it is one.
    profile: Option<Profile>,
    initial_data: InitialData,
    number: u32,
    /// The namespace of the run.
    namespace: String,
    /// The pod's name in it.
    name: String,
    /// The host's path of the data.
    data: PathBuf,
    entries: Vec<EntryId>,
    config: Option<String>,
    running: Option<Running>,
}

struct Running {
    system: System,
    pod: RunningPod,
    /// The process that has the container's mounts: the first one, or gVisor's gofer.
    mounts_of: u32,
    /// gVisor's, if the pod's runtime class is that.
    sandbox: Option<PodSandbox>,
    /// What a process sees in it, or why that cannot be read. Read once.
    inside: Option<Result<SandboxView, String>>,
    /// The pod's own address.
    address: Ipv4Addr,
    /// The address that clients dial.
    dialled: SocketAddrV4,
    /// The port of the pod that clients reach: the system's, or that of the proxy before it.
    front: u16,
    /// The first process of the second container, if it has one.
    sidecar: Option<u32>,
    /// The volume of its claim, if it has one.
    volume: Option<Volume>,
}

impl Pod {
    fn folder(&self) -> PathBuf {
        self.context.work().join(format!("e{}", self.number))
    }

    fn running(&mut self) -> Result<&mut Running, KubernetesError> {
        let environment = self.spec.name.clone();
        self.running.as_mut().ok_or(KubernetesError::NotStarted { environment })
    }

    /// Returns every process of the pod.
    fn pids(running: &Running) -> Vec<u32> {
        running.system.pids().into_iter().chain(running.sidecar).collect()
    }

    /// Returns whether the kubelet makes the data's directory.
    fn is_of_kubelet(&self) -> bool {
        let is_empty_dir = matches!(self.spec.storage.kind.as_str(), "volume" | "tmpfs");
        is_empty_dir || self.storage.claim().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tare_testkit::EnvironmentBuilder;

    #[test]
    fn cpu_layers_become_requests_and_limits() {
        let check = |cpu: &str, expect: Result<(Cpus, bool), &str>| {
            let spec = EnvironmentBuilder::new("kubernetes").cpu(cpu).security("none").build();
            let layers = Layers::checked(&spec).unwrap();
            let found = cpus("x", &layers, 3).map_err(|error| error.to_string());
            match expect {
                Ok(expect) => assert_eq!(found, Ok(expect), "{cpu}"),
                Err(part) => assert!(found.clone().is_err_and(|e| e.contains(part)), "{found:?}"),
            }
        };
        check("shared", Ok((Cpus::None, false)));
        check("pinned", Ok((Cpus::Limit(3000), true)));
        check("quota=1.5", Ok((Cpus::Limit(1500), false)));
        check("request=0.5", Ok((Cpus::Request(500), false)));
        check("request=1..2", Ok((Cpus::RequestAndLimit(1000, 2000), false)));
        check("request=0.0105", Err("in thousandths"));
        check("quota=2", Err("a whole number of CPUs"));
        check("quota=1.5/10ms", Err("sets the period"));
    }
}
