//! tuned: the active profile and the settings that it writes.
//!
//! Method: the outlines of the profiles (a snapshot keeps sections and keys) are read with the
//! profiles that they include. If a profile's file was not found, a table of tuned's own profiles
//! is used; a profile that is in neither is reported as unknown.

use std::collections::BTreeSet;

use super::settings::knob_of_sysctl;
use super::{OwnedSettings, Owner};
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

/// Returns tuned as an owner if it runs.
pub(super) fn owner(snapshot: &Snapshot) -> Option<OwnedSettings> {
    let profile = snapshot.read("/etc/tuned/active_profile").unwrap_or_default();
    if !super::runs(snapshot, "tuned") {
        return None;
    }
    let mut written = Written::default();
    for name in profile.split_whitespace() {
        written.profile(snapshot, name);
    }
    let mut effect = match profile {
        "" => "runs, but its active profile cannot be read".to_string(),
        _ => format!("applies profile {profile} when it starts and when the profile changes"),
    };
    if written.script {
        effect += ", and runs the profile's script";
    }
    if !written.unknown.is_empty() {
        let unknown = written.unknown.join(", ");
        effect += &format!("; the settings of {unknown} are unknown: see `tuned-adm profile_info`");
    }
    if written.knobs.contains("irqbalance") {
        effect += "; each start clears irqbalance's bans";
    }
    let owner =
        Owner { name: "tuned".into(), evidence: "/etc/tuned/active_profile".into(), effect };
    let settings = match written.any_sysctl {
        true => Vec::new(),
        false => written.sysctls.into_iter().collect(),
    };
    Some(OwnedSettings { owner, knobs: written.knobs.into_iter().collect(), settings })
}

impl Written {
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
