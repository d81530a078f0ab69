//! The facts of the guest for the read-back, from procfs and sysfs.

use std::fs;
use std::path::Path;

use tare_host::process;

use super::mounts;
use super::protocol::{DATA, DATA_MOUNT, DATA_SERIAL, Facts, SHOWN_BYTES_MAX};

/// The attributes of a disk's queue that are reported.
const QUEUE: &[&str] = &["scheduler", "write_cache", "nr_requests", "rotational"];

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_string()
}

pub(super) fn kernel() -> String {
    read("/proc/sys/kernel/osrelease")
}

/// Reads all facts except those of the system's process.
pub(super) fn read_all() -> Facts {
    let memory = read("/proc/meminfo");
    let total = memory.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
    let mounts = read("/proc/mounts");
    let mount = mounts.lines().find(|line| line.split(' ').nth(1) == Some(DATA_MOUNT));
    Facts {
        kernel: kernel(),
        cpus: read("/sys/devices/system/cpu/online"),
        memory_bytes: kib.unwrap_or(0) * 1024,
        network: network(),
        mount: mount.unwrap_or_default().to_string(),
        disk: if mount.is_some_and(|line| line.starts_with("/dev/")) { disk() } else { Vec::new() },
        ..Facts::default()
    }
}

/// Returns the facts of a container below this process, from the first process in another pid
/// namespace.
pub(super) fn container(pid: u32) -> Option<String> {
    let own = process::namespace_inode(std::process::id(), "pid");
    let inside = process::tree(pid).into_iter().find(|pid| {
        process::namespace_inode(*pid, "pid").is_some_and(|found| Some(found) != own)
    })?;
    let field = |name: &str| {
        let value = process::status_field(inside, name).unwrap_or_default();
        format!("{name}: {}", value.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    let group = read(format!("/proc/{inside}/cgroup"));
    Some(format!("{}; {}; cgroup {group}", field("NSpid"), field("Seccomp")))
}

fn network() -> Vec<String> {
    let devices = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let addresses = read("/proc/net/fib_trie");
    let mut local: Vec<&str> = Vec::new();
    let mut last = "";
    for line in addresses.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address;
        } else if line == "/32 host LOCAL" && !last.starts_with("127.") && !local.contains(&last) {
            local.push(last);
        }
    }
    let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    let text = |device: String| {
        let link = fs::read_link(format!("/sys/class/net/{device}/device/driver"));
        let driver =
            link.ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
        format!("{device}: {} {}", driver.unwrap_or_default(), local.join(" "))
    };
    devices.map(name).filter(|device| device != "lo").map(text).collect()
}

fn disk() -> Vec<(String, String)> {
    let Ok((name, _)) = mounts::disk(DATA_SERIAL) else { return Vec::new() };
    let folder = Path::new("/sys/block").join(&name);
    // The parent of an NVMe disk is its controller, whose parent has the driver.
    let link = |name: &str| fs::read_link(folder.join(name)).ok();
    let driver = link("device/driver").or_else(|| link("device/device/driver"));
    let driver = driver.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    let mut facts = vec![
        ("name".to_string(), name),
        ("driver".to_string(), driver.unwrap_or_else(|| "unknown".into())),
    ];
    let queue = |what: &&str| ((*what).to_string(), read(folder.join("queue").join(what)));
    facts.extend(QUEUE.iter().map(queue));
    facts
}

/// Reads the small files of the system's directory, which the probes read on the host.
pub(super) fn shown_files() -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(DATA).into_iter().flatten().flatten();
    let small = |entry: &fs::DirEntry| {
        entry.metadata().is_ok_and(|data| data.is_file() && data.len() <= SHOWN_BYTES_MAX)
    };
    let content = |entry: fs::DirEntry| {
        Some((entry.file_name().into_string().ok()?, fs::read(entry.path()).ok()?))
    };
    entries.filter(small).filter_map(content).collect()
}

/// Returns the used and the stolen CPU time of the whole guest in ns, from the first line of
/// /proc/stat, which counts in ticks of 10 ms (USER_HZ).
pub(super) fn guest_cpu_ns() -> (u64, u64) {
    const TICK_NS: u64 = 10_000_000;
    let text = read("/proc/stat");
    let line = text.lines().next().unwrap_or_default();
    let fields: Vec<u64> = line.split_whitespace().skip(1).filter_map(|f| f.parse().ok()).collect();
    let field = |index: usize| fields.get(index).copied().unwrap_or(0);
    // user nice system - - irq softirq steal
    let used = field(0) + field(1) + field(2) + field(5) + field(6);
    (used * TICK_NS, field(7) * TICK_NS)
}
