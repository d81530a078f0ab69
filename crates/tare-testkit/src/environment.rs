//! Environment specs for tests. Every layer has a default, and a test sets those that matter to it.

use tare_lab::environment::{EnvironmentSpec, Limits, StorageSpec};
use tare_lab::layer::{Cgroup, Confinement, Cpu, Host, Inject, Network, Rootfs, Security, Sidecar};

/// Builds an [`EnvironmentSpec`]. The default is the host's network, shared CPUs, no system call
/// filter, its own cgroup, and data in Tare's directory.
#[derive(Clone, Debug)]
pub struct EnvironmentBuilder(EnvironmentSpec);

impl EnvironmentBuilder {
    /// Starts an environment that has the name of its runtime.
    pub fn new(runtime: &str) -> Self {
        Self(EnvironmentSpec {
            name: runtime.into(),
            runtime: runtime.into(),
            attach: None,
            network: Network::Host,
            cpu: Cpu::Shared,
            security: Security::None,
            confinement: Confinement::default(),
            cgroup: Cgroup::Own,
            host: Host::AsIs,
            storage: StorageSpec::default(),
            vm: Vec::new(),
            sandbox: Vec::new(),
            rootfs: Rootfs::None,
            system: Vec::new(),
            inject: Inject::default(),
            limits: Limits::default(),
            instances: None,
            neighbours: Vec::new(),
            sidecar: Sidecar::None,
            optional: false,
        })
    }

    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.0.name = name.into();
        self
    }

    #[must_use]
    pub fn network(mut self, network: &str) -> Self {
        self.0.network = network.parse().unwrap();
        self
    }

    #[must_use]
    pub fn cpu(mut self, cpu: &str) -> Self {
        self.0.cpu = cpu.parse().unwrap();
        self
    }

    #[must_use]
    pub fn security(mut self, security: &str) -> Self {
        self.0.security = security.parse().unwrap();
        self
    }

    #[must_use]
    pub fn confinement(mut self, confinement: Confinement) -> Self {
        self.0.confinement = confinement;
        self
    }

    #[must_use]
    pub fn cgroup(mut self, cgroup: &str) -> Self {
        self.0.cgroup = cgroup.parse().unwrap();
        self
    }

    #[must_use]
    pub fn host(mut self, host: &str) -> Self {
        self.0.host = host.parse().unwrap();
        self
    }

    #[must_use]
    pub fn storage(mut self, kind: &str, options: &[(&str, &str)]) -> Self {
        self.0.storage = StorageSpec { kind: kind.into(), options: owned(options) };
        self
    }

    /// Sets the options of a virtual machine.
    #[must_use]
    pub fn vm(mut self, options: &[(&str, &str)]) -> Self {
        self.0.vm = owned(options);
        self
    }

    /// Sets the options of gVisor.
    #[must_use]
    pub fn sandbox(mut self, options: &[(&str, &str)]) -> Self {
        self.0.sandbox = owned(options);
        self
    }

    /// Sets the options of a container's root file system.
    #[must_use]
    pub fn rootfs(mut self, options: &[(&str, &str)]) -> Self {
        for (name, value) in options {
            self.0.rootfs = Rootfs::new(name, (*value).into()).unwrap();
        }
        self
    }

    #[must_use]
    pub fn memory_bytes(mut self, limit: impl Into<Option<u64>>) -> Self {
        self.0.limits.memory_bytes = limit.into();
        self
    }

    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.0.limits = limits;
        self
    }

    pub fn build(self) -> EnvironmentSpec {
        self.0
    }
}

fn owned(options: &[(&str, &str)]) -> Vec<(String, String)> {
    options.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
}
