//! The environments of container engines, if one answers: start, layers in force, a client that
//! connects, freezing, CPU times, and nothing left behind.
//!
//! The system in the container is this test program: `inside` serves in it.
#![expect(clippy::print_stderr, reason = "how long things take")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tare_env::runtime;
use tare_env::unavailable::Unavailable;
use tare_env::{EnvironmentFactory, FactoryOptions};
use tare_host::clean::{self, Outcome};
use tare_host::netns;
use tare_lab::environment::{CpuPlan, EnvironmentSpec, Launch};
use tare_lab::layer::{Cpu, Security};
use tare_std::cpus::CpuSet;
use tare_testkit::{EnvironmentBuilder, Need, Reason, host_state, skip, skipped};

/// Serves in the container; does nothing when it is run as a test.
#[test]
fn inside() {
    let words: Vec<String> = std::env::args().collect();
    let Some(address) = words.iter().find_map(|word| word.strip_prefix("serve=")) else { return };
    let data = words.iter().find_map(|word| word.strip_prefix("data=")).unwrap();
    std::fs::write(format!("{data}/here"), std::fs::read("/proc/self/status").unwrap()).unwrap();
    let ring = io_uring::IoUring::new(8).err().and_then(|error| error.raw_os_error());
    std::fs::write(format!("{data}/io_uring"), format!("{ring:?}")).unwrap();
    for stream in TcpListener::bind(address).unwrap().incoming() {
        let Ok(mut stream) = stream else { continue };
        std::thread::spawn(move || {
            let reader = BufReader::new(stream.try_clone().unwrap());
            for line in reader.lines().map_while(Result::ok) {
                let begin = Instant::now();
                while begin.elapsed() < Duration::from_millis(5) {}
                if writeln!(stream, "{line}").is_err() {
                    break;
                }
            }
        });
    }
}

/// Prints what is seen inside a sandbox; does nothing when it is run as a test.
#[test]
fn facts() {
    if std::env::args().nth(1).as_deref() == Some(tare_env::runtime::gvisor::inside::COMMAND) {
        let text = serde_json::to_string(&tare_env::runtime::gvisor::SandboxView::read()).unwrap();
        // The test harness captures `println!`, so this writes to stdout directly.
        writeln!(std::io::stdout(), "\n{text}").unwrap();
    }
}

fn launch() -> Launch {
    let words = ["inside", "--exact", "--nocapture", "serve={listen}:{port}", "data={data}"];
    Launch { arguments: words.map(str::to_owned).to_vec(), ..Launch::default() }
}

/// A factory in a temporary state directory. Dropping it, also by unwinding, removes everything.
struct Scratch {
    factory: EnvironmentFactory,
    folder: PathBuf,
}

impl Scratch {
    fn open(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("tare-test-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self { factory: open(&folder), folder }
    }
}

fn open(state: &Path) -> EnvironmentFactory {
    let all = tare_host::process::cpus_of_this_thread().unwrap();
    let (first, last) = (all.iter().next().unwrap(), all.iter().last().unwrap());
    let one = |cpu: u32| CpuSet::parse_list(&cpu.to_string()).unwrap();
    let cpus = CpuPlan { system: one(last), client: one(first), all, ..CpuPlan::default() };
    let program = std::env::current_exe().unwrap();
    EnvironmentFactory::open(FactoryOptions {
        state: state.into(),
        program,
        cpus,
        destroy: Vec::new(),
        reach: None,
    })
    .unwrap()
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let left = self.factory.close();
        if left.is_empty() {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
        assert!(left.is_empty() || std::thread::panicking(), "{left:?}");
    }
}

fn spec(runtime: &str, network: &str, cpu: &str, security: &str) -> EnvironmentSpec {
    EnvironmentBuilder::new(runtime)
        .name(format!("{runtime} {network} {cpu} {security}"))
        .network(network)
        .cpu(cpu)
        .security(security)
        .memory_bytes(256 << 20)
        .build()
}

/// Sends one line to the system from the client's namespace and returns the answer.
fn echo(factory: &EnvironmentFactory, address: SocketAddr) -> std::io::Result<String> {
    let once = || {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        writeln!(&stream, "hello")?;
        let mut line = String::new();
        match BufReader::new(&stream).read_line(&mut line)? {
            0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line),
        }
    };
    // A userland proxy accepts connections before the system does, and resets them.
    let retry = || {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            match once() {
                Err(_) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                ended => return ended,
            }
        }
    };
    netns::within(factory.client_namespace(), retry).unwrap()
}

fn conforms(factory: &EnvironmentFactory, spec: &EnvironmentSpec) {
    let name = &spec.name;
    let mut environment = factory.environment(spec).unwrap();
    let begin = Instant::now();
    let endpoint = environment.start(&launch()).unwrap();
    let created = begin.elapsed();
    let answer = echo(factory, endpoint.address);
    assert_eq!(answer.unwrap(), "hello\n", "{name}: {}", environment.log_tail());
    eprintln!("{name}: created {created:?}, answers {:?}", begin.elapsed());

    for state in environment.read_back().unwrap() {
        eprintln!("  {} {} | {} | {}", state.in_force, state.layer, state.wanted, state.found);
        assert!(state.in_force, "{name}: {state:?}");
    }
    let data = endpoint.data.unwrap();
    let ring = std::fs::read_to_string(data.join("io_uring")).unwrap();
    match spec.runtime.as_str().contains("runsc") {
        // ENOSYS: gVisor has no io_uring.
        true => assert_eq!(ring, "Some(38)", "{name}"),
        false => {
            assert_eq!(ring == "Some(1)", spec.security == Security::Default, "{name}: {ring}")
        }
    }

    let before = environment.usage().unwrap();
    echo(factory, endpoint.address).unwrap();
    let after = environment.usage().unwrap();
    assert!(after.system_cpu_ns > before.system_cpu_ns, "{name}: {before:?} {after:?}");
    if spec.network.has_proxy() {
        let proxy = |usage: &tare_lab::environment::Usage| usage.layer_cpu_ns[0].1;
        assert!(proxy(&after) > proxy(&before), "{name}: {before:?} {after:?}");
    }
    if spec.runtime.as_str().contains("runsc") {
        assert!(after.layer_cpu_ns.iter().any(|(part, _)| part == "gofer"), "{name}: {after:?}");
    }
    assert_eq!(after.throttled_ns.is_some(), matches!(spec.cpu, Cpu::Quota(_)), "{name}");

    environment.freeze().unwrap();
    let frozen = environment.usage().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let ran = environment.usage().unwrap().system_cpu_ns - frozen.system_cpu_ns;
    let most = if spec.runtime.as_str().contains("runsc") { 10_000_000 } else { 0 };
    assert!(ran <= most, "{name}: it runs while frozen, {ran} ns");
    environment.thaw().unwrap();
    assert_eq!(echo(factory, endpoint.address).unwrap(), "hello\n", "{name}");

    assert!(environment.config().unwrap().contains("\"HostConfig\""));
    environment.freeze().unwrap();
    let begin = Instant::now();
    environment.stop().unwrap();
    eprintln!("{name}: gone {:?}", begin.elapsed());
    environment.stop().unwrap();
    assert!(environment.usage().is_err(), "{name}: it has a usage after the stop");
    let again = environment.start(&launch()).unwrap();
    assert_eq!(echo(factory, again.address).unwrap(), "hello\n", "{name}, again");
}

/// Returns whether an engine answers. If not, the test is reported as skipped.
fn answers(test: &str, runtime: &str) -> bool {
    let missing = runtime::check(&spec(runtime, "bridge", "shared", "default")).err();
    let missing = missing.map(|error| match error.downcast_ref::<Unavailable>() {
        Some(missing) => Reason::unavailable(&missing.what, &missing.why),
        None => Reason::Other(error.to_string()),
    });
    if let Some(reason) = &missing {
        skip(test, reason.clone());
        return false;
    }
    !skipped(test, &[Need::Root])
}

#[test]
fn docker_conforms() {
    if !answers("docker_conforms", "docker") {
        return;
    }
    let scratch = Scratch::open("docker");
    for (network, cpu, security) in [
        ("bridge", "shared", "default"),
        ("bridge+proxy", "shared", "default"),
        ("bridge", "pinned", "default+io_uring"),
        ("host", "pinned", "none"),
        ("host", "quota=0.5", "default"),
    ] {
        conforms(&scratch.factory, &spec("docker", network, cpu, security));
    }
}

#[test]
fn docker_uses_configured_runtime() {
    let test = "docker_uses_configured_runtime";
    for runtime in ["docker:runc", "docker:crun"] {
        if answers(test, runtime) {
            let scratch = Scratch::open(&runtime.replace(':', "-"));
            conforms(&scratch.factory, &spec(runtime, "bridge", "shared", "default"));
        }
    }
    if answers(test, "docker") {
        let none = spec("docker:tare-none", "bridge", "shared", "default");
        let error = runtime::check(&none).unwrap_err().to_string();
        assert!(error.contains("docker:tare-none") && error.contains("runc"), "{error}");
    }
}

#[test]
fn docker_runs_gvisor_with_options() {
    let test = "docker_runs_gvisor_with_options";
    if !answers(test, "docker:runsc") {
        return;
    }
    let scratch = Scratch::open("docker-gvisor");
    for (network, cpu) in [("bridge", "shared"), ("bridge+proxy", "pinned"), ("bridge", "quota=1")]
    {
        conforms(&scratch.factory, &spec("docker:runsc", network, cpu, "default"));
    }
    let mut ptrace = spec("docker:runsc-ptrace", "bridge", "shared", "none");
    ptrace.sandbox = vec![("platform".into(), "ptrace".into())];
    if answers(test, ptrace.runtime.as_str()) {
        conforms(&scratch.factory, &ptrace);
    }
    // Options that the engine's runtime is not configured for are not in force.
    let other = EnvironmentSpec { runtime: "docker:runsc".into(), ..ptrace };
    let mut environment = scratch.factory.environment(&other).unwrap();
    environment.start(&launch()).unwrap();
    let states = environment.read_back().unwrap();
    let platform = states.iter().find(|state| state.layer == "sandbox.platform").unwrap();
    assert!(!platform.in_force && platform.found.starts_with("systrap"), "{platform:?}");
}

#[test]
fn podman_conforms() {
    if !answers("podman_conforms", "podman") {
        return;
    }
    let before = host_state::archives();
    let scratch = Scratch::open("podman");
    for (network, cpu, security) in
        [("bridge", "shared", "default"), ("host", "pinned", "none"), ("host", "shared", "default")]
    {
        conforms(&scratch.factory, &spec("podman", network, cpu, security));
    }
    assert_eq!(host_state::archives(), before, "left in /var/tmp");
}

#[test]
fn refuses_unsupported_options() {
    let test = "refuses_unsupported_options";
    if !answers(test, "docker") {
        return;
    }
    let scratch = Scratch::open("docker-refuses");
    let mut none = spec("docker", "bridge", "shared", "default");
    none.cgroup = "none".parse().unwrap();
    none.limits.memory_bytes = None;
    let error = scratch.factory.environment(&none).err().unwrap().to_string();
    assert!(error.contains("cgroup = \"own\""), "{error}");
    // A system that ends at once is reported with its output, by the start or soon after.
    let mut short = scratch.factory.environment(&spec("docker", "host", "shared", "none")).unwrap();
    let error =
        short.start(&Launch { arguments: vec!["--no-such-flag".into()], ..Launch::default() });
    let mut text = error.err().map(|error| error.to_string()).unwrap_or_default();
    let deadline = Instant::now() + Duration::from_secs(5);
    while !text.contains("no-such-flag") {
        assert!(Instant::now() < deadline, "{text}");
        std::thread::sleep(Duration::from_millis(10));
        text = short.log_tail();
    }
}

/// Starts and freezes containers until it is killed; does nothing when it is run as a test.
#[test]
fn harness() {
    let words: Vec<String> = std::env::args().collect();
    let Some(state) = words.iter().find_map(|word| word.strip_prefix("state=")) else { return };
    let runtime = words.iter().find_map(|word| word.strip_prefix("runtime=")).unwrap();
    eprintln!("opening");
    let factory = open(Path::new(state));
    loop {
        let mut environments = Vec::new();
        for network in ["bridge", "bridge+proxy", "host"] {
            if runtime == "podman" && network == "bridge+proxy" {
                continue;
            }
            let spec = spec(runtime, network, "shared", "none");
            let mut environment = factory.environment(&spec).unwrap();
            environment.start(&launch()).unwrap();
            environment.freeze().unwrap();
            eprintln!("started");
            environments.push(environment);
        }
        for mut environment in environments {
            environment.stop().unwrap();
            eprintln!("stopped");
        }
    }
}

/// Returns the engine's containers and images with Tare's name, from its API.
fn left_in_engine(variable: &str, usual: &str) -> Vec<String> {
    let socket = std::env::var(variable).unwrap_or_else(|_| usual.into());
    let mut found = Vec::new();
    for target in ["/containers/json?all=true", "/images/json"] {
        let mut stream = UnixStream::connect(socket.trim_start_matches("unix://")).unwrap();
        write!(stream, "GET {target} HTTP/1.0\r\nHost: tare\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.lines().next().unwrap().contains("200"), "{answer}");
        let names = answer.split('"').filter(|word| word.contains("tare-") && !word.contains(' '));
        found.extend(names.map(str::to_owned));
    }
    found
}

fn killed_harness_is_cleaned(test: &str, runtime: &str, variable: &str, usual: &str) {
    if !answers(test, runtime) {
        return;
    }
    let state = std::env::temp_dir().join(format!("tare-test-{test}-{}", std::process::id()));
    std::fs::create_dir_all(&state).unwrap();
    let before = left_in_engine(variable, usual);
    for point in 0..8u64 {
        let mut harness = Command::new(std::env::current_exe().unwrap())
            .args(["harness", "--exact", "--nocapture"])
            .arg(format!("state={}", state.display()))
            .arg(format!("runtime={runtime}"))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(harness.stderr.take().unwrap()).lines();
        // Kills the harness some ms after a number of steps.
        for _ in 0..=point % 5 {
            lines.next();
        }
        std::thread::sleep(Duration::from_millis(point * 97 % 400));
        harness.kill().unwrap();
        harness.wait().unwrap();
        let begin = Instant::now();
        let report = clean::clean(&state, tare_env::undo::KINDS).unwrap();
        eprintln!("{test}: point {point}: {:?} in {:?}", report.runs, begin.elapsed());
        for (run, outcome) in &report.runs {
            assert!(matches!(outcome, Outcome::Cleaned { .. }), "{run}: {outcome:?}");
        }
        // An engine may still complete a request of the killed harness.
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(left_in_engine(variable, usual), before, "point {point}");
        let left = clean::leftovers(&state);
        let ours = |name: &str| report.runs.iter().any(|(run, _)| name.contains(run.as_str()));
        assert!(!left.iter().any(|left| ours(&left.name)), "point {point}: {left:?}");
    }
    std::fs::remove_dir_all(&state).unwrap();
}

#[test]
fn clean_removes_leftovers_in_docker() {
    let test = "clean_removes_leftovers_in_docker";
    killed_harness_is_cleaned(test, "docker", "DOCKER_HOST", "/var/run/docker.sock");
}

#[test]
fn clean_removes_leftovers_in_podman() {
    let test = "clean_removes_leftovers_in_podman";
    killed_harness_is_cleaned(test, "podman", "CONTAINER_HOST", "/run/podman/podman.sock");
}
