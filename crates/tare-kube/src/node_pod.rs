//! A pod through which programs run on a node, as they would over ssh.
//!
//! Method: the pod is privileged, shares the processes and the network of the node, and has only
//! the node's own programs in it (`/usr`, `/lib`), over the image of the pause program that every
//! node has. What is started in it enters the namespaces of the kubelet, or of the node's first
//! process where there is none of that name. It leaves the cgroup of the pod, so that it has the
//! CPUs of the node and outlives the pod. It loses its standard input when the connection ends.
//! With an image of Tare ([`TareImage`]) the pod has nothing of the node, and the program in it
//! does what the shell of the node does otherwise.
//!
//! Limits: without an image of Tare the node needs `nsenter` and `sh` (util-linux; every
//! distribution but those without a shell). The API server has to speak version 5 of the protocol
//! of `exec`, which can end a standard input (Kubernetes 1.30).

use std::io::{PipeReader, PipeWriter};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, AttachParams, AttachedProcess};
use serde_json::{Value, json};
use tokio::net::unix::pipe;
use tokio::runtime::Builder;

use crate::access::{Access, CALL_LIMIT};
use crate::error::{KubeError, RUN_LABEL, one_line, sources};
use crate::node::Node;
use crate::pod::CONTAINER;
use crate::tare_image::{PROGRAM, TareImage};

/// The name of the pod in its namespace.
pub(crate) const NAME: &str = "node";

/// The directories of the node that its programs need. The loader of x86-64 is in `/lib64`.
const DIRECTORIES: [&str; 3] = ["/usr", "/lib", "/lib64"];

/// The names of the process that is a kubelet, in the distributions of Kubernetes.
pub const KUBELETS: [&str; 6] = ["kubelet", "kubelite", "k3s", "k3s-server", "rke2", "k0s"];

/// Prints the process whose namespaces are those of the node: the kubelet's, by [`KUBELETS`], else
/// the first. The pod has the network of its node, which tells its kubelet from that of another
/// node on the same kernel.
pub(crate) const FIND: &str = "for p in /proc/[0-9]*; do \
    { read -r name < \"$p/comm\"; } 2>/dev/null || continue; \
    case $name in kubelet|kubelite|k3s|k3s-server|rke2|k0s) \
    if [ \"$p/ns/net\" -ef /proc/self/ns/net ]; then echo \"${p#/proc/}\"; exit; fi;; esac; \
    done; echo 1";

/// Leaves the cgroups of the pod and the place that its class has among the victims of the OOM
/// killer, and becomes the program. Version 1 of cgroups has a hierarchy for each controller.
const LEAVE: &str = "if [ -e /sys/fs/cgroup/cgroup.controllers ]; \
    then all=/sys/fs/cgroup; else all='/sys/fs/cgroup/*'; fi; \
    for d in $all; do echo $$ > \"$d/cgroup.procs\"; done 2>/dev/null; \
    echo 0 > /proc/self/oom_score_adj; \
    HOME=${HOME:-/root}; export HOME; exec \"$@\"";

/// Becomes a program in the pod, which has only the directories of the node.
const STAY: &str = "PATH=/usr/sbin:/usr/bin; export PATH; exec \"$@\"";

/// A pod through which programs run on a node.
#[derive(Clone, Debug)]
pub struct NodePod {
    pub(crate) access: Access,
    pub(crate) namespace: String,
    pub(crate) name: &'static str,
    pub(crate) entry: Entry,
}

/// How programs are started through a pod.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Entry {
    /// By the shell and `nsenter` of the node, in the namespaces of this process of it.
    NodeByShell { process: u32 },
    /// By Tare's program, in the namespaces of the node.
    NodeByProgram,
    /// By the shell of the node, in the pod, with its network and its share of the CPUs.
    PodByShell,
    /// As they are, in the pod, which has Tare's program alone.
    PodByProgram,
}

/// The ends of the pipes that a program on the node reads and writes.
#[derive(Debug)]
pub struct Streams {
    pub stdin: PipeReader,
    pub stdout: PipeWriter,
    pub stderr: PipeWriter,
}

/// A program on the node.
#[derive(Debug)]
pub struct NodeProcess {
    ended: Receiver<Result<i32, KubeError>>,
}

impl NodeProcess {
    /// Waits until it ends, at most for `limit`, and returns its exit code; `None` after the limit.
    ///
    /// # Errors
    /// `Lost` if the connection ended before.
    pub fn wait(self, limit: Option<Duration>) -> Result<Option<i32>, KubeError> {
        let lost = || KubeError::Lost { why: "its end was not seen".into() };
        match limit {
            None => self.ended.recv().map_err(|_| lost())?.map(Some),
            Some(limit) => match self.ended.recv_timeout(limit) {
                Ok(ended) => ended.map(Some),
                Err(RecvTimeoutError::Timeout) => Ok(None),
                Err(RecvTimeoutError::Disconnected) => Err(lost()),
            },
        }
    }
}

/// Returns the volumes of the node's own directories and their mounts.
pub(crate) fn directories(architecture: &str) -> (Vec<Value>, Vec<Value>) {
    let has = |directory: &&str| *directory != "/lib64" || architecture == "amd64";
    let both = DIRECTORIES.into_iter().filter(has).map(|path| {
        let name = path.trim_start_matches('/');
        let volume = json!({ "name": name, "hostPath": { "path": path, "type": "Directory" } });
        (volume, json!({ "name": name, "mountPath": path, "readOnly": true }))
    });
    both.unzip()
}

/// Returns the pod as it is written in a manifest.
pub(crate) fn manifest(
    namespace: &str,
    run: &str,
    node: &Node,
    image: Option<&TareImage>,
) -> Value {
    let (container, volumes) = container(node, image);
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": NAME, "namespace": namespace, "labels": { RUN_LABEL: run } },
        "spec": as_the_node(json!({
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "affinity": affinity(node),
            "containers": [container],
            "volumes": volumes,
        })),
    })
}

/// Returns the affinity of a pod that starts on this node alone.
pub(crate) fn affinity(node: &Node) -> Value {
    let field = json!({ "key": "metadata.name", "operator": "In", "values": [node.name] });
    json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{ "matchFields": [field] }],
    }}})
}

/// Returns the container of a pod in which programs are started, and the volumes of the pod.
/// Without an image of Tare it has the programs of the node; for a node that does not list the
/// image of the pause program, the manifest says that it belongs there.
pub(crate) fn container(node: &Node, image: Option<&TareImage>) -> (Value, Vec<Value>) {
    let mut container = json!({ "name": CONTAINER, "volumeMounts": [] });
    if let Some(image) = image {
        image.fill(&mut container);
        return (container, Vec::new());
    }
    let (volumes, mounts) = directories(&node.architecture);
    container["image"] = json!(node.pause_image().unwrap_or("IMAGE-OF-THE-PAUSE-PROGRAM"));
    container["imagePullPolicy"] = json!("Never");
    container["command"] = json!(["/usr/bin/sleep", "infinity"]);
    container["volumeMounts"] = json!(mounts);
    (container, volumes)
}

/// Adds to the specification of a pod what its only container needs to act on the node.
pub(crate) fn as_the_node(mut spec: Value) -> Value {
    spec["automountServiceAccountToken"] = json!(false);
    spec["enableServiceLinks"] = json!(false);
    spec["hostPID"] = json!(true);
    spec["hostNetwork"] = json!(true);
    spec["tolerations"] = json!([{ "operator": "Exists" }]);
    spec["containers"][0]["securityContext"] =
        json!({ "privileged": true, "readOnlyRootFilesystem": true, "runAsUser": 0 });
    spec
}

impl NodePod {
    /// Returns the running pod of a namespace, whose programs enter the node.
    ///
    /// # Errors
    /// If a program cannot be run in it.
    pub(crate) fn open(
        access: Access,
        namespace: &str,
        has_program: bool,
    ) -> Result<Self, KubeError> {
        let entry = if has_program { Entry::NodeByProgram } else { Entry::PodByShell };
        let mut pod = Self { access, namespace: namespace.into(), name: NAME, entry };
        if !has_program {
            pod.entry = Entry::NodeByShell { process: pod.process_of_node()? };
        }
        Ok(pod)
    }

    /// Returns the process of the node whose namespaces are the node's, by the node's shell.
    fn process_of_node(&self) -> Result<u32, KubeError> {
        let (output, there) = pipe_pair()?;
        let (errors, errors_there) = pipe_pair()?;
        let (stdin, nothing) = pipe_pair()?;
        drop(nothing);
        let streams = Streams { stdin, stdout: there, stderr: errors_there };
        let words = ["/usr/bin/sh", "-c", FIND].map(String::from).to_vec();
        let process = self.exec(words, streams)?;
        let read = |pipe: PipeReader| std::io::read_to_string(pipe).unwrap_or_default();
        let text = read(output);
        let code = process.wait(Some(CALL_LIMIT))?;
        let found = text.trim().parse().ok().filter(|_| code == Some(0));
        found.ok_or_else(|| KubeError::Api {
            what: "look for the kubelet".into(),
            code: 0,
            message: one_line(&format!("{text} {}", read(errors))),
        })
    }

    /// Returns whether the image of the pod has Tare's program.
    pub fn has_program(&self) -> bool {
        matches!(self.entry, Entry::NodeByProgram | Entry::PodByProgram)
    }

    /// Starts the program of the image, which puts itself where [`Self::start`] finds it, and
    /// prints where that is, as JSON.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn place_program(&self, streams: Streams) -> Result<NodeProcess, KubeError> {
        let is_for_node = matches!(self.entry, Entry::NodeByProgram);
        let words = [PROGRAM, "pod", "place"].into_iter();
        let words = words.chain(is_for_node.then_some("--on-node"));
        self.exec(words.map(String::from).collect(), streams)
    }

    /// Starts a program with these arguments on the node, or in the pod if its programs stay there.
    ///
    /// # Errors
    /// If the API server does not start it. A program that the node lacks ends with a code but 0.
    pub fn start(
        &self,
        program: &str,
        arguments: &[&str],
        streams: Streams,
    ) -> Result<NodeProcess, KubeError> {
        let number;
        let before = match self.entry {
            Entry::NodeByShell { process } => {
                number = process.to_string();
                vec![
                    "/usr/bin/nsenter",
                    "--target",
                    &number,
                    "--mount",
                    "--uts",
                    "--ipc",
                    "--net",
                    "--",
                    "/bin/sh",
                    "-c",
                    LEAVE,
                    "sh",
                ]
            }
            Entry::PodByShell => vec!["/usr/bin/sh", "-c", STAY, "sh"],
            Entry::NodeByProgram => vec![PROGRAM, "pod", "enter", "--"],
            Entry::PodByProgram => Vec::new(),
        };
        let words = before.into_iter().chain([program]).chain(arguments.iter().copied());
        self.exec(words.map(String::from).collect(), streams)
    }

    /// Runs a command in the pod, on a thread that passes its streams on.
    fn exec(&self, command: Vec<String>, streams: Streams) -> Result<NodeProcess, KubeError> {
        let (begun, beginning) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        let (access, namespace, name) = (self.access.clone(), self.namespace.clone(), self.name);
        let work = move || {
            let runtime = Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|error| KubeError::Access { why: error.to_string() });
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(error) => return drop(begun.send(Err(error))),
            };
            runtime.block_on(async {
                match connect(&access, (&namespace, name), command).await {
                    // Nobody waits for what was given up.
                    Err(error) => drop(begun.send(Err(error))),
                    Ok(attached) => {
                        drop(begun.send(Ok(())));
                        drop(end.send(relay(attached, streams).await));
                    }
                }
            });
        };
        let thread = thread::Builder::new().name("kubernetes-exec".into()).spawn(work);
        thread.map_err(|error| KubeError::Access { why: error.to_string() })?;
        let lost = |_| KubeError::Lost { why: "its beginning was not seen".into() };
        beginning.recv().map_err(lost)??;
        Ok(NodeProcess { ended })
    }
}

fn pipe_pair() -> Result<(PipeReader, PipeWriter), KubeError> {
    std::io::pipe().map_err(|error| KubeError::Access { why: error.to_string() })
}

/// Starts a command in the pod.
async fn connect(
    access: &Access,
    (namespace, name): (&str, &str),
    command: Vec<String>,
) -> Result<AttachedProcess, KubeError> {
    let what = "run a program in the pod on the node";
    let config = access.config().await?;
    let server = config.cluster_url.to_string();
    let client = Client::try_from(config);
    let client = client.map_err(|error| KubeError::Access { why: sources(&error) })?;
    let pods: Api<Pod> = Api::namespaced(client, namespace);
    let streams =
        AttachParams::default().container(CONTAINER).stdin(true).stdout(true).stderr(true);
    let call = pods.exec(name, command, &streams);
    match tokio::time::timeout(CALL_LIMIT, call).await {
        Ok(attached) => attached.map_err(|error| KubeError::of(what, &server, error)),
        Err(_) => Err(KubeError::silent(what, &server, CALL_LIMIT)),
    }
}

/// Passes the streams on until the program has ended, and returns its exit code.
async fn relay(mut attached: AttachedProcess, streams: Streams) -> Result<i32, KubeError> {
    let lost = |why: &str| KubeError::Lost { why: why.into() };
    let pipe = |error: std::io::Error| KubeError::Lost { why: error.to_string() };
    let Streams { stdin, stdout, stderr } = streams;
    let mut from = pipe::Receiver::from_owned_fd(stdin.into()).map_err(pipe)?;
    let mut out = pipe::Sender::from_owned_fd(stdout.into()).map_err(pipe)?;
    let mut errors = pipe::Sender::from_owned_fd(stderr.into()).map_err(pipe)?;
    let missing = || lost("it has no streams");
    let mut stdin = attached.stdin().ok_or_else(missing)?;
    let mut stdout = attached.stdout().ok_or_else(missing)?;
    let mut stderr = attached.stderr().ok_or_else(missing)?;
    let status = attached.take_status().ok_or_else(missing)?;
    let input = async move {
        // Either end may close it: the program, or who feeds it.
        let _ = tokio::io::copy(&mut from, &mut stdin).await;
        drop(stdin);
        std::future::pending::<()>().await;
    };
    let output = async {
        let copied = tokio::join!(
            tokio::io::copy(&mut stdout, &mut out),
            tokio::io::copy(&mut stderr, &mut errors),
        );
        // A reader that has gone does not keep the program from its end.
        let _ = copied;
        status.await
    };
    let ended = tokio::select! {
        () = input => None,
        ended = output => ended,
    };
    let ended = ended.ok_or_else(|| lost("the connection to the API server ended"))?;
    exit_code(&serde_json::to_value(ended).unwrap_or_default())
}

/// Returns the exit code in the status of a command (`k8s.io/apimachinery`, `NonZeroExitCode`).
fn exit_code(status: &Value) -> Result<i32, KubeError> {
    if status["status"] == "Success" {
        return Ok(0);
    }
    let causes = status["details"]["causes"].as_array().into_iter().flatten();
    let code = causes
        .filter(|cause| cause["reason"] == "ExitCode")
        .find_map(|cause| cause["message"].as_str()?.parse().ok());
    let message = one_line(status["message"].as_str().unwrap_or_default());
    let what = "run a program in the pod on the node".to_string();
    code.ok_or(KubeError::Api { what, code: 0, message })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tare_image::PullPolicy;

    #[test]
    fn a_pod_with_the_image_of_tare_has_nothing_of_the_node() {
        let node = json!({ "metadata": { "name": "n1" } });
        let node = Node::of(serde_json::from_value(node).unwrap());
        let image = TareImage { name: "x/tare:1".into(), pull: PullPolicy::IfNotPresent };
        let manifest = manifest("tare-ab12-n0", "ab12", &node, Some(&image));
        // Every field is one of the API.
        let pod: Pod = serde_json::from_value(manifest.clone()).unwrap();
        let again = serde_json::to_value(&pod).unwrap();
        let container = &again["spec"]["containers"][0];
        assert_eq!(container["image"], "x/tare:1");
        assert_eq!(container["imagePullPolicy"], "IfNotPresent");
        assert_eq!(container["command"], json!(["/tare", "pod", "wait"]));
        assert_eq!(container["securityContext"]["privileged"], json!(true));
        assert_eq!(again["spec"]["hostPID"], json!(true));
        assert!(!manifest.to_string().contains("hostPath"), "{manifest}");
        let without = super::manifest("tare-ab12-n0", "ab12", &node, None);
        assert!(without.to_string().contains("hostPath"), "{without}");
    }

    #[test]
    fn the_shell_looks_for_every_kubelet() {
        assert!(FIND.contains(&format!("case $name in {}) ", KUBELETS.join("|"))));
    }

    #[test]
    fn exit_codes_are_in_the_status() {
        assert_eq!(exit_code(&json!({ "status": "Success" })).unwrap(), 0);
        let causes = json!([{ "reason": "ExitCode", "message": "7" }]);
        let status = json!({ "status": "Failure", "details": { "causes": causes } });
        assert_eq!(exit_code(&status).unwrap(), 7);
        let status = json!({ "status": "Failure", "message": "no such container" });
        let error = exit_code(&status).unwrap_err().to_string();
        assert!(error.ends_with("no such container"), "{error}");
    }
}
