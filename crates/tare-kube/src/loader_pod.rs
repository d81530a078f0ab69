//! A pod from which a system is loaded, as clients in the cluster load it.
//!
//! Method: the pod has its own network (CNI), the CPUs of its node that the kubelet shares among
//! pods, no capability and no root. It contains the node's own programs, read-only, over the image
//! of the pause program, and an empty directory for Tare's program, which goes with the pod; with
//! an image of Tare, that program alone. Programs run in it through the API (`pods/exec`).
//!
//! It requests a little CPU time: a pod without a request has almost no weight, and is the first
//! one that a node without memory ends. It has no limit, so nothing throttles it.

use serde_json::{Value, json};

use crate::access::Access;
use crate::cluster::{Cluster, namespace_manifest};
use crate::error::{KubeError, RUN_LABEL};
use crate::node::Node;
use crate::node_pod::{Entry, NodePod, affinity, container};
use crate::tare_image::TareImage;

/// The name of the pod in its namespace.
const NAME: &str = "loader";
/// Where `tare-remote` puts the program.
const PROGRAMS: &str = "/var/tmp";
/// A user without rights, `nobody` in most distributions.
const NOBODY: u32 = 65534;

/// Returns the pod as it is written in a manifest.
fn manifest(namespace: &str, run: &str, node: &Node, image: Option<&TareImage>) -> Value {
    let (mut container, mut volumes) = container(node, image);
    if image.is_none() {
        volumes.push(json!({ "name": "programs", "emptyDir": {} }));
        if let Some(mounts) = container["volumeMounts"].as_array_mut() {
            mounts.push(json!({ "name": "programs", "mountPath": PROGRAMS }));
        }
    }
    container["resources"] = json!({ "requests": { "cpu": "100m" } });
    container["securityContext"] = json!({
        "allowPrivilegeEscalation": false,
        "capabilities": { "drop": ["ALL"] },
        "readOnlyRootFilesystem": true,
        "runAsNonRoot": true,
        "runAsUser": NOBODY,
        "runAsGroup": NOBODY,
    });
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": NAME, "namespace": namespace, "labels": { RUN_LABEL: run } },
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "tolerations": [{ "operator": "Exists" }],
            "affinity": affinity(node),
            "containers": [container],
            "volumes": volumes,
        },
    })
}

impl Cluster {
    /// Creates a namespace and a pod in it from which a system is loaded. `access` is that of this
    /// cluster.
    ///
    /// # Errors
    /// Says why the pod cannot start, or what the node lacks. The namespace stays until it is
    /// deleted.
    pub fn create_loader_pod(
        &self,
        access: &Access,
        namespace: &str,
        run: &str,
        node: &str,
        image: Option<&TareImage>,
    ) -> Result<NodePod, KubeError> {
        self.start_pod_with_namespace((namespace, NAME), run, (node, image), manifest)?;
        let entry = if image.is_some() { Entry::PodByProgram } else { Entry::PodByShell };
        Ok(NodePod { access: access.clone(), namespace: namespace.into(), name: NAME, entry })
    }

    /// Returns what [`Self::create_loader_pod`] creates, as manifests.
    ///
    /// # Errors
    /// As [`Self::node`].
    pub fn loader_pod_manifests(
        &self,
        node: &str,
        image: Option<&TareImage>,
    ) -> Result<[Value; 2], KubeError> {
        let node = self.node(node)?;
        let namespace = "tare-RUN-n1";
        Ok([namespace_manifest(namespace, "RUN"), manifest(namespace, "RUN", &node, image)])
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;

    use super::*;
    use crate::tare_image::PullPolicy;

    #[test]
    fn manifest_is_a_pod_without_rights() {
        let node = json!({ "metadata": { "name": "n1" }, "status": {
            "images": [{ "names": ["x/pause:1"] }],
            "nodeInfo": { "architecture": "amd64", "bootID": "", "containerRuntimeVersion": "",
                "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "",
                "operatingSystem": "", "osImage": "", "systemUUID": "" },
        } });
        let node = Node::of(serde_json::from_value(node).unwrap());
        let image = TareImage { name: "x/tare:1".into(), pull: PullPolicy::Always };
        let with_image = manifest("tare-ab12-n0", "ab12", &node, Some(&image));
        let manifest = manifest("tare-ab12-n0", "ab12", &node, None);
        // Every field is one of the API.
        let pod: Pod = serde_json::from_value(manifest.clone()).unwrap();
        let again = serde_json::to_value(&pod).unwrap();
        for part in ["affinity", "containers", "tolerations", "volumes"] {
            assert_eq!(again["spec"][part], manifest["spec"][part], "{part}");
        }
        let container = &again["spec"]["containers"][0];
        assert_eq!(container["image"], "x/pause:1");
        assert_eq!(container["resources"].get("limits"), None);
        assert_eq!(container["securityContext"]["capabilities"]["drop"], json!(["ALL"]));
        assert_eq!(container["securityContext"].get("privileged"), None);
        assert_eq!(again["spec"].get("hostNetwork"), None);
        let is_writable = |mount: &&Value| mount.get("readOnly").is_none();
        let mounts = container["volumeMounts"].as_array().unwrap().iter().filter(is_writable);
        assert_eq!(mounts.map(|mount| &mount["mountPath"]).collect::<Vec<_>>(), [PROGRAMS]);
        assert_eq!(with_image["spec"]["volumes"], json!([]));
        let with_image = &with_image["spec"]["containers"][0];
        assert_eq!(with_image["securityContext"], container["securityContext"]);
        assert_eq!(with_image["command"], json!(["/tare", "pod", "wait"]));
    }
}
