//! Collects the evidence for other tuners from the live host, for the pseudo files below
//! `/tare/owners` of a snapshot.
//!
//! Method: only what is needed is kept: the keys of settings, the ethtool keys of NetworkManager's
//! connections (which contain passwords), sections and keys of tuned's profiles, and of pods (whose
//! names are private) only that they exist.

use std::fs;
use std::path::{Path, PathBuf};

use tare_std::cpus::CpuSet;

use super::files::entries;
use super::{settings, tuned};

/// Files that show another tuner. A `*` at the end matches anything.
const PRESENT: &[&str] = &[
    "/etc/default/irqbalance.scylla.orig",
    "/etc/sysconfig/irqbalance.scylla.orig",
    "/etc/conf.d/irqbalance.scylla.orig",
    "/etc/sysconfig/orig_irq_banned_cpus",
    "/etc/systemd/system/scylla-cpupower.service",
    "/etc/systemd/system/redpanda-tuner.service",
    "/lib/systemd/system/redpanda-tuner.service",
    "/lib/systemd/system/scylla-server.service",
    "/usr/lib/systemd/system/redpanda-tuner.service",
    "/usr/lib/systemd/system/scylla-server.service",
    "/etc/ec2sys-autotune.cfg",
    "/usr/bin/google_set_multiqueue",
    "/var/lib/kubelet/config.yaml",
    "/var/log/pods/scylla-operator-node-tuning_*",
    tuned::NODE_TUNING_OPERATOR,
];

/// Folders of tuned's profiles, the one that wins first.
const TUNED: &[&str] =
    &["/etc/tuned/profiles", "/etc/tuned", "/usr/lib/tuned/profiles", "/usr/lib/tuned"];

/// Returns the pseudo files below `/tare/owners`: path and text.
pub fn describe() -> Vec<(String, String)> {
    let mut files = Vec::new();
    let mut put = |name: &str, text: String| {
        if !text.is_empty() {
            files.push((format!("/tare/owners/{name}"), text));
        }
    };
    let present = PRESENT.iter().filter(|path| is_present(path));
    put("present", present.copied().collect::<Vec<_>>().join("\n"));
    put("settings", settings::collect());
    put("kubelet", kubelet().unwrap_or_default());
    let in_pod = tuned_in_pod(Path::new("/"));
    if let Some(root) = &in_pod {
        let profile = fs::read_to_string(root.join("etc/tuned/active_profile"));
        put("tuned-in-pod", format!("profile {}", profile.unwrap_or_default().trim()));
    }
    let root = in_pod.unwrap_or_else(|| "/".into());
    for folder in TUNED.iter().rev() {
        for profile in entries(root.join(&folder[1..])) {
            let Ok(text) = fs::read_to_string(profile.join("tuned.conf")) else { continue };
            let Some(name) = profile.file_name().and_then(|name| name.to_str()) else { continue };
            put(&format!("tuned/{name}"), outline(&text));
        }
    }
    files
}

fn is_present(path: &str) -> bool {
    let Some(start) = path.strip_suffix('*') else { return Path::new(path).exists() };
    let Some((folder, start)) = start.rsplit_once('/') else { return false };
    let named = |entry: &PathBuf| {
        entry.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(start))
    };
    entries(folder).iter().any(named)
}

/// Returns the sections of a profile with their keys. Values are kept only where they name other
/// profiles or the type of a section.
fn outline(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter_map(|line| match line.split_once('=') {
        _ if line.starts_with('[') => Some(line.to_string()),
        _ if line.starts_with(['#', ';']) => None,
        Some((key, value)) if ["include", "type"].contains(&key.trim()) => {
            Some(format!("{}={}", key.trim(), value.trim()))
        }
        Some((key, _)) => Some(key.trim().to_string()),
        None => None,
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the root folder of a tuned that runs in a pod, whose cgroup is below `kubepods`.
fn tuned_in_pod(root: &Path) -> Option<PathBuf> {
    let is_tuned = |process: &PathBuf| {
        fs::read_to_string(process.join("comm")).is_ok_and(|name| name.trim_end() == "tuned")
            && fs::read_to_string(process.join("cgroup"))
                .is_ok_and(|path| path.contains("kubepods"))
    };
    let processes = entries(root.join("proc"));
    processes.into_iter().find(is_tuned).map(|process| process.join("root"))
}

/// Reads the CPUs that kubelet's CPU manager assigned to containers, from its checkpoint.
fn kubelet() -> Option<String> {
    kubelet_state(&fs::read_to_string("/var/lib/kubelet/cpu_manager_state").ok()?)
}

fn kubelet_state(text: &str) -> Option<String> {
    let state: serde_json::Value = serde_json::from_str(text).ok()?;
    let policy = state.get("policyName")?.as_str()?;
    let pods = state.get("entries").and_then(|entries| entries.as_object());
    let containers = pods.into_iter().flat_map(|pods| pods.values());
    let sets = containers.filter_map(|containers| containers.as_object());
    let lists = sets.flat_map(|sets| sets.values()).filter_map(|list| list.as_str());
    let exclusive = lists.filter_map(|list| CpuSet::parse_list(list).ok());
    let exclusive = exclusive.fold(CpuSet::new(), |all, set| all.union(&set));
    Some(format!("policy {policy}\nexclusive {exclusive}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_only_keys_of_profiles() {
        let text = "# tuned\n[main]\nsummary=Mine\ninclude = network-latency\n\n[vm.big]\ntype=vm\n\
            transparent_hugepages=never\n[sysctl]\nvm.swappiness = 10\n";
        let expect = "[main]\nsummary\ninclude=network-latency\n[vm.big]\ntype=vm\n\
            transparent_hugepages\n[sysctl]\nvm.swappiness";
        assert_eq!(outline(text), expect);
    }

    #[test]
    fn finds_tuned_in_a_pod_by_its_cgroup() {
        let root = tempfile::tempdir().unwrap();
        let process = |id: u32, name: &str, cgroup: &str| {
            let folder = root.path().join(format!("proc/{id}"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("comm"), format!("{name}\n")).unwrap();
            fs::write(folder.join("cgroup"), cgroup).unwrap();
        };
        process(7, "tuned", "0::/system.slice/tuned.service\n");
        process(8, "db", "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-2.scope\n");
        assert_eq!(tuned_in_pod(root.path()), None);
        process(9, "tuned", "0::/kubepods.slice/kubepods-pod3.slice/crio-4.scope\n");
        assert_eq!(tuned_in_pod(root.path()), Some(root.path().join("proc/9/root")));
    }

    #[test]
    fn keeps_only_cpus_of_pods() {
        let text = r#"{"policyName":"static","defaultCpuSet":"0,4-7","entries":{"6f8d-uid":
            {"db":"1-2","sidecar":"3"},"other":{"db":"8"}},"checksum":1}"#;
        assert_eq!(kubelet_state(text).as_deref(), Some("policy static\nexclusive 1-3,8"));
        let none = r#"{"policyName":"none","defaultCpuSet":"","checksum":1}"#;
        assert_eq!(kubelet_state(none).as_deref(), Some("policy none\nexclusive "));
        assert_eq!(kubelet_state("{}"), None);
    }
}
