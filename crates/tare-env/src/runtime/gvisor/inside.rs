//! What a process sees inside a sandbox, as Tare's own program reports it there (`tare facts`). The
//! host cannot read gVisor's process and mount tables, which belong to the sentry.

use std::fs;
use std::net::SocketAddrV4;

use serde::{Deserialize, Serialize};
use tare_host::tcp::{self, Socket};

/// The command that prints the view.
pub const COMMAND: &str = "facts";

/// What a process sees inside.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxView {
    /// The text of /proc/version.
    pub kernel: String,
    /// The CPUs that this process may run on (sched_getaffinity(2)).
    pub cpus: String,
    /// `Seccomp` of the first process, which is the system.
    pub seccomp: String,
    /// `MemTotal` in bytes.
    pub memory_bytes: u64,
    /// Network devices.
    pub devices: Vec<String>,
    /// The line of the root in /proc/mounts.
    pub root: String,
    /// The line of the data in /proc/mounts.
    pub data: String,
    /// Established TCP connections, as local and remote end.
    pub connections: Vec<(SocketAddrV4, SocketAddrV4)>,
}

impl SandboxView {
    /// Reads the view of this process. Fields that cannot be read are empty.
    pub fn read() -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(':'));
            lines.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_string())
        };
        let mounts = text("/proc/mounts");
        let mount = |point: &str| {
            let mut lines = mounts.lines().filter(|line| line.split(' ').nth(1) == Some(point));
            lines.next_back().unwrap_or_default().to_string()
        };
        let memory = field(&text("/proc/meminfo"), "MemTotal").unwrap_or_default();
        let kib: u64 = memory.trim_end_matches(" kB").parse().unwrap_or(0);
        let devices = text("/proc/net/dev");
        let devices = devices.lines().filter_map(|line| line.split_once(':'));
        Self {
            kernel: text("/proc/version").trim().to_string(),
            cpus: tare_host::process::cpus_of_this_thread()
                .map(|cpus| cpus.to_string())
                .unwrap_or_default(),
            seccomp: field(&text("/proc/1/status"), "Seccomp").unwrap_or_default(),
            memory_bytes: kib * 1024,
            devices: devices.map(|(name, _)| name.trim().to_string()).collect(),
            root: mount("/"),
            data: mount(crate::layer::rootfs::DATA),
            connections: tcp::connections("self").iter().map(Socket::ends).collect(),
        }
    }

    /// Parses the output of the program. Other lines are ignored.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        text.lines().find_map(|line| serde_json::from_str(line.trim()).ok())
    }

    /// Returns whether the root is read-only, or `None` if its mount is not listed.
    pub(crate) fn root_is_read_only(&self) -> Option<bool> {
        let options = self.root.split(' ').nth(3)?;
        Some(options.split(',').any(|option| option == "ro"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn view_is_parsed_from_the_output() {
        let here = SandboxView::read();
        assert!(!here.kernel.is_empty() && !here.cpus.is_empty() && !here.root.is_empty());
        let text = serde_json::to_string(&here).unwrap();
        assert_eq!(SandboxView::parse(&format!("warning: x\n{text}\n")), Some(here));
        assert_eq!(SandboxView::parse("cannot run"), None);
        let root = |line: &str| SandboxView { root: line.into(), ..SandboxView::default() };
        assert_eq!(root("none / overlay ro 0 0").root_is_read_only(), Some(true));
        assert_eq!(root("none / 9p rw,trans=fd 0 0").root_is_read_only(), Some(false));
        assert_eq!(root("").root_is_read_only(), None);
    }
}
