//! Layers: what stands between a system and the bare host, one file each, each switched alone.
//! `ALL` drives `tare list`, the words that a study may use, and the documentation.

use tare_lab::environment::EnvironmentSpec;

pub mod cgroup;
pub mod cpu;
pub mod host;
pub mod inject;
pub mod limits;
pub mod network;
pub mod rootfs;
pub mod security;

pub use cgroup::CgroupLayer;
pub use cpu::CpuLayer;
pub use host::HostLayer;
pub use inject::InjectLayer;
pub use network::NetworkLayer;

/// A layer: what it is called and what it can be.
#[derive(Clone, Copy, Debug)]
pub struct Layer {
    /// Key in a study.
    pub name: &'static str,
    /// One line: what it is.
    pub help: &'static str,
    /// Its values with one line each; `quota=*` stands for `quota=` and something after it.
    pub values: &'static [(&'static str, &'static str)],
    /// What it needs of the host.
    pub needs: &'static str,
    /// How it cleans up.
    pub cleanup: &'static str,
    /// How it is read back that it is in force.
    pub read_back: &'static str,
}

/// Every layer.
pub const ALL: &[Layer] = &[
    network::LAYER,
    cpu::LAYER,
    SECURITY,
    cgroup::LAYER,
    host::LAYER,
    inject::LAYER,
    limits::LAYER,
    rootfs::LAYER,
];

const SECURITY: Layer = Layer {
    name: "security",
    help: "seccomp filter; capabilities are the engine's minimum under every value",
    values: security::ALL,
    needs: "CONFIG_SECCOMP_FILTER",
    cleanup: "nothing to clean: the filter ends with the process",
    read_back: "the Seccomp line of /proc/PID/status",
};

/// The layers of one environment, parsed and checked against each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Layers {
    pub network: NetworkLayer,
    pub cpu: CpuLayer,
    /// One of `security::ALL`.
    pub security: String,
    pub cgroup: CgroupLayer,
    pub host: HostLayer,
    pub inject: InjectLayer,
    pub memory_bytes: Option<u64>,
}

/// Why the layers of an environment make no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayerError {
    #[error("environment {environment:?}: unknown {layer} layer {value:?}; use one of {known}")]
    Value { environment: String, layer: &'static str, value: String, known: String },
    #[error("environment {environment:?}: {what} needs a cgroup of its own; set cgroup = \"own\"")]
    NeedsCgroup { environment: String, what: String },
    #[error(
        "environment {environment:?}: inject = {value:?} is for runtime = \"process\" only, not for \
         {runtime:?}; set inject = \"none\""
    )]
    InjectRuntime { environment: String, value: String, runtime: String },
    #[error(
        "environment {environment:?}: an injected delay stands before the host's network; \
         set network = \"host\" instead of {network:?}"
    )]
    InjectNetwork { environment: String, network: String },
    #[error(
        "environment {environment:?}: cpu = {cpu:?} and an injected quota exclude each other; \
         take one of the two"
    )]
    TwoQuotas { environment: String, cpu: String },
    #[error(
        "environment {environment:?}: a plain process has no security layer {value:?}; \
         set security = \"none\" or take an oci runtime"
    )]
    NoFilter { environment: String, value: String },
}

impl Layers {
    /// Parses the layers of a specification.
    ///
    /// # Errors
    /// An unknown value, or layers that exclude each other.
    pub fn parse(spec: &EnvironmentSpec) -> Result<Self, LayerError> {
        let unknown = |layer: &Layer, value: &str| LayerError::Value {
            environment: spec.name.clone(),
            layer: layer.name,
            value: value.into(),
            known: layer.values.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
        };
        let network = NetworkLayer::parse(&spec.network)
            .ok_or_else(|| unknown(&network::LAYER, &spec.network))?;
        let cpu = CpuLayer::parse(&spec.cpu).ok_or_else(|| unknown(&cpu::LAYER, &spec.cpu))?;
        let cgroup = CgroupLayer::parse(&spec.cgroup)
            .ok_or_else(|| unknown(&cgroup::LAYER, &spec.cgroup))?;
        let host = HostLayer::parse(&spec.host).ok_or_else(|| unknown(&host::LAYER, &spec.host))?;
        let inject = InjectLayer::parse(&spec.inject)
            .ok_or_else(|| unknown(&inject::LAYER, &spec.inject))?;
        if !security::ALL.iter().any(|(name, _)| *name == spec.security) {
            return Err(unknown(&SECURITY, &spec.security));
        }
        if spec.runtime == "process" && spec.security != "none" {
            let (environment, value) = (spec.name.clone(), spec.security.clone());
            return Err(LayerError::NoFilter { environment, value });
        }
        inject.check(spec, network, cpu)?;
        let memory_bytes = spec.limits.memory_bytes;
        let needs = match (cpu, memory_bytes) {
            (CpuLayer::Quota(_), _) => Some(format!("cpu = {:?}", spec.cpu)),
            _ if inject.quota_percent.is_some() => Some(format!("inject = {:?}", spec.inject)),
            (_, Some(_)) => Some("a memory limit".to_string()),
            _ => None,
        };
        match needs {
            Some(what) if cgroup == CgroupLayer::None => {
                Err(LayerError::NeedsCgroup { environment: spec.name.clone(), what })
            }
            _ => {
                let security = spec.security.clone();
                Ok(Self { network, cpu, security, cgroup, host, inject, memory_bytes })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tare_testkit::EnvironmentBuilder;

    use super::*;

    fn spec(cpu: &str, cgroup: &str, memory_bytes: Option<u64>) -> EnvironmentSpec {
        EnvironmentBuilder::new("process")
            .network("bridge+proxy")
            .cpu(cpu)
            .cgroup(cgroup)
            .memory_bytes(memory_bytes)
            .build()
    }

    #[test]
    fn layers_are_parsed_and_checked_against_each_other() {
        let parse = |cpu, cgroup, memory| Layers::parse(&spec(cpu, cgroup, memory));
        assert_eq!(parse("quota=1.5", "own", None).unwrap().cpu, CpuLayer::Quota(1.5));
        assert_eq!(parse("pinned", "none", None).unwrap().cpu, CpuLayer::Pinned);
        for bad in [
            parse("quota=0", "own", None),
            parse("quota=x", "own", None),
            parse("pined", "own", None),
            parse("shared", "sone", None),
            parse("quota=1", "none", None),
            parse("shared", "none", Some(1 << 30)),
        ] {
            assert!(bad.is_err(), "{bad:?}");
        }
    }
}
