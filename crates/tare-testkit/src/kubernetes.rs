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
