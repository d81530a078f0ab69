//! Reads the facts of the host that results depend on. The roots of /proc and /sys are arguments,
//! so that recorded hosts can be read.
//!
//! A fact that cannot be read is omitted: an absent fact is not a value.

use std::fs;
use std::path::Path;

use crate::cgroup::{Layout, Version};
use crate::exec::{Command, find};

/// One fact: `cpu`, `model`, `Intel ...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    pub section: &'static str,
    pub key: String,
    pub value: String,
}

/// Programs whose versions are facts, with the argument that prints the version.
const PROGRAMS: &[(&str, &str)] = &[
    ("runc", "--version"),
    ("crun", "--version"),
    ("runsc", "--version"),
    ("youki", "--version"),
    ("dockerd", "--version"),
    ("podman", "--version"),
    ("containerd", "--version"),
    ("ip", "-Version"),
    ("nft", "--version"),
];

/// Settings below /proc/sys that move the figures of a database.
const SYSCTLS: &[&str] = &[
    "kernel/numa_balancing",
    "kernel/sched_autogroup_enabled",
    "kernel/sched_rt_runtime_us",
    "kernel/timer_migration",
    "vm/compaction_proactiveness",
    "vm/dirty_background_ratio",
    "vm/dirty_ratio",
    "vm/nr_hugepages",
    "vm/overcommit_memory",
    "vm/swappiness",
    "vm/zone_reclaim_mode",
    "net/core/busy_poll",
    "net/core/default_qdisc",
    "net/core/rmem_max",
    "net/core/somaxconn",
    "net/core/wmem_max",
    "net/ipv4/tcp_slow_start_after_idle",
];

/// Reads the facts. Runs each program once to get its version.
pub fn read(proc: &Path, sys: &Path) -> Vec<Fact> {
    let mut facts = Facts(Vec::new());
    kernel(&mut facts, proc, sys);
    cpu(&mut facts, proc, sys);
    memory(&mut facts, proc, sys);
    network(&mut facts, proc, sys);
    for path in SYSCTLS {
        facts.add_file("sysctl", &path.replace('/', "."), &proc.join("sys").join(path));
    }
    if let Ok(layout) = Layout::read(proc) {
        let version = match layout.version() {
            Version::None => "none",
            Version::V1 => "v1",
            Version::Hybrid => "hybrid",
            Version::V2 => "v2",
        };
        facts.add("cgroup", "version", version);
        facts.add("cgroup", "controllers", layout.controllers().join(" "));
    }
    for (program, argument) in PROGRAMS {
        if let Some(version) = version(program, argument) {
            facts.add("versions", program, version);
        }
    }
    facts.0
}

/// Returns the first line that a program prints about its version; `None` when the program is not
/// installed or fails.
pub fn version(program: &str, argument: &str) -> Option<String> {
    find(program)?;
    let output = Command::new(program).arg(argument).run().ok()?;
    Some(output.stdout.lines().next()?.trim().to_string())
}

struct Facts(Vec<Fact>);

impl Facts {
    fn add(&mut self, section: &'static str, key: &str, value: impl Into<String>) {
        let value = value.into();
        if !value.is_empty() {
            self.0.push(Fact { section, key: key.into(), value });
        }
    }

    /// Adds the text of a small file on one line.
    fn add_file(&mut self, section: &'static str, key: &str, path: &Path) {
        if let Ok(text) = fs::read_to_string(path) {
            self.add(section, key, text.split_whitespace().collect::<Vec<_>>().join(" "));
        }
    }
}

fn kernel(facts: &mut Facts, proc: &Path, sys: &Path) {
    facts.add_file("kernel", "host name", &proc.join("sys/kernel/hostname"));
    facts.add_file("kernel", "release", &proc.join("sys/kernel/osrelease"));
    facts.add_file("kernel", "version", &proc.join("sys/kernel/version"));
    facts.add_file("kernel", "command line", &proc.join("cmdline"));
    facts.add_file("kernel", "io_uring_disabled", &proc.join("sys/kernel/io_uring_disabled"));
    let clock = sys.join("devices/system/clocksource/clocksource0/current_clocksource");
    facts.add_file("kernel", "clocksource", &clock);
    let folder = sys.join("devices/system/cpu/vulnerabilities");
    let mut names: Vec<_> = fs::read_dir(folder).into_iter().flatten().flatten().collect();
    names.sort_by_key(fs::DirEntry::file_name);
    for entry in names {
        facts.add_file("mitigations", &entry.file_name().to_string_lossy(), &entry.path());
    }
}

fn cpu(facts: &mut Facts, proc: &Path, sys: &Path) {
    let text = fs::read_to_string(proc.join("cpuinfo")).unwrap_or_default();
    let field = |name: &str| {
        let mut fields = text.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_string())
    };
    facts.add("cpu", "model", field("model name").unwrap_or_default());
    facts.add("cpu", "microcode", field("microcode").unwrap_or_default());
    let flags = field("flags").unwrap_or_default();
    let guest = flags.split(' ').any(|flag| flag == "hypervisor");
    let vendor = fs::read_to_string(sys.join("class/dmi/id/sys_vendor")).unwrap_or_default();
    facts.add(
        "cpu",
        "virtualisation",
        match (guest, vendor.trim()) {
            (false, _) => "none seen".to_string(),
            (true, "") => "a guest".to_string(),
            (true, vendor) => format!("a guest ({vendor})"),
        },
    );
    let root = sys.join("devices/system/cpu");
    facts.add_file("cpu", "online", &root.join("online"));
    facts.add_file("cpu", "isolated", &root.join("isolated"));
    facts.add_file("cpu", "smt", &root.join("smt/control"));
    let cpu0 = root.join("cpu0");
    facts.add_file("cpu", "siblings of cpu0", &cpu0.join("topology/thread_siblings_list"));
    facts.add_file("cpu", "package of cpu0", &cpu0.join("topology/core_siblings_list"));
    facts.add_file("cpu", "governor", &cpu0.join("cpufreq/scaling_governor"));
    facts.add_file("cpu", "NUMA nodes", &sys.join("devices/system/node/online"));
}

fn memory(facts: &mut Facts, proc: &Path, sys: &Path) {
    let text = fs::read_to_string(proc.join("meminfo")).unwrap_or_default();
    for (name, key) in [("MemTotal", "total"), ("SwapTotal", "swap")] {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        facts.add("memory", key, line.unwrap_or_default().trim());
    }
    let pages = sys.join("kernel/mm/transparent_hugepage/enabled");
    facts.add_file("memory", "transparent huge pages", &pages);
}

fn network(facts: &mut Facts, proc: &Path, sys: &Path) {
    let ipv4 = proc.join("sys/net/ipv4");
    for key in ["tcp_congestion_control", "tcp_rmem", "tcp_wmem", "ip_forward"] {
        facts.add_file("network", key, &ipv4.join(key));
    }
    facts.add("network", "cards", cards(sys).join(" "));
    facts.add("network", "bridges", bridges(sys).join(" "));
    facts.add("network", "NAT tables", nat_tables().join(" "));
}

/// Lists the network devices that have hardware, in the network namespace of this /sys.
fn cards(sys: &Path) -> Vec<String> {
    let entries = fs::read_dir(sys.join("class/net")).into_iter().flatten().flatten();
    let cards = entries.filter(|entry| entry.path().join("device").exists());
    let mut names: Vec<String> =
        cards.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Returns what costs time for every packet of a native run: NAT tables and bridges in this network
/// namespace.
pub fn network_overheads() -> Option<String> {
    let tables = nat_tables().into_iter().map(|table| format!("NAT table {table}"));
    let bridges = bridges(Path::new("/sys")).into_iter().map(|name| format!("bridge {name}"));
    let found: Vec<String> = tables.chain(bridges).collect();
    (!found.is_empty()).then(|| found.join(", "))
}

/// Lists the bridges in the network namespace of this /sys.
pub fn bridges(sys: &Path) -> Vec<String> {
    let entries = fs::read_dir(sys.join("class/net")).into_iter().flatten().flatten();
    let bridges = entries.filter(|entry| entry.path().join("bridge").exists());
    let mut names: Vec<String> =
        bridges.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Lists the tables with a NAT chain in this network namespace, such as `ip nat`. With such a table
/// every packet of every connection passes conntrack, also those of a native system. Empty without
/// nft or root.
pub fn nat_tables() -> Vec<String> {
    if find("nft").is_none() {
        return Vec::new();
    }
    let Ok(output) = Command::new("nft").args(["list", "chains"]).run() else { return Vec::new() };
    let mut tables = Vec::new();
    let mut table = String::new();
    for line in output.stdout.lines() {
        if let Some(rest) = line.strip_prefix("table ") {
            table = rest.trim_end_matches(" {").to_string();
        } else if line.trim_start().starts_with("type nat ") && !tables.contains(&table) {
            tables.push(table.clone());
        }
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_recorded_host() {
        let root = std::env::temp_dir().join(format!("tare-test-facts-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(
            "proc/cpuinfo",
            "processor\t: 0\nmodel name\t: Abacus 9\nmicrocode\t: 0x1f\nflags\t\t: fpu hypervisor\n",
        );
        write("proc/meminfo", "MemTotal:       24684092 kB\n");
        write("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n");
        write("proc/sys/vm/swappiness", "60\n");
        write("sys/devices/system/cpu/online", "0-1\n");
        write("sys/class/net/docker0/bridge/stp_state", "0\n");
        write("sys/class/net/eth0/device/vendor", "0x1af4\n");
        let facts = read(&root.join("proc"), &root.join("sys"));
        fs::remove_dir_all(&root).unwrap();
        let value = |section: &str, key: &str| {
            let fact = facts.iter().find(|fact| fact.section == section && fact.key == key);
            fact.map(|fact| fact.value.as_str())
        };
        assert_eq!(value("cpu", "model"), Some("Abacus 9"));
        assert_eq!(value("cpu", "microcode"), Some("0x1f"));
        assert_eq!(value("sysctl", "vm.swappiness"), Some("60"));
        assert_eq!(value("cpu", "virtualisation"), Some("a guest"));
        assert_eq!(value("cpu", "online"), Some("0-1"));
        assert_eq!(value("cpu", "governor"), None);
        assert_eq!(value("memory", "total"), Some("24684092 kB"));
        assert_eq!(value("network", "tcp_rmem"), Some("4096 131072 6291456"));
        assert_eq!(value("network", "bridges"), Some("docker0"));
        assert_eq!(value("network", "cards"), Some("eth0"));
    }
}
