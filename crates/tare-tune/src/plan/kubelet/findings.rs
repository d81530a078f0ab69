//! The settings that are advised, one function each.

use tare_std::cpus::CpuSet;

use super::{CpuSets, Finding, memory};
use crate::machine::{Kubelet, Topology};

const CPU_DOCS: &str = "kubernetes.io: Control CPU Management Policies on the Node";
const RESERVED_DOCS: &str =
    "kubernetes.io: Reserve Compute Resources for System Daemons, explicitly reserved CPU list";
const TOPOLOGY_DOCS: &str = "kubernetes.io: Control Topology Management Policies on a node";
const MEMORY_DOCS: &str = "kubernetes.io: Utilizing the NUMA-aware Memory Manager";

/// The most NUMA nodes with which the topology manager starts, without an option.
const TOPOLOGY_NODES_MAX: usize = 8;

/// The quota's period of the kubelet, in microseconds, if none is set.
const PERIOD_DEFAULT_US: f64 = 100_000.0;

/// The input of a finding.
struct Node<'a> {
    kubelet: &'a Kubelet,
    topology: &'a Topology,
    reserved: &'a CpuSet,
    /// Whether the plan keeps these CPUs for interrupts.
    interrupts_alone: bool,
}

/// Returns what is advised, in the order of a `KubeletConfiguration` that is read from the top.
pub(super) fn findings(kubelet: &Kubelet, topology: &Topology, cpus: &CpuSets) -> Vec<Finding> {
    let node = Node {
        kubelet,
        topology,
        reserved: &cpus.reserved_cores(topology),
        interrupts_alone: cpus.interrupts_alone().is_some(),
    };
    let mut findings = vec![node.policy(), node.reserved_cpus()];
    findings.extend(node.full_cores());
    findings.extend(node.strict_reservation());
    findings.extend(node.alignment());
    findings.extend(node.memory());
    findings.extend(node.quota());
    findings.push(node.quota_period());
    findings
}

/// Returns the flag that sets the same as a finding.
pub(super) fn flag_of(finding: &Finding) -> Option<&'static str> {
    Some(match finding.setting.as_str() {
        "cpuManagerPolicy" => "--cpu-manager-policy",
        "reservedSystemCPUs" => "--reserved-cpus",
        "topologyManagerPolicy" => "--topology-manager-policy",
        "memoryManagerPolicy" => "--memory-manager-policy",
        "cpuCFSQuota" => "--cpu-cfs-quota",
        "cpuCFSQuotaPeriod" => "--cpu-cfs-quota-period",
        options if options.starts_with("cpuManagerPolicyOptions") => "--cpu-manager-policy-options",
        _ => return None,
    })
}

impl Node<'_> {
    /// Returns a value with its default; without all files it is unknown.
    fn now(&self, set: Option<&String>, default: &str) -> String {
        match set {
            Some(set) => set.clone(),
            None if self.kubelet.incomplete => "unknown".into(),
            None => format!("{default} (default)"),
        }
    }

    fn policy(&self) -> Finding {
        let set = self.kubelet.settings.cpu_manager_policy.as_ref();
        let configured = set.is_some_and(|policy| policy == "static");
        let running = self.kubelet.running_policy.as_deref();
        Finding {
            setting: "cpuManagerPolicy".into(),
            now: match running.filter(|running| configured && *running != "static") {
                Some(running) => format!("{running}, static after the next start"),
                None => self.now(set, "none"),
            },
            wanted: "static".into(),
            why: "a Guaranteed pod that requests whole CPUs gets CPUs of its own; with none all pods \
                  share all CPUs and are moved between them"
                .into(),
            condition: None,
            fragment: "cpuManagerPolicy: static\n".into(),
            source: CPU_DOCS.into(),
            in_force: configured && running.is_none_or(|running| running == "static"),
        }
    }

    fn reserved_cpus(&self) -> Finding {
        let reserved = self.reserved;
        let set = self.kubelet.settings.reserved_system_cpus.as_ref();
        let parsed = set.and_then(|set| CpuSet::parse_list(set).ok());
        Finding {
            setting: "reservedSystemCPUs".into(),
            now: self.now(set, "none"),
            wanted: reserved.to_string(),
            why: match self.interrupts_alone {
                true => format!(
                    "CPUs {reserved} take the interrupts in this plan and run the system: no pod \
                     should get them for itself; the static policy does not start without a \
                     reservation"
                ),
                false => format!(
                    "the static policy does not start without a reservation, and the system needs a \
                     core: CPUs {reserved}; interrupts go to all CPUs on this small host"
                ),
            },
            condition: None,
            fragment: format!("reservedSystemCPUs: \"{reserved}\"\n"),
            source: RESERVED_DOCS.into(),
            in_force: parsed.is_some_and(|set| reserved.is_subset(&set)),
        }
    }

    fn option(&self, name: &str) -> Option<&String> {
        self.kubelet.settings.cpu_manager_policy_options.get(name)
    }

    fn has_threads(&self) -> bool {
        self.topology.cores().any(|core| core.cpus.len() > 1)
    }

    /// `full-pcpus-only` is beta since 1.23 and stable since 1.33.
    fn full_cores(&self) -> Option<Finding> {
        let name = "full-pcpus-only";
        let too_old = self.kubelet.release().is_some_and(|release| release < (1, 23));
        if !self.has_threads() || too_old {
            return None;
        }
        let set = self.option(name);
        let needs = match self.kubelet.version {
            Some(_) => "",
            None => "; needs Kubernetes 1.23",
        };
        Some(Finding {
            setting: format!("cpuManagerPolicyOptions {name}"),
            now: self.now(set, "false"),
            wanted: "true".into(),
            why: format!(
                "this host has two hardware threads in a core: without it two pods with CPUs of \
                 their own can share a core; a pod must then request whole cores{needs}"
            ),
            condition: None,
            fragment: format!("cpuManagerPolicyOptions:\n  {name}: \"true\"\n"),
            source: CPU_DOCS.into(),
            in_force: set.is_some_and(|set| set == "true"),
        })
    }

    /// `strict-cpu-reservation` is alpha in 1.32 and beta, without a gate, since 1.33.
    fn strict_reservation(&self) -> Option<Finding> {
        let name = "strict-cpu-reservation";
        let release = self.kubelet.release();
        if release.is_some_and(|release| release < (1, 32)) {
            return None;
        }
        let reserved = self.reserved;
        let set = self.option(name);
        let mut fragment = format!("cpuManagerPolicyOptions:\n  {name}: \"true\"\n");
        let needs = match release {
            Some((1, 32)) => {
                fragment += "featureGates:\n  CPUManagerPolicyAlphaOptions: true\n";
                "; alpha in this version"
            }
            Some(_) => "",
            None => "; needs Kubernetes 1.33",
        };
        Some(Finding {
            setting: format!("cpuManagerPolicyOptions {name}"),
            now: self.now(set, "false"),
            wanted: "true".into(),
            why: format!(
                "without it pods that have no CPUs of their own also run on the reserved CPUs \
                 {reserved}{needs}"
            ),
            condition: Some(
                "if the pods with CPUs of their own leave at least one other CPU: the rest of the \
                 pods then runs nowhere else"
                    .into(),
            ),
            fragment,
            source: CPU_DOCS.into(),
            in_force: set.is_some_and(|set| set == "true"),
        })
    }

    fn alignment(&self) -> Option<Finding> {
        let nodes = self.topology.nodes.len();
        if !(2..=TOPOLOGY_NODES_MAX).contains(&nodes) {
            return None;
        }
        let set = self.kubelet.settings.topology_manager_policy.as_ref();
        // The CPU manager's option align-by-socket is refused together with single-numa-node.
        let by_socket = self.option("align-by-socket").is_some_and(|set| set == "true");
        let wanted = if by_socket { "restricted" } else { "single-numa-node" };
        let good = |set: &String| [wanted, "restricted"].contains(&set.as_str());
        Some(Finding {
            setting: "topologyManagerPolicy".into(),
            now: self.now(set, "none"),
            wanted: wanted.into(),
            why: format!(
                "this host has {nodes} NUMA nodes: a pod gets CPUs and memory of one node or is \
                 refused; use restricted where a pod is larger than a node"
            ),
            condition: None,
            fragment: format!("topologyManagerPolicy: {wanted}\n"),
            source: TOPOLOGY_DOCS.into(),
            in_force: set.is_some_and(good),
        })
    }

    /// The memory manager is on by default since 1.22.
    fn memory(&self) -> Option<Finding> {
        let too_old = self.kubelet.release().is_some_and(|release| release < (1, 22));
        if self.topology.nodes.len() < 2 || too_old {
            return None;
        }
        let settings = &self.kubelet.settings;
        let set = settings.memory_manager_policy.as_ref();
        let total = memory::total(settings).filter(|_| !self.kubelet.incomplete);
        let is_static = set.is_some_and(|policy| policy == "Static");
        let policy = "memoryManagerPolicy: Static\n";
        let (fragment, condition) = match total {
            // Its own division of the reservation stays if it adds up.
            Some(total) if memory::reserved(settings) == Some(total) => (policy.to_string(), None),
            Some(total) => (format!("{policy}{}", memory::fragment(total, self.topology)), None),
            None => (
                policy.to_string(),
                Some(
                    "once reservedMemory of all NUMA nodes adds up to kubeReserved, systemReserved \
                     and memory.available of evictionHard, which has to be an amount, not a share; \
                     Tare cannot read one of them"
                        .to_string(),
                ),
            ),
        };
        Some(Finding {
            setting: "memoryManagerPolicy".into(),
            now: self.now(set, "None"),
            wanted: "Static".into(),
            why: "memory of a Guaranteed pod comes from the NUMA nodes of its CPUs (cpuset.mems); \
                  reservedMemory has to add up to what the node reserves, or the kubelet does not \
                  start"
                .into(),
            condition,
            fragment,
            source: MEMORY_DOCS.into(),
            in_force: is_static,
        })
    }

    /// Since 1.33 a container with CPUs of its own has no quota (DisableCPUQuotaWithExclusiveCPUs).
    fn quota(&self) -> Option<Finding> {
        let settings = &self.kubelet.settings;
        let gate = settings.feature_gates.get("DisableCPUQuotaWithExclusiveCPUs");
        let kept = gate.is_some_and(|gate| gate == "false");
        if self.kubelet.is_at_least((1, 33)) && !kept {
            return None;
        }
        let now = settings.cpu_cfs_quota.map(|quota| quota.to_string());
        let why = match (&self.kubelet.version, kept) {
            (_, true) => {
                "the gate DisableCPUQuotaWithExclusiveCPUs is off, so the quota also throttles pods \
                 with CPUs of their own"
            }
            (Some(_), _) => "before 1.33 the quota also throttles pods with CPUs of their own",
            (None, _) => {
                "before Kubernetes 1.33 the quota also throttles pods with CPUs of their own; newer \
                 ones need nothing"
            }
        };
        Some(Finding {
            setting: "cpuCFSQuota".into(),
            now: self.now(now.as_ref(), "true"),
            wanted: "false".into(),
            why: why.into(),
            condition: Some(
                "if no pod of this node has to be held to its CPU limit: it lifts the quota from all \
                 of them"
                    .into(),
            ),
            fragment: "cpuCFSQuota: false\n".into(),
            source: "kubernetes/kubernetes #70585 and #127525 (1.33)".into(),
            in_force: settings.cpu_cfs_quota == Some(false),
        })
    }

    fn quota_period(&self) -> Finding {
        let settings = &self.kubelet.settings;
        let set = settings.cpu_cfs_quota_period.as_ref();
        let shorter = set.and_then(|set| microseconds(set));
        Finding {
            setting: "cpuCFSQuotaPeriod".into(),
            now: self.now(set, "100ms"),
            wanted: "10ms".into(),
            why: "a thread that has used up its quota waits for the end of the period, which is \
                  100 ms by default; shorter periods make shorter waits, and more of them"
                .into(),
            condition: Some(
                "if a database has to run with a quota (a limit that is no whole number of CPUs, or \
                 above its request), and an alpha feature gate may be on"
                    .into(),
            ),
            fragment: "cpuCFSQuotaPeriod: 10ms\nfeatureGates:\n  CustomCPUCFSQuotaPeriod: true\n"
                .into(),
            source: "kubernetes.io: Kubelet Configuration (v1beta1); kubernetes/kubernetes #51135"
                .into(),
            in_force: shorter.is_some_and(|period| period > 0.0 && period < PERIOD_DEFAULT_US),
        }
    }
}

/// Parses a duration with one unit, as people write it here: `10ms`, `5000us`, `0.1s`.
fn microseconds(text: &str) -> Option<f64> {
    const UNITS: [(&str, f64); 4] = [("ms", 1e3), ("us", 1.0), ("ns", 1e-3), ("s", 1e6)];
    let (number, unit) =
        UNITS.iter().find_map(|(suffix, unit)| Some((text.trim().strip_suffix(suffix)?, *unit)))?;
    Some(number.parse::<f64>().ok()? * unit)
}
