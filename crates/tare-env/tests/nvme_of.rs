//! NVMe over fabrics with the target and initiator of this kernel, over TCP and soft-RoCE. Tests
//! the behaviour of every storage layer (in force, write, sync, read, survive, leave nothing), and
//! the loss of the target under load.
//!
//! If this kernel lacks the modules, `in_a_guest` runs the tests inside a guest, and here they are
//! skipped by name.
#![expect(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]
#![expect(clippy::print_stderr, reason = "times are shown")]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::{State, all_inside, host, on_storage, program, skipped_inside, skipped_spec};
use tare_env::{EnvironmentFactory, FactoryOptions, inside, runtime};
use tare_host::clean::{self, Outcome};
use tare_host::nvme::{self, ListenAddress, Target, Transport};
use tare_host::{block, error_line, module};
use tare_lab::environment::{CpuPlan, Environment, EnvironmentSpec, Launch};
use tare_testkit::{Reason, skip};

/// The time limit of each wait, long because emulated guests are slow.
const LIMIT: Duration = Duration::from_secs(120);

const TCP: &[(&str, &str)] =
    &[("size", "64M"), ("queues", "1"), ("depth", "32"), ("options", "noatime")];
const RDMA: &[(&str, &str)] = &[("transport", "rdma"), ("size", "64M")];

/// Returns whether this kernel supports the options. If not, the test is reported as skipped.
fn is_supported(test: &str, options: &[(&str, &str)]) -> bool {
    !skipped_spec(test, &on_storage("process", "nvme-of", options))
}

fn open(state: &State, destroy: Vec<PathBuf>) -> EnvironmentFactory {
    let all = tare_host::process::cpus_of_this_thread().unwrap();
    let cpus = CpuPlan { client: all.clone(), system: all.clone(), all, ..CpuPlan::default() };
    let (state, program) = (state.0.clone(), program());
    EnvironmentFactory::open(FactoryOptions { state, program, cpus, destroy, reach: None }).unwrap()
}

#[test]
fn in_a_guest() {
    let _host = host();
    let test = "in_a_guest";
    if inside::current_guest().is_some()
        || runtime::check(&on_storage("process", "nvme-of", RDMA)).is_ok()
    {
        let place = "on this kernel, which has all modules".into();
        return skip(test, Reason::RunsElsewhere { place });
    }
    if !skipped_inside(test) {
        all_inside("vm:qemu,memory=1G,disk=4G", LIMIT * 10, &[test]);
    }
}

/// Returns everything named after a run that a storage layer may leave, without the run's own
/// objects.
fn traces(state: &State) -> BTreeSet<String> {
    let runs = ["process", "cgroup", "network namespace"];
    let found = clean::leftovers(&state.0).into_iter().filter(|left| !runs.contains(&left.kind));
    // The client's link to the host's network namespace.
    let found = found.filter(|left| !(left.kind == "link" && left.name.ends_with("-h0")));
    found.map(|left| format!("{} {}", left.kind, left.name)).collect()
}

fn start(environment: &mut dyn Environment, words: &[&str]) -> PathBuf {
    let arguments = words.iter().map(ToString::to_string).collect();
    let endpoint =
        environment.start(&Launch { arguments, ..Launch::default() }).unwrap_or_else(|error| {
            panic!("{}\n{}", error_line(error.as_ref()), environment.log_tail())
        });
    endpoint.data.unwrap()
}

/// Waits for a line of the system's log and returns it.
fn wait_for_log(environment: &dyn Environment, words: &str) -> String {
    let deadline = Instant::now() + LIMIT;
    loop {
        let log = environment.log_tail();
        if let Some(line) = log.lines().find(|line| line.contains(words)) {
            return line.to_string();
        }
        assert!(Instant::now() < deadline, "no {words:?} in {log:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn storage_in_force(environment: &mut dyn Environment) -> (bool, String) {
    let layers = environment.read_back().unwrap();
    let storage = layers.into_iter().find(|layer| layer.layer == "storage").unwrap();
    (storage.in_force, storage.found)
}

/// Returns the content that `store` writes into its file and syncs.
fn content() -> Vec<u8> {
    (0..1u32 << 18).flat_map(u32::to_le_bytes).collect()
}

/// Runs one environment from start to stop. Returns the read-back of its storage.
fn check_environment(factory: &EnvironmentFactory, spec: &EnvironmentSpec) -> String {
    let mut environment = factory.environment(spec).unwrap();
    let begin = Instant::now();
    let data = start(&mut *environment, &["store", "{listen}", "{port}", "{data}", "fill"]);
    let started = begin.elapsed();
    let deadline = Instant::now() + LIMIT;
    let checks = loop {
        match fs::read_to_string(data.join("checks")) {
            Ok(text) if text.ends_with('\n') => break text,
            _ => assert!(Instant::now() < deadline, "{}", environment.log_tail()),
        }
        thread::sleep(Duration::from_millis(20));
    };
    let (in_force, found) = storage_in_force(&mut *environment);
    eprintln!("{}: started in {started:.0?}: {found}", spec.name);
    assert!(in_force, "{found}");
    for line in ["read back: true", "direct: Ok(4096)", "misaligned: Some(22)", "full: Some(28)"] {
        assert!(checks.contains(line), "{line} in {checks}");
    }
    // Synced data survives the system's death.
    let pids = environment.processes().system;
    tare_host::process::kill(&pids, LIMIT).unwrap();
    assert!(fs::read(data.join("kept")).unwrap() == content());
    let begin = Instant::now();
    environment.stop().unwrap();
    environment.stop().unwrap();
    eprintln!("{}: stopped in {:.0?}", spec.name, begin.elapsed());
    assert!(!data.exists());
    found
}

fn over(test: &str, options: &[(&str, &str)]) {
    let _host = host();
    if !is_supported(test, options) {
        return;
    }
    let state = State::new("nvme-of");
    let before = traces(&state);
    let factory = open(&state, Vec::new());
    let found = check_environment(&factory, &on_storage("process", "nvme-of", options));
    assert!(found.contains(" live, nqn."), "{found}");
    // Once more, with what is loaded by now, on another file system.
    check_environment(
        &factory,
        &on_storage("process", "nvme-of", &[options, &[("mkfs", "-b 4096")]].concat()),
    );
    assert_eq!(traces(&state), before);
    assert!(factory.close().is_empty());
    assert_eq!(traces(&state), before);
    assert_eq!(fs::read_dir(state.0.join("runs")).unwrap().count(), 0);
}

#[test]
fn over_tcp() {
    over("over_tcp", TCP);
}

#[test]
fn over_rdma() {
    over("over_rdma", RDMA);
}

/// A container sees the mount as a process does.
#[test]
fn under_runc() {
    let _host = host();
    let spec = on_storage("oci:runc", "nvme-of", TCP);
    if !is_supported("under_runc", TCP) {
        return;
    }
    if skipped_spec("under_runc", &spec) {
        return;
    }
    let state = State::new("nvme-of-runc");
    let before = traces(&state);
    let factory = open(&state, Vec::new());
    check_environment(&factory, &spec);
    assert!(factory.close().is_empty());
    assert_eq!(traces(&state), before);
}

/// The bare namespace, for a system that writes to devices itself.
#[test]
fn without_a_file_system() {
    let _host = host();
    let test = "without_a_file_system";
    if !is_supported(test, TCP) {
        return;
    }
    let state = State::new("nvme-of-bare");
    let before = traces(&state);
    let factory = open(&state, Vec::new());
    let bare = [("filesystem", "none"), ("size", "64M")];
    let mut environment = factory.environment(&on_storage("process", "nvme-of", &bare)).unwrap();
    let data = start(&mut *environment, &["device", "{listen}", "{port}", "{data}"]);
    wait_for_log(&*environment, "listening");
    let checks = fs::read_to_string(data.join("checks")).unwrap();
    assert!(checks.contains("device: true\nread back: true\n"), "{checks}");
    let (in_force, found) = storage_in_force(&mut *environment);
    assert!(in_force && found.contains("block device /dev/nvme"), "{found}");
    environment.stop().unwrap();
    environment.stop().unwrap();
    assert!(factory.close().is_empty());
    assert_eq!(traces(&state), before);
}

#[test]
fn clean_removes_leftovers_of_killed_harness() {
    let _host = host();
    let state = State::new("nvme-of-killed");
    let before = traces(&state);
    for (options, kind) in [(TCP, "nvme-of,size=64M"), (RDMA, "nvme-of,transport=rdma,size=64M")] {
        if !is_supported("clean_removes_leftovers_of_killed_harness", options) {
            continue;
        }
        for point in 0..6u64 {
            let mut harness = Command::new(program())
                .args(["storage-harness", state.0.to_str().unwrap(), "process", kind])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut lines = BufReader::new(harness.stdout.take().unwrap()).lines();
            for _ in 0..=point % 4 {
                lines.next();
            }
            thread::sleep(Duration::from_millis(point * 230 % 900));
            harness.kill().unwrap();
            harness.wait().unwrap();
            let report = clean::clean(&state.0, tare_env::undo::KINDS).unwrap();
            for (run, outcome) in &report.runs {
                assert!(matches!(outcome, Outcome::Cleaned { .. }), "{run}: {outcome:?}");
            }
            assert_eq!(traces(&state), before, "{kind} killed at point {point}");
        }
    }
}

/// Runs a system that syncs, removes its target and waits for the error. Nothing may be left.
fn check_lost_target(
    test: &str,
    options: &[(&str, &str)],
    remove: impl Fn() -> Option<PacketDrop>,
) {
    let _host = host();
    if !is_supported(test, options) {
        return;
    }
    let state = State::new("nvme-of-lost");
    let before = traces(&state);
    let factory = open(&state, Vec::new());
    let short = [options, &[("ctrl_loss_tmo", "3"), ("keep_alive_tmo", "2")]].concat();
    let mut environment = factory.environment(&on_storage("process", "nvme-of", &short)).unwrap();
    start(&mut *environment, &["sync", "{listen}", "{port}", "{data}"]);
    wait_for_log(&*environment, "syncs work");
    let begin = Instant::now();
    let packet_drop = remove();
    let line = wait_for_log(&*environment, "a sync failed");
    eprintln!("{test}: {line} after {:.1?}", begin.elapsed());
    // EIO from the device, or EROFS from a file system that lost its journal.
    assert!(line.contains("Some(5)") || line.contains("Some(30)"), "{line}");
    let (in_force, found) = storage_in_force(&mut *environment);
    assert!(!in_force, "{found}");
    let begin = Instant::now();
    environment.stop().unwrap();
    environment.stop().unwrap();
    eprintln!("{test}: stopped in {:.1?}", begin.elapsed());
    drop(packet_drop);
    assert!(factory.close().is_empty());
    assert_eq!(traces(&state), before);
}

/// Removes the target of the run under load.
fn remove_target() -> Option<PacketDrop> {
    let target = Target::open().unwrap().unwrap();
    let names = target.names();
    assert_eq!(names.len(), 1, "{names:?}");
    target.remove(&names[0]).unwrap();
    None
}

#[test]
fn removed_tcp_target_fails_io() {
    check_lost_target("removed_tcp_target_fails_io", TCP, remove_target);
}

#[test]
fn removed_rdma_target_fails_io() {
    let test = "removed_rdma_target_fails_io";
    check_lost_target(test, RDMA, remove_target);
}

/// An nft rule that drops every packet of a port, in both directions.
struct PacketDrop;

const DROP_TABLE: &str = "tare-test-drop";

impl PacketDrop {
    fn of(port: &str) -> Self {
        let rule = "type filter hook input priority 0; tcp dport";
        let table = format!(
            "table ip {DROP_TABLE} {{\nchain c {{\n{rule} {port} drop\ntcp sport {port} drop\n}}\n}}\n"
        );
        let nft = tare_host::exec::Command::new("nft").args(["-f", "-"]).input(table);
        nft.run().unwrap();
        Self
    }
}

impl Drop for PacketDrop {
    fn drop(&mut self) {
        let _ = Command::new("nft").args(["delete", "table", "ip", DROP_TABLE]).status();
    }
}

#[test]
fn silent_target_fails_io() {
    check_lost_target("silent_target_fails_io", TCP, || {
        let all = nvme::controllers();
        let ours = all.iter().find(|one| one.connection().is_some()).unwrap();
        let address = ours.attribute("address").unwrap();
        let port = address.split(',').find_map(|word| word.strip_prefix("trsvcid=")).unwrap();
        Some(PacketDrop::of(port))
    });
}

/// A target that Tare did not create, like one on another host.
struct ExistingTarget {
    target: Target,
    device: PathBuf,
    port: u16,
}

const EXISTING: &str = "by-hand";

impl ExistingTarget {
    fn make(folder: &Path) -> Self {
        for name in Transport::Tcp.target_modules() {
            module::load(name).unwrap();
        }
        let image = folder.join("by-hand.img");
        fs::File::create(&image).unwrap().set_len(128 << 20).unwrap();
        let device = block::attach("none", &image, true).unwrap();
        let address = Ipv4Addr::LOCALHOST;
        let port = TcpListener::bind((address, 0)).unwrap().local_addr().unwrap().port();
        let target = Target::open().unwrap().unwrap();
        let existing = Self { target, device, port };
        let listen = ListenAddress {
            transport: Transport::Tcp,
            address: address.into(),
            service: existing.port,
        };
        existing.target.make(EXISTING, &existing.device, listen).unwrap();
        existing
    }
}

/// A mounted device. Dropping it unmounts.
struct Mounted(PathBuf);

impl Mounted {
    fn of(device: &Path, point: PathBuf) -> Self {
        fs::create_dir_all(&point).unwrap();
        assert!(Command::new("mount").arg(device).arg(&point).status().unwrap().success());
        Self(point)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

impl Drop for ExistingTarget {
    fn drop(&mut self) {
        let _ = self.target.remove(EXISTING);
        let _ = Command::new("losetup").arg("--detach").arg(&self.device).status();
    }
}

#[test]
fn existing_target_is_kept() {
    let _host = host();
    let test = "existing_target_is_kept";
    if !is_supported(test, TCP) {
        return;
    }
    let state = State::new("nvme-of-given");
    let existing = ExistingTarget::make(&state.0);
    let before = traces(&state);
    let (nqn, port) = (nvme::nqn(EXISTING), existing.port.to_string());
    let options = [("nqn", nqn.as_str()), ("address", "127.0.0.1"), ("port", &port)];
    let spec = on_storage("process", "nvme-of", &options);
    let factory = open(&state, Vec::new());
    let error = factory.environment(&spec).err().unwrap().to_string();
    assert!(error.contains(&format!("--destroy-data-on {nqn}")), "{error}");
    drop(factory);

    let factory = open(&state, vec![nqn.clone().into()]);
    check_environment(&factory, &spec);
    let serve = ["serve", "{listen}", "{port}", "{data}"];
    let mut environment = factory.environment(&spec).unwrap();
    start(&mut *environment, &serve);
    let mut other = factory.environment(&spec).unwrap();
    let words = Launch { arguments: serve.map(String::from).to_vec(), ..Launch::default() };
    let error = other.start(&words).unwrap_err().to_string();
    assert!(error.contains("there is a controller of"), "{error}");
    environment.stop().unwrap();
    assert_eq!(traces(&state), before);
    assert_eq!(existing.target.names(), [EXISTING]);

    // The target is removed right after the sync, and still has the synced data.
    start(&mut *environment, &["store", "{listen}", "{port}", "{data}", "leave"]);
    wait_for_log(&*environment, "listening");
    existing.target.remove(EXISTING).unwrap();
    environment.stop().unwrap();
    assert!(factory.close().is_empty());
    assert!(nvme::controllers().is_empty());
    {
        let mounted = Mounted::of(&existing.device, state.0.join("behind"));
        assert!(fs::read(mounted.0.join("kept")).unwrap() == content());
    }

    // Without the target, the start fails with its address and leaves nothing.
    drop(existing);
    let factory = open(&state, vec![nqn.clone().into()]);
    let error = factory.environment(&spec).unwrap().start(&words).unwrap_err();
    let error = error_line(error.as_ref());
    assert!(error.contains("cannot connect to") && error.contains(&port), "{error}");
    assert!(factory.close().is_empty());
}
