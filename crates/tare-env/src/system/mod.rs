//! The processes of a started system as the host sees them: freezing, CPU time, read-back. Used by
//! all runtimes whose processes are ordinary host processes.

use std::fmt;
use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

use tare_host::account::Account;
use tare_host::cgroup::{Cgroup, CgroupError, CpuWeight};
use tare_host::memory_policy;
use tare_host::process::{self, ProcessHandle};
use tare_host::program::Program;
use tare_lab::PartError;
use tare_lab::environment::{CpuPlan, Launch, LayerState, Processes, Usage};
use tare_std::cpus::CpuSet;

use crate::layer::network::{self, SystemAddresses};
use crate::layer::{self, Layers, confinement, limits};
use crate::rootfs::{Config, Root, RootError, overlay};
use crate::run_context::RunContext;
use tare_lab::layer::{Network, Quota};

mod inject;

/// How long SIGSTOP may take to stop every thread.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// The name under which the scheduler's weight is read back.
pub(crate) const WEIGHT: &str = "cpu.weight";

/// The last bytes of a log that an error shows.
const LOG_TAIL_BYTES: u64 = 4096;

/// A running system.
#[derive(Debug)]
pub(crate) struct System {
    /// The host's pid of the system's first process.
    pub(crate) pid: u32,
    /// Detects that the first process has ended and a later one has its pid.
    hold: Option<ProcessHandle>,
    /// Processes of the system that do not descend from the first one.
    pub(crate) others: Vec<u32>,
    /// Its own cgroup, if it has one.
    pub(crate) group: Option<Cgroup>,
    /// The process of the userland proxy, of pasta or of the injected delay's relay, if there is
    /// one.
    pub(crate) proxy: Option<u32>,
    /// Processes that serve its data, and the sidecar of a pod, by name. Their CPU time counts for
    /// the layer, even if they are among the processes of the system.
    servers: Vec<(&'static str, u32, Account)>,
    account: Account,
    proxy_account: Account,
    has_quota: bool,
    /// The name of `proxy` in the accounts.
    proxy_name: &'static str,
}

impl System {
    pub(crate) fn new(
        pid: u32,
        group: Option<Cgroup>,
        proxy: Option<u32>,
        layers: &Layers,
    ) -> Self {
        let has_quota = layers.cpu.quota().is_some() || layers.inject.quota_percent.is_some();
        let (account, proxy_account) = (Account::new(), Account::new());
        let hold = ProcessHandle::open(pid);
        let proxy_name = match layers.network {
            _ if layers.inject.delay.is_some() => "relay",
            Network::Pasta => network::PASTA,
            _ => "userland proxy",
        };
        let (others, servers) = (Vec::new(), Vec::new());
        Self {
            pid,
            hold,
            others,
            group,
            proxy,
            servers,
            account,
            proxy_account,
            has_quota,
            proxy_name,
        }
    }

    /// Adds a process that serves its data or is its sidecar. Its CPU time counts for the layer.
    pub(crate) fn add_server(&mut self, server: Option<(&'static str, u32)>) {
        self.servers.extend(server.map(|(name, pid)| (name, pid, Account::new())));
    }

    fn serves(&self, pid: u32) -> bool {
        self.servers.iter().any(|(_, server, _)| *server == pid)
    }

    /// Returns every process of the system, including those among them that serve its data.
    pub(crate) fn pids(&self) -> Vec<u32> {
        match &self.group {
            Some(group) => group.pids(),
            None if self.hold.as_ref().is_none_or(ProcessHandle::has_ended) => Vec::new(),
            None => {
                let roots = std::iter::once(&self.pid).chain(&self.others);
                roots.flat_map(|pid| process::tree(*pid)).collect()
            }
        }
    }

    /// Returns the processes of the system and of its layers, for the probes. The system's first
    /// process is at the front.
    pub(crate) fn processes(&self) -> Processes {
        let mut system = self.pids();
        system.sort_by_key(|pid| *pid != self.pid);
        system.retain(|pid| !self.serves(*pid));
        let servers = self.servers.iter().map(|(_, pid, _)| *pid);
        Processes { system, layer: self.proxy.into_iter().chain(servers).collect() }
    }

    /// Returns whether the kernel's freezer stops the system; otherwise SIGSTOP does.
    pub(crate) fn can_freeze(&self) -> bool {
        self.group.as_ref().is_some_and(Cgroup::can_freeze)
    }

    pub(crate) fn freeze(&self) -> Result<(), PartError> {
        match &self.group {
            Some(group) if group.can_freeze() => group.freeze()?,
            _ => process::stop(&self.pids(), STOP_LIMIT)?,
        }
        Ok(())
    }

    pub(crate) fn thaw(&self) -> Result<(), PartError> {
        match &self.group {
            Some(group) if group.can_freeze() => group.thaw()?,
            _ => process::resume(&self.pids())?,
        }
        Ok(())
    }

    pub(crate) fn usage(&mut self) -> Result<Usage, PartError> {
        let mut pids = self.pids();
        pids.retain(|pid| !self.serves(*pid));
        let mut layer_cpu_ns = Vec::new();
        if let Some(proxy) = self.proxy {
            layer_cpu_ns.push((self.proxy_name.into(), self.proxy_account.read(&[proxy])));
        }
        for (name, pid, account) in &mut self.servers {
            layer_cpu_ns.push(((*name).into(), account.read(&[*pid])));
        }
        let throttled_ns = match &self.group {
            Some(group) if self.has_quota => Some(group.throttled_ns()?),
            _ => None,
        };
        let system_cpu_ns = self.account.read(&pids);
        Ok(Usage { system_cpu_ns, layer_cpu_ns, throttled_ns, ..Usage::default() })
    }

    /// Reads back the network layer: the namespace of the system.
    pub(crate) fn read_network(&self, layers: &Layers) -> LayerState {
        let host = process::inode_of_link(Path::new("/proc/thread-self/ns/net"));
        let found = process::namespace_inode(self.pid, "net");
        let in_force = match layers.network {
            Network::Host => found == host,
            Network::Bridge { proxy } => found != host && proxy == self.proxy.is_some(),
            Network::Pasta => found != host && self.proxy.is_some(),
            // The pod's own read-back adds where the port leads.
            Network::Service | Network::NodePort | Network::HostPort => found != host,
            // `SystemNetwork::read_links` checks that it is the wanted namespace.
            Network::Macvlan | Network::Ipvlan | Network::Vxlan | Network::None => found != host,
        };
        let number = |inode: Option<u64>| inode.map_or("unreadable".into(), |n| n.to_string());
        let found = format!("net:[{}], the host's is net:[{}]", number(found), number(host));
        state("network", layers.network, found, in_force && host.is_some())
    }

    /// Reads back the cpu layer: the affinity of every thread, the cpuset and the quota in force.
    pub(crate) fn read_cpu(&self, layers: &Layers, plan: &CpuPlan) -> LayerState {
        let set = layers.cpu.set(plan);
        let mut lists: Vec<String> = self.pids().iter().flat_map(|pid| affinities(*pid)).collect();
        lists.sort();
        lists.dedup();
        // A system may pin its threads to fewer CPUs, never to CPUs outside its set.
        let inside =
            |list: &String| CpuSet::parse_list(list).is_ok_and(|cpus| cpus.is_subset(&set));
        let mut in_force = !lists.is_empty() && lists.iter().all(inside);
        let mut found = format!("Cpus_allowed_list: {}", lists.join(" | "));
        if let Some(group) = &self.group {
            let cpuset = read_or_reason(group.cpuset_effective());
            found += &format!("; cpuset in force: {cpuset}");
            if layers.cpu.has_cpuset() {
                in_force &= cpuset == set.to_string();
            }
            if let Some(quota) = layers.cpu.quota() {
                let (text, matches) = read_quota(group, quota);
                in_force &= matches;
                found += &format!("; quota: {text}");
            }
        }
        let asked = layers.confinement.node.is_some();
        if let Some(nodes) = plan.memory_nodes(&set).filter(|_| !asked) {
            let (memory, bound) = self.read_memory_nodes(&nodes);
            in_force &= bound;
            found += &format!("; {memory}");
        }
        state("cpu", layers.cpu, found, in_force)
    }

    /// Reads the NUMA nodes of the system's memory: those of its cpuset, or of its memory policy.
    /// Returns them in words, and whether every process has only `wanted`.
    fn read_memory_nodes(&self, wanted: &CpuSet) -> (String, bool) {
        let mut seen: Vec<String> = Vec::new();
        let mut in_force = true;
        for pid in self.pids() {
            let allowed = memory_policy::allowed_nodes(pid).unwrap_or_default();
            let policy = memory_policy::policy(pid).unwrap_or_else(|| "unreadable".into());
            in_force &= allowed == *wanted || policy == format!("bind:{wanted}");
            seen.push(format!("Mems_allowed_list: {allowed}, policy {policy}"));
        }
        seen.sort();
        seen.dedup();
        let in_force = in_force && !seen.is_empty();
        (format!("memory on nodes {wanted} wanted; {}", seen.join(" | ")), in_force)
    }

    /// Reads back the cgroup layer: the paths in /proc/PID/cgroup.
    pub(crate) fn read_cgroup(&self, layers: &Layers) -> LayerState {
        let read = |pid: &str| fs::read_to_string(format!("/proc/{pid}/cgroup"));
        let found = read(&self.pid.to_string()).unwrap_or_default();
        let controllers = |text: &str| -> Vec<(String, String)> {
            let lines = text.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
            lines.map(|(names, path)| (names.to_string(), path.to_string())).collect()
        };
        let here = controllers(&found);
        let in_force = match (layers.cgroup, &self.group) {
            (layer::Cgroup::Own, Some(group)) => {
                // Paths are relative to Tare's cgroup namespace. The hierarchy of `cpu`, or that of
                // v2, must have the system's own group.
                let name = format!("/{}", group.name());
                let ours = |names: &str| here.iter().any(|(n, p)| n.contains(names) && *p == name);
                ours("cpu") || here.iter().any(|(n, p)| n.is_empty() && *p == name)
            }
            (layer::Cgroup::Own, None) => false,
            (layer::Cgroup::None, _) => {
                // Only the scheduler's cgroup is the run's (`Groups`), which v2 has no other than.
                let of_scheduler =
                    |names: &str| here.len() == 1 || names.split(',').any(|name| name == "cpu");
                let outside = |(names, path): &(String, String)| {
                    of_scheduler(names) || !path.contains("tare-")
                };
                !here.is_empty() && here.iter().all(outside)
            }
        };
        let mut paths: Vec<&str> = here.iter().map(|(_, path)| path.as_str()).collect();
        paths.sort_unstable();
        paths.dedup();
        state("cgroup", layers.cgroup, paths.join(" "), in_force)
    }

    /// Reads back the weight with which the system competes for CPU time: the cgroups of the cpu
    /// controller. It has the default weight, or that of the limits layer, in the run's own cgroup,
    /// or in the slice of the run.
    pub(crate) fn read_weight(&self, context: &RunContext, layers: &Layers) -> LayerState {
        let found = context.cgroups().cpu_weight(Path::new("/proc"), self.pid);
        let tops = [context.prefix(), context.slice()];
        let weight = layers.limits.cpu_weight;
        let written = weight.zip(self.group.as_ref());
        let written = written.map(|(weight, group)| group.cpu_weight_written(weight));
        let is_wanted = |found: &CpuWeight, top: &String| match (weight, written) {
            (None, _) => found.is_default_in(top),
            (Some(_), Some(written)) => found.is_weighted_in(top, written),
            (Some(_), None) => false,
        };
        let in_force =
            found.as_ref().is_ok_and(|found| tops.iter().any(|top| is_wanted(found, top)));
        let found = found.map_or_else(|error| error.to_string(), |found| found.to_string());
        let wanted = weight.map_or("the default".to_string(), |weight| format!("weight {weight}"));
        state(WEIGHT, format!("{wanted} in /{}", context.prefix()), found, in_force)
    }

    /// Reads back what confines the system, as far as the study sets it.
    pub(crate) fn read_confinement(&self, layers: &Layers) -> Vec<LayerState> {
        confinement::read(layers.confinement, &self.processes().system)
    }

    /// Returns what is in force of the inject layer, or `None` if the environment injects nothing.
    pub(crate) fn read_inject(&self, layers: &Layers, plan: &CpuPlan) -> Option<LayerState> {
        inject::read(layers.inject, self, plan)
    }

    /// Returns the `Seccomp` mode of the system's first process.
    pub(crate) fn read_seccomp(&self) -> Option<u32> {
        process::status_field(self.pid, "Seccomp")?.parse().ok()
    }

    /// Returns the mount table of the system's first process.
    pub(crate) fn mount_table(&self) -> String {
        fs::read_to_string(format!("/proc/{}/mountinfo", self.pid)).unwrap_or_default()
    }
}

/// Returns the limit of CPU time in force in words, and whether it is the wanted one.
pub(crate) fn read_quota(group: &Cgroup, wanted: Quota) -> (String, bool) {
    match group.bandwidth() {
        Ok(Some(found)) => (found.to_string(), found == limits::bandwidth(wanted)),
        Ok(None) => ("none".into(), false),
        Err(error) => (error.to_string(), false),
    }
}

fn read_or_reason(value: Result<String, CgroupError>) -> String {
    value.unwrap_or_else(|error| error.to_string())
}

/// Returns `Cpus_allowed_list` of every thread of a process.
pub(crate) fn affinities(pid: u32) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let list = |text: String| {
        let line = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        Some(line.trim().to_string())
    };
    threads.filter_map(|t| list(fs::read_to_string(t.path().join("status")).ok()?)).collect()
}

pub(crate) fn state(
    layer: &str,
    wanted: impl fmt::Display,
    found: String,
    in_force: bool,
) -> LayerState {
    LayerState { layer: layer.into(), wanted: wanted.to_string(), found, in_force }
}

/// Returns the arguments of a launch with the words of the environment replaced (`Launch` lists
/// them) and `{image}` replaced by the image's configuration.
pub(crate) fn arguments(
    launch: &Launch,
    addresses: impl Into<SystemAddresses>,
    data: &str,
    program: &Program,
    image: Option<&Config>,
) -> Vec<String> {
    let SystemAddresses { listen, advertised, nodes } = addresses.into();
    // A bare name is searched on the PATH, and so are the files next to it.
    let beside = program.path.parent().unwrap_or(Path::new("")).to_string_lossy();
    let beside = if beside.is_empty() { String::new() } else { format!("{beside}/") };
    let program = program.path.to_string_lossy();
    let words = [
        ("{listen}", listen.ip().to_string()),
        ("{port}", listen.port().to_string()),
        ("{advertised}", advertised.to_string()),
        ("{node}", nodes.own.to_string()),
        ("{advertised_node}", nodes.advertised.to_string()),
        ("{node_port}", nodes.port.to_string()),
        ("{seeds}", nodes.all.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")),
        ("{data}", data.to_string()),
        ("{program}", program.into_owned()),
        ("{beside}/", beside),
    ];
    let fill = |text: &String| {
        words.iter().fold(text.clone(), |text, (word, value)| text.replace(word, value))
    };
    // The configuration is third-party text: no word in it is replaced.
    let image = image.and_then(|config| serde_json::to_string(config).ok());
    let word = |text: &String| match &image {
        Some(image) if text == "{image}" => image.clone(),
        _ => fill(text),
    };
    launch.arguments.iter().map(word).collect()
}

/// Returns the host's program that a launch needs, with the files to show inside; empty if it needs
/// none.
///
/// # Errors
/// When it is not installed. The error names the package.
pub(crate) fn program(launch: &Launch) -> Result<Program, PartError> {
    if launch.from_image {
        return Err(RootError::NoImage.into());
    }
    let Some(wanted) = &launch.program else { return Ok(Program::default()) };
    let folders = [wanted.folders.as_slice(), wanted.named.as_slice()].concat();
    Ok(Program::find(&wanted.name, &wanted.files, &folders)?)
}

/// Returns the program that a launch needs, from a root file system if there is one.
///
/// # Errors
/// When the program does not exist.
pub(crate) fn program_in(launch: &Launch, root: Option<&Root>) -> Result<Program, PartError> {
    match (root, &launch.program) {
        (Some(root), None) if launch.from_image && root.config.is_some() => Ok(Program::default()),
        (Some(root), Some(wanted)) => {
            overlay::check(root, &wanted.named)?;
            Ok(Program { path: root.program(&wanted.name)?, files: wanted.named.clone() })
        }
        _ => program(launch),
    }
}

/// Returns the last lines of some files, for an error.
pub(crate) fn log_tail(paths: &[&Path]) -> String {
    let mut text = String::new();
    for path in paths {
        let tail = || -> std::io::Result<Vec<u8>> {
            let mut file = fs::File::open(path)?;
            let start = file.metadata()?.len().saturating_sub(LOG_TAIL_BYTES);
            file.seek(SeekFrom::Start(start))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        // A missing log adds nothing to the error.
        text += &String::from_utf8_lossy(&tail().unwrap_or_default());
    }
    text.trim_end().to_string()
}
