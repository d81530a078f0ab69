//! The processes of shims, one for each container.
//!
//! containerd ends a shim with its task. If the client of a creation is killed meanwhile,
//! containerd 1.6 may forget a shim that it has just started, so the undo looks for it.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use tare_host::process;

/// The directory of the shims' sockets, which is built in (`socketRoot` in containerd's
/// runtime/v2/shim/util_unix.go).
const SOCKETS: &str = "/run/containerd/s";

/// The first part of the name of a shim's program.
pub(crate) const PREFIX: &str = "containerd-shim-";

/// How long a shim may take to end by itself, and after SIGKILL.
const END_LIMIT: Duration = Duration::from_secs(2);

/// The pause between two looks at the processes.
const PAUSE: Duration = Duration::from_millis(5);

/// Waits until the shim of a removed container has ended, otherwise kills it, and removes its
/// socket. Idempotent.
pub(super) fn end(containerd: &Path, namespace: &str, id: &str) {
    let deadline = Instant::now() + END_LIMIT;
    let mut pids = of_container(namespace, id);
    while !pids.is_empty() && Instant::now() < deadline {
        thread::sleep(PAUSE);
        pids = of_container(namespace, id);
    }
    if !pids.is_empty() {
        // One that does not end is found by the next clean, and by its name in the process list.
        let _ = process::kill(&pids, END_LIMIT);
    }
    // A shim removes it, unless it was killed.
    let _ = fs::remove_file(socket(containerd, namespace, id));
}

/// Returns the processes that are the shim of a container, by their command lines.
fn of_container(namespace: &str, id: &str) -> Vec<u32> {
    let mut pids = process::all();
    pids.retain(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        is_of_container(&String::from_utf8_lossy(&line), namespace, id)
    });
    pids
}

/// Returns whether a command line, with a zero after each word, is that of a container's shim.
fn is_of_container(line: &str, namespace: &str, id: &str) -> bool {
    let words: Vec<&str> = line.split('\0').collect();
    let program = words.first().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
    let has = |flag: &str, value: &str| words.windows(2).any(|pair| pair == [flag, value]);
    program.starts_with(PREFIX) && has("-namespace", namespace) && has("-id", id)
}

/// Returns the socket of a container's shim (`SocketAddress` in containerd's
/// runtime/v2/shim/util_unix.go).
fn socket(containerd: &Path, namespace: &str, id: &str) -> PathBuf {
    let text = containerd.join(namespace).join(id);
    let digest = Sha256::digest(text.to_string_lossy().as_bytes());
    let name: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    Path::new(SOCKETS).join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_shim_of_a_container_is_its_own() {
        let line = "/usr/bin/containerd-shim-runc-v2\0-namespace\0tare-ab12\0-id\0tare-ab12-e1\0-address\0/s\0";
        assert!(is_of_container(line, "tare-ab12", "tare-ab12-e1"));
        assert!(!is_of_container(line, "tare-ab12", "tare-ab12-e"));
        assert!(!is_of_container(line, "moby", "tare-ab12-e1"));
        assert!(!is_of_container(
            &line.replace("containerd-shim", "vi"),
            "tare-ab12",
            "tare-ab12-e1"
        ));
    }

    /// A name that containerd 1.6.20 gave.
    #[test]
    fn socket_is_named_by_a_digest() {
        let test = "clean_removes_leftovers_in_containerd-26926";
        let containerd = format!("/tmp/tare-test-containerd-{test}/socket");
        let found = socket(Path::new(&containerd), "tare-d377", "tare-d377-e4");
        let name = "4a81c3535b1422e1c767860b6c55abe0d68a2ca2b398c56944225c9970765e43";
        assert_eq!(found, Path::new(SOCKETS).join(name));
    }
}
