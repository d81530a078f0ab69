//! A node of the cluster.

use std::fs;
use std::net::{IpAddr, UdpSocket};

use k8s_openapi::api::core::v1::Node as ApiNode;

use crate::error::one_line;
use crate::pod::HUGE_PAGES;

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    /// The kubelet's version, such as `v1.34.1`.
    pub kubelet: String,
    /// The container runtime, such as `containerd://1.6.20`.
    pub runtime: String,
    /// The operating system's image.
    pub system: String,
    /// The boot of the kernel that the kubelet runs on.
    pub(crate) boot: String,
    /// The names of the images that the node has.
    pub images: Vec<String>,
    /// Its address in the cluster (`InternalIP`), if it has one.
    pub address: Option<String>,
    /// Whether a handler of its container runtime has user namespaces for pods
    /// (`status.runtimeHandlers`, Kubernetes 1.30).
    pub has_user_namespaces: bool,
    /// The CPUs that pods may request, as the kubelet writes it.
    pub cpus: String,
    /// Whether it has explicit huge pages of 2 MiB for pods. Its kubelet counts them at its start.
    pub has_huge_pages: bool,
    /// In the words of Go: `amd64`, `arm64`.
    pub architecture: String,
    /// Why it takes no pods, as its condition `Ready` says; `None` if it is ready.
    pub(crate) not_ready: Option<String>,
    /// Whether its administrator keeps new pods away from it (`kubectl cordon`).
    pub(crate) is_cordoned: bool,
}

impl Node {
    pub(crate) fn of(node: ApiNode) -> Self {
        let is_cordoned = node.spec.and_then(|spec| spec.unschedulable) == Some(true);
        let status = node.status.unwrap_or_default();
        let info = status.node_info.unwrap_or_default();
        let mut conditions = status.conditions.unwrap_or_default().into_iter();
        let not_ready = match conditions.find(|one| one.type_ == "Ready") {
            Some(ready) if ready.status == "True" => None,
            Some(ready) => Some(one_line(&ready.message.unwrap_or_default())),
            None => Some("its kubelet has not reported yet".into()),
        };
        let images = status.images.unwrap_or_default();
        let mut addresses = status.addresses.unwrap_or_default().into_iter();
        let internal = addresses.find(|address| address.type_ == "InternalIP");
        let handlers = status.runtime_handlers.unwrap_or_default();
        let features = handlers.into_iter().filter_map(|handler| handler.features);
        let has_user_namespaces = features.into_iter().any(|one| one.user_namespaces == Some(true));
        let mut quantities = status.allocatable.unwrap_or_default();
        let huge_pages = quantities.remove(HUGE_PAGES);
        let quantity = quantities.remove("cpu");
        Self {
            name: node.metadata.name.unwrap_or_default(),
            kubelet: info.kubelet_version,
            runtime: info.container_runtime_version,
            system: info.os_image,
            boot: info.boot_id,
            images: images.into_iter().flat_map(|image| image.names.unwrap_or_default()).collect(),
            address: internal.map(|found| found.address),
            has_user_namespaces,
            cpus: quantity.map(|quantity| quantity.0).unwrap_or_default(),
            has_huge_pages: huge_pages.is_some_and(|quantity| quantity.0 != "0"),
            architecture: info.architecture,
            not_ready,
            is_cordoned,
        }
    }

    /// Returns why no new pod belongs on it; `None` if it is ready and not cordoned.
    pub fn why_unused(&self) -> Option<String> {
        let cordoned = || self.is_cordoned.then(|| "it is cordoned".to_string());
        self.not_ready.as_ref().map(|why| format!("it is not ready: {why}")).or_else(cordoned)
    }

    /// Returns whether its kubelet runs on the kernel of this process. Nodes that are containers of
    /// one host share a kernel.
    pub fn shares_kernel(&self) -> bool {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        !self.boot.is_empty() && self.boot == boot.trim()
    }

    /// Returns whether its address is one of the network namespace of this process.
    pub(crate) fn has_address_here(&self) -> bool {
        let address = self.address.as_ref().and_then(|text| text.parse::<IpAddr>().ok());
        address.is_some_and(|address| UdpSocket::bind((address, 0)).is_ok())
    }

    /// Returns the image of the process that holds the namespaces of pods. Every node has it,
    /// because no pod starts without, and it contains a single program.
    pub fn pause_image(&self) -> Option<&str> {
        let is_pause = |name: &&String| {
            let name = name.split('@').next().unwrap_or_default();
            let name = name.rsplit('/').next().unwrap_or_default();
            name.split(':').next() == Some("pause") && name.contains(':')
        };
        self.images.iter().find(is_pause).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_not_ready_says_why() {
        let check = |conditions: serde_json::Value, expect: Option<&str>| {
            let node = serde_json::json!({ "status": { "conditions": conditions } });
            let node = Node::of(serde_json::from_value(node).unwrap());
            assert_eq!(node.not_ready.as_deref(), expect);
        };
        let ready = |status: &str| {
            serde_json::json!([
                { "type": "MemoryPressure", "status": "False" },
                { "type": "Ready", "status": status, "message": "as\nsaid" },
            ])
        };
        check(ready("True"), None);
        check(ready("False"), Some("as said"));
        check(ready("Unknown"), Some("as said"));
        check(serde_json::json!([]), Some("its kubelet has not reported yet"));
    }

    #[test]
    fn nodes_without_room_for_pods_are_unused() {
        let check = |cordoned: bool, ready: &str, expect: Option<&str>| {
            let conditions =
                serde_json::json!([{ "type": "Ready", "status": ready, "message": "x" }]);
            let node = serde_json::json!({
                "spec": { "unschedulable": cordoned }, "status": { "conditions": conditions },
            });
            let node = Node::of(serde_json::from_value(node).unwrap());
            assert_eq!(node.why_unused().as_deref(), expect);
        };
        check(false, "True", None);
        check(true, "True", Some("it is cordoned"));
        check(true, "False", Some("it is not ready: x"));
    }

    #[test]
    fn finds_the_image_of_the_pause_program() {
        let check = |names: &[&str], expect: Option<&str>| {
            let images = names.iter().map(|name| (*name).to_string()).collect();
            let node = Node {
                name: "n".into(),
                kubelet: String::new(),
                runtime: String::new(),
                system: String::new(),
                boot: String::new(),
                images,
                address: None,
                has_user_namespaces: false,
                cpus: String::new(),
                has_huge_pages: false,
                architecture: String::new(),
                not_ready: None,
                is_cordoned: false,
            };
            assert_eq!(node.pause_image(), expect, "{names:?}");
        };
        check(
            &["docker.io/library/redis:7", "registry.k8s.io/pause:3.10"],
            Some("registry.k8s.io/pause:3.10"),
        );
        check(&["registry.k8s.io/pause@sha256:00", "x/pause:1"], Some("x/pause:1"));
        check(&["x/pauses:1", "pause/other:2"], None);
    }
}
