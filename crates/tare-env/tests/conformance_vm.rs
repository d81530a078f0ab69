//! The suite for virtual machines. A guest boots, answers over TCP from the client's namespace,
//! every layer is in force, its CPU time grows under load, freezing stops it, and nothing is left
//! afterwards, even if the harness is killed. Guests run under TCG, which does the same as KVM but
//! slowly, so they are few and small. Guests of user-mode Linux pass the same checks.
#![expect(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]
#![expect(clippy::print_stderr, reason = "times are shown")]

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::{State, host, own_guest, program, skipped_runtime};
use tare_env::{EnvironmentFactory, FactoryOptions};
use tare_host::clean::{self, Outcome};
use tare_host::netns;
use tare_lab::environment::{ACCELERATOR, CpuPlan, Environment, EnvironmentSpec, Launch};
use tare_lab::layer::Cpu;
use tare_std::cpus::CpuSet;
use tare_testkit::host_state::left_of_run;
use tare_testkit::{EnvironmentBuilder, Need, Reason, skip};

/// Returns whether a guest of this kind cannot run here. The test is then reported as skipped.
fn skipped(test: &str, runtime: &str) -> bool {
    tare_testkit::skipped(test, &[Need::Root, Need::Program("nft")])
        || skipped_runtime(test, runtime)
}

fn open(state: &State, program: PathBuf) -> EnvironmentFactory {
    let all = tare_host::process::cpus_of_this_thread().unwrap();
    let last = all.iter().last().unwrap();
    let system = CpuSet::parse_list(&last.to_string()).unwrap();
    let cpus = CpuPlan { client: all.difference(&system), system, all, ..CpuPlan::default() };
    EnvironmentFactory::open(FactoryOptions {
        state: state.0.clone(),
        program,
        cpus,
        destroy: Vec::new(),
        reach: None,
    })
    .unwrap()
}

fn launch() -> Launch {
    let words = ["serve", "{listen}", "{port}", "{data}"];
    Launch { arguments: words.map(String::from).to_vec(), ..Launch::default() }
}

/// Returns an environment with a QEMU guest. The accelerator is TCG unless `vm` sets another.
fn spec(
    network: &str,
    cpu: &str,
    security: &str,
    cgroup: &str,
    vm: &[(&str, &str)],
) -> EnvironmentSpec {
    let mut options =
        vec![("memory".to_string(), "384M".to_string()), ("disk".into(), "256M".into())];
    options.extend(vm.iter().map(|(name, value)| ((*name).into(), (*value).into())));
    if !vm.iter().any(|(name, _)| *name == "accelerator") {
        options.push(("accelerator".into(), "tcg".into()));
    }
    let named: Vec<(&str, &str)> = options.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    EnvironmentBuilder::new("vm:qemu")
        .name(format!("guest {network} {cpu} {security} {cgroup} {vm:?}"))
        .network(network)
        .cpu(cpu)
        .security(security)
        .cgroup(cgroup)
        .vm(&named)
        .memory_bytes((cgroup == "own").then_some(1 << 30))
        .build()
}

/// Returns an environment with a guest of user-mode Linux, which has no accelerator option and no
/// filter.
fn uml(network: &str, cpu: &str, cgroup: &str, vm: &[(&str, &str)]) -> EnvironmentSpec {
    let mut spec = spec(network, cpu, "none", cgroup, vm);
    spec.name = format!("user-mode {}", spec.name);
    spec.runtime = "vm:uml".into();
    spec.vm.retain(|(name, _)| name != "accelerator");
    spec
}

/// Asserts that nothing of a run is left: no namespace, link, mount, cgroup or process.
fn assert_clean(run: &str, what: &str) {
    let mut left = left_of_run(run);
    left.extend(left_of_kernels());
    assert!(left.is_empty(), "{what}: left on the host: {left:#?}");
}

/// Returns processes of a user-mode kernel that outlived it. They have no mark of a run. Their
/// parent is neither a kernel nor a shell, whose child is a running kernel.
fn left_of_kernels() -> Vec<String> {
    let name = |pid: u32| tare_host::process::name(pid).unwrap_or_default();
    let uml = |pid: &u32| {
        let parent = tare_host::process::status_field(*pid, "PPid");
        let parent = parent.and_then(|pid| pid.parse().ok()).map(name).unwrap_or_default();
        name(*pid).starts_with("linux.uml") && !["linux.uml", "sh"].contains(&parent.as_str())
    };
    let all = tare_host::process::all().into_iter().filter(uml);
    all.map(|pid| format!("process {pid} of a user-mode kernel")).collect()
}

/// Connects from the client's namespace until the system answers. An error is the log of a guest
/// whose emulated CPUs stalled.
fn dial(
    client: &Path,
    address: SocketAddr,
    environment: &dyn Environment,
) -> Result<TcpStream, String> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let stream = netns::within(client, || TcpStream::connect(address)).unwrap();
        if let Ok(mut stream) = stream {
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            if echo(&mut stream) {
                return Ok(stream);
            }
        }
        let name = &environment.spec().name;
        let log = environment.log_tail();
        if log.contains("soft lockup") {
            return Err(log);
        }
        assert!(Instant::now() < deadline, "{name} at {address}: no answer\n{log}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn echo(stream: &mut TcpStream) -> bool {
    let mut answer = [0; 4];
    stream.write_all(b"weig").is_ok() && stream.read_exact(&mut answer).is_ok()
}

/// Runs one guest from start to stop and checks each step. Returns the read-back of its
/// accelerator. Emulated CPUs rarely stall while their kernel patches its code; such a guest is
/// started once more.
fn check_guest(factory: &EnvironmentFactory, spec: &EnvironmentSpec) -> String {
    run_guest(factory, spec).unwrap_or_else(|log| {
        eprintln!("{}: its emulated CPUs stalled, once more:\n{log}", spec.name);
        run_guest(factory, spec).unwrap()
    })
}

/// An error is the log of a guest whose emulated CPUs stalled.
fn run_guest(factory: &EnvironmentFactory, spec: &EnvironmentSpec) -> Result<String, String> {
    let name = &spec.name;
    let mut environment = factory.environment(spec).unwrap();
    let begin = Instant::now();
    let endpoint = environment.start(&launch()).unwrap_or_else(|error| {
        panic!("{name}: {}\n{}", tare_host::error_line(error.as_ref()), environment.log_tail())
    });
    let made = begin.elapsed();
    let mut stream = match dial(factory.client_namespace(), endpoint.address, environment.as_ref())
    {
        Ok(stream) => stream,
        Err(log) => {
            environment.stop().unwrap();
            return Err(log);
        }
    };
    let ready = begin.elapsed();

    let layers = environment.read_back().unwrap();
    for layer in &layers {
        assert!(layer.in_force, "{name}: {layer:?}");
        eprintln!("{name}: {}: {}", layer.layer, layer.found);
    }
    let found = |name: &str| layers.iter().find(|state| state.layer == name);
    for layer in [
        "runtime",
        ACCELERATOR,
        "network",
        "cpu",
        "security",
        "cgroup",
        "cpu.weight",
        "vm.vcpus",
        "storage",
    ] {
        assert!(found(layer).is_some(), "{name}: {layer} is not read");
    }
    let data = endpoint.data.unwrap();
    assert!(data.join("seen").exists(), "{name}: the system's file is not visible");
    let user_mode = spec.runtime == "vm:uml";
    let program = if user_mode { "linux.uml" } else { "qemu-system" };
    assert!(environment.config().unwrap().contains(program), "{name}");

    let before = environment.usage().unwrap();
    while environment.usage().unwrap().system_cpu_ns < before.system_cpu_ns + 20_000_000 {
        assert!(echo(&mut stream), "{name}: no answer under load");
    }
    let after = environment.usage().unwrap();
    assert_eq!(after.throttled_ns.is_some(), matches!(spec.cpu, Cpu::Quota(_)), "{name}");
    let parts: Vec<&str> = after.layer_cpu_ns.iter().map(|(part, _)| part.as_str()).collect();
    assert_eq!(parts.contains(&"monitor"), !user_mode, "{name}: {parts:?}");
    assert_eq!(parts.contains(&"userland proxy"), spec.network.has_proxy(), "{name}");
    let begin = Instant::now();
    environment.usage().unwrap();
    let usage = begin.elapsed();

    environment.freeze().unwrap();
    let frozen = environment.usage().unwrap().system_cpu_ns;
    stream.write_all(b"cold").unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut answer = [0; 4];
    assert!(stream.read(&mut answer).is_err(), "{name}: it answers while it is frozen");
    // A vCPU's thread takes a moment to stop, and its CPU time is a tick behind.
    let crept = environment.usage().unwrap().system_cpu_ns - frozen;
    assert!(crept < 10_000_000, "{name}: it ran for {crept} ns while frozen");
    environment.thaw().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.read_exact(&mut answer).unwrap();

    let accelerator = found(ACCELERATOR).unwrap().found.clone();
    let begin = Instant::now();
    environment.stop().unwrap();
    let stopped = begin.elapsed();
    environment.stop().unwrap();
    assert!(!data.exists(), "{name}: its data is left");
    assert!(environment.log_tail().contains("listening"), "{name}: its log is lost");
    eprintln!(
        "{name}: made {made:.0?}, ready {ready:.0?}, usage {usage:.0?}, stopped {stopped:.0?}"
    );
    Ok(accelerator)
}

#[test]
fn qemu_guests_conform() {
    let _guest = own_guest();
    let test = "qemu_guests_conform";
    if skipped(test, "vm:qemu") {
        return;
    }
    let state = State::new("vm-live");
    let factory = open(&state, program());
    let found = check_guest(&factory, &spec("bridge", "pinned", "default", "own", &[]));
    assert!(found.starts_with("tcg: asked for"), "{found}");
    // `auto` tries KVM if the host has it, and records the outcome.
    let other = [
        ("accelerator", "auto"),
        ("vcpus", "2"),
        ("cache", "writethrough"),
        ("aio", "threads"),
        ("iothread", "no"),
    ];
    let mut proxied = spec("bridge+proxy", "shared", "none", "none", &other);
    proxied.storage.kind = "virtio-scsi".into();
    let found = check_guest(&factory, &proxied);
    assert!(found.starts_with("kvm: ") || found.starts_with("tcg: KVM is not usable"), "{found}");
    // The container's filter is read back inside, the monitor's outside.
    for runtime in ["runc", "crun"] {
        match tare_host::exec::find(runtime) {
            Some(_) => {
                let inside = [("container", runtime)];
                drop(check_guest(&factory, &spec("bridge", "shared", "default", "own", &inside)));
            }
            None => skip(test, Reason::not_installed(runtime)),
        }
    }
    let mut shared = spec("bridge", "quota=1.5", "none", "own", &[]);
    shared.storage.kind = "9p".into();
    check_guest(&factory, &shared);
    shared.storage.kind = "virtiofs".into();
    shared.name += " virtiofs";
    shared.cpu = "shared".parse().unwrap();
    match ["/usr/lib/qemu/virtiofsd", "/usr/libexec/virtiofsd"]
        .map(Path::new)
        .iter()
        .any(|p| p.exists())
    {
        true => drop(check_guest(&factory, &shared)),
        false => skip(test, Reason::not_installed("virtiofsd")),
    }
    assert!(factory.close().is_empty());
    assert_clean(factory.run(), test);
    assert_eq!(fs::read_dir(state.0.join("runs")).unwrap().count(), 0);
}

#[test]
fn failed_boot_is_reported() {
    let _guest = own_guest();
    let test = "failed_boot_is_reported";
    if skipped(test, "vm:qemu") {
        return;
    }
    let state = State::new("vm-fails");
    // The first process exits: the kernel panics, and the machine stops.
    let factory = open(&state, "/bin/true".into());
    let mut environment =
        factory.environment(&spec("bridge", "shared", "none", "own", &[])).unwrap();
    let error = environment.start(&launch()).unwrap_err();
    let error = tare_host::error_line(error.as_ref());
    assert!(error.contains("did not come up"), "{error}");
    let log = environment.log_tail();
    assert!(log.contains("panic"), "{log}");
    let gone = [("kernel", "/nonexistent/vmlinuz")];
    let mut environment =
        factory.environment(&spec("bridge", "shared", "none", "own", &gone)).unwrap();
    let error = environment.start(&launch()).unwrap_err().to_string();
    assert!(error.contains("/nonexistent/vmlinuz"), "{error}");
    let refused = factory.environment(&spec("host", "shared", "none", "own", &[])).err().unwrap();
    assert!(refused.to_string().contains("network = \"bridge\""), "{refused}");
    assert!(factory.close().is_empty());
    assert_clean(factory.run(), test);
}

#[test]
fn user_mode_guests_conform() {
    let _host = host();
    let test = "user_mode_guests_conform";
    if skipped(test, "vm:uml") {
        return;
    }
    let state = State::new("uml-live");
    let factory = open(&state, program());
    let found = check_guest(&factory, &uml("bridge", "pinned", "own", &[]));
    assert!(found.starts_with("uml: "), "{found}");
    // Without a cgroup, signals freeze it.
    check_guest(&factory, &uml("bridge+proxy", "shared", "none", &[("cache", "writethrough")]));
    let mut shared = uml("bridge", "quota=1.5", "own", &[]);
    shared.storage.kind = "hostfs".into();
    check_guest(&factory, &shared);
    let refused = factory.environment(&uml("bridge", "shared", "own", &[("vcpus", "2")])).err();
    assert!(refused.unwrap().to_string().contains("one CPU"));
    assert!(factory.close().is_empty());
    assert_clean(factory.run(), test);
    assert_eq!(fs::read_dir(state.0.join("runs")).unwrap().count(), 0);
}

#[test]
fn user_mode_panic_is_reported() {
    let _host = host();
    let test = "user_mode_panic_is_reported";
    if skipped(test, "vm:uml") {
        return;
    }
    let state = State::new("uml-fails");
    // The kernel signals its whole process group, which must not be the test's.
    let factory = open(&state, "/bin/true".into());
    let mut environment = factory.environment(&uml("bridge", "shared", "own", &[])).unwrap();
    let error = environment.start(&launch()).unwrap_err();
    let error = tare_host::error_line(error.as_ref());
    assert!(error.contains("did not come up"), "{error}");
    let log = environment.log_tail();
    assert!(log.contains("panic"), "{log}");
    assert!(factory.close().is_empty());
    assert_clean(factory.run(), test);
}

#[test]
fn clean_removes_killed_user_mode_guests() {
    let _host = host();
    let test = "clean_removes_killed_user_mode_guests";
    if !skipped(test, "vm:uml") {
        killed("vm:uml", "uml-killed", test);
    }
}

#[test]
fn clean_removes_killed_qemu_guests() {
    let _guest = own_guest();
    let test = "clean_removes_killed_qemu_guests";
    if !skipped(test, "vm:qemu") {
        killed("vm:qemu", "vm-killed", test);
    }
}

fn killed(runtime: &str, state: &str, test: &str) {
    let state = State::new(state);
    // The harness is killed while the guest boots, and when the guest is frozen.
    let booting = Duration::from_secs(if runtime == "vm:uml" { 1 } else { 2 });
    for (lines, then) in [(1, booting), (2, Duration::ZERO)] {
        let mut harness = Command::new(program())
            .arg("harness")
            .arg(&state.0)
            .arg(runtime)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(harness.stdout.take().unwrap()).lines();
        for _ in 0..lines {
            output.next();
        }
        thread::sleep(then);
        harness.kill().unwrap();
        harness.wait().unwrap();
        let begin = Instant::now();
        let report = clean::clean(&state.0, tare_env::undo::KINDS).unwrap();
        let elapsed = begin.elapsed();
        // The check of a user-mode kernel boots it once, with a separate journal.
        assert!(!report.runs.is_empty(), "the kill hit nothing");
        for (run, outcome) in &report.runs {
            assert!(matches!(outcome, Outcome::Cleaned { .. }), "{run}: {outcome:?}");
            eprintln!("killed after {lines} lines: {outcome:?} in {elapsed:.0?}");
            assert_clean(run, test);
        }
        assert!(clean::clean(&state.0, tare_env::undo::KINDS).unwrap().runs.is_empty());
    }
}
