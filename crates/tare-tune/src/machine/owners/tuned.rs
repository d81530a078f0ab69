//! tuned: the active profile and the settings that it writes.
//!
//! Method: the outlines of the profiles (a snapshot keeps sections and keys) are read with the
//! profiles that they include. If a profile's file was not found, a table of tuned's own profiles
//! is used; a profile that is in neither is reported as unknown.

use std::collections::BTreeSet;

use super::settings::knob_of_sysctl;
use super::{OwnedSettings, Owner};
use crate::machine::Kubelet;
use crate::snapshot::Snapshot;

/// The profiles of tuned 2.20 to 2.24: name, included profile, further knobs that it writes.
const KNOWN: &[(&str, &str, &[&str])] = &[
    ("balanced", "", &["cpu_governor", "energy_preference"]),
    ("powersave", "", &["cpu_governor", "energy_preference"]),
    ("throughput-performance", "", &["cpu_governor", "energy_preference", "swap", "sysctls"]),
    ("accelerator-performance", "throughput-performance", &["idle_states"]),
    ("network-throughput", "throughput-performance", &[]),
    ("virtual-guest", "throughput-performance", &[]),
    ("virtual-host", "throughput-performance", &["idle_states"]),
    ("postgresql", "throughput-performance", &["idle_states", "transparent_hugepages"]),
    ("oracle", "throughput-performance", &["numa_balancing", "transparent_hugepages"]),
    (
        "mssql",
        "throughput-performance",
        &["idle_states", "numa_balancing", "transparent_hugepages", "wakeup_granularity"],
    ),
    ("aws", "throughput-performance", &[]),
    ("openshift", "throughput-performance", &[]),
    ("openshift-node", "openshift", &[]),
    ("openshift-control-plane", "openshift", &[]),
    ("latency-performance", "", &["cpu_governor", "energy_preference", "idle_states", "swap"]),
    ("hpc-compute", "latency-performance", &["numa_balancing", "sysctls", "transparent_hugepages"]),
    ("network-latency", "latency-performance", &["numa_balancing", "transparent_hugepages"]),
    ("cpu-partitioning", "network-latency", &["disk_irqs", "irqbalance", "nic_irqs"]),
    ("realtime", "network-latency", &["disk_irqs", "irqbalance", "nic_channels", "nic_irqs"]),
    ("realtime-virtual-guest", "realtime", &[]),
    ("realtime-virtual-host", "realtime", &[]),
];

/// The folder of the logs of TuneD's pod of the Node Tuning Operator: a daemon set `tuned` in this
/// namespace (openshift/cluster-node-tuning-operator).
pub(super) const NODE_TUNING_OPERATOR: &str =
    "/var/log/pods/openshift-cluster-node-tuning-operator_tuned-*";

/// The pseudo file that says that tuned runs in a pod: `profile NAME`, without a name if it cannot
/// be read.
const IN_POD: &str = "/tare/owners/tuned-in-pod";

/// The settings that the profiles of a host write.
#[derive(Debug, Default)]
struct Written {
    knobs: BTreeSet<&'static str>,
    sysctls: BTreeSet<String>,
    /// Whether the knob `sysctls` came from the table, which does not list the sysctls.
    any_sysctl: bool,
    unknown: Vec<String>,
    seen: BTreeSet<String>,
    script: bool,
}

/// Returns tuned as an owner if it runs. On a node of a cluster it decides about what it sets.
pub(super) fn owner(snapshot: &Snapshot) -> Option<OwnedSettings> {
    let in_pod = snapshot.read(IN_POD).map(|line| line.trim_start_matches("profile").trim());
    let operator = super::is_present(snapshot, NODE_TUNING_OPERATOR);
    let runs = super::runs(snapshot, "tuned") || in_pod.is_some();
    if !runs && !operator {
        return None;
    }
    let own = snapshot.read("/etc/tuned/active_profile").unwrap_or_default();
    let profile = in_pod.unwrap_or(own);
    let mut written = Written::default();
    for name in profile.split_whitespace() {
        written.profile(snapshot, name);
    }
    let on_node = in_pod.is_some() || operator || Kubelet::read(snapshot).is_some();
    let (name, decided_in) = match (operator, in_pod) {
        (true, _) => ("TuneD of the Node Tuning Operator", Some(OPERATOR_OBJECTS)),
        (false, Some(_)) => ("TuneD in a pod", Some("the object that its pod reads")),
        (false, None) => ("tuned", on_node.then_some("its profile")),
    };
    let evidence = match (in_pod, operator) {
        (Some(_), _) => "a process tuned in a pod",
        (None, true) => NODE_TUNING_OPERATOR,
        (None, false) => "/etc/tuned/active_profile",
    };
    if on_node {
        written.add_related();
    }
    let effect = match runs {
        true => written.effect(profile),
        false => "is on this node, but no process tuned runs now".to_string(),
    };
    let owner = Owner { name: name.into(), evidence: evidence.into(), effect };
    let settings = match written.any_sysctl {
        true => Vec::new(),
        false => written.sysctls.into_iter().collect(),
    };
    let knobs = written.knobs.into_iter().collect();
    Some(OwnedSettings { owner, knobs, settings, decided_in })
}

/// Where the Node Tuning Operator is configured.
const OPERATOR_OBJECTS: &str = "a Tuned or PerformanceProfile object";

impl Written {
    /// Adds the knobs that make no sense without those that another program sets: queues and
    /// irqbalance's bans, where it places interrupts.
    fn add_related(&mut self) {
        let places = |knob: &str| self.knobs.contains(knob);
        let (network, disk) = (places("nic_irqs"), places("disk_irqs"));
        if network {
            self.knobs.insert("nic_channels");
        }
        if network || disk {
            self.knobs.insert("irqbalance");
        }
    }

    /// Returns what tuned does with a profile, which may be unknown.
    fn effect(&self, profile: &str) -> String {
        let mut effect = match profile {
            "" => "runs, but its active profile cannot be read".to_string(),
            _ => format!("applies profile {profile} when it starts and when the profile changes"),
        };
        if self.script {
            effect += ", and runs the profile's script";
        }
        if !self.unknown.is_empty() {
            let unknown = self.unknown.join(", ");
            effect +=
                &format!("; the settings of {unknown} are unknown: see `tuned-adm profile_info`");
        }
        if self.knobs.contains("irqbalance") {
            effect += "; each start clears irqbalance's bans";
        }
        effect
    }

    fn profile(&mut self, snapshot: &Snapshot, name: &str) {
        if !self.seen.insert(name.to_string()) {
            return;
        }
        if let Some(outline) = snapshot.read(&format!("/tare/owners/tuned/{name}")) {
            self.outline(snapshot, outline);
        } else if let Some((_, include, knobs)) = KNOWN.iter().find(|(known, ..)| *known == name) {
            self.any_sysctl |= knobs.contains(&"sysctls");
            self.knobs.extend(*knobs);
            if !include.is_empty() {
                self.profile(snapshot, include);
            }
        } else if name.starts_with("openshift-node-performance-") {
            // The profile of a PerformanceProfile includes both (the operator's assets).
            self.profile(snapshot, "openshift-node");
            self.profile(snapshot, "cpu-partitioning");
        } else {
            self.unknown.push(name.to_string());
        }
    }

    fn outline(&mut self, snapshot: &Snapshot, outline: &str) {
        for section in sections(outline) {
            let type_line = section.keys.iter().find_map(|key| key.strip_prefix("type="));
            let of_kind = section.name.split('.').next().unwrap_or(section.name);
            let kind = type_line.unwrap_or(of_kind);
            // It may apply only to other machines; the outline does not show which.
            if section.keys.iter().any(|key| key.ends_with("_regex")) {
                continue;
            }
            if kind == "irqbalance" {
                self.knobs.insert("irqbalance");
            }
            self.script |= kind == "script";
            for key in section.keys {
                match (kind, key.strip_prefix("include=")) {
                    ("main", Some(include)) => self.include(snapshot, include),
                    ("sysctl", _) => {
                        let Some(knob) = knob_of_sysctl(key) else { continue };
                        self.knobs.insert(knob);
                        self.sysctls.insert(key.to_string());
                    }
                    _ => self.knobs.extend(knobs_of(kind, key)),
                }
            }
        }
    }

    /// Adds included profiles, also those in
    /// `${f:virt_check:virtual-guest:throughput-performance}`. tuned uses one of them; which one is
    /// unknown here, so all count.
    fn include(&mut self, snapshot: &Snapshot, include: &str) {
        let part_of_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let function = include.contains("${");
        for name in include.split(|c| !part_of_name(c)).filter(|name| !name.is_empty()) {
            let known = snapshot.exists(&format!("/tare/owners/tuned/{name}"))
                || KNOWN.iter().any(|(known, ..)| *known == name);
            if known || !function {
                self.profile(snapshot, name);
            }
        }
    }
}

/// Returns the knobs that a key of a tuned plug-in writes.
fn knobs_of(kind: &str, key: &str) -> &'static [&'static str] {
    match (kind, key) {
        ("cpu", "governor") => &["cpu_governor"],
        ("cpu", "energy_perf_bias" | "energy_performance_preference") => &["energy_preference"],
        ("cpu", "force_latency" | "pm_qos_resume_latency_us") => &["idle_states"],
        ("disk", "elevator") => &["disk_scheduler"],
        ("vm", "transparent_hugepages" | "transparent_hugepage") => &["transparent_hugepages"],
        ("net", "channels") => &["nic_channels"],
        ("net", "ring") => &["rings"],
        ("net", "coalesce") => &["coalescing"],
        ("net", "features") => &["ntuple"],
        ("scheduler", "isolated_cores") => &["disk_irqs", "nic_irqs"],
        ("scheduler", "sched_wakeup_granularity_ns") => &["wakeup_granularity"],
        ("sysfs", path) if path.ends_with("/queue/scheduler") => &["disk_scheduler"],
        ("sysfs", path) if path.ends_with("/queue/nomerges") => &["disk_nomerges"],
        ("sysfs", path) if path.ends_with("/rps_cpus") => &["rps"],
        ("sysfs", path) if path.ends_with("/xps_cpus") => &["xps"],
        ("sysfs", path) if path.ends_with("/transparent_hugepage/enabled") => {
            &["transparent_hugepages"]
        }
        _ => &[],
    }
}

#[derive(Debug)]
struct Section<'a> {
    name: &'a str,
    keys: Vec<&'a str>,
}

fn sections(outline: &str) -> Vec<Section<'_>> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    for line in outline.lines().map(str::trim) {
        match line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            Some(name) => sections.push(Section { name, keys: Vec::new() }),
            None => sections.iter_mut().next_back().into_iter().for_each(|s| s.keys.push(line)),
        }
    }
    sections
}
