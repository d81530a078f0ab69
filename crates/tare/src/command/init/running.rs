//! Databases that run on this host, in whatever isolation layer.

use std::fmt;
use std::fs;

use tare_host::process;

/// The names of processes, and the systems that they are.
const NAMES: [(&str, &str); 8] = [
    ("redis-server", "redis"),
    ("valkey-server", "valkey"),
    ("postgres", "postgres"),
    ("mariadbd", "mariadb"),
    ("mysqld", "mariadb"),
    ("memcached", "memcached"),
    ("scylla", "scylla"),
    ("java", "cassandra"),
];
/// The class that Cassandra's Java process runs.
const CASSANDRA: &str = "CassandraDaemon";

/// A database that runs on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RunningSystem {
    /// Its name in a study.
    pub(super) system: &'static str,
    pid: u32,
    /// The cgroup of a unit, a container or a pod; empty for the root.
    cgroup: String,
}

impl RunningSystem {
    /// Finds them by the names of their first processes.
    pub(super) fn all() -> Vec<Self> {
        let mut found: Vec<Self> = process::all().into_iter().filter_map(Self::of).collect();
        found.sort_by_key(|one| one.pid);
        // Workers of one server share its cgroup.
        let mut all: Vec<Self> = Vec::new();
        for one in found {
            if !all.iter().any(|known| (known.system, &known.cgroup) == (one.system, &one.cgroup)) {
                all.push(one);
            }
        }
        all
    }

    fn of(pid: u32) -> Option<Self> {
        let name = process::name(pid)?;
        let (_, system) = *NAMES.iter().find(|(known, _)| *known == name)?;
        if system == "cassandra" {
            let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            if !String::from_utf8_lossy(&words).contains(CASSANDRA) {
                return None;
            }
        }
        let cgroup = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        Some(Self { system, pid, cgroup: cgroup_of(&cgroup) })
    }
}

/// Returns the cgroup of a process: that of version 2, or the longest.
fn cgroup_of(text: &str) -> String {
    let paths = text.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let longest = paths.max_by_key(|path| path.len()).unwrap_or_default();
    longest.trim_start_matches('/').into()
}

/// Says what it runs in: the words of systemd's, Docker's, Podman's and the kubelet's cgroups.
impl fmt::Display for RunningSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.pid)?;
        let mut parts = self.cgroup.rsplit('/');
        let last = parts.clone().next().unwrap_or_default();
        // Podman has a cgroup below that of the container.
        let mut id = |prefix: &str| {
            let part = parts.find(|part| *part != "container").unwrap_or_default();
            let id = part.trim_start_matches(prefix).trim_end_matches(".scope");
            id.chars().take(12).collect::<String>()
        };
        if self.cgroup.contains("kubepods") {
            return write!(f, " of a pod");
        }
        if self.cgroup.contains("libpod") {
            return write!(f, " of Podman's container {}", id("libpod-"));
        }
        if self.cgroup.contains("docker") {
            return write!(f, " of Docker's container {}", id("docker-"));
        }
        if last.ends_with(".service") { write!(f, " of {last}") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroups_tell_what_a_database_runs_in() {
        for (cgroup, expect) in [
            ("0::/system.slice/redis-server.service\n", "process 7 of redis-server.service"),
            (
                "0::/system.slice/docker-0123456789abcdef.scope\n",
                "process 7 of Docker's container 0123456789ab",
            ),
            (
                "12:cpu:/docker/0123456789abcdef\n0::/\n",
                "process 7 of Docker's container 0123456789ab",
            ),
            (
                "0::/machine.slice/libpod-0123456789abcdef.scope/container\n",
                "process 7 of Podman's container 0123456789ab",
            ),
            ("0::/kubepods.slice/kubepods-pod1.slice/cri-1.scope\n", "process 7 of a pod"),
            ("0::/\n", "process 7"),
        ] {
            let one = RunningSystem { system: "redis", pid: 7, cgroup: cgroup_of(cgroup) };
            assert_eq!(one.to_string(), expect, "{cgroup}");
        }
    }
}
