//! Every value of the cpu layer and every key of the limits layer, in every runtime that this
//! machine has: set, read back from the running system, and refused where a runtime or the host
//! cannot have it. `docs/reference/limits.md` has the same list as a table.
#![expect(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]

mod common;
#[path = "conformance/containerd.rs"]
mod containerd;

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::{State, all_inside, host, own_guest, program, skipped_inside, skipped_runtime};
use tare_env::{EnvironmentFactory, FactoryOptions, inside};
use tare_host::block::Disk;
use tare_host::cgroup::{Cgroup, DeviceLimit, Layout, Version};
use tare_host::error_line;
use tare_lab::environment::{CpuPlan, Environment, EnvironmentSpec, Launch, LayerState};
use tare_lab::layer::{Limit, Limits};
use tare_std::cpus::CpuSet;
use tare_testkit::host_state::left_of_run;
use tare_testkit::{EnvironmentBuilder, Need, Reason, skip, skipped};

/// How long all tests may take in an emulated guest.
const LIMIT: Duration = Duration::from_secs(1200);

/// The values of the cpu layer.
const CPUS: [&str; 5] = ["shared", "pinned", "cpus=1", "quota=0.5/10ms", "quota=0.5/100ms+20ms"];

/// The keys of the limits layer, each with a value as a study writes it, and in the key's unit.
const LIMITS: [(Limit, &str, u64); 11] = [
    (Limit::Memory, "\"2G\"", 2 << 30),
    (Limit::MemoryHigh, "\"1500M\"", 1500 << 20),
    (Limit::Swap, "\"64M\"", 64 << 20),
    (Limit::HugePages, "\"64M\"", 64 << 20),
    (Limit::CpuWeight, "50", 50),
    (Limit::IoWeight, "200", 200),
    (Limit::ReadBandwidth, "\"40M\"", 40 << 20),
    (Limit::WriteBandwidth, "\"20M\"", 20 << 20),
    (Limit::ReadIops, "4000", 4000),
    (Limit::WriteIops, "2000", 2000),
    (Limit::NetworkBandwidth, "\"10M\"", 10 << 20),
];

const RUNTIMES: [&str; 8] =
    ["process", "oci:runc", "oci:crun", "oci:runsc", "docker", "podman", "containerd", "vm:qemu"];

/// What a runtime does with a key.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Expected {
    InForce,
    /// In force with cgroup v2 alone.
    OnV2,
    /// In force on a disk with the scheduler BFQ alone.
    OnBfq,
    /// Pods alone can have it.
    OfPods,
    /// The runtime cannot have it.
    Refused,
}

impl Expected {
    fn of(limit: Limit, runtime: &str) -> Self {
        match limit {
            Limit::NetworkBandwidth if runtime.starts_with("vm:") => Self::Refused,
            Limit::HugePages => Self::OfPods,
            Limit::MemoryHigh => Self::OnV2,
            Limit::IoWeight => Self::OnBfq,
            _ => Self::InForce,
        }
    }

    fn cell(self) -> &'static str {
        match self {
            Self::InForce => "in force",
            Self::OnV2 => "in force (v2)",
            Self::OnBfq => "in force (BFQ)",
            Self::OfPods | Self::Refused => "refused",
        }
    }
}

fn page() -> String {
    let mut page = String::from(
        "# Limits by runtime\n\n\
         What each runtime does with each value of the layers `cpu` and `limits` ([layers.md](layers.md)). The suite \
         `crates/tare-env/tests/limits.rs` starts a system with each of them in every runtime that a machine has, and \
         reads it back while the system runs; this table is its list. A runtime is asked for CPUs, quota, period and \
         memory; Tare writes everything else to the files of the cgroup that the runtime has made, so that a value means \
         the same everywhere. A value that cannot be set is one line before the study starts, and one that is \
         not in force voids the slices.\n\n\
         - (v2): cgroup v2 alone; v1 has only a soft limit, which is another thing.\n\
         - (BFQ): only on a disk whose scheduler is bfq, because no other honours weights.\n\
         - Limits of I/O are of the whole disk below the data. Data in memory, on an overlay or on a network file \
         system has none, and the limit is refused.\n\
         - A guest's limits are those of its monitor, which does its I/O. It has a tap device, which can be \
         limited in one direction only, so `network_bandwidth` is refused.\n\
         - Only pods have `huge_pages`, which the kubelet gives them ([kubernetes.md](../guides/kubernetes.md#layers-of-a-pod)).\n\
         - Several instances divide a quota, its burst and every limit evenly, but not weights, which each has in full. Each \
         instance's part is read back (`instances_divide_limits`).\n\n",
    );
    let _ = writeln!(page, "| value | {} |", RUNTIMES.map(|name| format!("`{name}`")).join(" | "));
    let _ = writeln!(page, "|---|{}", "---|".repeat(RUNTIMES.len()));
    for cpu in CPUS {
        let _ = writeln!(page, "| `cpu = \"{cpu}\"` |{}", " in force |".repeat(RUNTIMES.len()));
    }
    for (limit, written, _) in LIMITS {
        let cells = RUNTIMES.map(|runtime| Expected::of(limit, runtime).cell()).join(" | ");
        let _ = writeln!(page, "| `limits.{} = {written}` | {cells} |", limit.name());
    }
    page
}

#[test]
fn page_of_limits_matches_list() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/limits.md");
    tare_testkit::golden(&path, page());
    assert_eq!(LIMITS.map(|(limit, ..)| limit), Limit::ALL);
}

fn open(state: &State) -> EnvironmentFactory {
    let all = tare_host::process::cpus_of_this_thread().unwrap();
    let last = all.iter().last().unwrap();
    let system: CpuSet = [last].into_iter().collect();
    let cpus = CpuPlan { client: all.difference(&system), system, all, ..CpuPlan::default() };
    let (state, program) = (state.0.clone(), program());
    let options = FactoryOptions { state, program, cpus, destroy: Vec::new(), reach: None };
    EnvironmentFactory::open(options).unwrap()
}

fn launch() -> Launch {
    let words = ["serve", "{listen}", "{port}", "{data}"];
    Launch { arguments: words.map(String::from).to_vec(), ..Launch::default() }
}

fn spec(runtime: &str, cpu: &str, limits: Limits) -> EnvironmentSpec {
    EnvironmentBuilder::new(runtime)
        .name(format!("{runtime} {cpu} {limits}"))
        .network("bridge")
        .cpu(cpu)
        .security("none")
        .cgroup("own")
        .limits(limits)
        .build()
}

/// Starts an environment and returns it with what is read back.
fn started(
    factory: &EnvironmentFactory,
    spec: &EnvironmentSpec,
) -> Result<(Box<dyn Environment>, Vec<LayerState>), String> {
    let line = |error: tare_lab::PartError| error_line(error.as_ref());
    let mut environment = factory.environment(spec).map_err(line)?;
    environment
        .start(&launch())
        .map_err(|error| format!("{}\n{}", line(error), environment.log_tail()))?;
    let states = environment.read_back().map_err(line)?;
    Ok((environment, states))
}

/// Returns the scheduler of the disk on which the factories keep their data.
fn scheduler(state: &State) -> String {
    Disk::below(&state.0).unwrap().map_or_else(String::new, |disk| disk.scheduler())
}

/// Checks every value in a runtime: all limits together under one value of cpu, the other values of
/// cpu alone.
fn check_runtime(test: &str, runtime: &str) {
    let _host = host();
    if skipped(test, &[Need::Root, Need::Program("nft"), Need::Program("tc")])
        || skipped_runtime(test, runtime)
    {
        return;
    }
    let state = State::new(test);
    let factory = open(&state);
    let is_v2 = Layout::read(Path::new("/proc")).unwrap().version() == Version::V2;
    let has_disk = Disk::below(&state.0).unwrap().is_some();
    let mut limits = Limits::default();
    for (limit, _, value) in LIMITS {
        let refused = match Expected::of(limit, runtime) {
            Expected::InForce => None,
            Expected::OnV2 => (!is_v2).then_some("cgroup v2"),
            Expected::OnBfq => (scheduler(&state) != "bfq").then_some("only bfq honours weights"),
            Expected::OfPods => Some("is for pods only"),
            Expected::Refused => Some("needs a link of the system's own"),
        };
        let refused = refused.or((!has_disk && limit.is_of_device()).then_some("is on none"));
        let Some(why) = refused else {
            limits.set(limit, Some(value));
            continue;
        };
        let mut alone = Limits::default();
        alone.set(limit, Some(value));
        let error = started(&factory, &spec(runtime, "shared", alone)).map(drop).unwrap_err();
        // A kernel without BFQ has no file of weights either.
        let no_file = limit == Limit::IoWeight && error.contains("CONFIG_BFQ_GROUP_IOSCHED");
        let known = error.contains(why) || no_file;
        assert!(known && error.contains(limit.name()), "{runtime}: {error}");
    }
    for cpu in CPUS {
        let all = if cpu == "cpus=1" { limits } else { Limits::default() };
        let spec = spec(runtime, cpu, all);
        let name = &spec.name;
        let (mut environment, states) =
            started(&factory, &spec).unwrap_or_else(|error| panic!("{name}: {error}"));
        for state in &states {
            assert!(state.in_force, "{name}: {state:?}");
        }
        let found = |layer: &str| states.iter().find(|state| state.layer == layer);
        for (limit, value) in all.all() {
            let found = found(&format!("limits.{}", limit.name())).unwrap();
            assert_eq!(found.wanted, value.to_string(), "{name}: {found:?}");
        }
        let cpu_found = &found("cpu").unwrap().found;
        let expect = match cpu {
            "quota=0.5/10ms" => "quota: 5000 10000 µs",
            "quota=0.5/100ms+20ms" => "quota: 50000 100000 µs, burst 20000 µs",
            _ => "Cpus_allowed_list",
        };
        assert!(cpu_found.contains(expect), "{name}: {cpu_found}");
        environment.stop().unwrap();
    }
    assert!(factory.close().is_empty());
    let left = left_of_run(factory.run());
    assert!(left.is_empty(), "{test}: left on the host: {left:#?}");
}

#[test]
fn limits_of_process() {
    check_runtime("limits_of_process", "process");
}

#[test]
fn limits_of_runc() {
    check_runtime("limits_of_runc", "oci:runc");
}

#[test]
fn limits_of_crun() {
    check_runtime("limits_of_crun", "oci:crun");
}

#[test]
fn limits_of_runsc() {
    check_runtime("limits_of_runsc", "oci:runsc");
}

#[test]
fn limits_of_docker() {
    check_runtime("limits_of_docker", "docker");
}

#[test]
fn limits_of_podman() {
    check_runtime("limits_of_podman", "podman");
}

#[test]
fn limits_of_containerd() {
    let test = "limits_of_containerd";
    if containerd::goes_on(test) {
        check_runtime(test, "containerd");
    }
}

#[test]
fn limits_of_qemu() {
    check_runtime("limits_of_qemu", "vm:qemu");
}

/// Checks everything again with cgroup v2, which guests have, if this host has v1.
#[test]
fn limits_on_v2() {
    let test = "limits_on_v2";
    let is_v2 = Layout::read(Path::new("/proc")).unwrap().version() == Version::V2;
    if is_v2 || inside::current_guest().is_some() {
        let place = "on this kernel, which has cgroup v2".into();
        return skip::skip(test, Reason::RunsElsewhere { place });
    }
    let _guest = own_guest();
    if !skipped_inside(test) {
        let but = [test, "docker", "podman", "containerd", "qemu", "runsc", "crun", "page"];
        all_inside("vm:qemu,memory=1G,disk=4G", LIMIT, &but);
    }
}

/// Returns the disk on which the factories keep their data; without one the test is reported as
/// skipped.
fn disk(test: &str, state: &State) -> Option<Disk> {
    let disk = Disk::below(&state.0).unwrap();
    if disk.is_none() {
        let why = format!("{} is on no block device", state.0.display());
        skip::skip(test, Reason::Other(why));
    }
    disk
}

/// Returns the cgroup of a running system.
fn group_of(environment: &mut dyn Environment) -> Cgroup {
    let pid = environment.processes().system[0].to_string();
    let layout = Layout::read(Path::new("/proc")).unwrap();
    let paths = layout.of_process(Path::new("/proc"), &pid).unwrap();
    let own = paths.into_iter().find(|(_, path)| path.contains("tare-")).unwrap();
    layout.group(&own.1)
}

#[test]
fn lost_limits_are_not_in_force() {
    let _host = host();
    let test = "lost_limits_are_not_in_force";
    if skipped(test, &[Need::Root, Need::Program("nft"), Need::Program("tc")]) {
        return;
    }
    let state = State::new(test);
    let Some(disk) = disk(test, &state) else { return };
    let factory = open(&state);
    let limits = Limits {
        cpu_weight: Some(50),
        write_bytes_per_s: Some(20 << 20),
        network_bytes_per_s: Some(10 << 20),
        ..Limits::default()
    };
    let spec = spec("process", "quota=0.5/100ms+20ms", limits);
    let (mut environment, states) = started(&factory, &spec).unwrap();
    assert!(states.iter().all(|state| state.in_force), "{states:#?}");
    let group = group_of(environment.as_mut());
    group.set_cpu_weight(60).unwrap();
    group.set_device_limit(&disk.number, DeviceLimit::WriteBandwidth, 1 << 30).unwrap();
    let bandwidth = group.bandwidth().unwrap().unwrap();
    group.set_bandwidth(tare_host::cgroup::Bandwidth { burst_us: 1, ..bandwidth }).unwrap();
    let pid = environment.processes().system[0];
    let namespace = format!("--net=/proc/{pid}/ns/net");
    let words = [&namespace, "tc", "qdisc", "del", "dev", "eth0", "root"];
    assert!(Command::new("nsenter").args(words).status().unwrap().success());
    let states = environment.read_back().unwrap();
    let lost: Vec<&str> =
        states.iter().filter(|state| !state.in_force).map(|state| state.layer.as_str()).collect();
    let expect = [
        "cpu",
        "cpu.weight",
        "limits.cpu_weight",
        "limits.write_bandwidth",
        "limits.network_bandwidth",
    ];
    assert_eq!(lost, expect, "{states:#?}");
    environment.stop().unwrap();
    assert!(factory.close().is_empty());
}

#[test]
fn instances_divide_limits() {
    let _host = host();
    let test = "instances_divide_limits";
    if skipped(test, &[Need::Root, Need::Program("nft"), Need::Program("tc")]) {
        return;
    }
    let state = State::new(test);
    if disk(test, &state).is_none() {
        return;
    }
    let factory = open(&state);
    for runtime in ["process", "oci:runc", "oci:crun"] {
        if !skipped_runtime(test, runtime) {
            two_instances_divide_limits(&factory, runtime);
        }
    }
    assert!(factory.close().is_empty());
}

fn two_instances_divide_limits(factory: &EnvironmentFactory, runtime: &str) {
    let limits = Limits {
        cpu_weight: Some(50),
        writes_per_s: Some(2000),
        network_bytes_per_s: Some(10 << 20),
        ..Limits::default()
    };
    let spec = spec(runtime, "quota=0.5/100ms+20ms", limits);
    let mut environment = factory.environment_of(&spec, 2).unwrap();
    environment.start_all(&[launch(), launch()]).unwrap();
    let states = environment.read_back().unwrap();
    assert!(states.iter().all(|state| state.in_force), "{states:#?}");
    let wanted = |layer: &str| {
        states.iter().find(|state| state.layer == layer).map(|state| state.wanted.clone()).unwrap()
    };
    assert_eq!(wanted("limits.write_iops"), "1000");
    assert_eq!(wanted("limits.network_bandwidth"), (5 << 20).to_string());
    assert_eq!(wanted("limits.cpu_weight"), "50");
    assert_eq!(wanted("cpu"), "quota=0.25/100ms+10ms");
    environment.stop().unwrap();
}

/// A loop device with the scheduler BFQ. Dropping it detaches it.
struct Loop(String);

impl Loop {
    /// Returns `None` if the kernel has no BFQ.
    fn on(file: &Path) -> Option<Self> {
        fs::File::create(file).unwrap().set_len(256 << 20).unwrap();
        let attach = Command::new("losetup").args(["--find", "--show"]).arg(file).output().unwrap();
        let device = String::from_utf8(attach.stdout).unwrap().trim().to_string();
        let name = device.trim_start_matches("/dev/");
        let chosen = fs::write(format!("/sys/block/{name}/queue/scheduler"), "bfq");
        let attached = Self(device);
        chosen.is_ok().then_some(attached)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn weights_of_io_are_in_force_on_bfq() {
    let _host = host();
    let test = "weights_of_io_are_in_force_on_bfq";
    let needs = [Need::Root, Need::Program("nft"), Need::Program("losetup")];
    if skipped(test, &needs) || skipped(test, &[Need::Program("mkfs.ext4")]) {
        return;
    }
    let state = State::new(test);
    let image = state.0.with_extension("image");
    let Some(disk) = Loop::on(&image) else {
        return skip::skip(test, Reason::Other("this kernel has no scheduler BFQ".into()));
    };
    let all = tare_host::process::cpus_of_this_thread().unwrap();
    let cpus = CpuPlan { system: all.clone(), client: all.clone(), all, ..CpuPlan::default() };
    let (path, destroy) = (state.0.clone(), vec![disk.0.clone().into()]);
    let program = program();
    let options = FactoryOptions { state: path, program, cpus, destroy, reach: None };
    let factory = EnvironmentFactory::open(options).unwrap();
    let limits =
        Limits { io_weight: Some(200), write_bytes_per_s: Some(20 << 20), ..Limits::default() };
    let mut spec = spec("process", "shared", limits);
    spec.storage.kind = "ext4".into();
    spec.storage.options = vec![("device".into(), disk.0.clone())];
    let (mut environment, states) = started(&factory, &spec).unwrap();
    assert!(states.iter().all(|state| state.in_force), "{states:#?}");
    let weight = states.iter().find(|state| state.layer == "limits.io_weight").unwrap();
    assert!(weight.found.contains(&disk.0), "{weight:?}");
    environment.stop().unwrap();
    assert!(factory.close().is_empty());
    drop(disk);
    fs::remove_file(image).unwrap();
}
