//! The layers of an environment, checked against each other.

use tare_lab::environment::EnvironmentSpec;
use tare_lab::layer::{Cgroup, Cpu, Host, Inject, Network, Security};
use tare_tune::knobs;

/// The layers of one environment, checked against each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Layers {
    pub network: Network,
    pub cpu: Cpu,
    pub security: Security,
    pub cgroup: Cgroup,
    pub host: Host,
    pub inject: Inject,
    pub memory_bytes: Option<u64>,
}

/// Why the layers of an environment exclude each other or are unknown.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LayerError {
    #[error(
        "environment {environment:?}: unknown group of knobs or knob {group:?}; use one of {known}"
    )]
    Group { environment: String, group: String, known: String },
    #[error("environment {environment:?}: {what} needs a cgroup of its own; set cgroup = \"own\"")]
    NeedsCgroup { environment: String, what: String },
    #[error(
        "environment {environment:?}: inject = \"{value}\" is for runtime = \"process\" only, not for \
         {runtime:?}; set inject = \"none\""
    )]
    InjectRuntime { environment: String, value: Inject, runtime: String },
    #[error(
        "environment {environment:?}: an injected delay needs the host's network; \
         set network = \"host\" instead of \"{network}\""
    )]
    InjectNetwork { environment: String, network: Network },
    #[error(
        "environment {environment:?}: cpu = \"{cpu}\" and an injected quota exclude each other; \
         remove one of them"
    )]
    TwoQuotas { environment: String, cpu: Cpu },
    #[error(
        "environment {environment:?}: a plain process has no security layer \"{value}\"; \
         set security = \"none\" or use an oci runtime"
    )]
    NoFilter { environment: String, value: Security },
}

impl Layers {
    /// Returns the layers of a specification.
    ///
    /// # Errors
    /// Names a layer that is unknown or excluded by another.
    pub fn checked(spec: &EnvironmentSpec) -> Result<Self, LayerError> {
        let environment = || spec.name.clone();
        let EnvironmentSpec { network, cpu, security, cgroup, host, inject, .. } = spec;
        let known = knobs::names();
        if let Some(group) = host.groups().iter().find(|name| !known.contains(&name.as_str())) {
            let (group, known) = (group.clone(), known.join(", "));
            return Err(LayerError::Group { environment: environment(), group, known });
        }
        if spec.runtime.is_process() && *security != Security::None {
            return Err(LayerError::NoFilter { environment: environment(), value: *security });
        }
        check_inject(spec)?;
        let memory_bytes = spec.limits.memory_bytes;
        let needs = match (cpu, memory_bytes) {
            (Cpu::Quota(_), _) => Some(format!("cpu = \"{cpu}\"")),
            _ if inject.quota_percent.is_some() => Some(format!("inject = \"{inject}\"")),
            (_, Some(_)) => Some("a memory limit".to_string()),
            _ => None,
        };
        match needs {
            Some(what) if *cgroup == Cgroup::None => {
                Err(LayerError::NeedsCgroup { environment: environment(), what })
            }
            _ => Ok(Self {
                network: *network,
                cpu: *cpu,
                security: *security,
                cgroup: *cgroup,
                host: host.clone(),
                inject: *inject,
                memory_bytes,
            }),
        }
    }
}

/// Checks that no other layer excludes the injected costs.
fn check_inject(spec: &EnvironmentSpec) -> Result<(), LayerError> {
    let (inject, environment) = (spec.inject, spec.name.clone());
    if !inject.is_nothing() && !spec.runtime.is_process() {
        let (value, runtime) = (inject, spec.runtime.to_string());
        return Err(LayerError::InjectRuntime { environment, value, runtime });
    }
    if inject.delay.is_some() && spec.network != Network::Host {
        return Err(LayerError::InjectNetwork { environment, network: spec.network });
    }
    if inject.quota_percent.is_some() && matches!(spec.cpu, Cpu::Quota(_)) {
        return Err(LayerError::TwoQuotas { environment, cpu: spec.cpu });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tare_lab::environment::{Limits, StorageSpec};
    use tare_lab::layer::Rootfs;

    fn spec(cpu: &str, cgroup: &str, memory_bytes: Option<u64>) -> EnvironmentSpec {
        EnvironmentSpec {
            name: "x".into(),
            runtime: "process".into(),
            network: Network::Bridge { proxy: true },
            cpu: cpu.parse().unwrap(),
            security: Security::None,
            cgroup: cgroup.parse().unwrap(),
            host: Host::AsIs,
            storage: StorageSpec::default(),
            vm: Vec::new(),
            sandbox: Vec::new(),
            rootfs: Rootfs::None,
            system: Vec::new(),
            inject: Inject::default(),
            limits: Limits { memory_bytes },
            neighbours: Vec::new(),
            optional: false,
        }
    }

    #[test]
    fn refuses_conflicting_layers() {
        let check = |cpu, cgroup, memory| Layers::checked(&spec(cpu, cgroup, memory));
        assert_eq!(check("quota=1.5", "own", None).unwrap().cpu, Cpu::Quota(1.5));
        assert_eq!(check("pinned", "none", None).unwrap().cpu, Cpu::Pinned);
        for bad in [check("quota=1", "none", None), check("shared", "none", Some(1 << 30))] {
            assert!(matches!(bad, Err(LayerError::NeedsCgroup { .. })), "{bad:?}");
        }
        let mut tuned = spec("shared", "own", None);
        tuned.host = "tuned=disk+dsk".parse().unwrap();
        let error = Layers::checked(&tuned).unwrap_err();
        assert!(matches!(&error, LayerError::Group { group, .. } if group == "dsk"), "{error}");
    }
}
