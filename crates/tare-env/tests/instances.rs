//! Environments of several instances. Each has its own address and share of the limits. They reach
//! each other, are measured, frozen and stopped together, and leave nothing.
#![expect(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use common::{State, host, program, skipped_spec};
use tare_env::{EnvironmentFactory, FactoryOptions};
use tare_host::netns;
use tare_lab::environment::{CpuPlan, Endpoint, Environment, EnvironmentSpec, Launch};
use tare_lab::layer::Network;
use tare_testkit::{EnvironmentBuilder, Need, skipped};

fn spec(runtime: &str, network: &str, cpu: &str) -> EnvironmentSpec {
    EnvironmentBuilder::new(runtime)
        .name(format!("{runtime} {network} {cpu}"))
        .network(network)
        .cpu(cpu)
        .memory_bytes(512 << 20)
        .build()
}

fn launch() -> Launch {
    let words = ["serve", "{listen}", "{port}", "{data}"];
    Launch { arguments: words.map(String::from).to_vec(), ..Launch::default() }
}

/// Sends four bytes and reads them back, from a network namespace.
fn echo(namespace: &Path, address: SocketAddr) -> bool {
    let connect = || TcpStream::connect_timeout(&address, Duration::from_secs(2));
    let Ok(mut stream) = netns::within(namespace, connect).unwrap() else { return false };
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let mut answer = [0; 4];
    stream.write_all(b"weig").is_ok() && stream.read_exact(&mut answer).is_ok()
}

fn until_answered(namespace: &Path, address: SocketAddr, what: &str) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !echo(namespace, address) {
        assert!(Instant::now() < deadline, "{what}: no answer at {address}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the namespaces, links and cgroups of a run.
fn traces(run: &str) -> BTreeSet<PathBuf> {
    let mut traces = BTreeSet::new();
    for place in ["/run/netns", "/sys/class/net", "/sys/fs/cgroup", "/sys/fs/cgroup/cpu"] {
        let entries = fs::read_dir(place).into_iter().flatten().flatten().map(|entry| entry.path());
        traces.extend(entries.filter(|path| path.to_string_lossy().contains(run)));
    }
    traces
}

/// Starts two instances, and checks that they have one port and addresses of their own.
fn start_two(
    factory: &EnvironmentFactory,
    spec: &EnvironmentSpec,
) -> (Box<dyn Environment>, Vec<Endpoint>) {
    let name = &spec.name;
    let mut environment = factory.environment_of(spec, 2).unwrap();
    let endpoints = environment.start_all(&[launch(), launch()]).unwrap_or_else(|error| {
        panic!("{name}: {}\n{}", tare_host::error_line(error.as_ref()), environment.log_tail())
    });
    let [first, second] = &endpoints[..] else { panic!("{name}: {endpoints:?}") };
    assert_ne!(first.address.ip(), second.address.ip(), "{name}");
    assert_eq!(first.address.port(), second.address.port(), "{name}");
    (environment, endpoints)
}

fn check_environment(factory: &EnvironmentFactory, spec: &EnvironmentSpec) {
    let (name, client) = (&spec.name, factory.client_namespace());
    let (mut environment, endpoints) = start_two(factory, spec);
    let first = &endpoints[0];
    for at in &endpoints {
        until_answered(client, at.address, name);
        assert!(at.data.as_ref().unwrap().join("seen").exists(), "{name}: not its own data");
    }
    if spec.network != Network::Host {
        // Each instance reaches both addresses behind the bridge, without the router's NAT.
        let inside = traces(factory.run()).into_iter().filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            path.starts_with("/run/netns") && name.contains("-s")
        });
        let inside: Vec<PathBuf> = inside.collect();
        assert_eq!(inside.len(), 2, "{name}: {inside:?}");
        for from in &inside {
            for last in [2, 3] {
                let address = SocketAddr::from(([198, 19, 255, last], first.address.port()));
                assert!(echo(from, address), "{name}: {from:?} does not reach {address}");
            }
        }
    }

    let layers = environment.read_back().unwrap();
    assert!(layers.iter().all(|layer| layer.in_force), "{name}: {layers:?}");
    let memory = layers.iter().find(|layer| layer.layer == "limits.memory").unwrap();
    assert_eq!(memory.wanted, (256 << 20).to_string(), "{name}: the limit is not divided");
    let processes = environment.processes().system;
    assert!(processes.len() >= 2, "{name}: {processes:?}");

    let before = environment.usage().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    for at in &endpoints {
        let start = environment.usage().unwrap().system_cpu_ns;
        while environment.usage().unwrap().system_cpu_ns < start + 2_000_000 {
            assert!(echo(client, at.address) && Instant::now() < deadline, "{name}: no load");
        }
    }
    let after = environment.usage().unwrap();
    assert!(after.system_cpu_ns >= before.system_cpu_ns + 4_000_000, "{name}: not summed");
    if spec.network.has_proxy() {
        assert_eq!(after.layer_cpu_ns.len(), 1, "{name}: {:?}", after.layer_cpu_ns);
    }

    environment.freeze().unwrap();
    assert!(endpoints.iter().all(|at| !echo(client, at.address)), "{name}: not frozen");
    environment.thaw().unwrap();
    endpoints.iter().for_each(|at| until_answered(client, at.address, name));

    environment.stop().unwrap();
    environment.stop().unwrap();
    for at in &endpoints {
        assert!(!at.data.as_ref().unwrap().exists(), "{name}: its data is left");
    }
    assert!(environment.log_tail().contains("instance 2: "), "{name}: its log is lost");
}

#[test]
fn instances_are_one_environment() {
    let _host = host();
    let test = "instances_are_one_environment";
    if skipped(test, &[Need::Root, Need::Program("nft")]) {
        return;
    }
    let state = State::new("instances");
    let all = tare_host::process::cpus_of_this_thread().unwrap();
    let cpus = CpuPlan { all: all.clone(), system: all.clone(), client: all, ..CpuPlan::default() };
    let (root, program) = (state.0.clone(), program());
    let factory = EnvironmentFactory::open(FactoryOptions {
        state: root,
        program,
        cpus,
        destroy: Vec::new(),
        reach: None,
    })
    .unwrap();
    let specs = [
        spec("process", "host", "pinned"),
        spec("process", "bridge", "shared"),
        spec("oci:runc", "host", "quota=1"),
        spec("oci:runc", "bridge", "pinned"),
        spec("oci:crun", "bridge+proxy", "shared"),
    ];
    for spec in specs {
        if !skipped_spec(&format!("{test} in {}", spec.name), &spec) {
            check_environment(&factory, &spec);
        }
    }
    let refused = factory.environment(&spec("process", "host", "shared")).unwrap();
    let error = { refused }.start_all(&[launch(), launch()]).unwrap_err().to_string();
    assert!(error.contains("one instance of a system, not 2"), "{error}");
    assert!(factory.close().is_empty());
    assert_eq!(traces(&format!("tare-{}", factory.run())), BTreeSet::new());
}

/// Returns the addresses that a request gives to containers.
fn addresses_in(config: &str) -> Vec<String> {
    let after = config.split("\"IPv4Address\": \"").skip(1);
    after.map(|rest| rest.split('"').next().unwrap().to_string()).collect()
}

/// Checks what every runtime promises, and that the instances reach each other from `inside`.
fn check_instances(factory: &EnvironmentFactory, spec: &EnvironmentSpec) {
    let (name, client) = (&spec.name, factory.client_namespace());
    let (mut environment, endpoints) = start_two(factory, spec);
    let first = &endpoints[0];
    endpoints.iter().for_each(|at| until_answered(client, at.address, name));
    let (inside, port) = match spec.runtime.kind() {
        "vm" => (vec!["198.19.255.2".to_string(), "198.19.255.3".into()], 9042),
        _ => (addresses_in(&environment.config().unwrap()), first.address.port()),
    };
    let pids = environment.processes().system;
    assert!(pids.len() >= 2, "{name}: {pids:?}");
    for address in &inside {
        let address = SocketAddr::new(address.parse().unwrap(), port);
        for pid in &pids {
            let from = PathBuf::from(format!("/proc/{pid}/ns/net"));
            assert!(echo(&from, address), "{name}: process {pid} does not reach {address}");
        }
    }
    let bridged = spec.network != Network::Host;
    assert_eq!(inside.len(), if bridged { 2 } else { 0 }, "{name}: {inside:?}");
    let layers = environment.read_back().unwrap();
    assert!(layers.iter().all(|layer| layer.in_force), "{name}: {layers:?}");
    environment.freeze().unwrap();
    assert!(endpoints.iter().all(|at| !echo(client, at.address)), "{name}: not frozen");
    environment.thaw().unwrap();
    endpoints.iter().for_each(|at| until_answered(client, at.address, name));
    environment.stop().unwrap();
    environment.stop().unwrap();
}

fn run_instances(test: &str, specs: &[EnvironmentSpec]) {
    let _host = host();
    if skipped(test, &[Need::Root, Need::Program("nft")]) {
        return;
    }
    let state = State::new(test);
    let all = tare_host::process::cpus_of_this_thread().unwrap();
    let cpus = CpuPlan { all: all.clone(), system: all.clone(), client: all, ..CpuPlan::default() };
    let (root, program) = (state.0.clone(), program());
    let options = FactoryOptions { state: root, program, cpus, destroy: Vec::new(), reach: None };
    let factory = EnvironmentFactory::open(options).unwrap();
    for spec in specs {
        if !skipped_spec(&format!("{test} in {}", spec.name), spec) {
            check_instances(&factory, spec);
        }
    }
    assert!(factory.close().is_empty());
    assert_eq!(traces(&format!("tare-{}", factory.run())), BTreeSet::new());
}

#[test]
fn containers_of_an_engine_are_instances() {
    let specs = ["docker", "podman"].iter().flat_map(|engine| {
        ["host", "bridge", "bridge+proxy"].map(|network| spec(engine, network, "shared"))
    });
    let specs: Vec<EnvironmentSpec> = specs
        .filter(|spec| !(spec.runtime.kind() == "podman" && spec.network.has_proxy()))
        .collect();
    run_instances("engine-instances", &specs);
}

#[test]
fn guests_are_instances() {
    let mut guests = spec("vm:qemu", "bridge", "shared");
    guests.limits.memory_bytes = None;
    run_instances("guest-instances", &[guests]);
}
