//! Why a call failed, as one line that says what the cluster has to allow or to have.

use std::time::Duration;

use kube::client::UpgradeConnectionError;
use kube::core::Status;

/// Why the cluster did not do what it was asked to do.
#[derive(Debug, thiserror::Error)]
pub enum KubeError {
    #[error(
        "cannot find access to a Kubernetes cluster: {why}; set KUBECONFIG to a file that kubectl reads"
    )]
    NoAccess { why: String },
    #[error("cannot use the access to the Kubernetes cluster: {why}")]
    Access { why: String },
    #[error(
        "cannot {what}: the API server {server} does not answer ({why}); check that it runs and that \
         this host reaches it"
    )]
    Unreachable { what: String, server: String, why: String },
    #[error(
        "cannot {what}: the API server {server} does not know the user of the access (401); renew the \
         credential that KUBECONFIG names"
    )]
    Unknown { what: String, server: String },
    #[error("cannot {what}: {message}; ask the administrator for a role that allows it")]
    Rights { what: String, message: String },
    #[error(
        "cannot {what}: an admission policy of the cluster forbids it: {message}; ask the administrator \
         to exempt namespaces with the label {label}"
    )]
    Policy { what: String, message: String, label: &'static str },
    #[error("cannot {what}: it exists; run tare clean if a killed run left it")]
    Exists { what: String },
    #[error("cannot {what}: the API server answers {code} {message}")]
    Api { what: String, code: u16, message: String },
    #[error("the connection to the node is lost: {why}")]
    Lost { why: String },
    #[error("the cluster has no node {name}; its nodes are {known}")]
    NoNode { name: String, known: String },
    #[error(
        "the cluster cannot select nodes by {selector:?}: {why}; write a selector that kubectl get nodes \
         --selector takes"
    )]
    Selector { selector: String, why: String },
    #[error(
        "the cluster has no node with the labels {selector:?}; kubectl get nodes --show-labels prints those \
         that are there"
    )]
    NoMatch { selector: String },
    #[error(
        "node {node} does not list the image of the pause program, which pods of Tare are made from; give \
         --tare-image"
    )]
    NoImage { node: String },
    #[error("node {node} is not ready: {why}; kubectl describe node {node} tells more")]
    NodeNotReady { node: String, why: String },
    #[error("cannot {what} within {} s", .limit.as_secs())]
    TimedOut { what: String, limit: Duration },
    #[error("cannot start the pod {name} on node {node} within {} s: {why}", .limit.as_secs())]
    NotStarted { name: String, node: String, limit: Duration, why: String },
    #[error(
        "cannot {what}: it was asked for {} s ago, and {why}; mend that, and run tare clean to see that \
         nothing is left", .limit.as_secs()
    )]
    Stays { what: String, limit: Duration, why: String },
    #[error(
        "no node of the Kubernetes cluster is this host (its nodes are {known}); run Tare on the node, \
         with access to the API"
    )]
    NotANode { known: String },
    #[error("the cluster has no storage class {name}; its classes are {known}")]
    NoClass { name: String, known: String },
    #[error("the claim {claim} has no volume: {why}; {pod}")]
    Unbound { claim: String, why: String, pod: String },
    #[error(
        "there is no pod {name} in the namespace {namespace}; kubectl get pods --namespace {namespace} lists \
         those that are there"
    )]
    NoPod { namespace: String, name: String },
    #[error("the pod {pod} has no container {container}; its containers are {known}")]
    NoContainer { pod: String, container: String, known: String },
    #[error(
        "the pod {pod} has several containers, {known}; write that of the system beside pod: container = \
         \"NAME\""
    )]
    SeveralContainers { pod: String, known: String },
    #[error("the pod {pod} is not ready: {why}; attach to it when kubectl get pod says that it is")]
    NotReady { pod: String, why: String },
    #[error("the pod {name} cannot start on node {node}: {why}; {remedy}")]
    Pod { name: String, node: String, why: String, remedy: String },
}

/// What a refusal to run a program in a pod means. The API server asks for `get` until Kubernetes
/// 1.34, and from 1.35 on for `create` too.
const NO_EXEC: &str = "the user cannot get resource \"pods/exec\", or from Kubernetes 1.35 on cannot \
                       create resource \"pods/exec\"";

/// What the API server says of a missing right.
const RIGHTS: [&str; 2] = [" cannot ", "attempting to grant RBAC permissions not currently held"];

/// The label of every object that Tare creates. Its value is the run.
pub(crate) const RUN_LABEL: &str = "tare.run";

impl KubeError {
    /// Sorts the error of a call.
    pub(crate) fn of(what: &str, server: &str, error: kube::Error) -> Self {
        let what = what.to_string();
        match error {
            kube::Error::Api(status) => Self::of_status(what, server, &status),
            kube::Error::UpgradeConnection(UpgradeConnectionError::ProtocolSwitch(code)) => {
                Self::of_exec(what, server, code)
            }
            other => {
                let (server, why) = (server.to_string(), sources(&other));
                Self::Unreachable { what, server, why }
            }
        }
    }

    /// Returns the error of a call that was not answered in time.
    pub(crate) fn silent(what: &str, server: &str, limit: Duration) -> Self {
        let why = format!("nothing came within {} s", limit.as_secs());
        Self::Unreachable { what: what.into(), server: server.into(), why }
    }

    /// Sorts the answer to a program that is to run in a pod, which comes without a status.
    fn of_exec(what: String, server: &str, code: http::StatusCode) -> Self {
        match code.as_u16() {
            401 => Self::Unknown { what, server: server.into() },
            403 => Self::Rights { what, message: NO_EXEC.into() },
            other => {
                let message = code.canonical_reason().unwrap_or_default().into();
                Self::Api { what, code: other, message }
            }
        }
    }

    fn of_status(what: String, server: &str, status: &Status) -> Self {
        let message = one_line(&status.message);
        match status.code {
            401 => Self::Unknown { what, server: server.into() },
            // The words of a missing right (`ForbiddenMessage` in k8s.io/apiserver), and of a role
            // with a right that its maker lacks (`ConfirmNoEscalation` in pkg/registry/rbac of
            // Kubernetes); every other refusal is a policy's.
            403 if RIGHTS.iter().any(|words| message.contains(words)) => {
                Self::Rights { what, message }
            }
            // A runtime class that does not exist.
            403 if message.contains("RuntimeClass") => Self::Api { what, code: 403, message },
            403 => Self::Policy { what, message, label: RUN_LABEL },
            409 if status.reason == "AlreadyExists" => Self::Exists { what },
            code => Self::Api { what, code, message },
        }
    }
}

/// Returns an error with its sources on one line, without repeating a source that the text has.
pub(crate) fn sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let more = source.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = source.source();
    }
    one_line(&text)
}

pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(code: u16, reason: &str, message: &str) -> String {
        let status =
            Status { code, reason: reason.into(), message: message.into(), ..Status::default() };
        let error = kube::Error::Api(Box::new(status));
        KubeError::of("create the namespace tare-ab12", "https://x:6443", error).to_string()
    }

    #[test]
    fn a_program_that_may_not_run_in_a_pod_names_the_right() {
        for (code, expect) in [
            (403, "cannot get resource \"pods/exec\""),
            (401, "does not know the user"),
            (404, "answers 404 Not Found"),
        ] {
            let code = http::StatusCode::from_u16(code).unwrap();
            let error =
                kube::Error::UpgradeConnection(UpgradeConnectionError::ProtocolSwitch(code));
            let line = KubeError::of("run a program", "https://x:6443", error).to_string();
            assert!(line.contains(expect) && !line.contains("does not answer"), "{line}");
        }
    }

    #[test]
    fn refusals_are_one_line_with_the_reason() {
        for (code, reason, message, expect) in [
            (
                403,
                "Forbidden",
                "namespaces is forbidden: User \"x\" cannot create resource \"namespaces\" in API group \"\" at the cluster scope",
                "User \"x\" cannot create resource \"namespaces\"",
            ),
            (
                403,
                "Forbidden",
                "clusterroles \"r\" is forbidden: user \"x\" (groups=[\"g\"]) is attempting to grant RBAC permissions not currently held:\n{Resources:[\"events\"], Verbs:[\"list\"]}",
                "{Resources:[\"events\"], Verbs:[\"list\"]}; ask the administrator for a role that allows it",
            ),
            (
                403,
                "Forbidden",
                "pods \"p\" is forbidden: violates PodSecurity\n\"restricted:latest\": host namespaces",
                "an admission policy of the cluster forbids it",
            ),
            (
                403,
                "Forbidden",
                "pods \"p\" is forbidden: pod rejected: RuntimeClass \"x\" not found",
                "answers 403 pods \"p\" is forbidden: pod rejected: RuntimeClass \"x\" not found",
            ),
            (409, "AlreadyExists", "exists", "it exists"),
            (401, "Unauthorized", "Unauthorized", "does not know the user"),
            (422, "Invalid", "spec is wrong", "answers 422 spec is wrong"),
        ] {
            let line = line(code, reason, message);
            assert!(line.contains(expect) && !line.contains('\n'), "{line}");
        }
    }
}
