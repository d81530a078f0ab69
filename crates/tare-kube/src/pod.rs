//! A pod of one container: the request, and what the API says about the running one.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition, PodStatus};
use serde_json::{Value, json};

use crate::error::{KubeError, RUN_LABEL, one_line};

/// The label of a pod with its own name, by which a service finds it.
pub(crate) const POD_LABEL: &str = "tare.pod";

/// The name of the pod's container.
pub(crate) const CONTAINER: &str = "system";

/// The name of the second container of a pod.
const SIDECAR: &str = "sidecar";

/// The name of explicit huge pages among what a container gets and a node has.
pub(crate) const HUGE_PAGES: &str = "hugepages-2Mi";

/// A pod to create.
#[derive(Clone, Debug)]
pub struct NewPod<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    /// The run that it belongs to, as a label.
    pub run: &'a str,
    /// The node that it has to run on.
    pub node: &'a str,
    /// An image that the node has. It is never pulled.
    pub image: &'a str,
    /// The runtime class; `None` is the cluster's default.
    pub runtime_class: Option<&'a str>,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Environment variables as (name, value).
    pub variables: Vec<(String, String)>,
    /// A variable that has the pod's own address. The kubelet puts it into `command` in place of
    /// `$(NAME)`.
    pub address_variable: Option<&'a str>,
    /// Whether it runs in the node's network namespace.
    pub host_network: bool,
    /// The port of the node that the network plugin sends to the same port of the pod.
    pub host_port: Option<u16>,
    /// Whether all capabilities are dropped, or the runtime's default set stays.
    pub without_capabilities: bool,
    /// Whether it has a user namespace of its own (`hostUsers: false`, Kubernetes 1.33 by default).
    pub user_namespace: bool,
    pub seccomp: Profile<'a>,
    /// The AppArmor profile; `None` leaves the field out (Kubernetes has it since 1.30).
    pub apparmor: Option<Profile<'a>>,
    pub cpus: Cpus,
    /// The limit of memory in bytes, which is also the request.
    pub memory_bytes: Option<u64>,
    /// Explicit huge pages of 2 MiB in bytes, as request and limit (`hugepages-2Mi`).
    pub huge_pages_bytes: Option<u64>,
    pub mounts: Vec<PodMount>,
    pub sidecar: Option<Sidecar>,
    /// How long the scheduler may find no volume for a claim among the mounts.
    pub volume_limit: Duration,
}

/// A second container of a pod, of the same image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sidecar {
    /// The program and its arguments; empty is the image's own, which does nothing.
    pub command: Vec<String>,
    pub mounts: Vec<PodMount>,
    /// Its requests, which are its limits too; `None` is neither.
    pub amounts: Option<Amounts>,
}

/// What a container gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amounts {
    /// Thousandths of a CPU.
    pub cpu_milli: u64,
    pub memory_bytes: u64,
}

impl Amounts {
    /// Returns requests with equal limits, as they are written in a manifest.
    fn manifest(self) -> Value {
        let (cpu, memory) = (format!("{}m", self.cpu_milli), self.memory_bytes.to_string());
        let both = json!({ "cpu": cpu, "memory": memory });
        json!({ "requests": both, "limits": both })
    }
}

/// The seccomp filter or the AppArmor profile of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile<'a> {
    /// None (`Unconfined`).
    None,
    /// The container runtime's own (`RuntimeDefault`).
    Default,
    /// One of the node (`Localhost`): of seccomp a file below the kubelet's folder of profiles, of
    /// AppArmor the name of a profile in the kernel.
    OfNode(&'a str),
}

impl Profile<'_> {
    fn manifest(self) -> Value {
        match self {
            Self::None => json!({ "type": "Unconfined" }),
            Self::Default => json!({ "type": "RuntimeDefault" }),
            Self::OfNode(name) => json!({ "type": "Localhost", "localhostProfile": name }),
        }
    }
}

/// The CPU time of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cpus {
    /// No request and no limit.
    None,
    /// This request, in thousandths of a CPU, and no limit.
    Request(u64),
    /// This request and the same limit, in thousandths of a CPU.
    Limit(u64),
    /// This request and a limit above it, in thousandths of a CPU.
    RequestAndLimit(u64, u64),
}

/// Files that the pod sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodMount {
    /// The path in the container.
    pub path: String,
    pub source: PodSource,
    pub read_only: bool,
}

/// Where files of a pod come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodSource {
    /// A file of the node.
    HostFile(String),
    /// A directory of the node.
    HostDirectory(String),
    /// A directory that the kubelet makes for the pod and removes with it.
    Empty {
        /// In memory, of at most this many bytes; otherwise on the node's disk.
        memory_bytes: Option<u64>,
    },
    /// A directory of the volume of a claim, which the kubelet makes.
    Claim { name: String, directory: String },
}

/// A running pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningPod {
    pub uid: String,
    /// The container's id, without the name of the runtime.
    pub container: String,
    /// The id of its second container, if it has one.
    pub sidecar: Option<String>,
    pub address: String,
    /// `Guaranteed`, `Burstable` or `BestEffort`.
    pub qos_class: String,
    /// How often its container was started again.
    pub restarts: i32,
    pub runtime_class: Option<String>,
    /// What the runtime class adds to the requests and the limits of the whole pod.
    pub overhead: Overhead,
}

/// What a runtime class adds to requests and limits for its sandbox or guest (`overhead.podFixed`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overhead {
    pub cpu_milli: u64,
    pub memory_bytes: u64,
}

impl Overhead {
    fn of(pod: &Pod) -> Self {
        let all = pod.spec.as_ref().and_then(|spec| spec.overhead.as_ref());
        let amount = |name| {
            let quantity = all?.get(name)?;
            quantity_milli(&quantity.0)
        };
        let (cpu_milli, memory) = (amount("cpu"), amount("memory"));
        Self {
            cpu_milli: cpu_milli.unwrap_or_default(),
            memory_bytes: memory.unwrap_or_default() / 1000,
        }
    }
}

/// Returns thousandths of a quantity of the API such as `250m`, `1.5` or `120Mi`
/// (`Quantity` in k8s.io/apimachinery/pkg/api/resource). Exponents such as `12e6` are not read.
fn quantity_milli(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let milli: u64 = match suffix {
        "m" => 1,
        "" => 1000,
        "k" => 1_000_000,
        "M" => 1_000_000_000,
        "G" => 1_000_000_000_000,
        "Ki" => 1000 << 10,
        "Mi" => 1000 << 20,
        "Gi" => 1000 << 30,
        _ => return None,
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = u32::try_from(part.len()).ok()?;
    let part = if part.is_empty() { 0 } else { part.parse::<u64>().ok()? };
    let below = part.checked_mul(milli)? / 10_u64.checked_pow(digits)?;
    whole.parse::<u64>().ok()?.checked_mul(milli)?.checked_add(below)
}

impl NewPod<'_> {
    /// Returns the pod as it is written in a manifest.
    pub fn manifest(&self) -> Value {
        let (mut volumes, mounts) = volumes_of("v", &self.mounts);
        let own_address = |name| {
            let field = json!({ "fieldRef": { "fieldPath": "status.podIP" } });
            json!({ "name": name, "valueFrom": field })
        };
        let variables = self.variables.iter();
        let env: Vec<Value> = variables
            .map(|(name, value)| json!({ "name": name, "value": value }))
            .chain(self.address_variable.map(own_address))
            .collect();
        let field = json!({ "key": "metadata.name", "operator": "In", "values": [self.node] });
        let mut pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "labels": { RUN_LABEL: self.run, POD_LABEL: self.name },
            },
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 1,
                "automountServiceAccountToken": false,
                "enableServiceLinks": false,
                "dnsPolicy": "Default",
                "hostNetwork": self.host_network,
                // The scheduler places it, so that requests count, but on this node alone.
                "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{ "matchFields": [field] }],
                }}},
                "tolerations": [{ "operator": "Exists" }],
                "securityContext": { "seccompProfile": self.seccomp.manifest() },
                "containers": [{
                    "name": CONTAINER,
                    "image": self.image,
                    "imagePullPolicy": "Never",
                    "command": self.command,
                    "env": env,
                    "resources": self.resources(),
                    "securityContext": { "readOnlyRootFilesystem": true, "runAsUser": 0 },
                    "volumeMounts": mounts,
                }],
                "volumes": volumes.clone(),
            },
        });
        if let Some(class) = self.runtime_class {
            pod["spec"]["runtimeClassName"] = json!(class);
        }
        if let Some(profile) = self.apparmor {
            pod["spec"]["securityContext"]["appArmorProfile"] = profile.manifest();
        }
        if let Some(sidecar) = &self.sidecar {
            let (more, mounts) = volumes_of("s", &sidecar.mounts);
            volumes.extend(more);
            pod["spec"]["volumes"] = json!(volumes);
            let mut container = json!({
                "name": SIDECAR,
                "image": self.image,
                "imagePullPolicy": "Never",
                "securityContext": { "readOnlyRootFilesystem": true, "runAsUser": 0 },
                "volumeMounts": mounts,
            });
            if !sidecar.command.is_empty() {
                container["command"] = json!(sidecar.command);
            }
            if let Some(amounts) = sidecar.amounts {
                container["resources"] = amounts.manifest();
            }
            if let Some(containers) = pod["spec"]["containers"].as_array_mut() {
                containers.push(container);
            }
        }
        let container = &mut pod["spec"]["containers"][0];
        if let Some(port) = self.host_port {
            container["ports"] = json!([{ "containerPort": port, "hostPort": port }]);
        }
        if self.without_capabilities {
            container["securityContext"]["capabilities"] = json!({ "drop": ["ALL"] });
            // Otherwise what it executes could gain some.
            container["securityContext"]["allowPrivilegeEscalation"] = json!(false);
        }
        // Only if it is wanted: true is the default, and older clusters lack the field.
        if self.user_namespace {
            pod["spec"]["hostUsers"] = json!(false);
        }
        pod
    }

    /// Returns requests and limits, as they are written in a manifest.
    fn resources(&self) -> Value {
        let amounts = |cpus: Option<u64>| {
            let mut all = serde_json::Map::new();
            cpus.map(|milli| all.insert("cpu".into(), json!(format!("{milli}m"))));
            for (name, bytes) in
                [("memory", self.memory_bytes), (HUGE_PAGES, self.huge_pages_bytes)]
            {
                bytes.map(|bytes| all.insert(name.into(), json!(bytes.to_string())));
            }
            Value::Object(all)
        };
        let (request, limit) = match self.cpus {
            Cpus::None => (None, None),
            Cpus::Request(milli) => (Some(milli), None),
            Cpus::Limit(milli) => (Some(milli), Some(milli)),
            Cpus::RequestAndLimit(request, limit) => (Some(request), Some(limit)),
        };
        json!({ "requests": amounts(request), "limits": amounts(limit) })
    }

    /// Returns the claim among the mounts.
    pub(crate) fn claim(&self) -> Option<&str> {
        self.mounts.iter().find_map(|mount| match &mount.source {
            PodSource::Claim { name, .. } => Some(name.as_str()),
            _ => None,
        })
    }
}

/// Returns the volumes of mounts, with names that begin with a letter, and the mounts.
fn volumes_of(letter: &str, mounts: &[PodMount]) -> (Vec<Value>, Vec<Value>) {
    let both = mounts.iter().enumerate().map(|(number, mount)| {
        let name = format!("{letter}{number}");
        let volume = match &mount.source {
            PodSource::HostFile(path) => {
                json!({ "name": name, "hostPath": { "path": path, "type": "File" } })
            }
            PodSource::HostDirectory(path) => {
                json!({ "name": name, "hostPath": { "path": path, "type": "Directory" } })
            }
            PodSource::Empty { memory_bytes: Some(bytes) } => {
                let empty = json!({ "medium": "Memory", "sizeLimit": bytes.to_string() });
                json!({ "name": name, "emptyDir": empty })
            }
            PodSource::Empty { memory_bytes: None } => json!({ "name": name, "emptyDir": {} }),
            PodSource::Claim { name: claim, .. } => {
                json!({ "name": name, "persistentVolumeClaim": { "claimName": claim } })
            }
        };
        let mut mounted =
            json!({ "name": name, "mountPath": mount.path, "readOnly": mount.read_only });
        if let PodSource::Claim { directory, .. } = &mount.source {
            mounted["subPath"] = json!(directory);
        }
        (volume, mounted)
    });
    both.unzip()
}

/// What the API says about a pod that was created.
#[derive(Debug)]
pub(crate) enum Progress {
    Running(RunningPod),
    Waiting,
    /// The scheduler finds no volume for it. One may be made, or be seen a moment later.
    NoVolume(KubeError),
}

/// Returns how far a pod is.
///
/// # Errors
/// If it can never run.
pub(crate) fn progress(pod: &Pod, node: &str) -> Result<Progress, KubeError> {
    let name = pod.metadata.name.clone().unwrap_or_default();
    let status = pod.status.clone().unwrap_or_default();
    let fail = |why: String, remedy: &str| {
        let (name, node, remedy) = (name.clone(), node.to_string(), remedy.to_string());
        Err(KubeError::Pod { name, node, why: one_line(&why), remedy })
    };
    let of =
        |wanted: &str| status.container_statuses.iter().flatten().find(|one| one.name == wanted);
    let (container, sidecar) = (of(CONTAINER), of(SIDECAR));
    if let Some((reason, message)) = [container, sidecar].into_iter().flatten().find_map(refused) {
        let remedy = match reason.as_str() {
            "ErrImageNeverPull" | "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" => {
                "Tare pulls nothing; load the image on the node"
            }
            _ => "see the events of the pod and the log of the kubelet",
        };
        return fail(format!("{reason}: {message}"), remedy);
    }
    let ended =
        |one: Option<&ContainerStatus>| Some(one?.state.as_ref()?.terminated.as_ref()?.exit_code);
    for (what, one) in [("process", container), ("sidecar", sidecar)] {
        if let Some(code) = ended(one) {
            return fail(format!("its {what} ended with exit code {code}"), "see its log");
        }
    }
    let less = "free what it needs on the node, or ask for less";
    let phase = status.phase.as_deref().unwrap_or_default();
    if matches!(phase, "Failed" | "Succeeded") {
        let reason = status.reason.clone().unwrap_or_else(|| phase.to_string());
        return fail(format!("{reason} {}", status.message.clone().unwrap_or_default()), less);
    }
    if let Some(condition) = unscheduled(&status) {
        let why = condition.message.clone().unwrap_or_default();
        // The words of the scheduler's plug-in (`volumebinding` in pkg/scheduler of Kubernetes).
        let of_volume = ["persistentvolume", "persistent volume"];
        let no_volume = of_volume.iter().any(|words| why.to_lowercase().contains(words));
        return match fail(why, less) {
            Err(error) if no_volume => Ok(Progress::NoVolume(error)),
            failed => failed,
        };
    }
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let has_sidecar = containers.into_iter().any(|one| one.name == SIDECAR);
    let (running, sidecar) = (container.filter(|one| runs(one)), sidecar.filter(|one| runs(one)));
    let (Some(container), Some(address)) = (running, status.pod_ip.clone()) else {
        return Ok(Progress::Waiting);
    };
    if has_sidecar && sidecar.is_none() {
        return Ok(Progress::Waiting);
    }
    Ok(Progress::Running(RunningPod {
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        container: id_of(container),
        sidecar: sidecar.map(id_of),
        address,
        qos_class: status.qos_class.clone().unwrap_or_default(),
        restarts: container.restart_count,
        runtime_class: pod.spec.as_ref().and_then(|spec| spec.runtime_class_name.clone()),
        overhead: Overhead::of(pod),
    }))
}

/// Returns the condition by which the scheduler has no node for a pod, if there is one.
pub(crate) fn unscheduled(status: &PodStatus) -> Option<&PodCondition> {
    status.conditions.iter().flatten().find(|condition| {
        condition.type_ == "PodScheduled" && condition.reason.as_deref() == Some("Unschedulable")
    })
}

/// Returns whether a container runs.
pub(crate) fn runs(container: &ContainerStatus) -> bool {
    container.state.as_ref().is_some_and(|state| state.running.is_some())
}

/// Returns the id of a container without the name of the runtime.
pub(crate) fn id_of(container: &ContainerStatus) -> String {
    let id = container.container_id.as_deref().unwrap_or_default();
    id.rsplit('/').next().unwrap_or_default().to_string()
}

/// Returns why the kubelet does not start a container, if it is not on its way.
fn refused(container: &ContainerStatus) -> Option<(String, String)> {
    let is_on_its_way = |reason: &str| matches!(reason, "ContainerCreating" | "PodInitializing");
    waiting(container).filter(|(reason, _)| !is_on_its_way(reason))
}

/// Returns why a container waits, as reason and message.
pub(crate) fn waiting(container: &ContainerStatus) -> Option<(String, String)> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    Some((waiting.reason.clone()?, waiting.message.clone().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_pod(cpus: Cpus) -> NewPod<'static> {
        NewPod {
            namespace: "tare-ab12",
            name: "e1",
            run: "ab12",
            node: "n1",
            image: "pause:3",
            runtime_class: None,
            command: vec!["/tare".into(), "db".into()],
            variables: vec![("TARE_RUN".into(), "ab12".into())],
            address_variable: Some("OWN"),
            host_network: false,
            host_port: Some(9042),
            without_capabilities: true,
            user_namespace: true,
            seccomp: Profile::OfNode("tare-ab12-e1/profile.json"),
            apparmor: Some(Profile::OfNode("tare-ab12-e1")),
            cpus,
            memory_bytes: Some(1 << 20),
            huge_pages_bytes: Some(4 << 20),
            mounts: vec![PodMount {
                path: "/data".into(),
                source: PodSource::Empty { memory_bytes: Some(1 << 20) },
                read_only: false,
            }],
            sidecar: Some(Sidecar {
                command: Vec::new(),
                mounts: Vec::new(),
                amounts: Some(Amounts { cpu_milli: 10, memory_bytes: 1 << 20 }),
            }),
            volume_limit: Duration::ZERO,
        }
    }

    #[test]
    fn layers_become_fields_of_the_manifest() {
        for (cpus, requests, limits) in [
            (Cpus::None, json!({}), json!({})),
            (Cpus::Request(1500), json!({"cpu": "1500m"}), json!({})),
            (Cpus::RequestAndLimit(500, 2000), json!({"cpu": "500m"}), json!({"cpu": "2000m"})),
            (Cpus::Limit(2000), json!({"cpu": "2000m"}), json!({"cpu": "2000m"})),
        ] {
            let manifest = new_pod(cpus).manifest();
            let container = &manifest["spec"]["containers"][0];
            let with_memory = |mut amounts: Value| {
                amounts["memory"] = json!("1048576");
                amounts["hugepages-2Mi"] = json!("4194304");
                amounts
            };
            let (requests, limits) = (with_memory(requests), with_memory(limits));
            assert_eq!(container["resources"]["requests"], requests, "{cpus:?}");
            assert_eq!(container["resources"]["limits"], limits, "{cpus:?}");
            assert_eq!(manifest["spec"]["volumes"][0]["emptyDir"]["medium"], "Memory");
            let profile = &manifest["spec"]["securityContext"]["seccompProfile"];
            assert_eq!(profile["type"], "Localhost");
            assert_eq!(profile["localhostProfile"], "tare-ab12-e1/profile.json");
            // The manifest is a pod of the API, field by field.
            let pod: Pod = serde_json::from_value(manifest.clone()).unwrap();
            let again = serde_json::to_value(&pod).unwrap();
            assert_eq!(again["spec"]["affinity"], manifest["spec"]["affinity"]);
            assert_eq!(again["spec"]["hostUsers"], json!(false));
            let profile = &again["spec"]["securityContext"]["appArmorProfile"];
            assert_eq!(
                *profile,
                json!({ "type": "Localhost", "localhostProfile": "tare-ab12-e1" })
            );
            let sidecar = &again["spec"]["containers"][1];
            assert_eq!(sidecar["name"], "sidecar");
            let amounts = json!({ "cpu": "10m", "memory": "1048576" });
            assert_eq!(sidecar["resources"], json!({ "requests": amounts, "limits": amounts }));
            let again = &again["spec"]["containers"][0];
            let own = &again["env"][1]["valueFrom"]["fieldRef"];
            assert_eq!(own["fieldPath"], json!("status.podIP"));
            assert_eq!(again["ports"][0]["hostPort"], json!(9042));
            assert_eq!(again["securityContext"]["capabilities"]["drop"], json!(["ALL"]));
        }
    }

    #[test]
    fn overhead_is_that_of_the_pod() {
        let overhead = |of: Value| {
            let pod = json!({ "metadata": {}, "spec": { "containers": [], "overhead": of } });
            Overhead::of(&serde_json::from_value(pod).unwrap())
        };
        let of = |cpu_milli, memory_bytes| Overhead { cpu_milli, memory_bytes };
        assert_eq!(overhead(json!({ "cpu": "250m", "memory": "120Mi" })), of(250, 120 << 20));
        assert_eq!(overhead(json!({ "cpu": "1.5", "memory": "2Gi" })), of(1500, 2 << 30));
        assert_eq!(overhead(json!({ "memory": "128974848" })), of(0, 128_974_848));
        assert_eq!(overhead(json!({ "memory": "0.5k" })), of(0, 500));
        assert_eq!(overhead(json!({ "cpu": "1e3", "memory": "x" })), Overhead::default());
        assert_eq!(overhead(json!(null)), Overhead::default());
    }

    fn line(status: &Value) -> String {
        let pod = json!({ "metadata": { "name": "e1", "uid": "u" }, "spec": { "containers": [] },
                          "status": status });
        match progress(&serde_json::from_value(pod).unwrap(), "n1") {
            Ok(progress) => format!("{progress:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_pod_that_can_never_run_is_an_error() {
        let container = |state: Value| {
            json!({ "name": "system", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                    "containerID": "containerd://c0ffee", "state": state })
        };
        let waiting = |reason: &str| {
            let state = json!({ "waiting": { "reason": reason, "message": "as said" } });
            json!({ "phase": "Pending", "containerStatuses": [container(state)] })
        };
        let full = json!([{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                            "message": "0/1 nodes are available: 1 Insufficient cpu." }]);
        let no_volume = json!([{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                            "message": "pod has unbound immediate PersistentVolumeClaims." }]);
        let ended = container(json!({ "terminated": { "exitCode": 3 } }));
        for (status, expect) in [
            (waiting("ErrImageNeverPull"), "load the image on the node"),
            (waiting("CreateContainerError"), "CreateContainerError: as said"),
            (waiting("ContainerCreating"), "Waiting"),
            (json!({ "phase": "Pending", "conditions": full }), "Insufficient cpu"),
            (json!({ "phase": "Pending", "conditions": no_volume }), "NoVolume"),
            (
                json!({ "phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no CPUs" }),
                "no CPUs",
            ),
            (json!({ "phase": "Failed", "containerStatuses": [ended] }), "exit code 3"),
            (json!({ "phase": "Pending" }), "Waiting"),
        ] {
            let line = line(&status);
            assert!(line.contains(expect), "{line}");
        }
        let running = container(json!({ "running": {} }));
        let status = json!({ "phase": "Running", "podIP": "10.0.0.1", "qosClass": "BestEffort",
                             "containerStatuses": [running] });
        let line = line(&status);
        assert!(line.contains("\"c0ffee\"") && line.contains("10.0.0.1"), "{line}");
    }
}
