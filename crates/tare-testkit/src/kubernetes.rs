//! Tests on the node of a private cluster, which `scripts/kubernetes` starts.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::skip::{Need, Reason, skip, skipped};

/// The variable for the node's network namespace.
const NODE: &str = "TARE_KUBERNETES_NETNS";

/// The variable for the names of the other nodes.
const OTHERS: &str = "TARE_KUBERNETES_OTHERS";

/// Held by the test that uses the cluster: some look at everything of Tare in it.
static CLUSTER: Mutex<()> = Mutex::new(());

/// Returns the cluster, for itself, if a test must go on in this process, which is in the node's
/// network namespace. Otherwise it has passed in a process there, or it was skipped.
pub fn alone_on_node(test: &str) -> Option<MutexGuard<'static, ()>> {
    let Some(node) = std::env::var_os(NODE) else {
        skip(test, Reason::not_installed("a Kubernetes cluster that answers"));
        return None;
    };
    if skipped(test, &[Need::Root]) {
        return None;
    }
    let alone = CLUSTER.lock().unwrap_or_else(PoisonError::into_inner);
    let inode = |path: &Path| std::fs::read_link(path).unwrap();
    if inode(Path::new("/proc/self/ns/net")) == inode(Path::new(&node)) {
        return Some(alone);
    }
    let mut there = Command::new("nsenter");
    there.arg(format!("--net={}", PathBuf::from(node).display()));
    there.arg(std::env::current_exe().unwrap()).args([test, "--exact", "--nocapture"]);
    assert!(there.status().unwrap().success(), "{test} on the node");
    None
}

/// Returns the name of the second node of the cluster; `None` if a test is skipped for lack of it.
pub fn second_node(test: &str) -> Option<String> {
    let found = second_node_if_any();
    if found.is_none() {
        skip(test, Reason::not_installed("a second node of the cluster"));
    }
    found
}

/// Returns the name of the second node, if the cluster has one.
pub fn second_node_if_any() -> Option<String> {
    others().into_iter().next()
}

/// Returns the names of the other nodes, which are this many; `None` if a test is skipped for lack
/// of them.
pub fn other_nodes<const COUNT: usize>(test: &str) -> Option<[String; COUNT]> {
    let found = others().first_chunk().cloned();
    if found.is_none() {
        skip(test, Reason::not_installed(format!("{COUNT} other nodes of the cluster")));
    }
    found
}

/// Returns the handler of a runtime class with gVisor, which a cluster has with
/// `TARE_KUBERNETES_CONTAINERD=v2.1.9 scripts/kubernetes`; `None` if a test is skipped for lack of
/// it.
pub fn gvisor(test: &str) -> Option<String> {
    let handler = std::env::var("TARE_KUBERNETES_GVISOR").ok().filter(|name| !name.is_empty());
    if handler.is_none() {
        let place = "with TARE_KUBERNETES_CONTAINERD=v2.1.9 scripts/kubernetes".to_string();
        skip(test, Reason::RunsElsewhere { place });
    }
    handler
}

/// A runtime class of the cluster. Dropping it deletes it.
#[derive(Debug)]
pub struct RuntimeClass(String);

impl RuntimeClass {
    const PATH: &str = "/apis/node.k8s.io/v1/runtimeclasses";

    /// Creates a class. `more` are further fields as JSON, such as `, "overhead": {}`.
    pub fn create(name: &str, handler: &str, more: &str) -> Self {
        let text =
            format!(r#"{{ "metadata": {{ "name": "{name}" }}, "handler": "{handler}"{more} }}"#);
        request("POST", Self::PATH, &text);
        Self(name.into())
    }
}

impl Drop for RuntimeClass {
    fn drop(&mut self) {
        // A panic in a drop would hide the failure of the test.
        let _ = answer("DELETE", &format!("{}/{}", Self::PATH, self.0), "");
    }
}

fn others() -> Vec<String> {
    let names = std::env::var(OTHERS).unwrap_or_default();
    names.split_whitespace().map(String::from).collect()
}

/// Returns a process in the namespaces of the second node, and the folder of Tare's journals there.
///
/// # Panics
/// If there is no second node.
pub fn second_node_inside() -> (u32, PathBuf) {
    node_inside(2).unwrap()
}

/// Returns a process in the namespaces of a node but the first, and the folder of Tare's journals
/// there, where `scripts/kubernetes` keeps both; `None` if the cluster has no node of this number.
pub fn node_inside(number: usize) -> Option<(u32, PathBuf)> {
    let access = PathBuf::from(std::env::var_os("KUBECONFIG")?);
    let folder = access.parent()?.parent()?;
    let network = std::fs::read_to_string(folder.join(format!("netns-{number}"))).ok()?;
    let is_there = |pid: &u32| {
        let found = std::fs::read_link(format!("/proc/{pid}/ns/net"));
        found.is_ok_and(|found| found == Path::new(network.trim()))
    };
    let entries = std::fs::read_dir("/proc").ok()?.flatten();
    let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Some((pids.find(is_there)?, folder.join(format!("node-{number}/tare/runs"))))
}

/// Sets a label of a node, until this is dropped.
#[derive(Debug)]
pub struct Label {
    node: String,
    name: &'static str,
}

impl Label {
    /// # Panics
    /// If the API server refuses it.
    pub fn set(node: &str, name: &'static str, value: &str) -> Self {
        let (code, answer) = label(node, name, &format!("\"{value}\""));
        assert!(code < 300, "{code} {answer}");
        Self { node: node.into(), name }
    }
}

impl Drop for Label {
    fn drop(&mut self) {
        label(&self.node, self.name, "null");
    }
}

/// Changes a label to a value of JSON.
fn label(node: &str, name: &str, value: &str) -> (u16, String) {
    let change = format!("{{\"metadata\":{{\"labels\":{{\"{name}\":{value}}}}}}}");
    answer("PATCH", &format!("/api/v1/nodes/{node}"), &change)
}

/// Sends a request with a body of JSON to the API server, as the user of KUBECONFIG in the form
/// that `scripts/kubernetes` writes. Returns the answer, which must not be an error.
pub fn request(method: &str, path: &str, body: &str) -> String {
    let (code, answer) = answer(method, path, body);
    assert!(code < 300, "{method} {path}: {code} {answer}");
    answer
}

/// Sends a request as `request` does, and returns the code of the answer too.
pub fn answer(method: &str, path: &str, body: &str) -> (u16, String) {
    let access = std::fs::read_to_string(std::env::var_os("KUBECONFIG").unwrap()).unwrap();
    let quoted = |key: &str| {
        let (_, rest) = access.split_once(&format!("{key}: \"")).unwrap();
        rest.split('"').next().unwrap().to_string()
    };
    let kind = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--write-out", "\n%{http_code}"])
        .args(["--cacert", &quoted("certificate-authority"), "--request", method])
        .args(["--header", &format!("Authorization: Bearer {}", quoted("token"))])
        .args(["--header", &format!("Content-Type: {kind}"), "--data-binary", body])
        .arg(format!("https://{}:6443{path}", quoted("tls-server-name")))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let (answer, code) = text.rsplit_once('\n').unwrap_or_else(|| panic!("{said}"));
    (code.parse().unwrap(), answer.to_string())
}

/// The API server does not answer, until this is dropped.
#[derive(Debug)]
pub struct LostServer {
    /// `scripts/kubernetes` does not start the server again as long as this file is there.
    down: PathBuf,
    pid: String,
}

impl LostServer {
    /// Kills the API server, with its connections.
    ///
    /// # Panics
    /// If `scripts/kubernetes` has not started it.
    pub fn kill() -> Self {
        let lost = Self::find();
        std::fs::write(&lost.down, "").unwrap();
        signal("KILL", &lost.pid);
        lost
    }

    /// Stops the API server. Connections stay, and nothing comes over them.
    ///
    /// # Panics
    /// If `scripts/kubernetes` has not started it.
    pub fn stop() -> Self {
        let lost = Self::find();
        signal("STOP", &lost.pid);
        lost
    }

    fn find() -> Self {
        let access = PathBuf::from(std::env::var_os("KUBECONFIG").unwrap());
        let folder = access.parent().and_then(Path::parent).unwrap();
        let pid = std::fs::read_to_string(folder.join("kube-apiserver.pid")).unwrap();
        Self { down: folder.join("kube-apiserver.down"), pid: pid.trim().into() }
    }
}

impl Drop for LostServer {
    fn drop(&mut self) {
        if std::fs::remove_file(&self.down).is_err() {
            signal("CONT", &self.pid);
        }
        let began = Instant::now();
        let wait = |what: &str, is_done: &dyn Fn() -> bool| {
            while !is_done() {
                if began.elapsed() > RESTART {
                    assert!(std::thread::panicking(), "{what}");
                    return;
                }
                std::thread::sleep(Duration::from_millis(200));
            }
        };
        wait("the API server answers", &|| answer("GET", "/readyz", "").0 == 200);
        // The controllers notice it later.
        let namespaces = "/api/v1/namespaces";
        let namespace = format!("{namespaces}/tare-test-back");
        answer("POST", namespaces, r#"{"metadata":{"name":"tare-test-back"}}"#);
        answer("DELETE", &namespace, "");
        wait("a namespace ends", &|| answer("GET", &namespace, "").0 == 404);
    }
}

fn signal(name: &str, pid: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), pid]).status().unwrap();
    assert!(sent.success(), "{name} to the API server, {pid}");
}

/// A right: the group of the API, the resource and the verb.
pub type Right<'a> = (&'a str, &'a str, &'a str);

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
/// The user of the cluster who has no rights but those of the role.
const USER: &str = "powerless";
/// How long the API server and the controllers may need until they work again, on a loaded machine.
const RESTART: Duration = Duration::from_secs(180);
/// How long the API server may need to know a changed role.
const PATIENCE: Duration = Duration::from_secs(30);

/// A role of the user who has no other rights. Dropping it removes it.
#[derive(Debug)]
pub struct Role {
    name: String,
}

impl Role {
    /// Returns the file with the access of the user.
    pub fn access() -> PathBuf {
        PathBuf::from(std::env::var_os("KUBECONFIG").unwrap()).with_file_name(USER)
    }

    /// Creates the role without a right.
    pub fn create(name: &str) -> Self {
        let kind = "\"apiVersion\":\"rbac.authorization.k8s.io/v1\"";
        let metadata = format!("\"metadata\":{{\"name\":\"{name}\"}}");
        let group = "\"apiGroup\":\"rbac.authorization.k8s.io\"";
        let made = Self { name: name.into() };
        request("POST", ROLES, &format!("{{{kind},\"kind\":\"ClusterRole\",{metadata}}}"));
        let binding = format!(
            "{{{kind},\"kind\":\"ClusterRoleBinding\",{metadata},\
             \"roleRef\":{{{group},\"kind\":\"ClusterRole\",\"name\":\"{name}\"}},\
             \"subjects\":[{{{group},\"kind\":\"User\",\"name\":\"{USER}\"}}]}}"
        );
        request("POST", BINDINGS, &binding);
        made
    }

    /// Gives the role all of these rights but one, and waits until the API server knows it.
    pub fn give(&self, all: &[Right<'_>], missing: Option<Right<'_>>) {
        let given = all.iter().filter(|right| Some(**right) != missing);
        let rules: Vec<String> = given
            .map(|(group, resource, verb)| {
                format!("{{\"apiGroups\":[\"{group}\"],\"resources\":[\"{resource}\"],\"verbs\":[\"{verb}\"]}}")
            })
            .collect();
        let rules = format!("{{\"rules\":[{}]}}", rules.join(","));
        request("PATCH", &format!("{ROLES}/{}", self.name), &rules);
        let began = Instant::now();
        while !all.iter().all(|right| is_allowed(*right) == (Some(*right) != missing)) {
            assert!(began.elapsed() < PATIENCE, "the role without {missing:?} is not in force");
        }
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        for path in [BINDINGS, ROLES] {
            answer("DELETE", &format!("{path}/{}", self.name), "");
        }
    }
}

fn is_allowed((group, resource, verb): Right<'_>) -> bool {
    let (resource, below) = resource.split_once('/').unwrap_or((resource, ""));
    let review = format!(
        "{{\"apiVersion\":\"authorization.k8s.io/v1\",\"kind\":\"SubjectAccessReview\",\"spec\":{{\
         \"user\":\"{USER}\",\"resourceAttributes\":{{\"group\":\"{group}\",\"resource\":\"{resource}\",\
         \"subresource\":\"{below}\",\"verb\":\"{verb}\"}}}}}}"
    );
    request("POST", REVIEWS, &review).replace([' ', '\n'], "").contains("\"allowed\":true")
}
