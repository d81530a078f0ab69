//! The limits layer and the bandwidth of the cpu layer: the kernel's files that hold them, and the
//! queueing discipline of a network limit.
//!
//! Method: a runtime sets what its format has always had (CPUs, quota and period, memory). Tare
//! writes all other limits to the cgroup that the runtime has made, before the system runs or, in
//! an engine, right after its start. Every runtime thus has the same files with the same values,
//! and none depends on which fields a version of a runtime knows. It all ends with the cgroup.
//!
//! Weights count between groups side by side. A system's own cgroup has no group beside it, so its
//! weight is also that of the environment's cgroup, which competes with all others of the run.
//!
//! The kernel throttles I/O where it is submitted (`blk_throtl_bio` in block/blk-throttle.c), so a
//! disk limit is that of the whole disk below the data. v2 counts writeback for the cgroup that
//! dirtied the pages; v1 does not (cgroup-v2.rst, Writeback).
//!
//! Limits: systemd rewrites the cgroups of its own slices when it reloads; the read-back shows it.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tare_host::block::Disk;
use tare_host::cgroup::{Bandwidth, Cgroup, CgroupError, DeviceLimit};
use tare_host::exec::{self, Command, ExecError};
use tare_host::{RUN_VARIABLE, error_line};
use tare_lab::environment::{AS_FOUND, CpuPlan, EnvironmentSpec, LayerState};
use tare_lab::layer::{Cpu, Limit, Limits, Quota};

use super::Layers;
use crate::run_context::RunContext;

/// How long a packet may wait for its turn before it is dropped, as `tc` writes it.
const QUEUE_TIME: &str = "50ms";

/// The least bucket of a network limit, in bytes: half a packet of the largest size that the kernel
/// hands to a device. A larger one is split (`tbf_segment` in net/sched/sch_tbf.c).
const BUCKET_BYTES_MIN: u64 = 32 << 10;

/// The device of every system behind a bridge.
const DEVICE: &str = "eth0";

/// Why a limit could not be set.
#[derive(Debug, thiserror::Error)]
pub enum LimitError {
    #[error(
        "environment {environment:?}: cpu = \"cpus={wanted}\" asks for more CPUs than the system has, \
         {cpus}; ask for fewer, or give it more with [cpus] system"
    )]
    Cpus { environment: String, wanted: u32, cpus: String },
    #[error("environment {environment:?}: limits.{limit} cannot be set on this host")]
    Host { environment: String, limit: &'static str, source: CgroupError },
    #[error(
        "environment {environment:?}: limits.network_bandwidth needs the program tc; apt-get install \
         iproute2"
    )]
    NoProgram { environment: String },
    #[error("environment {environment:?}: a burst cannot be set on this host")]
    Burst { environment: String, source: CgroupError },
    #[error(
        "limits.{limit} is of the block device below the data, and {} is on none (a file system in \
         memory, an overlay or a network file system); move the data to a disk, or remove the limit",
        .path.display()
    )]
    NoDisk { limit: &'static str, path: PathBuf },
    #[error("cannot find the block device below {}", .path.display())]
    Disk { path: PathBuf, source: io::Error },
    #[error(
        "limits.io_weight has no effect on {disk}: its scheduler is {scheduler}, and only bfq honours \
         weights; write bfq to /sys/block/{name}/queue/scheduler, or remove the weight",
        name = .disk.name
    )]
    NoWeights { disk: Disk, scheduler: String },
    #[error("cannot limit the bandwidth of {device}; the kernel needs CONFIG_NET_SCH_TBF")]
    Shape { device: String, source: ExecError },
    #[error("cannot find the other end of {device} of the system")]
    NoPeer { device: String },
}

/// Converts a quota to the kernel's form.
pub(crate) fn bandwidth(quota: Quota) -> Bandwidth {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float to integer cast saturates, and the kernel refuses what is out of range"
    )]
    let quota_us = quota.runtime_us().round() as u64;
    Bandwidth { quota_us, period_us: quota.period_us.into(), burst_us: quota.burst_us.into() }
}

/// Checks that the system has as many CPUs as the cpu layer asks for.
///
/// # Errors
/// Names the CPUs that it has.
pub fn check_cpus(spec: &EnvironmentSpec, plan: &CpuPlan) -> Result<(), LimitError> {
    match spec.cpu {
        Cpu::Cpus(wanted) if plan.system.len() < wanted as usize => {
            let (environment, cpus) = (spec.name.clone(), plan.system.to_string());
            Err(LimitError::Cpus { environment, wanted, cpus })
        }
        _ => Ok(()),
    }
}

/// Checks that this host's kernel and its cgroup version have the files of all limits, in the
/// cgroup of the run.
///
/// # Errors
/// Names the limit and what the kernel lacks.
pub(crate) fn check_host(spec: &EnvironmentSpec, context: &RunContext) -> Result<(), LimitError> {
    let group = context.cgroups().group(&context.prefix());
    let environment = || spec.name.clone();
    if spec.cpu.quota().is_some_and(|quota| quota.burst_us > 0) {
        group
            .check_burst()
            .map_err(|source| LimitError::Burst { environment: environment(), source })?;
    }
    if spec.limits.network_bytes_per_s.is_some() && exec::find("tc").is_none() {
        return Err(LimitError::NoProgram { environment: environment() });
    }
    for (limit, _) in spec.limits.all() {
        // A read fails where a write would. No device has this number.
        let found = match (limit, device_limit(limit)) {
            (_, Some(limit)) => group.device_limit("0:0", limit).map(drop),
            (Limit::IoWeight, _) => group.io_weight().map(drop),
            (Limit::MemoryHigh, _) => group.memory_high().map(drop),
            (Limit::Swap, _) => group.swap().map(drop),
            (Limit::Memory, _) => group.memory().map(drop),
            (Limit::CpuWeight, _) => group.cpu_weight_found().map(drop),
            _ => Ok(()),
        };
        found.map_err(|source| {
            let (environment, limit) = (environment(), limit.name());
            LimitError::Host { environment, limit, source }
        })?;
    }
    Ok(())
}

/// Sets what other runtimes set themselves: CPUs, quota, NUMA nodes and memory.
pub(crate) fn confine(
    group: &Cgroup,
    layers: &Layers,
    context: &RunContext,
) -> Result<(), CgroupError> {
    if layers.cpu.has_cpuset() {
        group.set_cpuset(&layers.cpu.set(context.cpus()))?;
    }
    if let Some(quota) = layers.cpu.quota() {
        group.set_bandwidth(bandwidth(quota))?;
    }
    if let Some(nodes) = context.memory_nodes(layers.cpu, layers.confinement.node) {
        group.set_memory_nodes(&nodes)?;
    }
    if let Some(cpus) = layers.inject.quota_cpus(context.cpus()) {
        group.set_bandwidth(bandwidth(Quota::of(cpus)))?;
    }
    if let Some(bytes) = layers.limits.memory_bytes {
        group.set_memory(bytes)?;
    }
    Ok(())
}

/// Sets all limits that runtimes leave to Tare, on the system's own cgroup. The data is on the disk
/// below `data`.
pub(crate) fn apply(
    group: &Cgroup,
    layers: &Layers,
    data: &Path,
) -> Result<(), tare_lab::PartError> {
    if let Some(quota) = layers.cpu.quota().filter(|quota| quota.burst_us > 0) {
        group.set_bandwidth(bandwidth(quota))?;
    }
    let disk = disk(&layers.limits, data)?;
    for (limit, value) in layers.limits.all() {
        match (limit, &disk) {
            (Limit::MemoryHigh, _) => group.set_memory_high(value)?,
            (Limit::Swap, _) => {
                group.set_swap(value, layers.limits.memory_bytes.unwrap_or(u64::MAX >> 2))?;
            }
            (Limit::CpuWeight, _) => {
                group.competing().iter().try_for_each(|group| group.set_cpu_weight(value))?;
            }
            (Limit::IoWeight, _) => {
                group.competing().iter().try_for_each(|group| group.set_io_weight(value))?;
            }
            (_, Some(disk)) if let Some(of_device) = device_limit(limit) => {
                group.set_device_limit(&disk.number, of_device, value)?;
            }
            // The runtime sets the memory, the kubelet the huge pages, and `Link` the network.
            _ => {}
        }
    }
    Ok(())
}

/// Returns the whole disk below the data if a limit is of it.
fn disk(limits: &Limits, data: &Path) -> Result<Option<Disk>, LimitError> {
    let Some((limit, _)) = limits.all().find(|(limit, _)| limit.is_of_device()) else {
        return Ok(None);
    };
    let path = || data.to_path_buf();
    let found = Disk::below(data).map_err(|source| LimitError::Disk { path: path(), source })?;
    let disk = found.ok_or_else(|| LimitError::NoDisk { limit: limit.name(), path: path() })?;
    let scheduler = disk.scheduler();
    if limits.io_weight.is_some() && scheduler != "bfq" {
        return Err(LimitError::NoWeights { disk, scheduler });
    }
    Ok(Some(disk))
}

fn device_limit(limit: Limit) -> Option<DeviceLimit> {
    match limit {
        Limit::ReadBandwidth => Some(DeviceLimit::ReadBandwidth),
        Limit::WriteBandwidth => Some(DeviceLimit::WriteBandwidth),
        Limit::ReadIops => Some(DeviceLimit::ReadRate),
        Limit::WriteIops => Some(DeviceLimit::WriteRate),
        _ => None,
    }
}

/// Reads every limit back: one state for each, with the file's value as found. `link` is the link
/// of a system behind a bridge.
pub(crate) fn read(
    group: Option<&Cgroup>,
    layers: &Layers,
    data: &Path,
    link: Option<&Link>,
) -> Vec<LayerState> {
    let all = layers.limits.all();
    all.map(|(limit, value)| {
        let found = match (limit, group) {
            (Limit::NetworkBandwidth, _) => read_network(link, value),
            (_, None) => Err("no cgroup of its own".into()),
            (_, Some(group)) => read_file(group, layers, (limit, value), data),
        };
        let (found, in_force) = found.unwrap_or_else(|why| (why, false));
        let layer = format!("limits.{}", limit.name());
        LayerState { layer, wanted: value.to_string(), found, in_force }
    })
    .collect()
}

/// Reads how the kernel treats the memory of a pod's container below its limit, which the kubelet
/// alone decides (its gate `MemoryQoS`, which needs cgroup v2).
pub(crate) fn read_memory_qos(group: &Cgroup) -> LayerState {
    let found = match group.memory_qos() {
        Ok(found) => found.to_string(),
        Err(CgroupError::NoFile { .. }) => "none, as on every cgroup of version 1".into(),
        Err(error) => error_line(&error),
    };
    LayerState { layer: "memory.qos".into(), wanted: AS_FOUND.into(), found, in_force: true }
}

/// Returns the value of a limit's file, and whether it is the wanted one.
fn read_file(
    group: &Cgroup,
    layers: &Layers,
    (limit, value): (Limit, u64),
    data: &Path,
) -> Result<(String, bool), String> {
    let why = |error: CgroupError| error_line(&error);
    // The kernel rounds memory down to whole pages.
    let in_pages = |bytes: Option<u64>| match bytes {
        Some(bytes) => (bytes.to_string(), bytes <= value && value - bytes < 1 << 16),
        None => ("no limit".to_string(), false),
    };
    Ok(match limit {
        Limit::Memory => in_pages(group.memory().map_err(why)?),
        Limit::MemoryHigh => in_pages(group.memory_high().map_err(why)?),
        Limit::Swap => in_pages(group.swap().map_err(why)?),
        Limit::HugePages => {
            let (own, used) = group.huge_pages().map_err(why)?;
            // The kubelet limits the pod, and containerd not always the container in it.
            let above = group.competing().into_iter().filter_map(|one| one.huge_pages().ok()?.0);
            let (text, in_force) = in_pages(own.into_iter().chain(above).min());
            (format!("{text}, {used} in use"), in_force)
        }
        Limit::CpuWeight => {
            let (file, wanted) = (group.cpu_weight_file(), group.cpu_weight_written(value));
            let found = group.cpu_weight_found().map_err(why)?;
            (format!("{file} {found}"), found == wanted)
        }
        Limit::IoWeight => {
            let disk = disk(&layers.limits, data).map_err(|error| error_line(&error))?;
            let found = group.io_weight().map_err(why)?;
            let disk = disk.map_or_else(String::new, |disk| format!(" on {disk}, scheduler bfq"));
            (format!("{found}{disk}"), found == value)
        }
        _ => {
            let disk = disk(&layers.limits, data).map_err(|error| error_line(&error))?;
            let (Some(disk), Some(of_device)) = (disk, device_limit(limit)) else {
                return Err("not read".into());
            };
            let found = group.device_limit(&disk.number, of_device).map_err(why)?;
            let text = found.map_or_else(|| "no limit".to_string(), |found| found.to_string());
            (format!("{text} on {disk}"), found == Some(value))
        }
    })
}

/// The link between a system behind a bridge and that bridge: both ends of a veth pair, each with
/// the namespace that holds it (`None`: that of Tare).
#[derive(Clone, Debug)]
pub(crate) struct Link {
    ends: [(Option<PathBuf>, String); 2],
}

impl Link {
    /// Finds the link of the system in the namespace `inside`, whose bridge is in `outside`.
    ///
    /// # Errors
    /// When the other end is not there.
    pub(crate) fn find(inside: &Path, outside: Option<&Path>) -> Result<Self, LimitError> {
        let no_peer = || LimitError::NoPeer { device: DEVICE.into() };
        let own = links(Some(inside), &["show", "dev", DEVICE]);
        let peer = own.first().and_then(|own| own["link_index"].as_u64()).ok_or_else(no_peer)?;
        let all = links(outside, &["show"]);
        let peer = all.iter().find(|link| link["ifindex"].as_u64() == Some(peer));
        let name = peer.and_then(|peer| peer["ifname"].as_str()).ok_or_else(no_peer)?;
        let inside = (Some(inside.to_path_buf()), DEVICE.to_string());
        Ok(Self { ends: [inside, (outside.map(Path::to_path_buf), name.to_string())] })
    }

    /// Limits what each end sends, in bytes per second. It ends with the device.
    ///
    /// # Errors
    /// When the kernel has no token bucket filter.
    pub(crate) fn shape(&self, run: &str, bytes_per_s: u64) -> Result<(), LimitError> {
        let bucket = (bytes_per_s / 100).max(BUCKET_BYTES_MIN);
        for (namespace, device) in &self.ends {
            let (rate, bucket) = (format!("{bytes_per_s}bps"), bucket.to_string());
            let words = ["qdisc", "replace", "dev", device, "root", "tbf"];
            let rest = ["rate", &rate, "burst", &bucket, "latency", QUEUE_TIME];
            let command = Command::new("tc").args(words).args(rest).variable(RUN_VARIABLE, run);
            let ran = within(command, namespace.as_deref()).run();
            ran.map_err(|source| LimitError::Shape { device: device.clone(), source })?;
        }
        Ok(())
    }

    /// Returns the limit of each end; `None` is no limit.
    fn rates(&self) -> Result<Vec<Option<u64>>, ExecError> {
        let rate = |(namespace, device): &(Option<PathBuf>, String)| {
            let command = Command::new("tc").args(["-json", "qdisc", "show", "dev", device]);
            let output = within(command, namespace.as_deref()).run()?.stdout;
            Ok(root_rate(&output))
        };
        self.ends.iter().map(rate).collect()
    }
}

fn within(command: Command, namespace: Option<&Path>) -> Command {
    match namespace {
        Some(namespace) => command.in_namespace(namespace),
        None => command,
    }
}

/// Lists links of a namespace; none if they cannot be read.
fn links(namespace: Option<&Path>, words: &[&str]) -> Vec<Value> {
    let command = Command::new("ip").args(["-json", "link"]).args(words);
    let output = within(command, namespace).run().map(|output| output.stdout);
    serde_json::from_str(&output.unwrap_or_default()).unwrap_or_default()
}

/// Returns the rate of a device's token bucket filter from what `tc` prints.
fn root_rate(json: &str) -> Option<u64> {
    let listed: Vec<Value> = serde_json::from_str(json).ok()?;
    let root = listed.iter().find(|one| one["root"] == true && one["kind"] == "tbf")?;
    root["options"]["rate"].as_u64()
}

fn read_network(link: Option<&Link>, wanted: u64) -> Result<(String, bool), String> {
    let link = link.ok_or("no link of its own")?;
    let rates = link.rates().map_err(|error| error_line(&error))?;
    let texts = link.ends.iter().zip(&rates).map(|((_, device), rate)| {
        let rate = rate.map_or_else(|| "no limit".to_string(), |rate| format!("tbf {rate}"));
        format!("{device}: {rate}")
    });
    let in_force = rates.iter().all(|rate| *rate == Some(wanted));
    Ok((texts.collect::<Vec<_>>().join(", "), in_force))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tare_testkit::EnvironmentBuilder;

    #[test]
    fn quotas_become_bandwidths() {
        let check = |text: &str, expect: &str| {
            let cpu: Cpu = text.parse().unwrap();
            assert_eq!(bandwidth(cpu.quota().unwrap()).to_string(), expect);
        };
        check("quota=1.5", "150000 100000 µs");
        check("quota=0.5/10ms+5ms", "5000 10000 µs, burst 5000 µs");
        check("quota=0.01", "1000 100000 µs");
    }

    #[test]
    fn refuses_more_cpus_than_the_system_has() {
        let plan = |system: &str| CpuPlan {
            system: tare_std::cpus::CpuSet::parse_list(system).unwrap(),
            ..CpuPlan::default()
        };
        let spec = EnvironmentBuilder::new("process").name("x").cpu("cpus=2").build();
        assert!(check_cpus(&spec, &plan("2-3")).is_ok());
        let error = check_cpus(&spec, &plan("3")).unwrap_err().to_string();
        assert!(error.contains("asks for more CPUs than the system has, 3"), "{error}");
    }

    #[test]
    fn refuses_data_without_a_disk() {
        let limits = Limits { writes_per_s: Some(100), ..Limits::default() };
        let error = disk(&limits, Path::new("/proc")).unwrap_err().to_string();
        assert!(
            error.contains("limits.write_iops") && error.contains("/proc is on none"),
            "{error}"
        );
        assert_eq!(disk(&Limits::default(), Path::new("/proc")).unwrap(), None);
    }

    #[test]
    fn reads_rate_of_token_bucket_filter() {
        let tbf = r#"[{"kind":"tbf","handle":"8001:","root":true,"refcnt":3,
            "options":{"rate":1250000,"burst":32767,"lat":50000}}]"#;
        assert_eq!(root_rate(tbf), Some(1_250_000));
        assert_eq!(root_rate(r#"[{"kind":"noqueue","root":true,"options":{}}]"#), None);
        assert_eq!(root_rate(""), None);
    }
}
