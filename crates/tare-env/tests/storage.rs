//! One suite for every storage layer in every runtime that this machine can run. The layer is in
//! force, a system writes, syncs and reads a file, direct I/O works, a full device is an error and
//! does not hang, synced data survives the system's death, and nothing is left, even if the harness
//! is killed.
#![expect(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]
#![expect(clippy::print_stderr, reason = "times are shown")]

mod common;
#[path = "storage/in_guest.rs"]
mod in_guest;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::{State, host, on_storage, program, reason, skipped_runtime, skipped_spec};
use tare_env::{EnvironmentFactory, FactoryOptions, inside, runtime};
use tare_host::clean::{self, Outcome};
use tare_host::{block, error_line};
use tare_lab::environment::{CpuPlan, EnvironmentSpec, Launch};
use tare_testkit::{Machine, Need, skip, skipped};

/// `EINVAL` and `ENOSPC` in the output of the test program.
const EINVAL: &str = "Some(22)";
const ENOSPC: &str = "Some(28)";

/// Options as a study writes them.
type Pairs = &'static [(&'static str, &'static str)];

/// Every kind with small sizes, and whether it is small enough to be filled.
const LAYERS: &[(&str, Pairs, bool)] = &[
    ("directory", &[], false),
    ("tmpfs", &[("size", "32M")], true),
    ("ext4", &[("size", "64M"), ("options", "dioread_nolock,noatime")], true),
    (
        "ext4",
        &[("size", "64M"), ("allocate", "full"), ("direct_io", "no"), ("options", "dioread_lock")],
        false,
    ),
    ("xfs", &[("size", "300M")], true),
    ("btrfs", &[("size", "128M"), ("options", "nodatacow")], true),
    ("f2fs", &[("size", "128M")], true),
    ("loop-lvm", &[("size", "256M"), ("pool", "64M")], true),
    ("direct-lvm", &[("size", "256M"), ("pool", "64M")], true),
    ("rootfs", &[], false),
    ("rootfs", &[("driver", "fuse-overlayfs")], false),
    ("volume", &[], false),
    ("volume", &[("filesystem", "xfs"), ("size", "300M")], true),
];

fn open(state: &State) -> EnvironmentFactory {
    open_with(state, Vec::new())
}

/// Opens a factory that may overwrite these devices.
fn open_with(state: &State, destroy: Vec<PathBuf>) -> EnvironmentFactory {
    let all = tare_host::process::cpus_of_this_thread().unwrap();
    let cpus = CpuPlan { client: all.clone(), system: all.clone(), all, ..CpuPlan::default() };
    let (state, program) = (state.0.clone(), program());
    EnvironmentFactory::open(FactoryOptions { state, program, cpus, destroy, reach: None }).unwrap()
}

/// Returns mount points, files behind loop devices, and mappings with a test run's name.
fn traces() -> BTreeSet<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mounts = table.lines().filter_map(|line| line.split(' ').nth(4)).map(String::from);
    let loops = block::loops().into_iter().map(|(device, file)| format!("{device} {file:?}"));
    let ours = mounts.chain(loops).filter(|line| line.contains("tare-test-storage-"));
    ours.chain(block::mappings().into_iter().filter(|name| name.starts_with("tare-"))).collect()
}

fn checks(data: &Path, log: impl Fn() -> String) -> String {
    let deadline = Instant::now() + Duration::from_secs(180);
    loop {
        match fs::read_to_string(data.join("checks")) {
            Ok(text) if text.ends_with('\n') => return text,
            _ => assert!(Instant::now() < deadline, "nothing in {data:?}: {}", log()),
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Runs one environment on one layer from start to stop and checks each step.
fn check_environment(factory: &EnvironmentFactory, spec: &EnvironmentSpec, fill: bool) {
    let name = &spec.name;
    let mut environment = factory.environment(spec).unwrap();
    let fill = if fill { "fill" } else { "leave" };
    let words = ["store", "{listen}", "{port}", "{data}", fill];
    let launch = Launch { arguments: words.map(String::from).to_vec(), ..Launch::default() };
    let begin = Instant::now();
    let endpoint = environment.start(&launch).unwrap_or_else(|error| {
        panic!("{name}: {}\n{}", error_line(error.as_ref()), environment.log_tail())
    });
    let started = begin.elapsed();
    let data = endpoint.data.unwrap();
    let checks = checks(&data, || environment.log_tail());
    let layers = environment.read_back().unwrap();
    for layer in layers.iter().filter(|l| ["storage", "rootfs", "runtime"].contains(&&*l.layer)) {
        assert!(layer.in_force, "{name}: {layer:?}");
    }
    let storage = layers.iter().find(|layer| layer.layer == "storage").unwrap();
    eprintln!("{name}: started in {started:.0?}: {}", storage.found);

    assert!(checks.contains("read back: true"), "{name}: {checks}");
    assert!(checks.contains("direct: Ok(4096)"), "{name}: {checks}");
    // btrfs falls back to the page cache, and tmpfs needs no alignment. Direct I/O in gVisor
    // bypasses its own cache, but not the host's.
    if spec.runtime.as_str().ends_with("runsc") {
        assert!(checks.contains("misaligned: None"), "{name}: {checks}");
    } else if ["ext4", "xfs"].contains(&&*spec.storage.kind) {
        assert!(checks.contains(&format!("misaligned: {EINVAL}")), "{name}: {checks}");
    }
    if fill == "fill" {
        let full = format!("full: {ENOSPC}");
        // A full pool fails the write or its sync.
        let by_pool = spec.storage.kind.ends_with("-lvm") && checks.contains("full: Some(5)");
        assert!(checks.contains(&full) || by_pool, "{name}: {checks}");
        let mib = checks.split(" after ").nth(1).and_then(|rest| rest.split(' ').next());
        let mib: u64 = mib.unwrap().parse().unwrap();
        // The pool is smaller than its volume and fills first.
        let is_thin = spec.storage.kind.ends_with("-lvm");
        assert!(!is_thin || mib < 64, "{name}: {checks}");
    }
    // Synced data survives the system's death.
    let pids = environment.processes().system;
    tare_host::process::kill(&pids, Duration::from_secs(10)).unwrap();
    let content: Vec<u8> = (0..1u32 << 18).flat_map(u32::to_le_bytes).collect();
    if inside::current_guest().is_some() {
        // Reads must come from the device, not the page cache.
        fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    }
    if !data.starts_with("/proc") {
        assert_eq!(fs::read(data.join("kept")).unwrap(), content, "{name}");
    }
    let begin = Instant::now();
    environment.stop().unwrap();
    environment.stop().unwrap();
    eprintln!("{name}: stopped in {:.0?}", begin.elapsed());
    assert!(data.starts_with("/proc") || !data.exists(), "{name}: its data is left");
}

fn run_all(runtime: &str) {
    run_layers(runtime, LAYERS);
}

fn run_layers(runtime: &str, layers: &[(&str, Pairs, bool)]) {
    let _host = host();
    let test = format!("storage in {runtime}");
    if skipped(&test, &[Need::Root]) {
        return;
    }
    if skipped_runtime(&test, runtime) {
        return;
    }
    let state = State::new(&format!("storage-{}", runtime.replace(':', "-")));
    let before = traces();
    let factory = open(&state);
    for (kind, options, fill) in layers {
        // The mount program of Podman's driver is known only once a container runs.
        if runtime == "podman" && options.contains(&("driver", "fuse-overlayfs")) {
            continue;
        }
        let spec = on_storage(runtime, kind, options);
        let made = runtime::check(&spec).and_then(|()| factory.environment(&spec).map(drop));
        if let Err(error) = made {
            // A kind that the runtime cannot have on any host is refused; that is no skip.
            if !error_line(error.as_ref()).contains("cannot have storage") {
                skip(&format!("storage: {}", spec.name), reason(error.as_ref()));
            }
            continue;
        }
        check_environment(&factory, &spec, *fill);
        assert_eq!(traces(), before, "{}", spec.name);
    }
    assert!(factory.close().is_empty());
    assert_eq!(fs::read_dir(state.0.join("runs")).unwrap().count(), 0);
}

#[test]
fn process() {
    run_all("process");
}

#[test]
fn runc() {
    run_all("oci:runc");
}

#[test]
fn crun() {
    run_all("oci:crun");
}

#[test]
fn runsc() {
    run_all("oci:runsc");
}

#[test]
fn docker() {
    run_all("docker");
}

#[test]
fn podman() {
    run_all("podman");
}

#[test]
fn raw_device_works_as_data() {
    let _host = host();
    let test = "raw_device_works_as_data";
    if skipped(test, &[Need::Root]) {
        return;
    }
    let state = State::new("storage-raw");
    let before = traces();
    let factory = open(&state);
    let words = ["device", "{listen}", "{port}", "{data}"];
    let launch = Launch { arguments: words.map(String::from).to_vec(), ..Launch::default() };
    for runtime in ["process", "oci:runc", "oci:crun"] {
        let spec = on_storage(runtime, "raw", &[("size", "64M")]);
        if skipped_spec(&spec.name, &spec) {
            continue;
        }
        let mut environment = factory.environment(&spec).unwrap();
        let endpoint = environment.start(&launch).unwrap_or_else(|error| {
            let (name, error) = (&spec.name, error_line(error.as_ref()));
            panic!("{name}: {error}\n{}", environment.log_tail())
        });
        let checks = checks(&endpoint.data.unwrap(), || environment.log_tail());
        let expect = format!("device: true\nread back: true\nbeyond the end: {ENOSPC}\n");
        assert_eq!(checks, expect, "{}", spec.name);
        let layers = environment.read_back().unwrap();
        let storage = layers.iter().find(|layer| layer.layer == "storage").unwrap();
        assert!(storage.in_force, "{storage:?}");
        eprintln!("{}: {}", spec.name, storage.found);
        environment.stop().unwrap();
        assert_eq!(traces(), before, "{}", spec.name);
    }
    assert!(factory.close().is_empty());
}

#[test]
fn clean_removes_leftovers_of_killed_harness() {
    kill_and_clean(&[
        ("process", &["ext4", "tmpfs", "btrfs", "loop-lvm"]),
        ("oci:runc", &["rootfs", "xfs", "f2fs"]),
    ]);
}

/// Kills a harness that starts environments on these kinds, each time at a later point, and cleans.
fn kill_and_clean(what: &[(&str, &[&str])]) {
    let _host = host();
    if skipped("what a killed harness leaves is cleaned", &[Need::Root]) {
        return;
    }
    let state = State::new("storage-killed");
    let before = traces();
    for &(runtime, kinds) in what {
        let here = |kind: &&&str| runtime::check(&on_storage(runtime, kind, &[])).is_ok();
        let kinds: Vec<&str> = kinds.iter().filter(here).copied().collect();
        if kinds.is_empty() {
            continue;
        }
        // Guests are slow.
        let points = if inside::current_guest().is_some() { 4 } else { 8 };
        for point in 0..points {
            let mut harness = Command::new(program())
                .args(["storage-harness", state.0.to_str().unwrap(), runtime])
                .args(&kinds)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut lines = BufReader::new(harness.stdout.take().unwrap()).lines();
            for _ in 0..=point {
                lines.next();
            }
            thread::sleep(Duration::from_millis(point * 37 % 90));
            harness.kill().unwrap();
            harness.wait().unwrap();
            let report = clean::clean(&state.0, tare_env::undo::KINDS).unwrap();
            for (run, outcome) in &report.runs {
                assert!(matches!(outcome, Outcome::Cleaned { .. }), "{run}: {outcome:?}");
            }
            assert_eq!(traces(), before, "{runtime} killed at point {point}");
            assert!(clean::clean(&state.0, tare_env::undo::KINDS).unwrap().runs.is_empty());
        }
    }
}

#[test]
fn refuses_unnamed_device() {
    let _host = host();
    let test = "refuses_unnamed_device";
    if skipped(test, &[Need::Root]) {
        return;
    }
    let state = State::new("storage-device");
    let factory = open(&state);
    let disk = fs::read_dir("/sys/block").unwrap().flatten().next();
    let Some(disk) = disk else {
        return skip(test, Machine::NoBlockDevice);
    };
    let device = format!("/dev/{}", disk.file_name().to_string_lossy());
    let spec = on_storage("process", "ext4", &[("device", &device)]);
    let error = factory.environment(&spec).err().unwrap().to_string();
    assert!(error.contains("--destroy-data-on"), "{error}");
}

/// A loop device of the test. Dropping it detaches the device.
struct Disk(PathBuf);

impl Disk {
    fn new(folder: &Path) -> Self {
        let image = folder.join("given-up.img");
        fs::File::create(&image).unwrap().set_len(128 << 20).unwrap();
        Self(block::attach("none", &image, true).unwrap())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

#[test]
fn named_device_is_used_unless_mounted() {
    let _host = host();
    let test = "named_device_is_used_unless_mounted";
    if skipped(test, &[Need::Root]) {
        return;
    }
    let state = State::new("storage-given-up");
    let disk = Disk::new(&state.0);
    let before = traces();
    let factory = open_with(&state, vec![disk.0.clone()]);
    let device = disk.0.to_string_lossy().into_owned();
    let pairs = [("device", device.as_str())];
    let spec = on_storage("process", "ext4", &pairs);
    check_environment(&factory, &spec, true);
    assert_eq!(traces(), before);

    let words = ["serve", "{listen}", "{port}", "{data}"];
    let launch = Launch { arguments: words.map(String::from).to_vec(), ..Launch::default() };
    let mut other = factory.environment(&spec).unwrap();
    let mut environment = factory.environment(&spec).unwrap();
    environment.start(&launch).unwrap();
    let error = other.start(&launch).unwrap_err().to_string();
    assert!(error.contains("is mounted on"), "{error}");
    let error = factory.environment(&spec).err().unwrap().to_string();
    assert!(error.contains("is mounted on"), "{error}");
    environment.stop().unwrap();
    assert!(factory.close().is_empty());
    assert_eq!(traces(), before);
}
