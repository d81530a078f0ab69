//! A DaemonSet that applies a stored plan of the tuner on nodes, and reverts it at its end.
//!
//! Method: as in `node_pod`, the pod has the image of the pause program and the node's own `/usr`
//! and `/lib`; what it starts enters the namespaces of the kubelet. At the start of its container,
//! also after a reboot of the node, it copies the plan of a ConfigMap to the node and has Tare's
//! program there apply it; before the end of the container it has the program revert it.
//!
//! Limits: Tare's program and a shell have to be on the nodes. A container that is killed reverts
//! nothing; the next one finds the settings in force, and reverts them at its end.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Value, json};

use crate::node_pod::{self, FIND};

/// The name of the ConfigMap and of the DaemonSet in their namespace.
const NAME: &str = "tare-tune";
/// The label of the pods.
const LABEL: &str = "tare.tune";
/// Where the pods have the plan.
const PLAN: &str = "/plan";
/// How long reverting may take, in seconds.
const REVERT_S: u32 = 120;

/// Applies (`$1` is apply) or reverts, with the program `$2` and its state directory `$3`. `$4`
/// finds the process whose namespaces are the node's. A plan that cannot be applied is reverted,
/// and the container starts again.
const SCRIPT: &str = r#"
node=$(/usr/bin/sh -c "$4")
on() { /usr/bin/nsenter --target "$node" --mount --uts --ipc --net -- "$@"; }
if [ "$1" = revert ]; then on "$2" --state "$3" tune revert; exit; fi
if on /bin/sh -c 'test -e "$1/tune/persist.journal"' sh "$3"; then
    echo "this node has a plan of its own; run tare tune persist --remove there" >&2; exit 1
fi
on /bin/sh -c 'umask 077; mkdir -p "$1/tune" && cat > "$1/tune/plan.json"' sh "$3" < /plan/plan.json || exit
on "$2" --state "$3" tune apply --stored --yes || {
    code=$?; on "$2" --state "$3" tune revert; exit "$code"
}
exec /usr/bin/sleep infinity
"#;

/// What applies a plan on nodes.
#[derive(Clone, Copy, Debug)]
pub struct TuningDaemon<'a> {
    pub namespace: &'a str,
    /// The image of the pause program.
    pub image: &'a str,
    /// The path of Tare's program on the nodes.
    pub program: &'a str,
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
        let Self { namespace, image, .. } = self;
        let metadata = json!({ "name": NAME, "namespace": namespace });
        let labels = json!({ LABEL: NAME });
        let (mut volumes, mut mounts) = node_pod::directories(self.architecture);
        volumes.push(json!({ "name": "plan", "configMap": { "name": NAME } }));
        mounts.push(json!({ "name": "plan", "mountPath": PLAN, "readOnly": true }));
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
                "containers": [{
                    "name": "tune",
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": self.command("apply"),
                    "lifecycle": { "preStop": { "exec": { "command": self.command("revert") } } },
                    "volumeMounts": mounts,
                }],
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

    fn command(&self, what: &str) -> [String; 8] {
        ["/usr/bin/sh", "-c", SCRIPT, "sh", what, self.program, self.state, FIND].map(String::from)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::DaemonSet;
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    #[test]
    fn manifests_are_objects_of_the_api() {
        let labels = [("disk".to_string(), "nvme".to_string())];
        let daemon = |plan| TuningDaemon {
            namespace: "tare-tune",
            image: "pause:3",
            program: "/usr/local/bin/tare",
            state: "/var/lib/tare",
            plan,
            architecture: "amd64",
            labels: &labels,
        };
        let [_, plan, set] = daemon("{}").manifests();
        let plan: ConfigMap = serde_json::from_value(plan).unwrap();
        assert_eq!(plan.data.unwrap()["plan.json"], "{}");
        let typed: DaemonSet = serde_json::from_value(set.clone()).unwrap();
        let again = serde_json::to_value(&typed).unwrap();
        assert_eq!(again["spec"], set["spec"]);
        let pod = &again["spec"]["template"];
        assert_eq!(pod["spec"]["nodeSelector"]["disk"], "nvme");
        let hook = &pod["spec"]["containers"][0]["lifecycle"]["preStop"]["exec"]["command"];
        assert_eq!((&hook[4], &hook[5]), (&json!("revert"), &json!("/usr/local/bin/tare")));
        let other = daemon("{ }").manifests()[2].clone();
        assert_ne!(other["spec"]["template"]["metadata"], pod["metadata"]);
    }
}
