//! Events: what the components of a cluster say of an object, and why a pod has not started in
//! time.
//!
//! Limits: a cluster keeps events for an hour by default, and the user may not be allowed to list
//! them. Then the state of the containers is all that is known of a pod.

use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::jiff::Timestamp;

use crate::error::{KubeError, one_line};
use crate::pod::waiting;

/// Returns what an event says, on one line.
pub(crate) fn line(event: &Event) -> Option<String> {
    let message = event.message.as_deref().unwrap_or_default();
    Some(one_line(&format!("{}: {message}", event.reason.as_deref()?)))
}

/// Returns why a pod has not started in time, and what to do: its last warning, else the state of
/// its containers.
pub(crate) fn why_not_started(pod: &Pod, events: Result<Vec<Event>, KubeError>) -> String {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    let log = match node {
        Some(node) => format!("the log of the kubelet of node {node}"),
        None => "the log of the cluster's scheduler".into(),
    };
    match events.map(|events| last_warning(&events, pod.metadata.uid.as_deref())) {
        Ok(Some(warning)) => format!("{warning}; mend that, or see {log}"),
        Ok(None) => format!("{}, and no event says why; see {log}", state(pod)),
        Err(error) => format!("{}; its events would say why, but {error}", state(pod)),
    }
}

/// Returns the last warning of an object, and how often it came. Another object may have had the
/// name before, with events of its own.
fn last_warning(events: &[Event], uid: Option<&str>) -> Option<String> {
    let is_warning = |event: &&Event| {
        event.type_.as_deref() == Some("Warning") && event.involved_object.uid.as_deref() == uid
    };
    let last = events.iter().filter(is_warning).max_by_key(|event| last_seen(event))?;
    let series = last.series.as_ref().and_then(|series| series.count);
    let times = match series.or(last.count) {
        Some(count @ 2..) => format!(" ({count} times)"),
        _ => String::new(),
    };
    Some(line(last)? + &times)
}

/// Returns when an event was seen last. The two versions of the API for events have fields of their
/// own for it.
fn last_seen(event: &Event) -> Option<Timestamp> {
    let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
    let newer = series.or(event.event_time.as_ref()).map(|time| time.0);
    newer.max(event.last_timestamp.as_ref().map(|time| time.0))
}

/// Returns how far a pod is that does not run.
fn state(pod: &Pod) -> String {
    let containers = pod.status.iter().flat_map(|status| &status.container_statuses).flatten();
    let waiting = containers.filter_map(|one| {
        let (reason, message) = waiting(one)?;
        Some(one_line(&format!("its container {} is waiting: {reason} {message}", one.name)))
    });
    let waiting: Vec<String> = waiting.collect();
    let is_placed = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    match waiting.is_empty() {
        false => waiting.join(", "),
        true if is_placed => "the kubelet has reported nothing of it".into(),
        true => "the scheduler has not placed it on a node".into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    fn event(uid: &str, kind: &str, reason: &str, more: Value) -> Event {
        let mut event = json!({
            "metadata": { "name": "e1.1" },
            "involvedObject": { "kind": "Pod", "name": "e1", "uid": uid },
            "type": kind,
            "reason": reason,
            "message": "as\nsaid",
        });
        event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        from_value(event).unwrap()
    }

    fn pod(node: Value, reason: Option<&str>) -> Pod {
        let container = |reason: &str| {
            json!({ "name": "system", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                    "state": { "waiting": { "reason": reason } } })
        };
        let containers: Vec<Value> = reason.map(container).into_iter().collect();
        from_value(json!({
            "metadata": { "name": "e1", "uid": "u2" },
            "spec": { "nodeName": node, "containers": [] },
            "status": { "phase": "Pending", "containerStatuses": containers },
        }))
        .unwrap()
    }

    #[test]
    fn pod_that_has_not_started_says_its_last_warning() {
        let at = |second: u32| json!({ "lastTimestamp": format!("2026-11-28T10:00:{second:02}Z") });
        let counted = json!({ "lastTimestamp": "2026-11-28T10:00:31Z", "count": 4 });
        // As components write it that use events.k8s.io.
        let series = json!({
            "eventTime": "2026-11-28T10:00:00.000001Z",
            "series": { "count": 3, "lastObservedTime": "2026-11-28T10:00:32.500000Z" },
        });
        let check = |events: Vec<Event>, expect: &str| {
            let why = why_not_started(&pod(json!("n1"), Some("ContainerCreating")), Ok(events));
            assert_eq!(why, expect);
        };
        let log = "see the log of the kubelet of node n1";
        check(
            vec![
                event("u2", "Warning", "FailedMount", counted.clone()),
                event("u2", "Warning", "FailedCreatePodSandBox", at(30)),
                event("u2", "Normal", "Scheduled", at(40)),
                event("u1", "Warning", "Unhealthy", at(50)),
            ],
            &format!("FailedMount: as said (4 times); mend that, or {log}"),
        );
        check(
            vec![
                event("u2", "Warning", "FailedScheduling", series),
                event("u2", "Warning", "FailedMount", counted),
            ],
            &format!("FailedScheduling: as said (3 times); mend that, or {log}"),
        );
        check(
            vec![event("u2", "Warning", "FailedCreatePodSandBox", at(30))],
            &format!("FailedCreatePodSandBox: as said; mend that, or {log}"),
        );
        check(
            vec![event("u2", "Normal", "Scheduled", at(30))],
            &format!(
                "its container system is waiting: ContainerCreating, and no event says why; {log}"
            ),
        );
    }

    #[test]
    fn pod_without_readable_events_says_its_state() {
        let forbidden = || {
            let what = "list the events of e1".to_string();
            let message = "User \"x\" cannot list resource \"events\"".to_string();
            Err(KubeError::Rights { what, message })
        };
        let check = |node: Value, reason: Option<&str>, expect: &str| {
            let why = why_not_started(&pod(node, reason), forbidden());
            assert!(why.starts_with(expect), "{why}");
            let right = "its events would say why, but cannot list the events of e1: \
                         User \"x\" cannot list resource \"events\"; ask the administrator";
            assert!(why.contains(right), "{why}");
        };
        check(json!("n1"), Some("PodInitializing"), "its container system is waiting: PodInit");
        check(json!("n1"), None, "the kubelet has reported nothing of it");
        check(Value::Null, None, "the scheduler has not placed it on a node");
    }
}
