//! Why an object that was deleted is still there, in the words of the API.

use k8s_openapi::api::core::v1::{Namespace, Pod};

use crate::error::one_line;
use crate::pod::runs;

/// The conditions of a namespace that name what is left in it (`NamespaceConditionType` in
/// k8s.io/api).
const LEFT: [&str; 2] = ["NamespaceContentRemaining", "NamespaceFinalizersRemaining"];

/// Returns what is left in a namespace, or that its controller has not begun to remove it; `None`
/// if the controller has not said what is left.
pub(crate) fn of_namespace(namespace: &Namespace) -> Option<String> {
    let mut conditions = namespace.status.as_ref()?.conditions.iter().flatten().peekable();
    if conditions.peek().is_none() {
        return Some("the cluster's controller of namespaces has not begun to remove it".into());
    }
    let left = conditions.filter(|one| LEFT.contains(&one.type_.as_str()) && one.status == "True");
    let messages: Vec<String> =
        left.filter_map(|one| one.message.as_deref().map(one_line)).collect();
    let name = namespace.metadata.name.as_deref().unwrap_or_default();
    (!messages.is_empty()).then(|| {
        let messages = messages.join(" ");
        format!(
            "the cluster says: {messages} (kubectl describe pods --namespace {name} tells more)"
        )
    })
}

/// Returns what keeps a pod: a container that its node has not ended, or a finalizer.
pub(crate) fn of_pod(pod: &Pod) -> Option<String> {
    let node = pod.spec.as_ref()?.node_name.as_deref()?;
    let status = pod.status.as_ref()?;
    let containers = status.container_statuses.iter().flatten();
    let running: Vec<&str> =
        containers.filter(|one| runs(one)).map(|one| one.name.as_str()).collect();
    if !running.is_empty() {
        let running = running.join(", ");
        return Some(format!(
            "the kubelet or the container runtime of node {node} has not ended its container {running}"
        ));
    }
    match pod.metadata.finalizers.as_deref().unwrap_or_default() {
        [] => Some(format!("the kubelet of node {node} has not confirmed its end")),
        all => Some(format!("the finalizers {} keep it", all.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value, json};

    #[test]
    fn namespace_names_what_is_left_in_it() {
        let check = |conditions: Value, expect: Option<&str>| {
            let metadata = json!({ "name": "tare-ab12" });
            let object = json!({ "metadata": metadata, "status": { "conditions": conditions } });
            assert_eq!(of_namespace(&from_value(object).unwrap()).as_deref(), expect);
        };
        let condition = |kind: &str, status: &str, message: &str| {
            json!({ "type": kind, "status": status, "message": message,
                "lastTransitionTime": "2026-11-28T10:00:00Z" })
        };
        let left = "Some resources are remaining: pods. has 1 resource instances";
        check(
            json!([
                condition("NamespaceDeletionDiscoveryFailure", "False", "All discovered"),
                condition("NamespaceContentRemaining", "True", left),
                condition("NamespaceFinalizersRemaining", "False", "All gone"),
            ]),
            Some(&format!(
                "the cluster says: {left} (kubectl describe pods --namespace tare-ab12 tells more)"
            )),
        );
        check(json!([condition("NamespaceContentRemaining", "False", "All removed")]), None);
        check(json!([]), Some("the cluster's controller of namespaces has not begun to remove it"));
    }

    #[test]
    fn pod_names_what_keeps_it() {
        let check = |finalizers: Value, state: Value, expect: &str| {
            let container = json!({ "name": "system", "image": "", "imageID": "", "ready": true,
                "restartCount": 0, "state": state });
            let pod = json!({ "metadata": { "finalizers": finalizers },
                "spec": { "nodeName": "n1", "containers": [] },
                "status": { "containerStatuses": [container] } });
            let why = of_pod(&from_value(pod).unwrap()).unwrap();
            assert!(why.contains(expect), "{why}");
        };
        let running = json!({ "running": {} });
        check(json!(["x/y"]), running, "of node n1 has not ended its container system");
        let ended = json!({ "terminated": { "exitCode": 0 } });
        check(json!(["x/y"]), ended.clone(), "the finalizers x/y keep it");
        check(json!([]), ended, "the kubelet of node n1 has not confirmed its end");
    }
}
