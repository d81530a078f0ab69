//! The layers of an environment, checked against each other.

use tare_lab::environment::EnvironmentSpec;
use tare_lab::layer::{Apparmor, Capabilities, Confinement, Cpu, Layer, Pages, User};
use tare_lab::layer::{Cgroup, Host, Inject, Limit, Limits, Network, Security};
use tare_tune::knobs;

/// The layers of one environment, checked against each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Layers {
    pub network: Network,
    pub cpu: Cpu,
    pub security: Security,
    pub confinement: Confinement,
    pub cgroup: Cgroup,
    pub host: Host,
    pub inject: Inject,
    pub limits: Limits,
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
        "environment {environment:?}: limits.memory_high is above limits.memory, so it has no effect; \
         lower it"
    )]
    HighAboveLimit { environment: String },
    #[error(
        "environment {environment:?}: limits.swap is in addition to limits.memory; set that too"
    )]
    SwapWithoutMemory { environment: String },
    #[error(
        "environment {environment:?}: limits.network_bandwidth needs a link of the system's own, which \
         {found} does not have; set network = \"bridge\" with a process, an oci runtime or an engine"
    )]
    NoOwnLink { environment: String, found: String },
    #[error(
        "environment {environment:?}: runtime = \"{runtime}\" has no network = \"{network}\"; use process, \
         containerd or an oci runtime, or set network = \"bridge\""
    )]
    NoSuchNetwork { environment: String, runtime: String, network: Network },
    #[error(
        "environment {environment:?}: {layer} = \"{value}\" is for pods only, not for runtime = \"{runtime}\"; set \
         runtime = \"kubernetes\", or another {layer}"
    )]
    OnlyPods { environment: String, runtime: String, layer: Layer, value: String },
    #[error(
        "environment {environment:?}: limits.{limit} is of the block device below the data, and storage = \
         \"tmpfs\" has none; choose storage on a device, or remove the limit"
    )]
    NoDevice { environment: String, limit: &'static str },
    #[error(
        "environment {environment:?}: a plain process has no security layer \"{value}\"; \
         set security = \"none\" or use an oci runtime"
    )]
    NoFilter { environment: String, value: Security },
    #[error(
        "environment {environment:?}: runtime = {runtime:?} cannot have {layer} = \"{value}\": {why}"
    )]
    Confined {
        environment: String,
        runtime: String,
        layer: Layer,
        value: String,
        why: &'static str,
    },
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
        check_of_pods(spec)?;
        check_network(spec)?;
        check_inject(spec)?;
        check_limits(spec)?;
        check_confinement(spec)?;
        let limits = spec.limits;
        let needs = match (cpu, limits.all().next()) {
            (Cpu::Quota(_) | Cpu::Request(_), _) => Some(format!("cpu = \"{cpu}\"")),
            _ if inject.quota_percent.is_some() => Some(format!("inject = \"{inject}\"")),
            (_, Some((Limit::Memory, _))) => Some("a memory limit".to_string()),
            (_, Some((limit, _))) => Some(format!("limits.{}", limit.name())),
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
                confinement: spec.confinement,
                cgroup: *cgroup,
                host: host.clone(),
                inject: *inject,
                limits,
            }),
        }
    }
}

/// Checks that what only a pod has is asked of a pod.
fn check_of_pods(spec: &EnvironmentSpec) -> Result<(), LayerError> {
    let apparmor = spec.confinement.apparmor;
    let of_pods = [
        (Layer::Network, spec.network.to_string(), spec.network.is_of_pods()),
        (Layer::Cpu, spec.cpu.to_string(), matches!(spec.cpu, Cpu::Request(_))),
        (Layer::Apparmor, apparmor.to_string(), apparmor == Apparmor::Runtime),
        (Layer::Sidecar, spec.sidecar.to_string(), !spec.sidecar.is_none()),
        (Layer::Limits, Limit::HugePages.name().into(), spec.limits.huge_pages_bytes.is_some()),
    ];
    let is_pod = spec.is_pod();
    match of_pods.into_iter().find(|(.., is_of_pods)| *is_of_pods && !is_pod) {
        Some((layer, value, _)) => {
            let (environment, runtime) = (spec.name.clone(), spec.runtime.to_string());
            Err(LayerError::OnlyPods { environment, runtime, layer, value })
        }
        None => Ok(()),
    }
}

/// Checks that the runtime can have the network: engines make their own, and guests have a tap
/// device on a bridge.
fn check_network(spec: &EnvironmentSpec) -> Result<(), LayerError> {
    let usual = matches!(spec.network, Network::Host | Network::Bridge { .. });
    match spec.runtime.kind() {
        "docker" | "podman" | "vm" | "kubernetes" if !usual && !spec.network.is_of_pods() => {
            Err(LayerError::NoSuchNetwork {
                environment: spec.name.clone(),
                runtime: spec.runtime.to_string(),
                network: spec.network,
            })
        }
        _ => Ok(()),
    }
}

/// Checks that the limits fit each other, the network and the storage.
fn check_limits(spec: &EnvironmentSpec) -> Result<(), LayerError> {
    let (limits, environment) = (&spec.limits, || spec.name.clone());
    let above = |limit: Limit| {
        let bytes = limits.get(limit).zip(limits.memory_bytes);
        bytes.is_some_and(|(bytes, memory)| bytes > memory)
    };
    if above(Limit::MemoryHigh) {
        return Err(LayerError::HighAboveLimit { environment: environment() });
    }
    if limits.swap_bytes.is_some() && limits.memory_bytes.is_none() {
        return Err(LayerError::SwapWithoutMemory { environment: environment() });
    }
    let guest = spec.runtime.as_str().starts_with("vm:");
    if limits.network_bytes_per_s.is_some() && (guest || !spec.network.has_own_link()) {
        let found = match guest {
            true => "a guest".to_string(),
            false => format!("network = \"{}\"", spec.network),
        };
        return Err(LayerError::NoOwnLink { environment: environment(), found });
    }
    let of_device = limits.all().find(|(limit, _)| limit.is_of_device());
    match of_device {
        Some((limit, _)) if spec.storage.kind == "tmpfs" => {
            Err(LayerError::NoDevice { environment: environment(), limit: limit.name() })
        }
        _ => Ok(()),
    }
}

/// Returns what a study sets of the layers that a kernel of the system's own hides from this host.
pub(crate) fn confinement_set(confinement: Confinement) -> impl Iterator<Item = (Layer, String)> {
    let Confinement { capabilities, user, apparmor, pages, node: _ } = confinement;
    let all = [
        (Layer::Capabilities, capabilities.to_string(), capabilities != Capabilities::default()),
        (Layer::User, user.to_string(), user != User::default()),
        (Layer::Apparmor, apparmor.to_string(), apparmor != Apparmor::default()),
        (Layer::Pages, pages.to_string(), pages != Pages::default()),
    ];
    all.into_iter().filter(|(.., is_set)| *is_set).map(|(layer, value, _)| (layer, value))
}

/// Checks that the runtime can have what confines the system.
fn check_confinement(spec: &EnvironmentSpec) -> Result<(), LayerError> {
    let kind = spec.runtime.kind();
    if let ("kubernetes", Some(node)) = (kind, spec.confinement.node) {
        let why = "the kubelet's memory manager decides; use another runtime";
        let (environment, runtime) = (spec.name.clone(), spec.runtime.to_string());
        let (layer, value) = (Layer::Node, node.to_string());
        return Err(LayerError::Confined { environment, runtime, layer, value, why });
    }
    for (layer, value) in confinement_set(spec.confinement) {
        let why = match kind {
            "vm" => Some("the system runs on the guest's kernel, which this host cannot read"),
            _ if has_own_kernel(spec.runtime.argument()) => Some(
                "the system runs on another kernel than the host's, which this host cannot read",
            ),
            "docker" if layer == Layer::User => Some(
                "Docker maps users for the whole daemon (userns-remap), not for one container; use oci:runc, \
                 oci:crun or containerd",
            ),
            "podman" if layer == Layer::User => Some(
                "Podman's API takes no map of users, only ranges of /etc/subuid; use oci:runc, oci:crun or \
                 containerd",
            ),
            _ => None,
        };
        if let Some(why) = why {
            let (environment, runtime) = (spec.name.clone(), spec.runtime.to_string());
            return Err(LayerError::Confined { environment, runtime, layer, value, why });
        }
    }
    Ok(())
}

/// Returns whether a runtime's argument names gVisor or Kata.
fn has_own_kernel(argument: Option<&str>) -> bool {
    argument.is_some_and(|name| ["runsc", "gvisor", "kata"].iter().any(|one| name.contains(one)))
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
    use tare_lab::environment::StorageSpec;
    use tare_lab::layer::{Quota, Rootfs, Sidecar};

    fn spec(cpu: &str, cgroup: &str, memory_bytes: Option<u64>) -> EnvironmentSpec {
        EnvironmentSpec {
            name: "x".into(),
            runtime: "process".into(),
            attach: None,
            network: Network::Bridge { proxy: true },
            cpu: cpu.parse().unwrap(),
            security: Security::None,
            confinement: Confinement::default(),
            cgroup: cgroup.parse().unwrap(),
            host: Host::AsIs,
            storage: StorageSpec::default(),
            vm: Vec::new(),
            sandbox: Vec::new(),
            rootfs: Rootfs::None,
            system: Vec::new(),
            inject: Inject::default(),
            limits: Limits { memory_bytes, ..Limits::default() },
            instances: None,
            neighbours: Vec::new(),
            sidecar: Sidecar::None,
            optional: false,
        }
    }

    type Change = fn(&mut EnvironmentSpec);

    /// Checks the layers of an environment after a change.
    fn limited(change: Change) -> Result<Layers, String> {
        let mut limited = spec("shared", "own", Some(1 << 30));
        change(&mut limited);
        Layers::checked(&limited).map_err(|error| error.to_string())
    }

    #[test]
    fn only_pods_have_what_a_cluster_gives() {
        let refused: [(Change, &str); 7] = [
            (
                |spec| spec.limits.huge_pages_bytes = Some(2 << 20),
                "limits = \"huge_pages\" is for pods only",
            ),
            (|spec| spec.sidecar = Sidecar::Idle, "sidecar = \"idle\" is for pods only"),
            (
                |spec| spec.confinement.apparmor = Apparmor::Runtime,
                "apparmor = \"runtime\" is for pods only",
            ),
            (|spec| spec.network = Network::Service, "network = \"service\" is for pods only"),
            (
                |spec| spec.cpu = "request=1".parse().unwrap(),
                "cpu = \"request=1\" is for pods only",
            ),
            (
                |spec| {
                    spec.runtime = "kubernetes".into();
                    spec.network = Network::Macvlan;
                },
                "runtime = \"kubernetes\" has no network = \"macvlan\"",
            ),
            (
                |spec| {
                    spec.runtime = "kubernetes".into();
                    spec.network = Network::Service;
                    spec.confinement.node = Some(0);
                },
                "memory.node = \"0\": the kubelet",
            ),
        ];
        for (change, expect) in refused {
            let error = limited(change).unwrap_err();
            assert!(error.contains(expect), "{error}");
        }
    }

    #[test]
    fn refuses_conflicting_layers() {
        let check = |cpu, cgroup, memory| Layers::checked(&spec(cpu, cgroup, memory));
        assert_eq!(check("quota=1.5", "own", None).unwrap().cpu, Cpu::Quota(Quota::of(1.5)));
        assert_eq!(check("pinned", "none", None).unwrap().cpu, Cpu::Pinned);
        for bad in [check("quota=1", "none", None), check("shared", "none", Some(1 << 30))] {
            assert!(matches!(bad, Err(LayerError::NeedsCgroup { .. })), "{bad:?}");
        }
        assert!(limited(|spec| spec.limits.network_bytes_per_s = Some(1 << 20)).is_ok());
        let refused: [(Change, &str); 8] = [
            (|spec| spec.limits.memory_high_bytes = Some(2 << 30), "above limits.memory"),
            (
                |spec| {
                    spec.limits = Limits { swap_bytes: Some(0), ..Limits::default() };
                },
                "limits.swap is in addition",
            ),
            (
                |spec| {
                    spec.limits.network_bytes_per_s = Some(1 << 20);
                    spec.network = Network::Host;
                },
                "network = \"host\" does not have",
            ),
            (
                |spec| {
                    spec.limits.network_bytes_per_s = Some(1 << 20);
                    spec.network = Network::Macvlan;
                },
                "network = \"macvlan\" does not have",
            ),
            (
                |spec| {
                    spec.runtime = "vm:qemu".into();
                    spec.network = Network::Vxlan;
                },
                "runtime = \"vm:qemu\" has no network = \"vxlan\"",
            ),
            (
                |spec| {
                    spec.limits.network_bytes_per_s = Some(1 << 20);
                    spec.runtime = "vm:qemu".into();
                },
                "a guest does not have",
            ),
            (
                |spec| {
                    spec.limits.writes_per_s = Some(100);
                    spec.storage.kind = "tmpfs".into();
                },
                "limits.write_iops is of the block device",
            ),
            (
                |spec| {
                    spec.limits = Limits { cpu_weight: Some(9), ..Limits::default() };
                    spec.cgroup = Cgroup::None;
                },
                "limits.cpu_weight needs a cgroup of its own",
            ),
        ];
        for (change, expect) in refused {
            let error = limited(change).unwrap_err();
            assert!(error.contains(expect), "{error}");
        }
        let confined = |runtime: &str| {
            let mut confined = spec("shared", "own", None);
            confined.runtime = runtime.into();
            confined.confinement.user = User::Namespace;
            Layers::checked(&confined).map_err(|error| error.to_string())
        };
        assert!(confined("process").is_ok() && confined("oci:runc").is_ok());
        for (runtime, why) in [
            ("docker", "userns-remap"),
            ("podman", "/etc/subuid"),
            ("vm:qemu", "the guest's kernel"),
            ("oci:runsc", "another kernel"),
        ] {
            let error = confined(runtime).unwrap_err();
            assert!(error.contains(why) && error.contains("user = \"namespace\""), "{error}");
        }
        let mut tuned = spec("shared", "own", None);
        tuned.host = "tuned=disk+dsk".parse().unwrap();
        let error = Layers::checked(&tuned).unwrap_err();
        assert!(matches!(&error, LayerError::Group { group, .. } if group == "dsk"), "{error}");
    }
}
