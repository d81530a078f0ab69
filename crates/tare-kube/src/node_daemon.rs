//! A DaemonSet that applies a stored plan of the tuner on nodes, and reverts it at its end.
//!
//! Method: as in `node_pod`, the pod has the image of the pause program and the node's own `/usr`
//! and `/lib`, or an image of Tare and nothing of the node; what it starts enters the namespaces of
//! the kubelet. At the start of its container, also after a reboot of the node, it has Tare's
//! program store the plan of a ConfigMap on the node and apply it; before the end of the container
//! it has the program revert it.
//!
//! Limits: without an image of Tare, its program and a shell have to be on the nodes. A container
//! that is killed reverts nothing; the next one finds the settings in force, and reverts them at
//! its end.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Value, json};

use crate::node_pod::{self, FIND};
use crate::tare_image::{PROGRAM, TareImage};

/// The name of the ConfigMap and of the DaemonSet in their namespace.
const NAME: &str = "tare-tune";
/// The label of the pods.
const LABEL: &str = "tare.tune";
/// Where the pods have the plan.
const PLAN: &str = "/plan";
const PLAN_FILE: &str = "/plan/plan.json";
/// How long reverting may take, in seconds.
const REVERT_S: u32 = 120;

/// Applies (`$1` is apply) or reverts, with the program `$2` and its state directory `$3`. `$4`
/// finds the process whose namespaces are the node's. A plan that cannot be applied is reverted,
/// and the container starts again.
const SCRIPT: &str = r#"
node=$(/usr/bin/sh -c "$4")
on() { /usr/bin/nsenter --target "$node" --mount --uts --ipc --net -- "$@"; }
if [ "$1" = revert ]; then on "$2" --state "$3" tune revert; exit; fi
on "$2" --state "$3" tune store < /plan/plan.json || exit
on "$2" --state "$3" tune apply --stored --yes || {
    code=$?; on "$2" --state "$3" tune revert; exit "$code"
}
exec /usr/bin/sleep infinity
"#;

/// Tare's program on nodes.
#[derive(Clone, Copy, Debug)]
pub enum TuningProgram<'a> {
    /// A file of the nodes, which their shell starts. The image is that of the pause program.
    OfNode { path: &'a str, image: &'a str },
    /// That of an image, which needs no file and no shell of the nodes.
    OfImage(&'a TareImage),
}

/// What applies a plan on nodes.
#[derive(Clone, Copy, Debug)]
pub struct TuningDaemon<'a> {
    pub namespace: &'a str,
    pub program: TuningProgram<'a>,
    /// Tare's state directory on the nodes.
    pub state: &'a str,
    /// The content of the stored plan.
    pub plan: &'a str,
    /// The architecture of plan and program in the words of Go.
    pub architecture: &'a str,
    /// Labels of the nodes as (name, value), besides that of the architecture.
    pub labels: &'a [(String, String)],
}

impl TuningDaemon<'_> {
    /// Returns namespace, ConfigMap and DaemonSet as they are written in manifests.
    pub fn manifests(&self) -> [Value; 3] {
        let namespace = self.namespace;
        let metadata = json!({ "name": NAME, "namespace": namespace });
        let labels = json!({ LABEL: NAME });
        let mut container = json!({ "name": "tune" });
        let (mut volumes, mut mounts) = match self.program {
            TuningProgram::OfNode { image, .. } => {
                container["image"] = json!(image);
                container["imagePullPolicy"] = json!("IfNotPresent");
                node_pod::directories(self.architecture)
            }
            TuningProgram::OfImage(image) => {
                image.fill(&mut container);
                Default::default()
            }
        };
        volumes.push(json!({ "name": "plan", "configMap": { "name": NAME } }));
        mounts.push(json!({ "name": "plan", "mountPath": PLAN, "readOnly": true }));
        container["volumeMounts"] = json!(mounts);
        container["command"] = json!(self.apply());
        container["lifecycle"] = json!({ "preStop": { "exec": { "command": self.revert() } } });
        let mut hasher = DefaultHasher::new();
        self.plan.hash(&mut hasher);
        let mut nodes =
            json!({ "kubernetes.io/os": "linux", "kubernetes.io/arch": self.architecture });
        for (name, value) in self.labels {
            nodes[name] = json!(value);
        }
        let pod = json!({
            // Another plan is rolled out to the pods.
            "metadata": {
                "labels": labels,
                "annotations": { "tare.tune/plan": format!("{:016x}", hasher.finish()) },
            },
            "spec": node_pod::as_the_node(json!({
                "nodeSelector": nodes,
                "terminationGracePeriodSeconds": REVERT_S,
                "containers": [container],
                "volumes": volumes,
            })),
        });
        [
            json!({
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {
                    "name": namespace,
                    "labels": { "pod-security.kubernetes.io/enforce": "privileged" },
                },
            }),
            json!({
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": metadata,
                "data": { "plan.json": self.plan },
            }),
            json!({
                "apiVersion": "apps/v1",
                "kind": "DaemonSet",
                "metadata": metadata,
                "spec": { "selector": { "matchLabels": labels }, "template": pod },
            }),
        ]
    }

    /// Returns the command that applies the plan and waits for the end of the container.
    fn apply(&self) -> Vec<&str> {
        match self.program {
            TuningProgram::OfNode { path, .. } => self.by_shell("apply", path),
            TuningProgram::OfImage(_) => [&self.by_image()[..], &[PLAN_FILE]].concat(),
        }
    }

    /// Returns the command that reverts it.
    fn revert(&self) -> Vec<&str> {
        match self.program {
            TuningProgram::OfNode { path, .. } => self.by_shell("revert", path),
            TuningProgram::OfImage(_) => self.by_image().to_vec(),
        }
    }

    /// It applies a plan that follows, and reverts without one.
    fn by_image(&self) -> [&str; 5] {
        [PROGRAM, "--state", self.state, "pod", "tune"]
    }

    fn by_shell<'b>(&'b self, what: &'b str, program: &'b str) -> Vec<&'b str> {
        vec!["/usr/bin/sh", "-c", SCRIPT, "sh", what, program, self.state, FIND]
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::DaemonSet;
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::tare_image::PullPolicy;

    /// Returns the plan and the DaemonSet of a daemon, after a look at their types.
    fn manifests(program: TuningProgram<'_>, plan: &str) -> (ConfigMap, Value) {
        let labels = [("disk".to_string(), "nvme".to_string())];
        let daemon = TuningDaemon {
            namespace: "tare-tune",
            program,
            state: "/var/lib/tare",
            plan,
            architecture: "amd64",
            labels: &labels,
        };
        let [_, plan, set] = daemon.manifests();
        let typed: DaemonSet = serde_json::from_value(set.clone()).unwrap();
        let again = serde_json::to_value(&typed).unwrap();
        assert_eq!(again["spec"], set["spec"], "every field is one of the API");
        (serde_json::from_value(plan).unwrap(), again["spec"]["template"].clone())
    }

    #[test]
    fn manifests_are_objects_of_the_api() {
        let program = TuningProgram::OfNode { path: "/usr/local/bin/tare", image: "pause:3" };
        let (plan, pod) = manifests(program, "{}");
        assert_eq!(plan.data.unwrap()["plan.json"], "{}");
        assert_eq!(pod["spec"]["nodeSelector"]["disk"], "nvme");
        let container = &pod["spec"]["containers"][0];
        assert_eq!(container["image"], "pause:3");
        let hook = &container["lifecycle"]["preStop"]["exec"]["command"];
        assert_eq!((&hook[4], &hook[5]), (&json!("revert"), &json!("/usr/local/bin/tare")));
        assert_ne!(manifests(program, "{ }").1["metadata"], pod["metadata"]);
    }

    #[test]
    fn a_pod_with_the_image_of_tare_has_nothing_of_the_node() {
        let image = TareImage { name: "x/tare:1".into(), pull: PullPolicy::Always };
        let (_, pod) = manifests(TuningProgram::OfImage(&image), "{}");
        let container = &pod["spec"]["containers"][0];
        assert_eq!(container["image"], "x/tare:1");
        assert_eq!(container["imagePullPolicy"], "Always");
        assert_eq!(container["volumeMounts"].as_array().unwrap().len(), 1, "the plan");
        let text = pod.to_string();
        assert!(!text.contains("hostPath") && !text.contains("sh"), "{text}");
    }
}
