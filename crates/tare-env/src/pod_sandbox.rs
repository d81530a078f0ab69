//! gVisor's sandbox of a pod. Its sentry and its gofers are in the cgroup of the pod, not in those
//! of the containers, which stay empty (`setupCgroupForRoot` and `setupCgroupForSubcontainer` in
//! runsc/container/container.go of gVisor). The first container of the sandbox is the pod's own.
//!
//! `runsc` of the sandbox is its own program, in /proc, with the state directory in its command
//! line: the node may have several, and none on PATH. No API pauses a pod, so `runsc` does. A pod
//! that is paused cannot be ended by its kubelet.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use tare_host::exec::{Command, ExecError};
use tare_host::{error_line, process};

/// How long a program may take in the sandbox.
const INSIDE_LIMIT: Duration = Duration::from_secs(10);

/// The sandbox of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodSandbox {
    /// The sentry.
    pub(crate) pid: u32,
    /// The directory of its state, as an option.
    root: String,
    /// The id of its first container.
    id: String,
}

impl PodSandbox {
    /// Finds the sandbox of a pod on this node.
    pub(crate) fn find(pod_uid: &str) -> Option<Self> {
        let is_of_pod = |pid: &u32| {
            let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
            names_pod(&groups, pod_uid)
        };
        let of_pod = process::all().into_iter().filter(is_of_pod);
        of_pod.filter_map(|pid| Self::of_command_line(pid, &process::command_line(pid))).next()
    }

    /// Reads the command line of a sentry: flags, a verb with its own, and the id.
    fn of_command_line(pid: u32, words: &[String]) -> Option<Self> {
        let (name, flags) = words.split_first()?;
        if name != "runsc-sandbox" {
            return None;
        }
        let root = flags.iter().find(|word| word.trim_start_matches('-').starts_with("root="))?;
        Some(Self { pid, root: root.clone(), id: words.last()?.clone() })
    }

    /// # Errors
    /// If `runsc` fails.
    pub(crate) fn pause(&self) -> Result<(), ExecError> {
        self.runsc().args(["pause", &self.id]).run().map(drop)
    }

    /// # Errors
    /// If `runsc` fails, also if it is not paused.
    pub(crate) fn resume(&self) -> Result<(), ExecError> {
        self.runsc().args(["resume", &self.id]).run().map(drop)
    }

    /// Executes a program in a container of the sandbox, and returns what it printed.
    ///
    /// # Errors
    /// Returns the error on one line.
    pub(crate) fn exec(&self, container: &str, words: &[&str]) -> Result<String, String> {
        let exec = self.runsc().args(["exec", container]).args(words).time_limit(INSIDE_LIMIT);
        exec.run().map(|output| output.stdout).map_err(|error| error_line(&error))
    }

    fn runsc(&self) -> Command {
        Command::new(PathBuf::from(format!("/proc/{}/exe", self.pid))).arg(&self.root)
    }
}

/// Returns whether the path of a cgroup, or a part of it, has a pod's uid. With systemd a slice has
/// underscores in it.
pub(crate) fn names_pod(path: &str, uid: &str) -> bool {
    !uid.is_empty() && (path.contains(uid) || path.contains(&uid.replace('-', "_")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sandbox_is_read_from_the_command_line_of_its_sentry() {
        let read = |line: &str| {
            let words: Vec<String> = line.split(' ').map(String::from).collect();
            PodSandbox::of_command_line(7, &words)
        };
        let line =
            "runsc-sandbox --root=/run/containerd/runsc/k8s.io --log-fd=3 boot --spec-fd=12 4ed5";
        let root = "--root=/run/containerd/runsc/k8s.io".to_string();
        assert_eq!(read(line), Some(PodSandbox { pid: 7, root, id: "4ed5".into() }));
        assert_eq!(read("runsc-gofer --root=/run/runsc gofer 4ed5"), None);
        assert_eq!(read("runsc-sandbox boot 4ed5"), None);
        assert_eq!(PodSandbox::find(""), None);
    }
}
