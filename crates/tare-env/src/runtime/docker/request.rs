//! The create request: an environment's layers as options of an engine.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};

use bollard::models::{
    ContainerCreateBody, EndpointIpamConfig, EndpointSettings, HostConfig, Mount, MountType,
    NetworkingConfig, PortBinding, ResourcesUlimits,
};

use tare_host::memory_policy;

use super::engine::Kind;
use crate::layer::confinement::huge_pages;
use crate::layer::rootfs::{DATA, PROGRAM};
use crate::layer::{Layers, limits};
use tare_lab::layer::Security;
use tare_lab::layer::{Capabilities, Network, Quota};

/// The place of the data.
#[derive(Debug)]
pub(super) enum Data<'a> {
    /// A directory of the host.
    Bind(PathBuf),
    /// A named volume.
    Volume(&'a str),
    /// The container's root, which is then writable.
    Root,
}

/// Everything that a request depends on.
#[derive(Debug)]
pub(super) struct Request<'a> {
    pub(super) kind: Kind,
    pub(super) image: &'a str,
    /// Tare's program, unless the image holds it.
    pub(super) program: Option<&'a Path>,
    /// Whether the root is read-only.
    pub(super) read_only: bool,
    /// The port that the system listens on behind a bridge.
    pub(super) port: u16,
    /// The port to publish for instances on other hosts, inside and outside.
    pub(super) node_port: Option<u16>,
    pub(super) run: &'a str,
    pub(super) environment: &'a str,
    pub(super) runtime: Option<&'a str>,
    pub(super) layers: &'a Layers,
    /// The CPUs to confine the container to, if the engine may use more.
    pub(super) cpuset: Option<String>,
    /// The cgroup, or the slice of systemd, in which the engine creates that of the container.
    pub(super) cgroup_parent: String,
    /// The NUMA nodes to which the memory is bound, if it is.
    pub(super) nodes: Option<String>,
    /// The address that the client dials: the port to publish, unless the network is the engine's
    /// own.
    pub(super) published: SocketAddrV4,
    /// The network of the engine and the address in it, if the environment has its own.
    pub(super) network: Option<(&'a str, Ipv4Addr)>,
    pub(super) data: &'a Data<'a>,
    pub(super) arguments: Vec<String>,
    /// Files of the host to mount at the same paths.
    pub(super) files: &'a [PathBuf],
    /// The value of the option `seccomp=`.
    pub(super) seccomp: String,
    /// The value of the option `apparmor=`, on a kernel that has AppArmor.
    pub(super) apparmor: Option<String>,
}

impl Request<'_> {
    /// Returns the variables of the environment: Tare's mark, and its flag for huge pages.
    fn variables(&self) -> Vec<String> {
        let pages = huge_pages::variable(self.layers.confinement.pages);
        let pages = pages.map(|value| format!("{}={value}", memory_policy::PAGES_VARIABLE));
        let mark = format!("{}={}", tare_host::RUN_VARIABLE, self.run);
        std::iter::once(mark).chain(pages).collect()
    }

    pub(super) fn body(&self) -> ContainerCreateBody {
        let bridge = matches!(self.layers.network, Network::Bridge { .. });
        let binding = |outside: u16| PortBinding {
            host_ip: Some(self.published.ip().to_string()),
            host_port: Some(outside.to_string()),
        };
        let node_port = self.node_port.map(|port| (port, port));
        let ports = std::iter::once((self.port, self.published.port())).chain(node_port);
        let bindings: HashMap<String, Option<Vec<PortBinding>>> = ports
            .map(|(inside, outside)| (format!("{inside}/tcp"), Some(vec![binding(outside)])))
            .collect();
        let mut exposed: Vec<String> = bindings.keys().cloned().collect();
        exposed.sort();
        let quota = self.layers.cpu.quota();
        // The engine's own unit has no period, so it serves the default one alone.
        let (own_unit, with_period) = match quota {
            Some(quota) if quota.period_us == Quota::PERIOD_US => (Some(quota), None),
            other => (None, other.map(limits::bandwidth)),
        };
        let host = HostConfig {
            runtime: self.runtime.map(str::to_owned),
            network_mode: Some(match self.network {
                Some((name, _)) => name.to_string(),
                None if bridge => "bridge".into(),
                None => "host".into(),
            }),
            port_bindings: bridge.then_some(bindings),
            cpuset_cpus: self.cpuset.clone(),
            cpuset_mems: self.nodes.clone(),
            nano_cpus: own_unit.map(|quota| nano_cpus(quota.cpus)),
            cpu_period: with_period.and_then(|found| i64::try_from(found.period_us).ok()),
            cpu_quota: with_period.and_then(|found| i64::try_from(found.quota_us).ok()),
            cgroup_parent: Some(self.cgroup_parent.clone()),
            memory: self.layers.limits.memory_bytes.and_then(|bytes| i64::try_from(bytes).ok()),
            security_opt: Some(
                std::iter::once(format!("seccomp={}", self.seccomp))
                    .chain(self.apparmor.as_ref().map(|profile| format!("apparmor={profile}")))
                    .collect(),
            ),
            cap_drop: (self.layers.confinement.capabilities == Capabilities::None)
                .then(|| vec!["ALL".into()]),
            mounts: Some(
                self.data
                    .mount()
                    .into_iter()
                    .chain(self.program.map(|program| shown_as(program, PROGRAM)))
                    .chain(self.files.iter().map(|file| shown_file(file)))
                    .collect(),
            ),
            readonly_rootfs: Some(self.read_only),
            ulimits: (self.kind == Kind::Podman).then(podman_limits),
            ..HostConfig::default()
        };
        ContainerCreateBody {
            image: Some(self.image.to_owned()),
            entrypoint: Some(vec![PROGRAM.into()]),
            cmd: Some(self.arguments.clone()),
            // The user of an image applies to its own program, not to Tare's.
            user: self.program.map(|_| "0:0".to_string()),
            // The mark by which `clean` finds the processes of a killed run.
            env: Some(self.variables()),
            labels: Some(HashMap::from([
                ("tare.run".into(), self.run.to_owned()),
                ("tare.environment".into(), self.environment.to_owned()),
            ])),
            exposed_ports: bridge.then_some(exposed),
            host_config: Some(host),
            networking_config: self.network.map(|(name, address)| with_address(name, address)),
            ..ContainerCreateBody::default()
        }
    }
}

impl Data<'_> {
    fn mount(&self) -> Option<Mount> {
        let (typ, source) = match self {
            Self::Bind(path) => (MountType::BIND, path.to_string_lossy().into_owned()),
            Self::Volume(name) => (MountType::VOLUME, (*name).to_string()),
            Self::Root => return None,
        };
        let (typ, source, target) = (Some(typ), Some(source), Some(DATA.into()));
        Some(Mount { typ, source, target, ..Mount::default() })
    }
}

/// Returns the options that give a container an address in a network of the engine.
fn with_address(name: &str, address: Ipv4Addr) -> NetworkingConfig {
    let ipv4_address = Some(address.to_string());
    let address = EndpointIpamConfig { ipv4_address, ..EndpointIpamConfig::default() };
    let settings = EndpointSettings { ipam_config: Some(address), ..EndpointSettings::default() };
    NetworkingConfig { endpoints_config: Some(HashMap::from([(name.to_string(), settings)])) }
}

/// Mounts a file of the host at the same path, read-only.
fn shown_file(path: &Path) -> Mount {
    shown_as(path, &path.to_string_lossy())
}

/// Mounts a file of the host at another path, read-only.
fn shown_as(path: &Path, inside: &str) -> Mount {
    let source = Some(path.to_string_lossy().into_owned());
    let target = Some(inside.to_string());
    Mount { typ: Some(MountType::BIND), source, target, read_only: Some(true), ..Mount::default() }
}

/// Returns limits for Podman. Its own defaults are higher, and raising limits fails without
/// CAP_SYS_RESOURCE.
fn podman_limits() -> Vec<ResourcesUlimits> {
    ["nofile", "nproc"]
        .map(|name| ResourcesUlimits {
            name: Some(name.into()),
            soft: Some(4096),
            hard: Some(4096),
        })
        .to_vec()
}

/// Converts a quota to the engine's unit, 10^-9 CPUs.
fn nano_cpus(cpus: f64) -> i64 {
    #[expect(clippy::cast_possible_truncation, reason = "at most 4096 CPUs")]
    let nano = (cpus * 1e9).round() as i64;
    nano
}

/// Returns the request as text that can be compared line by line, with the name of the filter in
/// place of its thousands of lines.
pub(super) fn shown(body: &ContainerCreateBody, security: Security) -> String {
    let mut body = body.clone();
    if let Some(host) = &mut body.host_config
        && security != Security::None
    {
        let version = crate::layer::security::VERSION;
        let shown = format!("seccomp=<{security}, from moby's profile {version}>");
        let options = host.security_opt.iter_mut().flatten();
        options.filter(|one| one.starts_with("seccomp=")).for_each(|one| one.clone_from(&shown));
    }
    let value = serde_json::to_value(&body).and_then(|value| serde_json::to_string_pretty(&value));
    // Maps of strings are always JSON.
    value.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer;
    use tare_lab::layer::{Confinement, Cpu, Host, Inject, Limits};

    fn body(network: Network, cpu: Cpu, kind: Kind) -> ContainerCreateBody {
        let layers = Layers {
            network,
            cpu,
            security: Security::Default,
            confinement: Confinement::default(),
            cgroup: layer::Cgroup::Own,
            host: Host::AsIs,
            inject: Inject::default(),
            limits: Limits { memory_bytes: Some(1 << 30), ..Limits::default() },
        };
        let request = Request {
            kind,
            image: "tare-ab12",
            program: None,
            read_only: true,
            port: 9042,
            node_port: None,
            run: "ab12",
            environment: "x",
            runtime: Some("runc"),
            layers: &layers,
            cpuset: Some("1".into()),
            cgroup_parent: "/tare-ab12/e1".into(),
            nodes: None,
            published: "198.18.0.2:9999".parse().unwrap(),
            network: None,
            data: &Data::Bind(PathBuf::from("/data-here")),
            arguments: vec!["db".into()],
            files: &[],
            seccomp: "{}".into(),
            apparmor: None,
        };
        request.body()
    }

    #[test]
    fn layers_become_the_engines_options() {
        let bridge = Network::Bridge { proxy: false };
        let text =
            shown(&body(bridge, Cpu::Quota(Quota::of(1.5)), Kind::Docker), Security::Default);
        for part in [
            "\"NetworkMode\": \"bridge\"",
            "\"HostIp\": \"198.18.0.2\"",
            "\"NanoCpus\": 1500000000",
            "\"CgroupParent\": \"/tare-ab12/e1\"",
            "\"CpusetCpus\": \"1\"",
            "\"Memory\": 1073741824",
            "\"Runtime\": \"runc\"",
            "\"ReadonlyRootfs\": true",
            "seccomp=<default",
            "TARE_RUN=ab12",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("Ulimits"), "{text}");
        let short = "quota=1.5/10ms".parse().unwrap();
        let text = shown(&body(bridge, short, Kind::Docker), Security::Default);
        assert!(text.contains("\"CpuQuota\": 15000") && !text.contains("NanoCpus"), "{text}");
        let text = shown(&body(Network::Host, Cpu::Shared, Kind::Podman), Security::None);
        for part in ["\"NetworkMode\": \"host\"", "Ulimits", "seccomp={}"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("NanoCpus") && !text.contains("PortBindings"), "{text}");
    }
}
