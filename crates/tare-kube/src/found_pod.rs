//! A pod of the user that runs already: what the API says about one of its containers, and why that
//! has ended. Nothing is changed: all that it takes is the right to get pods.

use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStatus, Pod, PodStatus, Volume,
};

use crate::cluster::Cluster;
use crate::error::{KubeError, one_line};
use crate::pod::{id_of, runs, unscheduled};

/// A container of a pod that runs and is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundPod {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// The node on which it runs.
    pub node: String,
    pub address: String,
    /// Whether it is in the node's network namespace.
    pub host_network: bool,
    /// `Guaranteed`, `Burstable` or `BestEffort`.
    pub qos_class: String,
    pub runtime_class: Option<String>,
    /// The name of the container.
    pub container: String,
    /// Its id, without the name of the runtime.
    pub container_id: String,
    /// How often it was started again.
    pub restarts: i32,
    /// The TCP ports that its manifest names.
    pub ports: Vec<u16>,
    /// The other containers of the pod that run.
    pub others: Vec<OtherContainer>,
    /// Its volumes, without those for configuration.
    pub volumes: Vec<MountedVolume>,
}

/// Another container of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherContainer {
    pub name: String,
    /// Without the name of the runtime.
    pub id: String,
}

/// A volume that a container has mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountedVolume {
    /// The path in the container.
    pub path: String,
    /// What it is, such as `emptyDir` or `claim data-redis-0`.
    pub kind: String,
}

impl FoundPod {
    /// Returns the name of the pod with its namespace.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

impl Cluster {
    /// Finds a pod that runs, and one of its containers. Without a name the pod must have only one.
    ///
    /// # Errors
    /// Says what is not there or not ready, and what to do.
    pub fn find_pod(
        &self,
        namespace: &str,
        name: &str,
        container: Option<&str>,
    ) -> Result<FoundPod, KubeError> {
        let missing = || KubeError::NoPod { namespace: namespace.into(), name: name.into() };
        found(self.read_pod(namespace, name)?.ok_or_else(missing)?, container)
    }

    /// Returns why the container of a pod is no longer the one that was found, as the clause of a
    /// sentence; `None` if the API does not report that.
    ///
    /// # Errors
    /// If the API server does not answer.
    pub fn end_of_pod(&self, before: &FoundPod) -> Result<Option<String>, KubeError> {
        let now = self.read_pod(&before.namespace, &before.name)?;
        Ok(now.map_or(Some("it was deleted".into()), |now| ending(before, &now)))
    }
}

fn found(pod: Pod, wanted: Option<&str>) -> Result<FoundPod, KubeError> {
    let namespace = pod.metadata.namespace.unwrap_or_default();
    let name = pod.metadata.name.unwrap_or_default();
    let full = format!("{namespace}/{name}");
    let (spec, status) = (pod.spec.unwrap_or_default(), pod.status.unwrap_or_default());
    let container = choose(&full, &spec.containers, wanted)?;
    let not_ready = |why: String| KubeError::NotReady { pod: full.clone(), why: one_line(&why) };
    if pod.metadata.deletion_timestamp.is_some() {
        return Err(not_ready("it is being deleted".into()));
    }
    let state = running(&status, &container.name).map_err(not_ready)?;
    let volumes = spec.volumes.unwrap_or_default();
    let mounts = container.volume_mounts.iter().flatten().filter_map(|mount| {
        let volume = volumes.iter().find(|volume| volume.name == mount.name)?;
        Some(MountedVolume { path: mount.mount_path.clone(), kind: kind(volume)? })
    });
    Ok(FoundPod {
        uid: pod.metadata.uid.unwrap_or_default(),
        node: spec.node_name.unwrap_or_default(),
        address: status.pod_ip.clone().unwrap_or_default(),
        host_network: spec.host_network == Some(true),
        qos_class: status.qos_class.clone().unwrap_or_default(),
        runtime_class: spec.runtime_class_name,
        container_id: id_of(state),
        restarts: state.restart_count,
        ports: ports(container),
        others: others(&status, &container.name),
        volumes: mounts.collect(),
        container: container.name.clone(),
        namespace,
        name,
    })
}

/// Returns the container that is meant.
fn choose<'a>(
    pod: &str,
    all: &'a [Container],
    wanted: Option<&str>,
) -> Result<&'a Container, KubeError> {
    let names = || all.iter().map(|one| one.name.clone()).collect::<Vec<_>>().join(", ");
    match (wanted, all) {
        (None, [only]) => Ok(only),
        (None, _) => Err(KubeError::SeveralContainers { pod: pod.into(), known: names() }),
        (Some(wanted), all) => {
            let found = all.iter().find(|one| one.name == wanted);
            let (pod, container) = (pod.to_string(), wanted.to_string());
            found.ok_or_else(|| KubeError::NoContainer { pod, container, known: names() })
        }
    }
}

/// Returns the status of a container that runs and is ready, or why there is none.
fn running<'a>(status: &'a PodStatus, name: &str) -> Result<&'a ContainerStatus, String> {
    let phase = status.phase.as_deref().unwrap_or("Unknown");
    if let Some(message) = unscheduled(status).and_then(|one| one.message.clone()) {
        return Err(format!("it has no node: {message}"));
    }
    if matches!(phase, "Failed" | "Succeeded") {
        let words = [Some(phase), status.reason.as_deref(), status.message.as_deref()];
        return Err(words.into_iter().flatten().collect::<Vec<_>>().join(" "));
    }
    let of_name = |one: &&ContainerStatus| one.name == name;
    let Some(found) = status.container_statuses.iter().flatten().find(of_name) else {
        return Err(format!("it is {phase}, without a container {name} yet"));
    };
    let state = found.state.clone().unwrap_or_default();
    if let Some(waiting) = state.waiting {
        let words = [waiting.reason.unwrap_or_default(), waiting.message.unwrap_or_default()];
        return Err(format!("its container {name} waits: {}", words.join(" ")));
    }
    if let Some(ended) = state.terminated {
        return Err(format!("its container {name} ended with exit code {}", ended.exit_code));
    }
    match found.ready {
        true => Ok(found),
        false => Err(format!("its container {name} runs, and its probe says that it is not ready")),
    }
}

/// Returns the TCP ports that a container names.
fn ports(container: &Container) -> Vec<u16> {
    let all = container.ports.iter().flatten();
    let tcp = all.filter(|port| port.protocol.as_deref().unwrap_or("TCP") == "TCP");
    tcp.filter_map(|port| u16::try_from(port.container_port).ok()).collect()
}

/// Returns the other containers that run, also those that began before the first one and stay.
fn others(status: &PodStatus, name: &str) -> Vec<OtherContainer> {
    let before = status.init_container_statuses.iter().flatten();
    let all = before.chain(status.container_statuses.iter().flatten());
    let others = all.filter(|one| one.name != name && runs(one));
    others.map(|one| OtherContainer { name: one.name.clone(), id: id_of(one) }).collect()
}

/// Returns what a volume is; `None` for one with configuration.
fn kind(volume: &Volume) -> Option<String> {
    if volume.config_map.is_some()
        || volume.secret.is_some()
        || volume.projected.is_some()
        || volume.downward_api.is_some()
    {
        return None;
    }
    Some(if let Some(empty) = &volume.empty_dir {
        let in_memory = empty.medium.as_deref() == Some("Memory");
        if in_memory { "emptyDir in memory" } else { "emptyDir" }.into()
    } else if let Some(path) = &volume.host_path {
        format!("hostPath {}", path.path)
    } else if let Some(claim) = &volume.persistent_volume_claim {
        format!("claim {}", claim.claim_name)
    } else if volume.ephemeral.is_some() {
        format!("ephemeral claim {}", volume.name)
    } else if let Some(csi) = &volume.csi {
        format!("CSI driver {}", csi.driver)
    } else {
        format!("volume {}", volume.name)
    })
}

/// Returns why a container is no longer the one that was found.
fn ending(before: &FoundPod, now: &Pod) -> Option<String> {
    if now.metadata.uid.as_deref() != Some(&before.uid) {
        return Some("it was deleted, and another pod has its name".into());
    }
    let status = now.status.clone().unwrap_or_default();
    let disrupted = status.conditions.iter().flatten().find(|one| one.type_ == "DisruptionTarget");
    let is_evicted = status.reason.as_deref() == Some("Evicted");
    if let Some(message) =
        disrupted.map(|one| one.message.clone()).or(is_evicted.then(|| status.message.clone()))
    {
        return Some(one_line(&format!("it was evicted: {}", message.unwrap_or_default())));
    }
    if now.metadata.deletion_timestamp.is_some() {
        return Some("it is being deleted".into());
    }
    let mut all = status.container_statuses.iter().flatten();
    let found = all.find(|one| one.name == before.container)?;
    let ended = |state: &Option<ContainerState>| {
        let ended = state.as_ref()?.terminated.clone()?;
        Some((ended.reason.unwrap_or_default(), ended.exit_code))
    };
    let name = &before.container;
    let why = |(reason, code): (String, i32)| format!("({reason}, exit code {code})");
    if let Some(end) = ended(&found.state) {
        return Some(format!("its container {name} ended {}", why(end)));
    }
    let is_other = found.restart_count != before.restarts || id_of(found) != before.container_id;
    let end = ended(&found.last_state).map(why).unwrap_or_default();
    is_other.then(|| format!("its container {name} was started again {end}").trim_end().into())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod() -> Value {
        let status = |name: &str, id: &str| {
            json!({ "name": name, "image": "", "imageID": "", "ready": true, "restartCount": 2,
                    "containerID": format!("containerd://{id}"), "state": { "running": {} } })
        };
        json!({
            "metadata": { "name": "db-0", "namespace": "shop", "uid": "u" },
            "spec": {
                "nodeName": "n1",
                "runtimeClassName": "fast",
                "containers": [
                    { "name": "db",
                      "ports": [{ "containerPort": 9042 }, { "containerPort": 53, "protocol": "UDP" }],
                      "volumeMounts": [{ "name": "data", "mountPath": "/data" },
                                       { "name": "token", "mountPath": "/token" },
                                       { "name": "logs", "mountPath": "/logs" }] },
                    { "name": "proxy" },
                ],
                "volumes": [
                    { "name": "data", "persistentVolumeClaim": { "claimName": "data-db-0" } },
                    { "name": "token", "projected": {} },
                    { "name": "logs", "emptyDir": { "medium": "Memory" } },
                ],
            },
            "status": {
                "phase": "Running", "podIP": "10.0.0.7", "qosClass": "Burstable",
                "containerStatuses": [status("proxy", "0b"), status("db", "0a")],
                "initContainerStatuses": [status("mesh", "0c")],
            },
        })
    }

    fn read(pod: &Value, container: Option<&str>) -> Result<FoundPod, String> {
        let pod: Pod = serde_json::from_value(pod.clone()).unwrap();
        found(pod, container).map_err(|error| error.to_string())
    }

    #[test]
    fn container_of_a_pod_is_found() {
        let found = read(&pod(), Some("db")).unwrap();
        assert_eq!((found.container_id.as_str(), found.restarts), ("0a", 2));
        assert_eq!(found.ports, [9042]);
        assert_eq!(found.full_name(), "shop/db-0");
        assert_eq!((found.address.as_str(), found.node.as_str()), ("10.0.0.7", "n1"));
        let others: Vec<&str> = found.others.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(others, ["mesh", "proxy"]);
        let volumes = found.volumes.iter().map(|one| (one.path.as_str(), one.kind.as_str()));
        let expect = [("/data", "claim data-db-0"), ("/logs", "emptyDir in memory")];
        assert_eq!(volumes.collect::<Vec<_>>(), expect);
    }

    #[test]
    fn what_cannot_be_attached_is_one_line() {
        let check = |path: &str, value: Value, container: Option<&str>, expect: &str| {
            let mut pod = pod();
            *pod.pointer_mut(path).unwrap() = value;
            let line = read(&pod, container).unwrap_err();
            assert!(line.contains(expect) && !line.contains('\n'), "{line}");
        };
        let db = Some("db");
        let state = "/status/containerStatuses/1/state";
        check("/spec/nodeName", json!("n1"), None, "several containers, db, proxy; write");
        check("/spec/nodeName", json!("n1"), Some("web"), "no container web; its containers are");
        check("/status/phase", json!("Failed"), db, "not ready: Failed");
        check("/status/containerStatuses", json!([]), db, "Running, without a container db yet");
        let waiting =
            json!({ "waiting": { "reason": "CrashLoopBackOff", "message": "back\noff" } });
        check(state, waiting, db, "waits: CrashLoopBackOff back off");
        let ended = json!({ "terminated": { "exitCode": 3 } });
        check(state, ended, db, "ended with exit code 3");
        check("/status/containerStatuses/1/ready", json!(false), db, "its probe says");
        let unscheduled = json!([{ "type": "PodScheduled", "status": "False",
                                   "reason": "Unschedulable", "message": "0/1 nodes" }]);
        let mut pending = pod();
        pending["status"] = json!({ "phase": "Pending", "conditions": unscheduled });
        assert!(read(&pending, db).unwrap_err().contains("it has no node: 0/1 nodes"));
        let mut leaving = pod();
        leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert!(read(&leaving, db).unwrap_err().contains("it is being deleted"));
    }

    #[test]
    fn end_of_a_container_has_its_reason() {
        let before = read(&pod(), Some("db")).unwrap();
        let check = |change: &dyn Fn(&mut Value), expect: Option<&str>| {
            let mut now = pod();
            change(&mut now);
            let now: Pod = serde_json::from_value(now).unwrap();
            assert_eq!(ending(&before, &now).as_deref(), expect);
        };
        let db = |now: &mut Value, key: &str, value: Value| {
            now["status"]["containerStatuses"][1][key] = value;
        };
        let killed = json!({ "terminated": { "exitCode": 137, "reason": "OOMKilled" } });
        check(&|_| (), None);
        check(
            &|now| now["metadata"]["uid"] = json!("v"),
            Some("it was deleted, and another pod has its name"),
        );
        check(
            &|now| db(now, "state", killed.clone()),
            Some("its container db ended (OOMKilled, exit code 137)"),
        );
        let again = "its container db was started again";
        check(&|now| db(now, "restartCount", json!(3)), Some(again));
        let with_reason = |now: &mut Value| {
            db(now, "restartCount", json!(3));
            db(now, "lastState", killed.clone());
        };
        check(&with_reason, Some(&format!("{again} (OOMKilled, exit code 137)")));
        let evicted = |now: &mut Value| {
            now["status"]["reason"] = json!("Evicted");
            now["status"]["message"] = json!("The node was low on\nresource: memory.");
        };
        check(&evicted, Some("it was evicted: The node was low on resource: memory."));
        let disrupted = |now: &mut Value| {
            now["status"]["conditions"] = json!([{ "type": "DisruptionTarget", "status": "True",
                "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting" }]);
        };
        check(&disrupted, Some("it was evicted: Eviction API: evicting"));
        let deleted =
            |now: &mut Value| now["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        check(&deleted, Some("it is being deleted"));
    }
}
