//! The command line of a kubelet.
//!
//! Source: kubernetes.io, "kubelet" (command line tools reference); a flag overrides the same
//! setting of the files ("Set Kubelet Parameters Via A Configuration File").

use serde_json::{Map, Value, json};

/// What a command line says.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Flags {
    pub(super) config: Option<String>,
    pub(super) config_dir: Option<String>,
    pub(super) root_dir: Option<String>,
    /// Settings that flags set, in the form of a `KubeletConfiguration`.
    pub(super) settings: Map<String, Value>,
    /// The names of these flags.
    pub(super) names: Vec<String>,
}

/// How the value of a flag is written.
#[derive(Clone, Copy)]
enum Form {
    Text,
    Bool,
    /// `key=value,key=value`
    Map,
    /// `memory.available<100Mi,...`
    Thresholds,
    /// `0:memory=1Gi,hugepages-1Gi=2Gi;1:memory=1Gi`
    Memory,
}

const SETTINGS: &[(&str, &str, Form)] = &[
    ("cpu-manager-policy", "cpuManagerPolicy", Form::Text),
    ("cpu-manager-policy-options", "cpuManagerPolicyOptions", Form::Map),
    ("reserved-cpus", "reservedSystemCPUs", Form::Text),
    ("topology-manager-policy", "topologyManagerPolicy", Form::Text),
    ("topology-manager-policy-options", "topologyManagerPolicyOptions", Form::Map),
    ("memory-manager-policy", "memoryManagerPolicy", Form::Text),
    ("reserved-memory", "reservedMemory", Form::Memory),
    ("cpu-cfs-quota", "cpuCFSQuota", Form::Bool),
    ("cpu-cfs-quota-period", "cpuCFSQuotaPeriod", Form::Text),
    ("kube-reserved", "kubeReserved", Form::Map),
    ("system-reserved", "systemReserved", Form::Map),
    ("eviction-hard", "evictionHard", Form::Thresholds),
    ("kube-reserved-cgroup", "kubeReservedCgroup", Form::Text),
    ("system-reserved-cgroup", "systemReservedCgroup", Form::Text),
    ("feature-gates", "featureGates", Form::Map),
];

impl Flags {
    /// Reads a command line, the program's name included. What comes before the program (`sh`,
    /// `hyperkube`) is skipped.
    pub(super) fn parse(words: &[&str]) -> Self {
        let is_program = |word: &&str| word.rsplit('/').next() == Some("kubelet");
        let first = words.iter().position(is_program).map_or(1, |at| at + 1);
        let mut words = words.get(first..).unwrap_or_default().iter().peekable();
        let mut flags = Self::default();
        while let Some(word) = words.next() {
            let Some(flag) = word.strip_prefix("--") else { continue };
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (flag, None),
            };
            let known = SETTINGS.iter().find(|(of, ..)| *of == name);
            // A truth value without `=` is true; every other flag has its value in the next word.
            let value = match (value, known) {
                (Some(value), _) => value,
                (None, Some((.., Form::Bool))) => "true",
                (None, _) => match words.next_if(|next| !next.starts_with("--")) {
                    Some(next) => next,
                    None => continue,
                },
            };
            match name {
                "config" => flags.config = Some(value.to_string()),
                "config-dir" => flags.config_dir = Some(value.to_string()),
                "root-dir" => flags.root_dir = Some(value.to_string()),
                _ => {}
            }
            if let Some((_, setting, form)) = known {
                flags.settings.insert((*setting).to_string(), form.read(value));
                flags.names.push(format!("--{name}"));
            }
        }
        flags
    }
}

impl Form {
    fn read(self, value: &str) -> Value {
        match self {
            Self::Text => json!(value),
            Self::Bool => json!(matches!(value, "true" | "t" | "T" | "TRUE" | "True" | "1")),
            Self::Map => pairs(value, '='),
            Self::Thresholds => pairs(value, '<'),
            Self::Memory => value
                .split(';')
                .filter_map(|node| {
                    let (number, limits) = node.split_once(':')?;
                    let number: u64 = number.trim().parse().ok()?;
                    Some(json!({ "numaNode": number, "limits": pairs(limits, '=') }))
                })
                .collect(),
        }
    }
}

fn pairs(text: &str, separator: char) -> Value {
    let pair = |pair: &str| {
        let (key, value) = pair.split_once(separator)?;
        Some((key.trim().to_string(), json!(value.trim())))
    };
    Value::Object(text.split(',').filter_map(pair).collect())
}
