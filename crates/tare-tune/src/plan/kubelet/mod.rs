//! Advice about the kubelet of this host: settings that the kubelet owns and Tare never changes.
//!
//! Method: each file of `findings` compares the settings of [`Kubelet`] with what fits the CPUs of
//! the plan. What is not in force is one fragment of a `KubeletConfiguration` to merge, and the
//! steps to get it into force in their order.
//!
//! Sources: kubernetes.io, "Control CPU Management Policies on the Node" (the order of a change:
//! drain, stop, remove the state file, edit, start), "Reserve Compute Resources for System Daemons"
//! (explicitly reserved CPU list), "Control Topology Management Policies on a node", "Utilizing the
//! NUMA-aware Memory Manager", "Configuring each kubelet in your cluster using kubeadm".
//!
//! Limits: requests of pods are not known here, so what depends on them has a condition and is not
//! part of the fragment.

mod findings;
mod memory;

use serde::{Deserialize, Serialize};

use super::CpuSets;
use crate::machine::{Kubelet, Topology};

/// What a node's kubelet should be set to, with the reasons.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubeletAdvice {
    /// The kubelet's process id.
    pub process: u32,
    /// `v1.34.1`; `None` if its program could not be asked.
    pub version: Option<String>,
    /// The configuration file and the folder of drop-in files, as far as it has them.
    pub files: Vec<String>,
    pub findings: Vec<Finding>,
    /// The part of a `KubeletConfiguration` to merge: all findings that are neither in force nor
    /// have a condition. Empty if there is none.
    pub fragment: String,
    /// What to do, in this order, to get the fragment into force.
    pub steps: Vec<String>,
    /// Further facts for the user, one sentence each.
    pub notes: Vec<String>,
}

/// One setting of the kubelet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Its name in `KubeletConfiguration`: `cpuManagerPolicy`.
    pub setting: String,
    /// The value that the kubelet has; with its default in words if it is not set.
    pub now: String,
    pub wanted: String,
    /// The reason: one or two sentences.
    pub why: String,
    /// When it is right; `None` if always.
    pub condition: Option<String>,
    /// The lines of a `KubeletConfiguration` that set it.
    pub fragment: String,
    /// Where the facts come from.
    pub source: String,
    pub in_force: bool,
}

impl KubeletAdvice {
    /// Whether everything that is right without a condition is in force.
    pub fn is_in_force(&self) -> bool {
        self.missing().next().is_none()
    }

    /// Returns what is right without a condition and not in force.
    pub fn missing(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| !finding.in_force && finding.condition.is_none())
    }
}

/// Returns the advice for a kubelet, given the division of the CPUs that the plan makes.
pub fn advise(kubelet: &Kubelet, topology: &Topology, cpus: &CpuSets) -> KubeletAdvice {
    let reserved = cpus.reserved_cores(topology);
    let mut advice = KubeletAdvice {
        process: kubelet.process,
        version: kubelet.version.clone(),
        files: kubelet.config.iter().chain(&kubelet.config_dir).cloned().collect(),
        notes: kubelet.troubles.clone(),
        ..KubeletAdvice::default()
    };
    if cpus.universe.is_subset(&reserved) {
        advice.notes.push(format!(
            "CPUs {reserved} are the only core: with cpuManagerPolicy static none would be left for \
             pods of their own CPUs, so there is no advice about CPUs"
        ));
        return advice;
    }
    advice.findings = findings::findings(kubelet, topology, cpus);
    let missing: Vec<&Finding> = advice.missing().collect();
    if !missing.is_empty() {
        let body: String = missing.iter().map(|finding| finding.fragment.as_str()).collect();
        let steps = steps(kubelet, &missing);
        advice.fragment = format!("{HEADER}{body}");
        advice.steps = steps;
    }
    advice.notes.extend(notes(kubelet, &advice));
    advice
}

/// The lines that every file of a kubelet's configuration begins with.
const HEADER: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

fn steps(kubelet: &Kubelet, missing: &[&Finding]) -> Vec<String> {
    let mut state = Vec::new();
    let has = |start: &str| missing.iter().any(|finding| finding.setting.starts_with(start));
    if has("cpuManager") || has("reservedSystemCPUs") {
        state.push(format!("{}/cpu_manager_state", kubelet.root_dir));
    }
    if has("memoryManager") || has("reservedMemory") {
        state.push(format!("{}/memory_manager_state", kubelet.root_dir));
    }
    let mut steps = vec![
        "drain the node: kubectl drain NODE --ignore-daemonsets".to_string(),
        "stop the kubelet: systemctl stop kubelet".to_string(),
    ];
    if !state.is_empty() {
        steps.push(format!(
            "remove {}: the kubelet refuses to start with the state of another policy or another \
             reservation",
            state.join(" and ")
        ));
    }
    steps.push(match (&kubelet.config_dir, &kubelet.config) {
        (Some(folder), _) => format!(
            "write the fragment to a file that sorts last, such as {}/90-cpus.conf",
            folder.trim_end_matches('/')
        ),
        (None, Some(file)) => format!("merge the fragment into {file}"),
        (None, None) => {
            "write the fragment to a file and start the kubelet with --config FILE; it \
                         has flags only now"
                .to_string()
        }
    });
    let overriding: Vec<&str> = kubelet
        .flags
        .iter()
        .map(String::as_str)
        .filter(|flag| missing.iter().any(|finding| findings::flag_of(finding) == Some(*flag)))
        .collect();
    if !overriding.is_empty() {
        steps.push(format!(
            "remove {} from the kubelet's command line, because flags override its files",
            overriding.join(", ")
        ));
    }
    steps.push("start the kubelet: systemctl start kubelet".into());
    steps.push("let pods back: kubectl uncordon NODE".into());
    steps.push("check: tare tune verify".into());
    steps
}

fn notes(kubelet: &Kubelet, advice: &KubeletAdvice) -> Vec<String> {
    let mut notes = Vec::new();
    let settings = &kubelet.settings;
    if kubelet.version.is_none() {
        notes.push(
            "the kubelet's version is unknown (its program can be asked as root, on the host \
             itself), so advice names the version that it needs"
                .into(),
        );
    }
    if let (Some(now), Some(set)) = (&kubelet.running_policy, &settings.cpu_manager_policy)
        && now != set
    {
        notes.push(format!(
            "the kubelet runs with cpuManagerPolicy {now}, although {set} is configured: its \
             configuration changed after its start, or its state file is of an earlier start"
        ));
    }
    let cgroups = [
        ("systemReservedCgroup", &settings.system_reserved_cgroup),
        ("kubeReservedCgroup", &settings.kube_reserved_cgroup),
    ];
    let cgroups: Vec<&str> =
        cgroups.iter().filter(|(_, set)| set.is_some()).map(|(name, _)| *name).collect();
    let reserves = advice.missing().any(|finding| finding.setting == "reservedSystemCPUs");
    if reserves && !cgroups.is_empty() {
        notes.push(format!(
            "the kubelet refuses reservedSystemCPUs together with {}, which is set: remove it first",
            cgroups.join(" and ")
        ));
    }
    if !advice.fragment.is_empty() && kubelet.config.as_deref() == Some(KUBEADM) {
        notes.push(format!(
            "kubeadm writes {KUBEADM} again at an upgrade: change the ConfigMap kubelet-config in \
             kube-system too, or give kubeadm the fragment as a patch (--patches)"
        ));
    }
    notes
}

/// The configuration file that kubeadm writes.
const KUBEADM: &str = "/var/lib/kubelet/config.yaml";
