//! Ways to the nodes of a cluster: pods through which programs run on them.

use std::time::Duration;

use serde_json::{Value, json};

use crate::access::Access;
use crate::account::{self, AccountUse, rule};
use crate::cluster::{Cluster, namespace_manifest};
use crate::error::KubeError;
use crate::node::Node;
use crate::node_pod::{self, NodePod};
use crate::tare_image::{self, TareImage};

/// Returns the rights that a user needs for such a pod, as they are written in a manifest: those of
/// an account, which only a user who has them may give, and what makes both.
fn rights(account_use: AccountUse) -> Value {
    let roles = ["clusterroles", "clusterrolebindings"];
    let made = ["namespaces", "pods"];
    let pod = match account_use {
        // The account has them.
        AccountUse::MakePods | AccountUse::ReachNodes | AccountUse::MakePodsAndReachNodes => {
            Vec::new()
        }
        AccountUse::ReadPods => {
            vec![
                rule("", &["nodes"], &["list"]),
                rule("", &made, &["create", "get", "delete"]),
                rule("", &["events"], &["list"]),
            ]
        }
    };
    let own = [
        rule("", &["pods/exec"], &["create", "get"]),
        rule("", &["serviceaccounts", "serviceaccounts/token"], &["create"]),
        rule("rbac.authorization.k8s.io", &roles, &["create", "get", "delete"]),
    ];
    let rules: Vec<Value> = account::rules(account_use).into_iter().chain(pod).chain(own).collect();
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": { "name": "tare-on-nodes" },
        "rules": rules,
    })
}

impl Cluster {
    /// Creates a namespace and a pod in it through which programs run on a node. `access` is that
    /// of this cluster. Without an image of Tare, the pod has the programs of the node.
    ///
    /// # Errors
    /// Says why the pod cannot start, or what the node lacks. The namespace stays until it is
    /// deleted.
    pub fn create_node_pod(
        &self,
        access: &Access,
        namespace: &str,
        run: &str,
        node: &str,
        image: Option<&TareImage>,
    ) -> Result<NodePod, KubeError> {
        let make = node_pod::manifest;
        self.start_pod_with_namespace((namespace, node_pod::NAME), run, (node, image), make)?;
        NodePod::open(access.clone(), namespace, image.is_some())
    }

    /// Creates a namespace, and in it a pod of this name on a node, by the manifest that `make`
    /// returns for namespace, run, node and image.
    pub(crate) fn start_pod_with_namespace(
        &self,
        (namespace, name): (&str, &str),
        run: &str,
        (node, image): (&str, Option<&TareImage>),
        make: fn(&str, &str, &Node, Option<&TareImage>) -> Value,
    ) -> Result<(), KubeError> {
        let node = self.node_for_pod(node, image)?;
        self.create_namespace(namespace, run)?;
        let manifest = make(namespace, run, &node, image);
        let started = self.start_pod(namespace, name, &node.name, manifest, Duration::ZERO);
        started.map(drop).map_err(|error| tare_image::explain(error, image))
    }

    /// Deletes the pod that [`Self::create_node_pod`] created. Its namespace stays.
    ///
    /// # Errors
    /// If it is still there after a while.
    pub fn delete_node_pod(&self, namespace: &str) -> Result<(), KubeError> {
        self.delete_pod(namespace, node_pod::NAME)
    }

    /// Returns what [`Self::create_node_pod`] creates, and the rights that it takes, as manifests.
    ///
    /// # Errors
    /// As [`Self::node`].
    pub fn node_pod_manifests(
        &self,
        node: &str,
        account_use: AccountUse,
        image: Option<&TareImage>,
    ) -> Result<Vec<Value>, KubeError> {
        let [namespace, pod] = self.pod_with_namespace_manifests("tare-RUN-n0", node, image)?;
        let account = account::manifests("tare-RUN-n0", "RUN", "", account_use);
        Ok([rights(account_use), namespace, pod].into_iter().chain(account).collect())
    }

    /// Returns what [`Self::create_node_pod`] creates for a command that runs on another node, as
    /// manifests.
    ///
    /// # Errors
    /// As [`Self::node`].
    pub fn host_pod_manifests(
        &self,
        node: &str,
        image: Option<&TareImage>,
    ) -> Result<[Value; 2], KubeError> {
        self.pod_with_namespace_manifests("tare-RUN-n1", node, image)
    }

    fn pod_with_namespace_manifests(
        &self,
        namespace: &str,
        node: &str,
        image: Option<&TareImage>,
    ) -> Result<[Value; 2], KubeError> {
        let node = self.node(node)?;
        let pod = node_pod::manifest(namespace, "RUN", &node, image);
        Ok([namespace_manifest(namespace, "RUN"), pod])
    }
}

impl NodePod {
    /// Checks that the pod still runs.
    ///
    /// # Errors
    /// If it does not, or the API server does not answer.
    pub fn check(&self) -> Result<(), KubeError> {
        let cluster = Cluster::connect(&self.access)?;
        let lost = || KubeError::Lost { why: "its pod does not run any more".into() };
        cluster.pod(&self.namespace, self.name)?.map(drop).ok_or_else(lost)
    }
}
