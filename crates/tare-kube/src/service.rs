//! A service that leads to one pod: by its cluster IP, or by a port of the node.

use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

use crate::error::RUN_LABEL;
use crate::pod::POD_LABEL;

/// A service to create.
#[derive(Clone, Debug)]
pub struct NewService<'a> {
    pub namespace: &'a str,
    /// The name of the service and of its pod.
    pub name: &'a str,
    /// The run that it belongs to, as a label.
    pub run: &'a str,
    /// The port of the service and of the pod.
    pub port: u16,
    /// Whether a port of every node leads to it too.
    pub node_port: bool,
}

/// Where clients reach a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAddress {
    /// Its virtual address, on which it has the port of `NewService`.
    pub cluster_ip: String,
    /// The port of every node, if it has one.
    pub node_port: Option<u16>,
}

impl NewService<'_> {
    /// Returns the service as it is written in a manifest.
    pub fn manifest(&self) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "labels": { RUN_LABEL: self.run },
            },
            "spec": {
                "type": if self.node_port { "NodePort" } else { "ClusterIP" },
                "selector": { RUN_LABEL: self.run, POD_LABEL: self.name },
                "ports": [{ "port": self.port, "targetPort": self.port, "protocol": "TCP" }],
            },
        })
    }
}

/// Returns where a created service is reached.
pub(crate) fn address(service: Service) -> ServiceAddress {
    let spec = service.spec.unwrap_or_default();
    let port = spec.ports.unwrap_or_default().first().and_then(|port| port.node_port);
    ServiceAddress {
        cluster_ip: spec.cluster_ip.unwrap_or_default(),
        node_port: port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_is_a_service_of_the_api() {
        for (node_port, kind) in [(false, "ClusterIP"), (true, "NodePort")] {
            let new = NewService {
                namespace: "tare-ab12",
                name: "e1",
                run: "ab12",
                port: 9042,
                node_port,
            };
            let manifest = new.manifest();
            let service: Service = serde_json::from_value(manifest.clone()).unwrap();
            let again = serde_json::to_value(&service).unwrap();
            assert_eq!(again["spec"]["selector"], manifest["spec"]["selector"]);
            assert_eq!(again["spec"]["type"], kind);
        }
    }

    #[test]
    fn addresses_are_those_that_the_cluster_gives() {
        let made = |spec: Value| address(serde_json::from_value(json!({ "spec": spec })).unwrap());
        let node =
            made(json!({ "clusterIP": "10.96.0.7", "ports": [{ "port": 1, "nodePort": 30001 }] }));
        let expect = ServiceAddress { cluster_ip: "10.96.0.7".into(), node_port: Some(30001) };
        assert_eq!(node, expect);
        assert_eq!(
            made(json!({ "clusterIP": "10.96.0.7", "ports": [{ "port": 1 }] })).node_port,
            None
        );
    }
}
