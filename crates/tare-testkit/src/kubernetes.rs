//! Tests on the node of a private cluster, which `scripts/kubernetes` starts.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::skip::{Need, Reason, skip, skipped};

/// The variable for the node's network namespace.
const NODE: &str = "TARE_KUBERNETES_NETNS";

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
