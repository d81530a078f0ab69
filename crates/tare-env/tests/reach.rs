//! Systems that loaders on other hosts reach. A namespace behind a veth pair acts as such a host:
//! it dials each environment at one address of this host. Rules and forwarding stand only while
//! their environment runs, open connections survive that, and nothing is left after a kill.
#![expect(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::{State, host, program, skipped_runtime, skipped_spec};
use tare_env::{EnvironmentFactory, FactoryOptions, Peers, ReachOptions, StartedPods};
use tare_host::clean::{self, Outcome};
use tare_host::netns;
use tare_lab::PartError;
use tare_lab::environment::{CpuPlan, Environment, EnvironmentSpec, Launch, LayerState};
use tare_testkit::host_state::left_of_run;
use tare_testkit::{EnvironmentBuilder, Need, skipped};

/// A namespace with a link to this host. Dropping it removes both.
struct Outside {
    name: String,
    device: String,
    here: String,
}

impl Outside {
    fn new(number: u8) -> Self {
        let pid = std::process::id();
        let name = format!("outside-{pid}-{number}");
        let device = format!("out{}-{number}", pid % 1_000_000);
        let (here, there) = (format!("10.213.{number}.1"), format!("10.213.{number}.2"));
        let outside = Self { name, device, here };
        let (name, device, here) = (&outside.name, &outside.device, &outside.here);
        ip(&format!("netns add {name}"));
        ip(&format!("link add {device} type veth peer name eth0 netns {name}"));
        ip(&format!("addr add {here}/24 dev {device}"));
        ip(&format!("link set {device} up"));
        // Where the host forwards, as for a container engine, each new device does.
        fs::write(outside.forwarding_path(), "0").unwrap();
        ip(&format!("-n {name} addr add {there}/24 dev eth0"));
        ip(&format!("-n {name} link set eth0 up"));
        outside
    }

    fn namespace(&self) -> PathBuf {
        netns::path(&self.name)
    }

    fn forwarding_path(&self) -> String {
        format!("/proc/sys/net/ipv4/conf/{}/forwarding", self.device)
    }

    fn forwarding(&self) -> String {
        fs::read_to_string(self.forwarding_path()).unwrap().trim().to_string()
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["link", "delete", &self.device]).status();
        let _ = Command::new("ip").args(["netns", "delete", &self.name]).status();
    }
}

fn ip(words: &str) {
    assert!(Command::new("ip").args(words.split(' ')).status().unwrap().success(), "ip {words}");
}

fn reached_at(address: &str) -> Option<ReachOptions> {
    Some(ReachOptions { address: address.parse().unwrap(), from_cluster: false })
}

fn open(state: &State, reach: &str) -> EnvironmentFactory {
    let all = tare_host::process::cpus_of_this_thread().unwrap();
    let cpus = CpuPlan { all: all.clone(), system: all.clone(), client: all, ..CpuPlan::default() };
    let reach = reached_at(reach);
    let (state, program, destroy) = (state.0.clone(), program(), Vec::new());
    EnvironmentFactory::open(FactoryOptions { state, program, cpus, destroy, reach }).unwrap()
}

fn launch() -> Launch {
    let words = ["serve", "{listen}", "{port}", "{data}"];
    Launch { arguments: words.map(String::from).to_vec(), ..Launch::default() }
}

fn spec(runtime: &str, network: &str) -> EnvironmentSpec {
    let vm: &[(&str, &str)] = match runtime {
        "vm:qemu" => &[("accelerator", "tcg")],
        "vm:uml" => &[("memory", "384M")],
        _ => &[],
    };
    let name = format!("{runtime} {network}");
    EnvironmentBuilder::new(runtime).name(name).network(network).vm(vm).build()
}

fn echo(stream: &mut TcpStream) -> bool {
    let mut answer = [0; 4];
    stream.write_all(b"weig").is_ok() && stream.read_exact(&mut answer).is_ok()
}

/// Connects from a namespace until the system answers.
fn dial(from: &Path, address: SocketAddr, environment: &dyn Environment) -> TcpStream {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let connect = || TcpStream::connect_timeout(&address, Duration::from_secs(2));
        if let Ok(mut stream) = netns::within(from, connect).unwrap() {
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            if echo(&mut stream) {
                return stream;
            }
        }
        let (name, log) = (&environment.spec().name, environment.log_tail());
        assert!(Instant::now() < deadline, "{name} at {address}: no answer\n{log}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the nft tables of a run in the host's namespace.
fn tables(run: &str) -> Vec<String> {
    let listed = Command::new("nft").args(["list", "tables", "ip"]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let ours = listed.lines().filter(|line| line.contains(&format!("tare-{run}-")));
    ours.map(str::to_string).collect()
}

fn network(environment: &mut dyn Environment) -> LayerState {
    let layers = environment.read_back().unwrap();
    layers.into_iter().find(|state| state.layer == "network").unwrap()
}

/// Checks one environment next to a native one, which never runs beside rules.
fn check_environment(factory: &EnvironmentFactory, outside: &Outside, spec: &EnvironmentSpec) {
    let (name, run) = (&spec.name, factory.run());
    let mut native = factory.environment(&self::spec("process", "host")).unwrap();
    let at = native.start(&launch()).unwrap().address;
    assert_eq!(at.ip().to_string(), outside.here, "{name}");
    dial(&outside.namespace(), at, &*native);
    let found = network(&mut *native);
    assert!(found.in_force && found.found.contains("rules on the host: none"), "{found:?}");
    native.freeze().unwrap();

    let mut environment = factory.environment(spec).unwrap();
    let address = environment.start(&launch()).unwrap().address;
    assert_eq!(address.ip().to_string(), outside.here, "{name}");
    let mut stream = dial(&outside.namespace(), address, &*environment);
    dial(factory.client_namespace(), address, &*environment);
    let found = network(&mut *environment);
    assert!(found.in_force && found.found.contains("answers outside"), "{name}: {found:?}");
    let bridged = spec.network.to_string() != "host";
    assert_eq!(tables(run).len(), usize::from(bridged), "{name}");
    assert_eq!(outside.forwarding(), if bridged { "1" } else { "0" }, "{name}");

    for _ in 0..3 {
        environment.freeze().unwrap();
        assert_eq!((tables(run), outside.forwarding()), (Vec::new(), "0".into()), "{name}");
        // The connection gets no answer, and no reset either.
        stream.write_all(b"cold").unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let error = stream.read_exact(&mut [0; 4]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{name}: {error}");
        native.thaw().unwrap();
        let found = network(&mut *native);
        assert!(found.in_force, "{name}: {found:?}");
        native.freeze().unwrap();
        environment.thaw().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.read_exact(&mut [0; 4]).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(echo(&mut stream), "{name}");
    }
    environment.stop().unwrap();
    environment.stop().unwrap();
    native.stop().unwrap();
    assert_eq!((tables(run), outside.forwarding()), (Vec::new(), "0".into()), "{name}");
}

/// Checks a runtime with each of these networks, reached from a namespace of its own.
fn check_runtime(test: &str, number: u8, runtime: &str, networks: &[&str]) {
    let _host = host();
    if skipped(test, &[Need::Root, Need::Program("nft")]) || skipped_runtime(test, runtime) {
        return;
    }
    let (state, outside) = (State::new(test), Outside::new(number));
    let factory = open(&state, &outside.here);
    for network in networks {
        let spec = spec(runtime, network);
        if !skipped_spec(&format!("{test} in {}", spec.name), &spec) {
            check_environment(&factory, &outside, &spec);
        }
    }
    let errors = factory.close();
    assert!(errors.is_empty(), "{errors:?}");
    let left = left_of_run(factory.run());
    assert!(left.is_empty(), "{test}: left on the host: {left:#?}");
}

/// Checks that connections get the answer to what was sent while the system was frozen, and go on.
fn assert_go_on(streams: &mut [TcpStream], name: &str) {
    for stream in streams {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.read_exact(&mut [0; 4]).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(echo(stream), "{name}");
    }
}

/// Checks several instances, each reached at a port of its own.
fn check_instances(factory: &EnvironmentFactory, outside: &Outside, spec: &EnvironmentSpec) {
    let (name, run) = (&spec.name, factory.run());
    let mut environment = factory.environment_of(spec, 2).unwrap();
    let started = environment.start_all(&[launch(), launch()]).unwrap_or_else(|error| {
        panic!("{name}: {}\n{}", tare_host::error_line(error.as_ref()), environment.log_tail())
    });
    let addresses: Vec<SocketAddr> = started.iter().map(|at| at.address).collect();
    assert!(addresses.iter().all(|at| at.ip().to_string() == outside.here), "{addresses:?}");
    assert_ne!(addresses[0].port(), addresses[1].port(), "{name}");
    let from = outside.namespace();
    let connect = |at: &SocketAddr| dial(&from, *at, &*environment);
    let mut streams: Vec<TcpStream> = addresses.iter().map(connect).collect();
    for at in &addresses {
        dial(factory.client_namespace(), *at, &*environment);
    }
    let found = network(&mut *environment);
    assert!(found.in_force, "{name}: {found:?}");
    // Rules of engines, and what sends packets to their proxy, stand all the time.
    let is_ours = !["docker", "podman"].contains(&spec.runtime.as_str());
    let bridged = spec.network.to_string() != "host";
    assert!(!is_ours || tables(run).len() == usize::from(bridged), "{name}");
    for _ in 0..2 {
        environment.freeze().unwrap();
        assert!(!is_ours || tables(run).is_empty(), "{name}");
        for stream in &mut streams {
            stream.write_all(b"cold").unwrap();
            stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            let error = stream.read_exact(&mut [0; 4]).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{name}: {error}");
        }
        environment.thaw().unwrap();
        assert_go_on(&mut streams, name);
    }
    environment.stop().unwrap();
    environment.stop().unwrap();
    assert_eq!(tables(run), Vec::<String>::new(), "{name}");
}

/// Checks several instances in each of these environments, reached from a namespace of its own.
fn check_instances_of(test: &str, number: u8, runtimes: &[(&str, &str)]) {
    let _host = host();
    if skipped(test, &[Need::Root, Need::Program("nft")]) {
        return;
    }
    let (state, outside) = (State::new(test), Outside::new(number));
    let factory = open(&state, &outside.here);
    for (runtime, network) in runtimes {
        let spec = spec(runtime, network);
        if !skipped_spec(&format!("{test} in {}", spec.name), &spec) {
            check_instances(&factory, &outside, &spec);
        }
    }
    assert!(factory.close().is_empty());
    assert_eq!(outside.forwarding(), "0");
    let left = left_of_run(factory.run());
    assert!(left.is_empty(), "{test}: left on the host: {left:#?}");
}

#[test]
fn instances_are_reached_at_ports_of_their_own() {
    let runtimes = [
        ("process", "host"),
        ("process", "bridge"),
        ("oci:runc", "host"),
        ("oci:runc", "bridge"),
        ("oci:runc", "bridge+proxy"),
        ("oci:runsc", "bridge"),
    ];
    check_instances_of("instances_are_reached_at_ports_of_their_own", 9, &runtimes);
}

#[test]
fn instances_in_guests_are_reached() {
    check_instances_of("instances_in_guests_are_reached", 10, &[("vm:qemu", "bridge")]);
}

/// Starts one of two instances that are each on an address of this host, as on hosts of their own.
fn start_among(
    factory: &EnvironmentFactory,
    spec: &EnvironmentSpec,
    peers: &Peers,
) -> (Box<dyn Environment>, SocketAddr) {
    let words = ["serve-node", "{listen}", "{port}", "{data}", "{node}", "{node_port}"];
    let launch = Launch { arguments: words.map(String::from).to_vec(), ..Launch::default() };
    let mut environment =
        factory.environment_among(spec, peers.clone(), StartedPods::default()).unwrap();
    let address = environment
        .start(&launch)
        .unwrap_or_else(|error| panic!("{}: {}", spec.name, tare_host::error_line(error.as_ref())));
    (environment, address.address)
}

/// Returns the namespace of the system of a run, which has one.
fn inside(factory: &EnvironmentFactory) -> PathBuf {
    let prefix = format!("tare-{}-s", factory.run());
    let all = fs::read_dir("/run/netns").unwrap().map(|entry| entry.unwrap().file_name());
    let mut all = all.filter(|name| name.to_string_lossy().starts_with(&prefix));
    netns::path(&all.next().unwrap().to_string_lossy())
}

fn both(
    first: &mut Box<dyn Environment>,
    second: &mut Box<dyn Environment>,
    act: impl Fn(&mut dyn Environment) -> Result<(), PartError>,
) {
    act(&mut **first).unwrap();
    act(&mut **second).unwrap();
}

/// Two runs act as two hosts: the instance of each, behind a bridge, reaches that of the other at
/// the address of its host, and open connections survive that all are frozen.
#[test]
fn instances_of_two_hosts_find_each_other() {
    let _host = host();
    let test = "instances_of_two_hosts_find_each_other";
    if skipped(test, &[Need::Root, Need::Program("nft")]) || skipped_runtime(test, "oci:runc") {
        return;
    }
    let state = State::new(test);
    let outside = [Outside::new(11), Outside::new(12)];
    let factories = [0, 1].map(|at: usize| open(&state, &outside[at].here));
    let all: Vec<Ipv4Addr> = outside.iter().map(|one| one.here.parse().unwrap()).collect();
    let port = 20_000 + u16::try_from(std::process::id() % 5000).unwrap() * 2;
    let peers = |at: usize| Peers { own: all[at], all: all.clone(), port, node_port: port + 1 };
    for name in ["process", "oci:runc"] {
        let spec = spec(name, "bridge");
        let [(mut first, at_first), (mut second, at_second)] =
            [0, 1].map(|at: usize| start_among(&factories[at], &spec, &peers(at)));
        assert_eq!((at_first, at_second), ((all[0], port).into(), (all[1], port).into()));
        dial(&outside[0].namespace(), at_first, &*first);
        dial(&outside[1].namespace(), at_second, &*second);
        let node = |at: usize| SocketAddr::from((all[at], port + 1));
        let mut streams = [
            dial(&inside(&factories[0]), node(1), &*second),
            dial(&inside(&factories[1]), node(0), &*first),
        ];
        assert!(network(&mut *first).in_force && network(&mut *second).in_force);
        for _ in 0..2 {
            both(&mut first, &mut second, |one| one.freeze());
            // Until all are frozen, what one sends must not be answered with a reset.
            assert!(factories.iter().all(|factory| tables(factory.run()).len() == 1));
            streams.iter_mut().for_each(|stream| stream.write_all(b"cold").unwrap());
            thread::sleep(Duration::from_millis(50));
            both(&mut first, &mut second, |one| one.withdraw());
            assert!(factories.iter().all(|factory| tables(factory.run()).is_empty()));
            thread::sleep(Duration::from_millis(300));
            both(&mut first, &mut second, |one| one.publish());
            both(&mut first, &mut second, |one| one.thaw());
            assert_go_on(&mut streams, name);
        }
        first.stop().unwrap();
        second.stop().unwrap();
    }
    for factory in &factories {
        assert!(factory.close().is_empty());
        let left = left_of_run(factory.run());
        assert!(left.is_empty(), "left on the host: {left:#?}");
    }
}

/// Returns the network namespace of an engine, by its socket.
fn namespace_of_engine(variable: &str, usual: &str) -> PathBuf {
    let socket = std::env::var(variable).unwrap_or_else(|_| usual.into());
    let stream = UnixStream::connect(socket.trim_start_matches("unix://")).unwrap();
    let engine = rustix::net::sockopt::socket_peercred(&stream).unwrap();
    PathBuf::from(format!("/proc/{}/ns/net", engine.pid.as_raw_nonzero()))
}

/// Checks the containers of an engine, whose namespace acts as the host: the engine of the tests
/// has one of its own.
fn check_engine(test: &str, number: u8, runtime: &str, networks: &[&str], socket: [&str; 2]) {
    let _host = host();
    if skipped(test, &[Need::Root, Need::Program("nft")]) || skipped_runtime(test, runtime) {
        return;
    }
    let check = || {
        let (state, outside) = (State::new(test), Outside::new(number));
        // The engine has it on, as it needs for its own devices.
        fs::write(outside.forwarding_path(), "1").unwrap();
        let factory = open(&state, &outside.here);
        for network in networks {
            let spec = spec(runtime, network);
            check_container(&factory, &outside, &spec);
            check_instances(&factory, &outside, &spec);
        }
        let among = Peers {
            own: outside.here.parse().unwrap(),
            all: vec![outside.here.parse().unwrap()],
            port: 21_042,
            node_port: 21_043,
        };
        let (mut environment, at) = start_among(&factory, &spec(runtime, "bridge"), &among);
        for port in [among.port, among.node_port] {
            dial(&outside.namespace(), (at.ip(), port).into(), &*environment);
        }
        environment.stop().unwrap();
        let errors = factory.close();
        assert!(errors.is_empty(), "{errors:?}");
        let left = left_of_run(factory.run());
        assert!(left.is_empty(), "{test}: left on the host: {left:#?}");
    };
    let [variable, usual] = socket;
    netns::within(&namespace_of_engine(variable, usual), check).unwrap();
}

/// Checks one container of an engine.
fn check_container(factory: &EnvironmentFactory, outside: &Outside, spec: &EnvironmentSpec) {
    let name = &spec.name;
    let mut environment = factory.environment(spec).unwrap();
    let address = environment.start(&launch()).unwrap().address;
    assert_eq!(address.ip().to_string(), outside.here, "{name}");
    let mut stream = dial(&outside.namespace(), address, &*environment);
    dial(factory.client_namespace(), address, &*environment);
    let found = network(&mut *environment);
    assert!(found.in_force && found.found.contains("answers outside"), "{name}: {found:?}");
    for _ in 0..2 {
        environment.freeze().unwrap();
        stream.write_all(b"cold").unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let error = stream.read_exact(&mut [0; 4]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{name}: {error}");
        environment.thaw().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.read_exact(&mut [0; 4]).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(echo(&mut stream), "{name}");
    }
    environment.stop().unwrap();
}

#[test]
fn docker_is_reached() {
    let networks = ["host", "bridge", "bridge+proxy"];
    let socket = ["DOCKER_HOST", "/var/run/docker.sock"];
    check_engine("docker_is_reached", 13, "docker", &networks, socket);
}

#[test]
fn podman_is_reached() {
    let socket = ["CONTAINER_HOST", "/run/podman/podman.sock"];
    check_engine("podman_is_reached", 14, "podman", &["host", "bridge"], socket);
}

#[test]
fn process_is_reached() {
    check_runtime("process_is_reached", 1, "process", &["host", "bridge", "bridge+proxy"]);
}

#[test]
fn container_is_reached() {
    check_runtime("container_is_reached", 2, "oci:runc", &["host", "bridge", "bridge+proxy"]);
}

#[test]
fn gvisor_is_reached() {
    check_runtime("gvisor_is_reached", 3, "oci:runsc", &["bridge"]);
}

#[test]
fn qemu_guest_is_reached() {
    check_runtime("qemu_guest_is_reached", 4, "vm:qemu", &["bridge"]);
}

#[test]
fn user_mode_guest_is_reached() {
    check_runtime("user_mode_guest_is_reached", 5, "vm:uml", &["bridge+proxy"]);
}

#[test]
fn unreachable_is_refused() {
    let _host = host();
    let test = "unreachable_is_refused";
    if skipped(test, &[Need::Root, Need::Program("nft")]) {
        return;
    }
    let (state, outside) = (State::new(test), Outside::new(6));
    let refused = |reach: &str| {
        let cpus = CpuPlan::default();
        let reach = reached_at(reach);
        let (state, program, destroy) = (state.0.clone(), program(), Vec::new());
        let options = FactoryOptions { state, program, cpus, destroy, reach };
        tare_host::error_line(&EnvironmentFactory::open(options).unwrap_err())
    };
    let error = refused("192.0.2.77");
    assert!(error.contains("no address of its network devices"), "{error}");
    assert!(error.contains(&format!("{} {}", outside.device, outside.here)), "{error}");
    let error = refused("fd00::1");
    assert!(error.contains("IPv4 only"), "{error}");
    let factory = open(&state, &outside.here);
    let mut environment = factory.environment_of(&spec("process", "host"), 2).unwrap();
    let fixed = || Launch { port: Some(9049), ..launch() };
    let error = environment.start_all(&[fixed(), fixed()]).unwrap_err().to_string();
    assert!(error.contains("all instances listen on port 9049"), "{error}");
    drop(environment);
    for network in ["none", "vxlan"] {
        let error = factory.environment(&spec("process", network)).err().unwrap().to_string();
        assert!(error.contains("other hosts do not reach"), "{error}");
    }
    assert!(factory.close().is_empty());
    // A run that could not start leaves no journal.
    assert_eq!(fs::read_dir(state.0.join("runs")).unwrap().count(), 0);
}

/// A chain of the host that drops forwarded packets, as Docker's does, is noticed.
#[test]
fn firewall_that_drops_is_noticed() {
    let _host = host();
    let test = "firewall_that_drops_is_noticed";
    if skipped(test, &[Need::Root, Need::Program("nft")]) {
        return;
    }
    let (state, outside) = (State::new(test), Outside::new(7));
    let factory = open(&state, &outside.here);
    let mut environment = factory.environment(&spec("process", "bridge")).unwrap();
    let address = environment.start(&launch()).unwrap().address;
    dial(&outside.namespace(), address, &*environment);
    let table = format!("outside{}", std::process::id());
    let nft = |words: &str| Command::new("nft").arg(words).status().unwrap().success();
    assert!(nft(&format!("add table ip {table}")));
    let hook = "{ type filter hook forward priority 0; policy drop; }";
    let added = nft(&format!("add chain ip {table} forward {hook}"));
    let found = network(&mut *environment);
    assert!(nft(&format!("delete table ip {table}")) && added);
    assert!(!found.in_force && found.found.contains("does not answer outside"), "{found:?}");
    assert!(network(&mut *environment).in_force);
    environment.stop().unwrap();
    assert!(factory.close().is_empty());
}

#[test]
fn clean_withdraws_rules_of_killed_harness() {
    let _host = host();
    let test = "clean_withdraws_rules_of_killed_harness";
    if skipped(test, &[Need::Root, Need::Program("nft")]) {
        return;
    }
    let (state, outside) = (State::new(test), Outside::new(8));
    for point in 0..12u64 {
        let mut harness = Command::new(program())
            .arg("harness")
            .arg(&state.0)
            .args(["process", "oci:runc"])
            .env("STAND_IN_REACH", &outside.here)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(harness.stdout.take().unwrap()).lines();
        for _ in 0..point % 8 {
            lines.next();
        }
        thread::sleep(Duration::from_millis(point * 17 % 90));
        harness.kill().unwrap();
        harness.wait().unwrap();
        let report = clean::clean(&state.0, tare_env::undo::KINDS).unwrap();
        for (run, outcome) in &report.runs {
            assert!(matches!(outcome, Outcome::Cleaned { .. }), "{run}: {outcome:?}");
            assert_eq!(tables(run), Vec::<String>::new(), "killed at point {point}");
            let left = left_of_run(run);
            assert!(left.is_empty(), "killed at point {point}: {left:#?}");
        }
        assert_eq!(outside.forwarding(), "0", "killed at point {point}");
    }
}
