//! How this crate provides the layers: what each needs, how it is read back and how it cleans up, and
//! which values go together. The list of layers and their types belong to the lab
//! (`tare_lab::layer`).

use tare_host::plan::Group;
use tare_lab::environment::EnvironmentSpec;
use tare_lab::layer::{Cpu, Host, Inject, Layer, Network, Security};

// Written `layer::Cgroup`, because tare-host has a `Cgroup` too.
pub(crate) use tare_lab::layer::Cgroup;

pub mod host;
pub mod inject;
pub mod network;
#[cfg(test)]
mod reference;
pub mod rootfs;
pub mod security;

/// How this crate provides a layer.
#[derive(Clone, Copy, Debug)]
pub struct LayerInfo {
    pub layer: Layer,
    /// What it needs of the host.
    pub needs: &'static str,
    /// How it cleans up.
    pub cleanup: &'static str,
    /// How it is read back that it is in force.
    pub read_back: &'static str,
}

impl LayerInfo {
    /// How this crate provides the layer.
    pub const fn of(layer: Layer) -> Self {
        let (needs, cleanup, read_back) = match layer {
            Layer::Runtime => (
                "what tare list runtimes says of each",
                "each runtime names what it makes in the journal, and undoes it",
                "the process, its name and what the runtime or engine says of it",
            ),
            Layer::Network => (
                "iproute2, nftables; veth, bridge, nf_nat and nf_conntrack in the kernel",
                "its namespaces are removed, and with them links, bridge and nft table",
                "the inode of the network namespace of /proc/PID/ns/net",
            ),
            Layer::Cpu => (
                "the cpuset and cpu cgroup controllers where cgroup = \"own\"",
                "goes with the cgroup and the process",
                "Cpus_allowed_list of every thread; the cpuset in force; the quota's file",
            ),
            Layer::Security => (
                "CONFIG_SECCOMP_FILTER",
                "nothing to clean: the filter ends with the process",
                "the Seccomp line of /proc/PID/status",
            ),
            Layer::Cgroup => (
                "cgroup v1, hybrid or v2, writable",
                "its processes are killed and its directories removed",
                "/proc/PID/cgroup",
            ),
            Layer::Host => (
                "root, and a plan (tare tune prove makes it; tare weigh plans with the defaults)",
                "changes are put back as the environment is frozen; after kill -9 by tare clean",
                "each setting is read: as wanted where it is tuned, as found where it is not",
            ),
            Layer::Storage => (
                "what tare list storage says of each kind",
                "it is unmounted, and its devices and files are removed, through the journal",
                "the mount table that the system sees, and what the device says of itself",
            ),
            Layer::Vm => (
                "runtime = \"vm:qemu\" or \"vm:uml\"",
                "goes with the monitor's process and its directory",
                "the monitor over QMP, and the agent in the guest",
            ),
            Layer::Sandbox => (
                "the runtime runsc",
                "goes with the sandbox",
                "the arguments of the running sandbox, and the program asked inside it",
            ),
            Layer::Rootfs => (
                "a statically linked program; for packages apt-get, dpkg-deb and tar",
                "unmounted; what was unpacked stays in the cache for the next run",
                "/proc/PID/mountinfo: the root is read-only; every file is compared with the manifest",
            ),
            Layer::Inject => (
                "the system tare-db; for quota the cpu cgroup controller and cgroup = \"own\"; for delay network = \"host\"",
                "the relay is killed; the rest goes with the process and its cgroup",
                "the arguments of the running system and of the relay; the quota's file; the Seccomp line",
            ),
            Layer::Limits => (
                "the memory cgroup controller and cgroup = \"own\"",
                "goes with the cgroup",
                "memory.max (v2) or memory.limit_in_bytes (v1)",
            ),
        };
        Self { layer, needs, cleanup, read_back }
    }
}

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

/// Why the layers of an environment make no sense.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LayerError {
    #[error("environment {environment:?}: unknown group of knobs {group:?}; use one of {known}")]
    Group { environment: String, group: String, known: String },
    #[error("environment {environment:?}: {what} needs a cgroup of its own; set cgroup = \"own\"")]
    NeedsCgroup { environment: String, what: String },
    #[error(
        "environment {environment:?}: inject = \"{value}\" is for runtime = \"process\" only, not for \
         {runtime:?}; set inject = \"none\""
    )]
    InjectRuntime { environment: String, value: Inject, runtime: String },
    #[error(
        "environment {environment:?}: an injected delay stands before the host's network; \
         set network = \"host\" instead of \"{network}\""
    )]
    InjectNetwork { environment: String, network: Network },
    #[error(
        "environment {environment:?}: cpu = \"{cpu}\" and an injected quota exclude each other; \
         take one of the two"
    )]
    TwoQuotas { environment: String, cpu: Cpu },
    #[error(
        "environment {environment:?}: a plain process has no security layer \"{value}\"; \
         set security = \"none\" or take an oci runtime"
    )]
    NoFilter { environment: String, value: Security },
}

impl Layers {
    /// The layers of a specification.
    ///
    /// # Errors
    /// Layers that exclude each other.
    pub fn checked(spec: &EnvironmentSpec) -> Result<Self, LayerError> {
        let environment = || spec.name.clone();
        let EnvironmentSpec { network, cpu, security, cgroup, host, inject, .. } = spec;
        let is_known =
            |name: &&String| Group::ALL.iter().any(|group| group.name() == name.as_str());
        if let Some(group) = host.groups().iter().find(|name| !is_known(name)) {
            let known: Vec<&str> = Group::ALL.iter().map(|group| group.name()).collect();
            let (group, known) = (group.clone(), known.join(", "));
            return Err(LayerError::Group { environment: environment(), group, known });
        }
        if spec.runtime.is_process() && *security != Security::None {
            return Err(LayerError::NoFilter { environment: environment(), value: *security });
        }
        inject::check(spec)?;
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
            inject: Inject::default(),
            limits: Limits { memory_bytes },
            optional: false,
        }
    }

    #[test]
    fn layers_are_checked_against_each_other() {
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
