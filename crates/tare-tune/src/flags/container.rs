//! The settings of a database container in neutral form. Docker, Podman, nerdctl, compose and
//! quadlet write them in their own syntax.

use tare_std::cpus::CpuSet;

use super::{Context, Engine, Flag, FlagsError, Instance, Layer};

/// The program that creates the container. Their defaults differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Docker,
    Podman,
    Nerdctl,
    Compose,
    Quadlet,
}

/// One setting of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Setting {
    Cpus(CpuSet),
    /// NUMA nodes for memory.
    Nodes(CpuSet),
    HostNetwork,
    /// The limit on open files, soft and hard.
    Files(u64),
    /// The limit on processes of the user, soft and hard.
    Processes(u64),
    /// In bytes; `None` means unlimited.
    LockedMemory(Option<u64>),
    Capability(&'static str),
    Seccomp(String),
    Pids(u32),
    SharedMemory(u64),
    /// In bytes, page cache included, without swap.
    Memory(u64),
    Volume {
        host: String,
        inside: &'static str,
    },
    Log,
    Restart,
}

/// A setting with its reason. The text of the flag is still empty.
pub(super) type Wanted = (Setting, Flag);

/// The limit on threads and processes: Cassandra's recommended nproc (DataStax: recommended
/// production settings).
const PIDS: u32 = 32_768;
const SHARED_MEMORY: u64 = 1 << 30;

/// Returns the settings of one instance, in the order of printing them.
///
/// # Errors
/// When the memory of an instance is too small for its engine.
pub(super) fn settings(
    context: &Context<'_>,
    instance: &Instance,
    kind: Kind,
) -> Result<Vec<Wanted>, FlagsError> {
    let mut settings = Settings { context, instance, kind, wanted: Vec::new() };
    settings.add_cpus();
    settings.add_network();
    settings.add_limits();
    settings.add_security();
    settings.add_process_limit();
    settings.add_memory()?;
    settings.add_storage_and_restart();
    Ok(settings.wanted)
}

/// Collects the settings of one instance.
struct Settings<'a> {
    context: &'a Context<'a>,
    instance: &'a Instance,
    kind: Kind,
    wanted: Vec<Wanted>,
}

impl Settings<'_> {
    fn add(
        &mut self,
        setting: Setting,
        buys: impl Into<String>,
        source: &str,
        layer: Option<Layer>,
    ) {
        self.wanted.push((setting, self.context.flag(String::new(), buys, source, layer)));
    }

    /// Adds the CPUs and NUMA nodes.
    fn add_cpus(&mut self) {
        let all = match self.context.request.instances {
            1 => String::new(),
            _ => " No other instance uses them (scylladb #3336: all were pinned to the same)."
                .to_string(),
        };
        self.add(
            Setting::Cpus(self.instance.cpus.clone()),
            format!(
                "{}{} Without a CPU quota (--cpus), which would throttle it.{all}",
                self.context.own_cpus(),
                match self.context.engine {
                    Engine::Scylla | Engine::TareDb => " The database runs a shard on each.",
                    _ => "",
                }
            ),
            "Documentation/admin-guide/cgroup-v2.rst: cpuset, cpu.max",
            Some(Layer::Cpu),
        );
        if self.context.topology.nodes.len() > 1 && self.kind != Kind::Compose {
            self.add(
                Setting::Nodes(self.instance.nodes.clone()),
                "Memory only from the NUMA nodes of its CPUs.",
                "Documentation/admin-guide/cgroup-v2.rst: cpuset.mems",
                None,
            );
        }
    }

    /// Adds the network.
    fn add_network(&mut self) {
        self.add(
            Setting::HostNetwork,
            "No veth pair, bridge, NAT or userland proxy between client and database. The cost: the \
             container sees the host's interfaces and uses its ports.",
            "moby #7857",
            Some(Layer::Network),
        );
    }

    /// Adds the limits on open files, locked memory and processes of the user.
    fn add_limits(&mut self) {
        let files = self.context.host.files();
        let short = if files < 200_000 { " This is the host's maximum." } else { "" };
        self.add(
            Setting::Files(files),
            format!("Open files: one descriptor per SSTable component and connection.{short}"),
            "scylla-server.service: LimitNOFILE",
            None,
        );
        if self.context.engine.locks_memory() {
            let capped = match self.context.host.locked_max {
                Some(_) => " This is the host's hard limit.",
                None => "",
            };
            self.add(
                Setting::LockedMemory(self.context.host.locked_max),
                format!(
                    "The database locks its memory, so that none of it is swapped out.{capped}"
                ),
                "man 2 mlockall; DataStax: recommended production settings",
                None,
            );
        }
        if let Some(most) = self.context.host.processes_max
            && matches!(self.kind, Kind::Podman | Kind::Quadlet)
        {
            self.add(
                Setting::Processes(u64::from(PIDS).min(most / 2)),
                "Podman raises this limit by default, which this host forbids: without a lower limit \
                 the container does not start.",
                "man 2 getrlimit: RLIMIT_NPROC, CAP_SYS_RESOURCE",
                None,
            );
        }
    }

    /// Adds capabilities and the seccomp profile.
    fn add_security(&mut self) {
        if !capabilities(self.context).is_empty() {
            let needed = match self.context.engine.binds_memory() {
                true => "The database binds",
                false => "For databases that bind",
            };
            self.add(
                Setting::Capability("SYS_NICE"),
                format!(
                    "{needed} memory to NUMA nodes (mbind, set_mempolicy), which the default seccomp \
                     profile allows only with this capability."
                ),
                "scylladb #6017; moby/profiles: seccomp/default.json",
                None,
            );
        }
        if let Some(path) = &self.context.request.seccomp {
            self.add(
                Setting::Seccomp(path.clone()),
                seccomp_reason(self.context.engine, self.kind),
                "moby 891241e7; containers/common #1264",
                Some(Layer::Security),
            );
        }
    }

    /// Adds the limit on threads and processes of the container.
    fn add_process_limit(&mut self) {
        if matches!(self.kind, Kind::Podman | Kind::Quadlet)
            || self.context.engine == Engine::Cassandra
        {
            self.add(
                Setting::Pids(PIDS),
                "Threads: Podman's default of 2048 is too low for one thread per connection.",
                "man podman-run: --pids-limit; DataStax: nproc 32768",
                None,
            );
        }
    }

    /// Adds shared memory and the memory limit.
    fn add_memory(&mut self) -> Result<(), FlagsError> {
        if self.context.engine.wants_shared_memory() {
            self.add(
                Setting::SharedMemory(SHARED_MEMORY),
                "Shared memory of processes: parallel queries fail with the default of 64 MiB.",
                "docker run: --shm-size; postgres image: shared memory",
                None,
            );
        }
        if let Some(bytes) = self.context.memory_bytes() {
            if self.context.engine == Engine::Scylla {
                // Reports early that the engine's own part would be too small.
                super::engine::inside(bytes, self.instance.cpus.len())?;
            }
            self.add(
                Setting::Memory(bytes),
                "All memory of the instance, page cache included, without swap; the database sizes \
                 its caches by it.",
                "Documentation/admin-guide/cgroup-v2.rst: memory.max, memory.swap.max",
                Some(Layer::Memory),
            );
        }
        Ok(())
    }

    /// Adds the data volume, the log and the restart policy.
    fn add_storage_and_restart(&mut self) {
        self.add(
            Setting::Volume {
                host: format!("/srv/{}", self.context.name(self.instance.number)),
                inside: self.context.engine.data(self.context.image()),
            },
            "Data in a directory of the host, preferably on its own XFS: overlayfs would copy a whole \
             file at its first write, and the data outlives the container.",
            "Documentation/filesystems/overlayfs.rst",
            None,
        );
        self.add(
            Setting::Log,
            "Logs that rotate; the default file grows without limit.",
            "docker docs: configure logging drivers",
            None,
        );
        self.add(
            Setting::Restart,
            "Restarts after a crash or a reboot with the same flags.",
            "docker docs: restart policies",
            None,
        );
    }
}

/// Returns the capabilities in addition to the default ones: those for binding memory to nodes, for
/// engines that do it, and for all engines but tare-db on a host with several nodes.
pub(super) fn capabilities(context: &Context<'_>) -> Vec<&'static str> {
    let several = context.topology.nodes.len() > 1 && context.engine != Engine::TareDb;
    match context.engine.binds_memory() || several {
        true => vec!["CAP_SYS_NICE"],
        false => Vec::new(),
    }
}

fn seccomp_reason(engine: Engine, kind: Kind) -> String {
    let refused = match kind {
        Kind::Podman | Kind::Quadlet => "Podman's own profile refuses io_uring with ENOSYS",
        Kind::Nerdctl => "containerd 2.0 and later refuse io_uring with EPERM",
        Kind::Docker | Kind::Compose => "Docker 25 and later refuse io_uring with EPERM",
    };
    let whom = match engine {
        Engine::Scylla => "Scylla uses linux-aio and gains nothing",
        Engine::Cassandra => "Cassandra does not use it and gains nothing",
        Engine::TareDb => "without it the database uses epoll and threads for I/O",
        Engine::PostgreSql => "PostgreSQL 18 has io_method = io_uring",
        Engine::Other => "a database may silently switch to another I/O engine without it",
    };
    format!("The default filter plus the three io_uring calls: {refused}; {whom}.")
}

/// Returns notes about settings that containers cannot have, and about containers without the
/// host's network.
pub(super) fn notes(context: &Context<'_>, instances: &[Instance], kind: Kind) -> Vec<String> {
    let mut notes = context.common_notes(instances);
    let publish = match kind {
        Kind::Compose => "ports and the sysctl in place of network_mode",
        Kind::Quadlet => "PublishPort= and Sysctl= in place of Network=host",
        _ => "--publish ADDRESS:9042:9042 and the sysctl in place of --network=host",
    };
    notes.push(format!(
        "On the host's network, net.core.somaxconn cannot be set per container: it belongs to the \
         host, and tare tune apply sets it. Without the host's network: use {publish}, with \
         net.core.somaxconn=4096, and let clients connect to the container's address, not to a \
         published port on 127.0.0.1, which the userland proxy serves."
    ));
    notes.push(
        "fs.aio-max-nr, vm.swappiness and the interrupt CPUs belong to the host: tare tune plan shows \
         them."
            .into(),
    );
    notes.push("The data directories must exist and belong to the user of the image.".into());
    if context.request.instances > 1 && context.engine != Engine::TareDb {
        notes.push(
            "Each instance on the host's network needs its own address (for Scylla --listen-address, \
             --rpc-address and --api-address), or the second cannot bind its ports."
                .into(),
        );
    }
    if context.request.seccomp.is_none() && context.engine.wants_io_uring() {
        notes.push(
            "The default seccomp profile refuses io_uring: write one that allows it with --seccomp \
             FILE."
                .into(),
        );
    }
    if context.topology.nodes.len() > 1 && kind == Kind::Compose {
        notes.push(
            "Compose has no key for memory nodes (cpuset-mems): memory comes from the node of the CPU \
             that first touches it."
                .into(),
        );
    }
    if context.memory_bytes().is_none() {
        notes.push("No memory limit is set; set one with --memory.".into());
    }
    if kind == Kind::Podman || kind == Kind::Quadlet {
        notes.push(
            "Run Podman as root: without root it can set CPU sets only if the cpuset controller is \
             delegated to the user (systemd: Delegate=)."
                .into(),
        );
    }
    notes
}
