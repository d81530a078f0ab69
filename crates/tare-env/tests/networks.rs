//! Every value of the network layer that needs no published port, in every runtime that this
//! machine has: in force, read back by the links of the running environment, refused where a
//! runtime or the kernel cannot have it, and gone after a kill. `docs/reference/networks.md` has
//! the list as a table.
#![expect(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]

mod common;
#[path = "conformance/containerd.rs"]
mod containerd;

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::{
    State, all_inside, host, own_guest, program, skipped_inside, skipped_runtime, skipped_spec,
};
use tare_env::{EnvironmentFactory, FactoryOptions, runtime};
use tare_host::clean::{self, Outcome};
use tare_host::{error_line, netns};
use tare_lab::environment::{CpuPlan, Environment, EnvironmentSpec, Launch, LayerState};
use tare_lab::layer::Network;
use tare_testkit::host_state::left_of_run;
use tare_testkit::{EnvironmentBuilder, Need, skipped};

const RUNTIMES: [&str; 8] =
    ["process", "oci:runc", "oci:crun", "oci:runsc", "containerd", "docker", "podman", "vm:qemu"];

/// The values without a published port.
const DIRECT: [Network; 5] =
    [Network::Macvlan, Network::Ipvlan, Network::Vxlan, Network::Pasta, Network::None];

/// How long all tests may take in an emulated guest.
const LIMIT: Duration = Duration::from_secs(1200);

/// Returns whether a runtime can have a network.
fn can_have(network: Network, runtime: &str) -> bool {
    let kind = runtime.split(':').next().unwrap_or_default();
    match network {
        Network::Host => kind != "vm",
        Network::Bridge { proxy } => !(proxy && kind == "podman"),
        Network::Ipvlan if runtime == "oci:runsc" => false,
        _ if network.is_of_pods() => false,
        _ => !matches!(kind, "docker" | "podman" | "vm"),
    }
}

fn page() -> String {
    let mut page = String::from(
        "# Networks by runtime\n\n\
         What each runtime does with each value of the layer `network` ([layers.md](layers.md), \
         [networks.md](../guides/networks.md)). The suite `crates/tare-env/tests/networks.rs` starts a system with \
         the values from `macvlan` to `none` in every runtime that a machine has, and reads its links back; the suites \
         `conformance*.rs` do so for the others. This table is their list. A value that a runtime, the kernel or \
         the host cannot have is refused by one line before the study starts.\n\n\
         - An engine makes its own networks, and a guest has a tap device on a bridge: the other values are \
         refused there.\n\
         - gVisor's own stack takes its address from the device, and ipvlan then delivers nothing to it. With `none` it \
         uses the stack of the kernel, as with `host`.\n\
         - `pasta` cannot have several instances of a system, and no value from `macvlan` on loaders or \
         instances on other hosts. `limits.network_bandwidth` needs `bridge`, `bridge+proxy` or `vxlan`.\n\
         - The values from `service` on are for pods alone ([kubernetes.md](../guides/kubernetes.md)).\n\n",
    );
    let _ = writeln!(page, "| value | {} |", RUNTIMES.map(|name| format!("`{name}`")).join(" | "));
    let _ = writeln!(page, "|---|{}", "---|".repeat(RUNTIMES.len()));
    for network in Network::ALL {
        let cell = |runtime| if can_have(network, runtime) { "in force" } else { "refused" };
        let _ = writeln!(page, "| `{network}` | {} |", RUNTIMES.map(cell).join(" | "));
    }
    page
}

#[test]
fn page_of_networks_matches_list() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/networks.md");
    tare_testkit::golden(&path, page());
}

fn open(state: &State) -> EnvironmentFactory {
    let all = tare_host::process::cpus_of_this_thread().unwrap();
    let cpus = CpuPlan { client: all.clone(), system: all.clone(), all, ..CpuPlan::default() };
    let (state, program) = (state.0.clone(), program());
    let options = FactoryOptions { state, program, cpus, destroy: Vec::new(), reach: None };
    EnvironmentFactory::open(options).unwrap()
}

fn launch() -> Launch {
    let words = ["serve", "{listen}", "{port}", "{data}"];
    Launch { arguments: words.map(String::from).to_vec(), ..Launch::default() }
}

fn spec(runtime: &str, network: Network) -> EnvironmentSpec {
    EnvironmentBuilder::new(runtime)
        .name(format!("{runtime} {network}"))
        .network(&network.to_string())
        .security("none")
        .cgroup("own")
        .build()
}

/// Connects from the client's namespace until the system answers.
fn dial(client: &Path, address: SocketAddr, what: &str) -> TcpStream {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Ok(mut stream) = netns::within(client, || TcpStream::connect(address)).unwrap() {
            stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            if echo(&mut stream) {
                return stream;
            }
        }
        assert!(Instant::now() < deadline, "{what} at {address}: no answer");
        thread::sleep(Duration::from_millis(2));
    }
}

fn echo(stream: &mut TcpStream) -> bool {
    let mut answer = [0; 4];
    stream.write_all(b"weig").is_ok() && stream.read_exact(&mut answer).is_ok()
}

fn network_of(environment: &mut dyn Environment) -> LayerState {
    let states = environment.read_back().unwrap();
    states.into_iter().find(|state| state.layer == "network").unwrap()
}

fn check_environment(factory: &EnvironmentFactory, spec: &EnvironmentSpec) {
    let name = &spec.name;
    let mut environment = factory.environment(spec).unwrap();
    let started = environment.start(&launch());
    let endpoint = started.unwrap_or_else(|error| {
        panic!("{name}: {}\n{}", error_line(error.as_ref()), environment.log_tail())
    });
    let client = factory.client_namespace();
    let mut stream = dial(client, endpoint.address, name);
    for state in environment.read_back().unwrap() {
        assert!(state.in_force, "{name}: {state:?}");
    }
    let found = network_of(environment.as_mut()).found;
    let expect = match spec.network {
        Network::Macvlan => "eth0 (macvlan, bridge, mtu 1500)",
        Network::Ipvlan => "eth0 (ipvlan, l2, mtu 1500)",
        Network::Vxlan => "eth0 (veth, mtu 1450)",
        Network::Pasta => "eth0 (tun, tap",
        _ => "a loopback address",
    };
    assert!(found.contains(expect), "{name}: {found}");

    let before = environment.usage().unwrap();
    while environment.usage().unwrap().system_cpu_ns < before.system_cpu_ns + 2_000_000 {
        assert!(echo(&mut stream), "{name}: no answer under load");
    }
    let layer = environment.usage().unwrap().layer_cpu_ns;
    let pasta = layer.iter().find(|(part, _)| part == "pasta");
    assert_eq!(pasta.is_some(), spec.network == Network::Pasta, "{layer:?}");
    assert!(pasta.is_none_or(|(_, ns)| *ns > 0), "{layer:?}");

    environment.freeze().unwrap();
    environment.thaw().unwrap();
    assert!(echo(&mut stream), "{name}: no answer after freezing");
    lose(environment.as_mut(), factory, spec.network);
    environment.stop().unwrap();
}

/// Takes the layer away from a running environment: it is no longer in force.
fn lose(environment: &mut dyn Environment, factory: &EnvironmentFactory, network: Network) {
    match network {
        Network::Pasta => {
            let pasta = environment.processes().layer[0];
            tare_host::process::kill(&[pasta], Duration::from_secs(5)).unwrap();
        }
        Network::None => return,
        // Only a change of its own end shows for a device inside.
        _ => {
            let client = factory.client_namespace();
            let list = tare_host::exec::Command::new("ip").args(["-o", "link"]);
            let list = list.in_namespace(client).run().unwrap().stdout;
            for name in list.split_whitespace().filter_map(|word| word.strip_prefix("tare-r")) {
                let name = name.split(['@', ':']).next().unwrap();
                let down = ["link", "set", &format!("tare-r{name}"), "down"];
                let down = tare_host::exec::Command::new("ip").args(down);
                down.in_namespace(client).run().unwrap();
            }
        }
    }
    let state = network_of(environment);
    assert!(!state.in_force, "{state:?}");
}

fn check_runtime(test: &str, runtime: &str) {
    let _host = host();
    if skipped(test, &[Need::Root, Need::Program("nft")]) || skipped_runtime(test, runtime) {
        return;
    }
    let state = State::new(test);
    let factory = open(&state);
    for network in DIRECT.into_iter().filter(|network| can_have(*network, runtime)) {
        let spec = spec(runtime, network);
        if !skipped_spec(&format!("{test} {network}"), &spec) {
            check_environment(&factory, &spec);
        }
    }
    assert!(factory.close().is_empty());
    let left = left_of_run(factory.run());
    assert!(left.is_empty(), "{test}: left on the host: {left:#?}");
}

#[test]
fn networks_of_process() {
    check_runtime("networks_of_process", "process");
}

#[test]
fn networks_of_runc() {
    check_runtime("networks_of_runc", "oci:runc");
}

#[test]
fn networks_of_crun() {
    check_runtime("networks_of_crun", "oci:crun");
}

#[test]
fn networks_of_runsc() {
    check_runtime("networks_of_runsc", "oci:runsc");
}

#[test]
fn networks_of_containerd() {
    if containerd::goes_on("networks_of_containerd") {
        check_runtime("networks_of_containerd", "containerd");
    }
}

/// The guest's kernel has devices that this one may lack, such as ipvlan.
#[test]
fn networks_in_guest() {
    let test = "networks_in_guest";
    if skipped_inside(test) {
        return;
    }
    let _guest = own_guest();
    all_inside(
        "vm:qemu",
        LIMIT,
        &[
            test,
            "networks_of_runsc",
            "networks_of_crun",
            "networks_of_containerd",
            "gone_after_a_kill",
        ],
    );
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let check = |spec: &EnvironmentSpec| runtime::check(spec).unwrap_err().to_string();
    for runtime in RUNTIMES {
        for network in DIRECT.into_iter().filter(|network| !can_have(*network, runtime)) {
            let error = check(&spec(runtime, network));
            let named = error.contains(&network.to_string()) && error.contains("set network");
            assert!(named, "{runtime} {network}: {error}");
        }
    }
    let mut limited = spec("process", Network::Macvlan);
    limited.limits.network_bytes_per_s = Some(1 << 20);
    assert!(check(&limited).contains("network = \"macvlan\" does not have"));
}

/// Where the kernel lacks a device, the line names its option.
#[test]
fn missing_device_is_named() {
    let test = "missing_device_is_named";
    if skipped(test, &[Need::Root, Need::Program("ip")]) {
        return;
    }
    for (network, option) in [
        (Network::Macvlan, "CONFIG_MACVLAN"),
        (Network::Ipvlan, "CONFIG_IPVLAN"),
        (Network::Vxlan, "CONFIG_VXLAN"),
    ] {
        if let Err(error) = runtime::check(&spec("process", network)) {
            let error = error.to_string();
            assert!(error.contains(option) && error.contains("this kernel has no"), "{error}");
        }
    }
}

#[test]
fn instances_behind_pasta_are_refused() {
    let _host = host();
    let test = "instances_behind_pasta_are_refused";
    if skipped(test, &[Need::Root, Need::Program("nft")]) {
        return;
    }
    let state = State::new("networks-refused");
    let factory = open(&state);
    if !skipped_spec(test, &spec("process", Network::Pasta)) {
        let error = factory.environment_of(&spec("process", Network::Pasta), 2).err().unwrap();
        assert!(error.to_string().contains("behind pasta several instances"), "{error}");
    }
}

#[test]
fn instances_have_one_port_and_find_each_other() {
    let _host = host();
    let test = "instances_have_one_port_and_find_each_other";
    if skipped(test, &[Need::Root, Need::Program("nft")]) {
        return;
    }
    let state = State::new("networks-instances");
    let factory = open(&state);
    let words = ["serve-node", "{listen}", "{port}", "{data}", "{node}", "{node_port}"];
    let launch = Launch { arguments: words.map(String::from).to_vec(), ..Launch::default() };
    for network in [Network::Macvlan, Network::Vxlan, Network::None] {
        let spec = spec("process", network);
        if skipped_spec(test, &spec) {
            continue;
        }
        let mut environment = factory.environment_of(&spec, 2).unwrap();
        let endpoints = environment.start_all(&[launch.clone(), launch.clone()]).unwrap();
        assert_eq!(endpoints[0].address.port(), endpoints[1].address.port());
        for endpoint in &endpoints {
            dial(factory.client_namespace(), endpoint.address, &spec.name);
        }
        for state in environment.read_back().unwrap() {
            assert!(state.in_force, "{network}: {state:?}");
        }
        if network != Network::None {
            let pids = environment.processes().system;
            let inside = format!("/proc/{}/ns/net", pids[0]);
            let (first, second) = ("198.19.255.2:7000", "198.19.255.3:7000");
            for address in [first, second] {
                dial(Path::new(&inside), address.parse().unwrap(), &spec.name);
            }
        }
        environment.stop().unwrap();
    }
    assert!(factory.close().is_empty());
    let left = left_of_run(factory.run());
    assert!(left.is_empty(), "left on the host: {left:#?}");
}

#[test]
fn networks_are_gone_after_a_kill() {
    let _host = host();
    let test = "networks_are_gone_after_a_kill";
    if skipped(test, &[Need::Root, Need::Program("nft")]) {
        return;
    }
    let here = |network: &Network| runtime::check(&spec("process", *network)).is_ok();
    let names: Vec<String> =
        DIRECT.iter().filter(|one| here(one)).map(ToString::to_string).collect();
    let state = State::new(test);
    for point in 0..8u64 {
        let mut harness = Command::new(program())
            .arg("harness")
            .arg(&state.0)
            .arg("process")
            .env("STAND_IN_NETWORKS", names.join(","))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(harness.stdout.take().unwrap()).lines();
        for _ in 0..point {
            lines.next();
        }
        thread::sleep(Duration::from_millis(point * 13 % 60));
        harness.kill().unwrap();
        harness.wait().unwrap();
        let report = clean::clean(&state.0, tare_env::undo::KINDS).unwrap();
        for (run, outcome) in &report.runs {
            assert!(matches!(outcome, Outcome::Cleaned { .. }), "{run}: {outcome:?}");
            let left = left_of_run(run);
            assert!(left.is_empty(), "killed at point {point}: {left:#?}");
        }
        let left: Vec<_> = fs::read_dir(&state.0).unwrap().flatten().collect();
        assert_eq!(left.len(), usize::from(state.0.join("runs").exists()), "{left:?}");
    }
}
