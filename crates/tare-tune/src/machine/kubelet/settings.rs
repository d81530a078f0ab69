//! The settings of a kubelet that decide about CPUs and memory, out of its configuration.
//!
//! Source: kubernetes.io, "Kubelet Configuration (v1beta1)", the fields of `KubeletConfiguration`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Settings with the names and the texts of `KubeletConfiguration`. `None` and empty maps are
/// settings that are not set, for which the kubelet has a default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Settings {
    pub cpu_manager_policy: Option<String>,
    pub cpu_manager_policy_options: BTreeMap<String, String>,
    #[serde(rename = "reservedSystemCPUs")]
    pub reserved_system_cpus: Option<String>,
    pub topology_manager_policy: Option<String>,
    pub topology_manager_policy_options: BTreeMap<String, String>,
    pub memory_manager_policy: Option<String>,
    pub reserved_memory: Vec<ReservedMemory>,
    #[serde(rename = "cpuCFSQuota")]
    pub cpu_cfs_quota: Option<bool>,
    #[serde(rename = "cpuCFSQuotaPeriod")]
    pub cpu_cfs_quota_period: Option<String>,
    /// Amounts by resource: `memory: 1Gi`.
    pub kube_reserved: BTreeMap<String, String>,
    pub system_reserved: BTreeMap<String, String>,
    pub eviction_hard: BTreeMap<String, String>,
    pub kube_reserved_cgroup: Option<String>,
    pub system_reserved_cgroup: Option<String>,
    pub feature_gates: BTreeMap<String, String>,
}

/// Memory of a NUMA node that pods do not get.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ReservedMemory {
    pub numa_node: u64,
    /// Amounts by resource: `memory: 1Gi`.
    pub limits: BTreeMap<String, String>,
}

impl Settings {
    /// Reads them from a configuration. Numbers and truth values count as their text.
    pub(super) fn of(configuration: &Value) -> Self {
        let word = |key: &str| text(configuration.get(key)?).filter(|text| !text.is_empty());
        let map = |key: &str| configuration.get(key).map(texts).unwrap_or_default();
        let reserved = configuration.get("reservedMemory").and_then(Value::as_array);
        let reserved = reserved.into_iter().flatten().map(|node| ReservedMemory {
            numa_node: node.get("numaNode").and_then(Value::as_u64).unwrap_or_default(),
            limits: node.get("limits").map(texts).unwrap_or_default(),
        });
        Self {
            cpu_manager_policy: word("cpuManagerPolicy"),
            cpu_manager_policy_options: map("cpuManagerPolicyOptions"),
            reserved_system_cpus: word("reservedSystemCPUs"),
            topology_manager_policy: word("topologyManagerPolicy"),
            topology_manager_policy_options: map("topologyManagerPolicyOptions"),
            memory_manager_policy: word("memoryManagerPolicy"),
            reserved_memory: reserved.collect(),
            cpu_cfs_quota: configuration.get("cpuCFSQuota").and_then(Value::as_bool),
            cpu_cfs_quota_period: word("cpuCFSQuotaPeriod"),
            kube_reserved: map("kubeReserved"),
            system_reserved: map("systemReserved"),
            eviction_hard: map("evictionHard"),
            kube_reserved_cgroup: word("kubeReservedCgroup"),
            system_reserved_cgroup: word("systemReservedCgroup"),
            feature_gates: map("featureGates"),
        }
    }
}

fn texts(value: &Value) -> BTreeMap<String, String> {
    let entries = value.as_object().into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.clone(), text(value)?))).collect()
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(is) => Some(is.to_string()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}
