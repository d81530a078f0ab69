//! Pods as environments, if there is a cluster: start, layers in force, a client that connects,
//! freezing, CPU times, refusals as one line, and nothing left behind.
//!
//! `scripts/kubernetes` starts a cluster of one node. The node has a network namespace of its own,
//! so each test runs again in a process there. The system in the pod is this test program: `inside`
//! serves in it.
#![expect(clippy::print_stderr, reason = "how long things take")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tare_env::runtime;
use tare_env::{EnvironmentFactory, FactoryOptions};
use tare_host::clean::{self, Outcome};
use tare_host::netns;
use tare_kube::{Access, Cluster};
use tare_lab::environment::{CpuPlan, EnvironmentSpec, Launch};
use tare_lab::layer::{Apparmor, Capabilities, Cpu, HUGE_PAGE_BYTES, Limits, Sidecar, User};
use tare_std::cpus::CpuSet;
use tare_testkit::kubernetes::alone_on_node;
use tare_testkit::{EnvironmentBuilder, Reason, skip};

#[path = "conformance_kubernetes/gvisor.rs"]
mod gvisor;
#[path = "conformance_kubernetes/rights.rs"]
mod rights;
#[path = "conformance_kubernetes/volumes.rs"]
mod volumes;

/// Serves in the pod; does nothing when it is run as a test.
#[test]
fn inside() {
    let words: Vec<String> = std::env::args().collect();
    let Some(address) = words.iter().find_map(|word| word.strip_prefix("serve=")) else { return };
    let data = words.iter().find_map(|word| word.strip_prefix("data=")).unwrap();
    std::fs::write(format!("{data}/here"), std::fs::read("/proc/self/status").unwrap()).unwrap();
    if let Some(node) = words.iter().find_map(|word| word.strip_prefix("node=")) {
        let others = TcpListener::bind(node).unwrap();
        std::thread::spawn(move || others.incoming().flatten().for_each(drop));
    }
    let seeds = words.iter().find_map(|word| word.strip_prefix("seeds=")).unwrap_or_default();
    let seeds = seeds.to_string();
    for stream in TcpListener::bind(address).unwrap().incoming() {
        let Ok(mut stream) = stream else { continue };
        let seeds = seeds.clone();
        std::thread::spawn(move || {
            let reader = BufReader::new(stream.try_clone().unwrap());
            for line in reader.lines().map_while(Result::ok) {
                // Every instance in turn answers which seeds it reaches.
                let line = if line == "seeds" { reached(&seeds) } else { line };
                let begin = Instant::now();
                while begin.elapsed() < Duration::from_millis(5) {}
                if writeln!(stream, "{line}").is_err() {
                    break;
                }
            }
        });
    }
}

/// Returns the seeds that answer at their port for the other instances.
fn reached(seeds: &str) -> String {
    let (addresses, port) = seeds.split_once(':').unwrap();
    let answers = |address: &&str| TcpStream::connect(format!("{address}:{port}")).is_ok();
    addresses.split(',').filter(answers).collect::<Vec<_>>().join(",")
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

fn spec(network: &str, cpu: &str, security: &str, storage: &str) -> EnvironmentSpec {
    let options: &[(&str, &str)] = if storage == "tmpfs" { &[("size", "32M")] } else { &[] };
    EnvironmentBuilder::new("kubernetes")
        .name(format!("{network} {cpu} {security} {storage}"))
        .network(network)
        .cpu(cpu)
        .security(security)
        .storage(storage, options)
        .memory_bytes(256 << 20)
        .build()
}

/// Sends one line to the system from the client's namespace and returns the answer.
fn echo(factory: &EnvironmentFactory, address: SocketAddr) -> std::io::Result<String> {
    ask(factory, address, "hello")
}

fn ask(
    factory: &EnvironmentFactory,
    address: SocketAddr,
    question: &str,
) -> std::io::Result<String> {
    let once = || {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        writeln!(&stream, "{question}")?;
        let mut line = String::new();
        match BufReader::new(&stream).read_line(&mut line)? {
            0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line),
        }
    };
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
    let in_gvisor = spec.runtime.as_str() == gvisor::RUNTIME;
    let status = std::fs::read_to_string(endpoint.data.unwrap().join("here")).unwrap();
    let is_filtered = spec.security.to_string() != "none" && !in_gvisor;
    let filter = if is_filtered { "Seccomp:\t2" } else { "Seccomp:\t0" };
    assert!(status.contains(filter), "{name}: {status}");

    let before = environment.usage().unwrap();
    echo(factory, endpoint.address).unwrap();
    let after = environment.usage().unwrap();
    assert!(after.system_cpu_ns > before.system_cpu_ns, "{name}: {before:?} {after:?}");
    let beside = after.layer_cpu_ns.first().map(|(name, _)| name.as_str());
    let expect =
        if in_gvisor { Some("gofer") } else { (!spec.sidecar.is_none()).then_some("sidecar") };
    assert_eq!(beside, expect, "{name}: {after:?}");
    assert_eq!(after.throttled_ns.is_some(), spec.cpu.quota().is_some(), "{name}");

    environment.freeze().unwrap();
    let frozen = environment.usage().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let ran = environment.usage().unwrap().system_cpu_ns - frozen.system_cpu_ns;
    // A paused sentry still has the timers of its runtime.
    let most = if in_gvisor { 10_000_000 } else { 0 };
    assert!(ran <= most, "{name}: it runs {ran} ns while frozen");
    environment.thaw().unwrap();
    assert_eq!(echo(factory, endpoint.address).unwrap(), "hello\n", "{name}");

    assert!(environment.config().unwrap().contains("\"seccompProfile\""));
    environment.freeze().unwrap();
    let begin = Instant::now();
    environment.stop().unwrap();
    eprintln!("{name}: gone {:?}", begin.elapsed());
    environment.stop().unwrap();
    assert!(environment.usage().is_err(), "{name}: it has a usage after the stop");
    let again = environment.start(&launch()).unwrap();
    assert_eq!(echo(factory, again.address).unwrap(), "hello\n", "{name}, again");
}

#[test]
fn pods_conform() {
    let Some(_alone) = alone_on_node("pods_conform") else { return };
    let scratch = Scratch::open("kubernetes");
    for (network, cpu, security, storage) in [
        ("bridge", "shared", "default", "directory"),
        ("host", "shared", "none", "volume"),
        ("bridge", "quota=0.5", "none", "tmpfs"),
        ("host", "pinned", "default", "directory"),
        ("service", "request=0.2", "default", "directory"),
        ("node-port", "shared", "none", "volume"),
        ("host-port", "request=0.2..0.9", "none", "directory"),
        ("host", "shared", "default+io_uring", "directory"),
    ] {
        conforms(&scratch.factory, &spec(network, cpu, security, storage));
    }
    let mut best_effort = spec("host", "shared", "none", "directory");
    best_effort.limits.memory_bytes = None;
    conforms(&scratch.factory, &best_effort);
    let mut powerless = spec("bridge", "shared", "none", "directory");
    powerless.name = "no capabilities".into();
    powerless.confinement.capabilities = Capabilities::None;
    conforms(&scratch.factory, &powerless);
    // A proxy is Tare's own program, which crates/tare/tests/on_kubernetes.rs has.
    let mut idle = spec("bridge", "shared", "default", "directory");
    idle.name = "idle sidecar".into();
    idle.sidecar = Sidecar::Idle;
    conforms(&scratch.factory, &idle);
    idle.name = "idle sidecar of a Guaranteed pod".into();
    idle.cpu = "quota=0.5".parse().unwrap();
    conforms(&scratch.factory, &idle);
    // Without AppArmor both are refused (`refusals_are_one_line`).
    for apparmor in [Apparmor::Default, Apparmor::Runtime].into_iter().filter(|_| has_apparmor()) {
        let mut profiled = spec("bridge", "shared", "default", "directory");
        profiled.name = format!("AppArmor {apparmor}");
        profiled.confinement.apparmor = apparmor;
        conforms(&scratch.factory, &profiled);
    }
}

/// A node has them with `TARE_KUBERNETES_CONTAINERD=v2.1.9 scripts/kubernetes`, otherwise they are
/// refused (`refusals_are_one_line`).
#[test]
fn pods_with_user_namespaces_conform() {
    let test = "pods_with_user_namespaces_conform";
    let Some(_alone) = alone_on_node(test) else { return };
    if !has_user_namespaces() {
        let place = "with TARE_KUBERNETES_CONTAINERD=v2.1.9 scripts/kubernetes".to_string();
        return skip(test, Reason::RunsElsewhere { place });
    }
    let scratch = Scratch::open("kubernetes-users");
    for (network, security, storage) in [
        ("bridge", "default", "directory"),
        ("service", "none", "volume"),
        ("bridge", "none", "tmpfs"),
    ] {
        let mut own_users = spec(network, "shared", security, storage);
        own_users.name = format!("user namespace, {storage}");
        own_users.confinement.user = User::Namespace;
        conforms(&scratch.factory, &own_users);
    }
}

/// A node has huge pages with `TARE_KUBERNETES_HUGE_PAGES=32 scripts/kubernetes`.
#[test]
fn huge_pages_are_limited() {
    let test = "huge_pages_are_limited";
    let Some(_alone) = alone_on_node(test) else { return };
    if !has_huge_pages() {
        let place = "with TARE_KUBERNETES_HUGE_PAGES=32 scripts/kubernetes".to_string();
        return skip(test, Reason::RunsElsewhere { place });
    }
    let scratch = Scratch::open("kubernetes-huge-pages");
    for cpu in ["shared", "pinned"] {
        let mut huge = spec("host", cpu, "none", "directory");
        huge.limits.huge_pages_bytes = Some(16 << 20);
        conforms(&scratch.factory, &huge);
        let mut environment = scratch.factory.environment(&huge).unwrap();
        environment.start(&launch()).unwrap();
        let states = environment.read_back().unwrap();
        let state = states.iter().find(|state| state.layer == "limits.huge_pages").unwrap();
        assert!(state.in_force && state.found == "16777216, 0 in use", "{state:?}");
        environment.stop().unwrap();
    }
    let mut more = spec("host", "shared", "none", "directory");
    more.limits.huge_pages_bytes = Some(1 << 40);
    let mut environment = scratch.factory.environment(&more).unwrap();
    let line = tare_host::error_line(&*environment.start(&launch()).unwrap_err());
    assert!(line.contains("Insufficient hugepages-2Mi"), "{line}");
}

/// Three pods find each other, and are measured, frozen and removed together.
#[test]
fn instances_are_pods_that_find_each_other() {
    let test = "instances_are_pods_that_find_each_other";
    let Some(_alone) = alone_on_node(test) else { return };
    let scratch = Scratch::open("kubernetes-instances");
    let factory = &scratch.factory;
    let mut launch = launch();
    let more = ["node={node}:{node_port}", "seeds={seeds}:{node_port}"];
    launch.arguments.extend(more.map(str::to_owned));
    for network in ["bridge", "host"] {
        let mut spec = spec(network, "quota=0.6", "none", "directory");
        spec.limits.memory_bytes = Some(384 << 20);
        let mut environment = factory.environment_of(&spec, 3).unwrap();
        let endpoints = environment.start_all(&vec![launch.clone(); 3]).unwrap();
        let addresses: Vec<String> =
            endpoints.iter().map(|one| one.address.ip().to_string()).collect();
        let own = |address: &String| addresses.iter().filter(|one| *one == address).count() == 1;
        assert!(addresses.len() == 3 && addresses.iter().all(own), "{network}: {endpoints:?}");
        for (number, endpoint) in endpoints.iter().enumerate() {
            let answer = ask(factory, endpoint.address, "seeds").unwrap();
            // In the node's network the addresses for each other are known before the start.
            let seeds = if network == "host" { 3 } else { number + 1 };
            let found: Vec<&str> = answer.trim_end().split(',').collect();
            assert_eq!(found.len(), seeds, "{network}: {answer}");
            let same = found.iter().zip(&addresses).all(|(found, address)| found == address);
            assert!(network == "host" || same, "{network}: {answer}");
        }
        for state in environment.read_back().unwrap() {
            assert!(state.in_force, "{network}: {state:?}");
        }
        let usage = environment.usage().unwrap();
        assert_eq!(usage.instance_cpu_ns.len(), 3, "{network}: {usage:?}");
        environment.freeze().unwrap();
        let frozen = environment.usage().unwrap().system_cpu_ns;
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(environment.usage().unwrap().system_cpu_ns, frozen, "{network}");
        environment.stop().unwrap();
    }
    let refused = |change: &dyn Fn(&mut EnvironmentSpec), expect: &str| {
        let mut spec = spec("bridge", "shared", "none", "directory");
        change(&mut spec);
        let mut environment = factory.environment_of(&spec, 2).unwrap();
        let line = environment.start_all(&vec![launch.clone(); 2]).unwrap_err().to_string();
        assert!(line.contains(expect), "{line}");
    };
    refused(&|spec| spec.network = "service".parse().unwrap(), "write bridge or host");
    refused(&|spec| spec.sidecar = Sidecar::Proxy, "write idle or none");
}

fn has_user_namespaces() -> bool {
    let cluster = Cluster::connect(&Access::find().unwrap()).unwrap();
    cluster.node_here().unwrap().has_user_namespaces
}

/// Returns whether the node has huge pages for pods.
fn has_huge_pages() -> bool {
    let cluster = Cluster::connect(&Access::find().unwrap()).unwrap();
    cluster.node_here().unwrap().has_huge_pages
}

fn has_apparmor() -> bool {
    let path = "/sys/module/apparmor/parameters/enabled";
    std::fs::read_to_string(path).is_ok_and(|text| text.trim() == "Y")
}

/// A service without a pod that answers is no layer in force.
#[test]
fn service_that_leads_nowhere_is_not_in_force() {
    let test = "service_that_leads_nowhere_is_not_in_force";
    let Some(_alone) = alone_on_node(test) else { return };
    let scratch = Scratch::open("kubernetes-nowhere");
    let mut environment =
        scratch.factory.environment(&spec("service", "shared", "none", "directory")).unwrap();
    let endpoint = environment.start(&launch()).unwrap();
    assert_eq!(echo(&scratch.factory, endpoint.address).unwrap(), "hello\n");
    let cluster = Cluster::connect(&Access::find().unwrap()).unwrap();
    let namespaces = cluster.namespaces_of_runs().unwrap();
    cluster.delete_service(&namespaces[0], "e0").unwrap();
    // The proxy removes its rules a moment later.
    let deadline = Instant::now() + Duration::from_secs(10);
    let network = loop {
        let states = environment.read_back().unwrap();
        let network = states.into_iter().find(|state| state.layer == "network").unwrap();
        if !network.in_force || Instant::now() > deadline {
            break network;
        }
    };
    assert!(!network.in_force, "{network:?}");
    eprintln!("{}", network.found);
}

#[test]
fn refusals_are_one_line() {
    let Some(_alone) = alone_on_node("refusals_are_one_line") else { return };
    let scratch = Scratch::open("kubernetes-refuses");
    let check = |change: fn(&mut EnvironmentSpec), expect: &str| {
        let mut spec = spec("bridge", "shared", "default", "directory");
        change(&mut spec);
        let failed = scratch
            .factory
            .environment(&spec)
            .and_then(|mut environment| environment.start(&launch()).map(drop));
        let line = tare_host::error_line(&*failed.unwrap_err());
        assert!(line.contains(expect) && !line.contains('\n'), "{expect}: {line}");
        eprintln!("{line}");
    };
    check(|spec| spec.network = "bridge+proxy".parse().unwrap(), "no userland proxy");
    check(|spec| spec.storage.kind = "rootfs".into(), "the root of a pod is its image");
    check(|spec| spec.limits.cpu_weight = Some(7), "limits of memory and huge pages alone");
    check(|spec| spec.limits.huge_pages_bytes = Some(3 << 20), "it is no multiple of 2M");
    check(
        |spec| {
            spec.limits = Limits { huge_pages_bytes: Some(HUGE_PAGE_BYTES), ..Limits::default() };
        },
        "needs a request of CPU or memory too",
    );
    if !has_huge_pages() {
        let few: fn(&mut EnvironmentSpec) =
            |spec| spec.limits.huge_pages_bytes = Some(HUGE_PAGE_BYTES);
        check(few, "has no huge pages of 2 MiB for pods");
    }
    check(|spec| spec.cpu = "quota=2".parse().unwrap(), "a whole number of CPUs");
    check(
        |spec| {
            spec.cpu = Cpu::Pinned;
            spec.limits.memory_bytes = None;
        },
        "needs a memory limit",
    );
    check(|spec| spec.network = "macvlan".parse().unwrap(), "has no network = \"macvlan\"");
    check(|spec| spec.confinement.node = Some(0), "the kubelet's memory manager decides");
    check(
        |spec| {
            spec.network = "host".parse().unwrap();
            spec.confinement.user = User::Namespace;
        },
        "has the node's users too",
    );
    // The distribution's containerd is older than 2.0.
    if !has_user_namespaces() {
        check(|spec| spec.confinement.user = User::Namespace, "has no user namespaces for pods");
    }
    if !has_apparmor() {
        check(|spec| spec.confinement.apparmor = Apparmor::Default, "needs AppArmor");
        check(|spec| spec.confinement.apparmor = Apparmor::Runtime, "needs AppArmor");
    }
    check(|spec| spec.runtime = "kubernetes:tare-none".into(), "RuntimeClass");
    check(|spec| spec.limits.memory_bytes = Some(1 << 50), "Insufficient memory");
    // A system that ends at once is reported with its exit code, by the start or soon after.
    let ends = spec("host", "shared", "none", "directory");
    let mut ends = scratch.factory.environment(&ends).unwrap();
    let bad = Launch { arguments: vec!["--no-such-flag".into()], ..Launch::default() };
    match ends.start(&bad) {
        Err(error) => {
            let line = error.to_string();
            assert!(line.contains("no-such-flag") || line.contains("process"), "{line}");
        }
        Ok(_) => assert!(ends.log_tail().contains("no-such-flag"), "{}", ends.log_tail()),
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

/// Prints why this process cannot use a cluster; does nothing when it is run as a test.
#[test]
fn refused() {
    if std::env::args().any(|word| word == "print-refusal") {
        let spec = spec("bridge", "shared", "default", "directory");
        let line = match runtime::check(&spec) {
            Err(error) => tare_host::error_line(&*error),
            Ok(()) => "nothing".into(),
        };
        writeln!(std::io::stderr(), "refused: {line}").unwrap();
    }
}

/// Runs `refused` with another access and returns its line.
fn refusal(access: Option<&Path>) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["refused", "--exact", "--nocapture", "print-refusal"]).env("HOME", "/tare-none");
    match access {
        Some(path) => command.env("KUBECONFIG", path),
        None => command.env_remove("KUBECONFIG"),
    };
    let output = String::from_utf8(command.output().unwrap().stderr).unwrap();
    let line = output.lines().find_map(|line| line.strip_prefix("refused: "));
    line.unwrap_or_else(|| panic!("{output}")).to_string()
}

#[test]
fn access_that_fails_is_named() {
    let Some(_alone) = alone_on_node("access_that_fails_is_named") else { return };
    let folder = tempfile::tempdir().unwrap();
    let admin = PathBuf::from(std::env::var_os("KUBECONFIG").unwrap());
    let text = std::fs::read_to_string(&admin).unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let token = |text: &str| text.replace("token: \"", "token: \"not");
    for (access, expect) in [
        (None, "KUBECONFIG is not set"),
        (Some(folder.path().join("none")), "No such file"),
        (Some(write("text", "not: [a config")), "cannot use the access"),
        (Some(write("port", &text.replace(":6443", ":6444"))), "does not answer"),
        (Some(write("token", &token(&text))), "does not know the user"),
        (Some(admin.with_file_name("powerless")), "cannot list resource \"nodes\""),
    ] {
        let line = refusal(access.as_deref());
        assert!(line.contains(expect) && line.contains("; "), "{expect}: {line}");
        eprintln!("{line}");
    }
}

#[test]
fn namespace_of_somebody_else_stays() {
    let Some(_alone) = alone_on_node("namespace_of_somebody_else_stays") else { return };
    let cluster = Cluster::connect(&Access::find().unwrap()).unwrap();
    let name = format!("tare-test-{}", std::process::id());
    cluster.create_namespace(&name, "0000").unwrap();
    let error = cluster.create_namespace(&name, "0001").unwrap_err().to_string();
    assert!(error.contains("it exists"), "{error}");
    let error = cluster.delete_namespace(&name, "0001").unwrap_err().to_string();
    assert!(error.contains("not Tare's"), "{error}");
    cluster.delete_namespace(&name, "0000").unwrap();
    cluster.delete_namespace(&name, "0000").unwrap();
}

/// Starts and freezes pods until it is killed; does nothing when it is run as a test.
#[test]
fn harness() {
    let words: Vec<String> = std::env::args().collect();
    let Some(state) = words.iter().find_map(|word| word.strip_prefix("state=")) else { return };
    eprintln!("opening");
    let factory = open(Path::new(state));
    loop {
        let mut environments = Vec::new();
        for (network, security) in
            [("bridge", "none"), ("host", "default+io_uring"), ("node-port", "none")]
        {
            let mut spec = spec(network, "shared", security, "directory");
            if network == "bridge" && words.iter().any(|word| word == "in-gvisor") {
                spec.runtime = gvisor::RUNTIME.into();
            }
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

/// Returns the cgroups of pods, and the folder of seccomp profiles, which the kubelet of the tests
/// has not.
fn left_on_node() -> Vec<String> {
    let find = ["/sys/fs/cgroup", "-type", "d", "-path", "*/kubepods/*pod*"];
    let groups = Command::new("find").args(find).output().unwrap().stdout;
    let groups = String::from_utf8(groups).unwrap();
    let access = PathBuf::from(std::env::var_os("KUBECONFIG").unwrap());
    let profiles = access.parent().unwrap().with_file_name("kubelet").join("seccomp");
    let profiles = profiles.exists().then(|| profiles.display().to_string());
    groups.lines().map(str::to_owned).chain(profiles).collect()
}

#[test]
fn clean_removes_pods_of_killed_harness() {
    let test = "clean_removes_pods_of_killed_harness";
    let Some(_alone) = alone_on_node(test) else { return };
    kill_and_clean(test, &[]);
}

/// Kills the harness at four moments, and checks each time that `clean` leaves nothing.
fn kill_and_clean(test: &str, words: &[&str]) {
    let state = std::env::temp_dir().join(format!("tare-test-{test}-{}", std::process::id()));
    std::fs::create_dir_all(&state).unwrap();
    let cluster = Cluster::connect(&Access::find().unwrap()).unwrap();
    for point in 0..4u64 {
        let mut harness = Command::new(std::env::current_exe().unwrap())
            .args(["harness", "--exact", "--nocapture"])
            .args(words)
            .arg(format!("state={}", state.display()))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(harness.stderr.take().unwrap()).lines();
        // Kills the harness some ms after a number of steps.
        for _ in 0..=point {
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
        let namespaces = cluster.namespaces_of_runs().unwrap();
        assert_eq!(namespaces, Vec::<String>::new(), "point {point}");
        assert_eq!(left_on_node(), Vec::<String>::new(), "point {point}");
        let left = clean::leftovers(&state);
        let ours = |name: &str| report.runs.iter().any(|(run, _)| name.contains(run.as_str()));
        assert!(!left.iter().any(|left| ours(&left.name)), "point {point}: {left:?}");
    }
    std::fs::remove_dir_all(&state).unwrap();
}
