//! One suite for all runtimes and layers that this machine can run. In each, a system starts and
//! answers over TCP from the client's namespace, every layer is in force, its CPU time grows under
//! load, freezing stops it, and nothing is left afterwards, even if the harness is killed.
#![expect(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]
#![expect(clippy::print_stderr, reason = "times are shown")]

mod common;
#[path = "conformance/containerd.rs"]
mod containerd;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::{State, host, program, skipped_runtime, skipped_spec};
use tare_env::{EnvironmentFactory, FactoryOptions, runtime};
use tare_host::clean::{self, Outcome};
use tare_host::netns;
use tare_lab::environment::{CpuPlan, Environment, EnvironmentSpec, Launch};
use tare_lab::layer::Cpu;
use tare_std::cpus::CpuSet;
use tare_testkit::host_state::left_of_run;
use tare_testkit::{EnvironmentBuilder, Need, skipped};

fn plan() -> CpuPlan {
    let all = tare_host::process::cpus_of_this_thread().unwrap();
    let last = all.iter().last().unwrap();
    let system = CpuSet::parse_list(&last.to_string()).unwrap();
    CpuPlan { client: all.difference(&system), system, all, ..CpuPlan::default() }
}

fn open(state: &State) -> EnvironmentFactory {
    let state = state.0.clone();
    EnvironmentFactory::open(FactoryOptions {
        state,
        program: program(),
        cpus: plan(),
        destroy: Vec::new(),
        reach: None,
    })
    .unwrap()
}

fn launch() -> Launch {
    let words = ["serve", "{listen}", "{port}", "{data}"];
    Launch { arguments: words.map(String::from).to_vec(), ..Launch::default() }
}

fn spec(runtime: &str, network: &str, cpu: &str, security: &str, cgroup: &str) -> EnvironmentSpec {
    let memory_bytes = (cgroup == "own" && cpu != "shared").then_some(256 << 20);
    EnvironmentBuilder::new(runtime)
        .name(format!("{runtime} {network} {cpu} {security} {cgroup}"))
        .network(network)
        .cpu(cpu)
        .security(security)
        .cgroup(cgroup)
        .memory_bytes(memory_bytes)
        .build()
}

/// Asserts that nothing of this run is left. Other runs may start and end meanwhile.
fn assert_clean(run: &str, what: &str) {
    let left = left_of_run(run);
    assert!(left.is_empty(), "{what}: left on the host: {left:#?}");
}

/// Connects from the client's namespace until the system answers.
fn dial(client: &Path, address: SocketAddr, environment: &dyn Environment) -> TcpStream {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let stream = netns::within(client, || TcpStream::connect(address)).unwrap();
        if let Ok(mut stream) = stream {
            stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            if echo(&mut stream) {
                return stream;
            }
        }
        let log = environment.log_tail();
        assert!(
            Instant::now() < deadline,
            "{} at {address}: no answer\n{log}",
            environment.spec().name
        );
        thread::sleep(Duration::from_millis(1));
    }
}

fn echo(stream: &mut TcpStream) -> bool {
    let mut answer = [0; 4];
    stream.write_all(b"weig").is_ok() && stream.read_exact(&mut answer).is_ok()
}

/// Runs one environment from start to stop and checks each step.
fn check_environment(factory: &EnvironmentFactory, spec: &EnvironmentSpec) {
    let name = &spec.name;
    let mut environment = factory.environment(spec).unwrap();
    let begin = Instant::now();
    let endpoint = environment.start(&launch()).unwrap_or_else(|error| {
        panic!("{name}: {}\n{}", tare_host::error_line(error.as_ref()), environment.log_tail())
    });
    let made = begin.elapsed();
    let mut stream = dial(factory.client_namespace(), endpoint.address, environment.as_ref());
    let ready = begin.elapsed();

    let layers = environment.read_back().unwrap();
    for layer in &layers {
        assert!(layer.in_force, "{name}: {layer:?}");
    }
    for layer in ["runtime", "network", "cpu", "security", "cgroup", "cpu.weight"] {
        assert!(layers.iter().any(|state| state.layer == layer), "{name}: {layer} is not read");
    }
    let data = endpoint.data.unwrap();
    assert!(data.join("seen").exists(), "{name}: the data directory is not the one inside");

    let before = environment.usage().unwrap();
    while environment.usage().unwrap().system_cpu_ns < before.system_cpu_ns + 5_000_000 {
        assert!(echo(&mut stream), "{name}: no answer under load");
    }
    let after = environment.usage().unwrap();
    if spec.network.has_proxy() {
        assert_eq!(after.layer_cpu_ns[0].0, "userland proxy");
        while environment.usage().unwrap().layer_cpu_ns[0].1 <= before.layer_cpu_ns[0].1 {
            assert!(echo(&mut stream), "{name}: no answer through the proxy");
        }
    }
    assert_eq!(after.throttled_ns.is_some(), matches!(spec.cpu, Cpu::Quota(_)), "{name}");
    let begin = Instant::now();
    for _ in 0..20 {
        environment.usage().unwrap();
    }
    let usage = begin.elapsed() / 20;

    environment.freeze().unwrap();
    let frozen = environment.usage().unwrap().system_cpu_ns;
    stream.write_all(b"cold").unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut answer = [0; 4];
    assert!(stream.read(&mut answer).is_err(), "{name}: it answers while it is frozen");
    let ran = environment.usage().unwrap().system_cpu_ns - frozen;
    // gVisor's sentry is paused, not frozen: its runtime still checks its timers.
    let most = if spec.runtime.as_str().contains("runsc") { 10_000_000 } else { 0 };
    assert!(ran <= most, "{name}: it runs while frozen, {ran} ns");
    environment.thaw().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream.read_exact(&mut answer).unwrap();

    let begin = Instant::now();
    environment.stop().unwrap();
    let stopped = begin.elapsed();
    environment.stop().unwrap();
    assert!(!data.exists(), "{name}: its data is left");
    assert!(environment.log_tail().contains("listening"), "{name}: its log is lost");
    eprintln!(
        "{name}: made {made:.0?}, ready {ready:.0?}, usage {usage:.0?}, stopped {stopped:.0?}"
    );
}

fn run_all(test: &str, runtime: &str, securities: &[&str]) {
    let _host = host();
    if skipped(test, &[Need::Root, Need::Program("nft")]) {
        return;
    }
    if skipped_runtime(test, runtime) {
        return;
    }
    let state = State::new(test);
    let factory = open(&state);
    for network in ["host", "bridge", "bridge+proxy"] {
        check_environment(&factory, &spec(runtime, network, "shared", "none", "own"));
    }
    for cpu in ["pinned", "quota=0.5"] {
        check_environment(&factory, &spec(runtime, "bridge", cpu, "none", "own"));
    }
    for security in securities {
        check_environment(&factory, &spec(runtime, "host", "shared", security, "own"));
    }
    for cpu in ["shared", "pinned"] {
        check_environment(&factory, &spec(runtime, "host", cpu, "none", "none"));
    }
    check_environment(&factory, &spec(runtime, "bridge", "pinned", "none", "none"));
    assert!(factory.close().is_empty());
    assert_clean(factory.run(), test);
    assert_eq!(fs::read_dir(state.0.join("runs")).unwrap().count(), 0);
}

#[test]
fn process() {
    run_all("process", "process", &[]);
}

#[test]
fn runc() {
    run_all("runc", "oci:runc", &["default", "default+io_uring"]);
}

#[test]
fn crun() {
    run_all("crun", "oci:crun", &["default", "default+io_uring"]);
}

#[test]
fn runsc() {
    run_all("runsc", "oci:runsc", &["default"]);
}

#[test]
fn containerd_runs_runc() {
    if containerd::goes_on("containerd_runs_runc") {
        run_all("containerd_runs_runc", "containerd", &["default", "default+io_uring"]);
    }
}

/// Kata is refused by name where it or KVM is missing.
#[test]
fn containerd_refuses_missing_shims() {
    let check = |runtime: &str| runtime::check(&spec(runtime, "host", "shared", "none", "own"));
    let error = check("containerd:crun").unwrap_err().to_string();
    assert!(error.contains("there is no such shim"), "{error}");
    let error = check("containerd:runsc").unwrap_err().to_string();
    assert!(error.contains("gVisor's shim is not supported"), "{error}");
    if let Err(error) = check("containerd:kata") {
        assert!(error.to_string().contains("containerd:kata cannot run here"), "{error}");
    }
}

#[test]
fn clean_removes_leftovers_in_containerd() {
    let test = "clean_removes_leftovers_in_containerd";
    if !containerd::goes_on(test) {
        return;
    }
    let _host = host();
    if skipped(test, &[Need::Root, Need::Program("nft")]) || skipped_runtime(test, "containerd") {
        return;
    }
    kill_and_clean(test, &["containerd"]);
}

#[test]
fn gvisor_applies_platform_and_network() {
    let _host = host();
    let test = "gvisor_applies_platform_and_network";
    if skipped(test, &[Need::Root, Need::Program("nft")]) {
        return;
    }
    let plain = spec("oci:runsc", "bridge", "shared", "default", "own");
    if skipped_spec(test, &plain) {
        return;
    }
    let state = State::new("gvisor");
    let factory = open(&state);
    let with = |pairs: &[(&str, &str)]| EnvironmentSpec {
        name: format!("gVisor {pairs:?}"),
        sandbox: pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
        ..plain.clone()
    };
    check_environment(&factory, &with(&[("platform", "ptrace")]));
    check_environment(&factory, &with(&[("network", "host")]));
    let gofer = with(&[("directfs", "no")]);
    check_environment(&factory, &gofer);

    // The gofer's work counts for the layer, not the system.
    let mut environment = factory.environment(&gofer).unwrap();
    environment.start(&launch()).unwrap();
    let usage = environment.usage().unwrap();
    assert!(usage.layer_cpu_ns.iter().any(|(part, ns)| part == "gofer" && *ns > 0), "{usage:?}");
    let processes = environment.processes();
    let gofer = processes.layer[0];
    assert!(!processes.system.contains(&gofer), "{processes:?}");
    assert!(fs::read(format!("/proc/{gofer}/cmdline")).unwrap().starts_with(b"runsc-gofer"));
    environment.stop().unwrap();

    // It starts or is refused in time: a sandbox that hangs is killed.
    let mut kvm = factory.environment(&with(&[("platform", "kvm")])).unwrap();
    match kvm.start(&launch()) {
        Ok(_) => assert!(kvm.read_back().unwrap().iter().all(|state| state.in_force)),
        Err(error) => assert!(error.to_string().contains("platform kvm"), "{error}"),
    }
    kvm.stop().unwrap();
    assert!(factory.close().is_empty());
    assert_clean(factory.run(), test);
    let runc = EnvironmentSpec { runtime: "oci:runc".into(), ..with(&[("platform", "kvm")]) };
    let error = runtime::check(&runc).unwrap_err().to_string();
    assert!(error.contains("only gVisor"), "{error}");
}

#[test]
fn injected_costs_are_read_back() {
    let _host = host();
    let test = "injected_costs_are_read_back";
    if skipped(test, &[Need::Root, Need::Program("nft")]) {
        return;
    }
    let state = State::new("inject");
    let factory = open(&state);
    let mut spec = spec("process", "host", "pinned", "none", "own");
    spec.inject = "quota=50%+delay=20ms".parse().unwrap();
    let mut environment = factory.environment(&spec).unwrap();
    let endpoint = environment.start(&launch()).unwrap();
    let mut stream = dial(factory.client_namespace(), endpoint.address, environment.as_ref());
    let begin = Instant::now();
    assert!(echo(&mut stream));
    assert!(begin.elapsed() >= Duration::from_millis(20), "the relay did not delay the answer");
    let injected = |environment: &mut dyn Environment| {
        let layers = environment.read_back().unwrap();
        layers.into_iter().find(|state| state.layer == "inject").unwrap()
    };
    let found = injected(environment.as_mut());
    assert!(found.in_force, "{found:?}");
    assert!(found.found.contains("quota: 50000 100000"), "{found:?}");
    let usage = environment.usage().unwrap();
    assert_eq!(usage.layer_cpu_ns[0].0, "relay");
    assert!(usage.throttled_ns.is_some());
    let relay = environment.processes().layer[0];
    tare_host::process::kill(&[relay], Duration::from_secs(5)).unwrap();
    let found = injected(environment.as_mut());
    assert!(!found.in_force, "{found:?}");
    environment.stop().unwrap();

    // Only the database can burn CPU time or filter its own calls, and only as a process.
    spec.inject = "busy=2us".parse().unwrap();
    let error = factory.environment(&spec).unwrap().start(&launch()).unwrap_err();
    assert!(error.to_string().contains("only tare-db"), "{error}");
    for (change, expect) in [
        ((|spec| spec.runtime = "oci:runc".into()) as fn(&mut EnvironmentSpec), "runtime"),
        (
            |spec| {
                (spec.cgroup, spec.inject) = ("none".parse().unwrap(), "quota=97%".parse().unwrap())
            },
            "cgroup",
        ),
        (
            |spec| {
                (spec.cpu, spec.inject) = ("quota=1".parse().unwrap(), "quota=97%".parse().unwrap())
            },
            "quota",
        ),
        (
            |spec| {
                (spec.network, spec.inject) =
                    ("bridge".parse().unwrap(), "delay=1ms".parse().unwrap())
            },
            "network",
        ),
    ] {
        let mut other = spec.clone();
        other.limits.memory_bytes = None;
        change(&mut other);
        let error = runtime::check(&other).unwrap_err().to_string();
        assert!(error.contains(expect), "{error}");
    }
    drop(environment);
    assert!(factory.close().is_empty());
    assert_clean(factory.run(), test);
}

#[test]
fn dropping_factory_removes_environments() {
    let _host = host();
    let test = "dropping_factory_removes_environments";
    if skipped(test, &[Need::Root, Need::Program("nft")]) {
        return;
    }
    let state = State::new("several");
    let factory = open(&state);
    let mut environments = Vec::new();
    for name in ["process", "oci:runc", "oci:crun", "containerd"] {
        for network in ["host", "bridge"] {
            let spec = spec(name, network, "shared", "none", "own");
            if runtime::check(&spec).is_err() {
                continue;
            }
            let mut environment = factory.environment(&spec).unwrap();
            let endpoint = environment.start(&launch()).unwrap();
            dial(factory.client_namespace(), endpoint.address, environment.as_ref());
            environment.freeze().unwrap();
            environments.push((environment, endpoint));
        }
    }
    for (environment, endpoint) in &mut environments {
        environment.thaw().unwrap();
        dial(factory.client_namespace(), endpoint.address, environment.as_ref());
        environment.freeze().unwrap();
    }
    let run = factory.run().to_string();
    drop(factory);
    // The environments are dropped after their factory has removed everything.
    drop(environments);
    assert_clean(&run, test);
}

#[test]
fn failed_start_leaves_nothing() {
    let _host = host();
    let test = "failed_start_leaves_nothing";
    if skipped(test, &[Need::Root, Need::Program("nft")]) {
        return;
    }
    let state = State::new("fails");
    let options = FactoryOptions {
        state: state.0.clone(),
        program: "/bin/true".into(),
        cpus: plan(),
        destroy: Vec::new(),
        reach: None,
    };
    let factory = EnvironmentFactory::open(options).unwrap();
    // This runtime fails after the network is set up.
    let fails = spec("oci:/bin/false", "bridge", "shared", "none", "own");
    let mut environment = factory.environment(&fails).unwrap();
    let error = environment.start(&launch()).unwrap_err().to_string();
    assert!(error.contains("/bin/false") && error.contains("failed"), "{error}");
    if tare_host::exec::find("runc").is_some() {
        // The program is not static and the root is empty: only its log names the cause.
        let spec = spec("oci:runc", "host", "shared", "none", "own");
        let mut environment = factory.environment(&spec).unwrap();
        environment.start(&launch()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(5);
        while !environment.log_tail().contains("no such file") {
            assert!(Instant::now() < deadline, "the log says {:?}", environment.log_tail());
            thread::sleep(Duration::from_millis(1));
        }
        let layers = environment.read_back().unwrap();
        assert!(layers.iter().any(|layer| layer.layer == "runtime" && !layer.in_force));
    }
    let refused = spec("process", "host", "shared", "default", "own");
    assert!(factory.environment(&refused).err().unwrap().to_string().contains("security"));
    let missing = spec("oci:no-such-runtime", "host", "shared", "none", "own");
    assert!(factory.environment(&missing).err().unwrap().to_string().contains("no program"));
    factory.close();
    assert_clean(factory.run(), test);
}

#[test]
fn clean_removes_leftovers_of_killed_harness() {
    let _host = host();
    let test = "clean_removes_leftovers_of_killed_harness";
    if skipped(test, &[Need::Root, Need::Program("nft")]) {
        return;
    }
    let runtimes = ["oci:runc", "oci:crun", "process", "oci:runsc"];
    let runtimes = runtimes
        .into_iter()
        .filter(|name| runtime::check(&spec(name, "host", "shared", "none", "own")).is_ok());
    kill_and_clean(test, &runtimes.collect::<Vec<&str>>());
}

/// Kills harnesses at many points and checks that nothing is left after a clean.
fn kill_and_clean(test: &str, runtimes: &[&str]) {
    let state = State::new(test);
    for point in 0..20u64 {
        let mut harness = Command::new(program())
            .arg("harness")
            .arg(&state.0)
            .args(runtimes)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(harness.stdout.take().unwrap()).lines();
        // Kills the harness some ms after a number of steps.
        for _ in 0..point % 5 + point / 10 * 7 {
            lines.next();
        }
        thread::sleep(Duration::from_millis(point * 13 % 60));
        if point == 7 {
            let report = clean::clean(&state.0, tare_env::undo::KINDS).unwrap();
            assert!(matches!(report.runs[0].1, Outcome::Alive { .. }), "{report:?}");
        }
        harness.kill().unwrap();
        harness.wait().unwrap();
        let begin = Instant::now();
        let report = clean::clean(&state.0, tare_env::undo::KINDS).unwrap();
        let elapsed = begin.elapsed();
        for (run, outcome) in &report.runs {
            assert!(matches!(outcome, Outcome::Cleaned { .. }), "{run}: {outcome:?}");
            eprintln!("point {point}: {outcome:?} in {elapsed:.0?}");
        }
        assert!(clean::clean(&state.0, tare_env::undo::KINDS).unwrap().runs.is_empty());
        for (run, _) in &report.runs {
            assert_clean(run, &format!("killed at point {point}"));
            let named = format!("tare-{run}");
            let left = clean::leftovers(&state.0);
            assert!(!left.iter().any(|left| left.name.contains(&named)), "{left:?}");
        }
        let left: Vec<_> = fs::read_dir(&state.0).unwrap().flatten().collect();
        assert_eq!(left.len(), usize::from(state.0.join("runs").exists()), "{left:?}");
    }
}
