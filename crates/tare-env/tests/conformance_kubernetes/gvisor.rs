//! Pods of a runtime class with gVisor, on a cluster whose containerd has its shim.

use tare_testkit::kubernetes::{RuntimeClass, gvisor};

use super::*;

/// The name of the class says nothing of gVisor, as little as that of a user has to.
const CLASS: &str = "tare-test-sandbox";
pub(super) const RUNTIME: &str = "kubernetes:tare-test-sandbox";

fn in_gvisor(network: &str, cpu: &str, security: &str, storage: &str) -> EnvironmentSpec {
    let mut spec = spec(network, cpu, security, storage);
    spec.name = format!("gVisor {}", spec.name);
    spec.runtime = RUNTIME.into();
    spec
}

#[test]
fn pods_in_gvisor_conform() {
    let test = "gvisor::pods_in_gvisor_conform";
    let Some(_alone) = alone_on_node(test) else { return };
    let Some(handler) = gvisor(test) else { return };
    let _class = RuntimeClass::create(CLASS, &handler, "");
    let scratch = Scratch::open("kubernetes-gvisor");
    for (network, cpu, security, storage) in [
        ("bridge", "shared", "default", "directory"),
        ("service", "request=0.2", "none", "volume"),
        ("node-port", "quota=0.5", "default", "tmpfs"),
        ("host-port", "request=0.2..0.9", "none", "directory"),
    ] {
        conforms(&scratch.factory, &in_gvisor(network, cpu, security, storage));
    }
}

/// What a class adds is in the limits of the pod's cgroup, and in its weight.
#[test]
fn pods_of_class_with_overhead_conform() {
    let test = "gvisor::pods_of_class_with_overhead_conform";
    let Some(_alone) = alone_on_node(test) else { return };
    let Some(handler) = gvisor(test) else { return };
    let more = r#", "overhead": { "podFixed": { "cpu": "150m", "memory": "48Mi" } }"#;
    let _class = RuntimeClass::create(CLASS, &handler, more);
    let scratch = Scratch::open("kubernetes-gvisor-overhead");
    let limited = in_gvisor("bridge", "quota=0.5", "default", "directory");
    conforms(&scratch.factory, &limited);
    let mut environment = scratch.factory.environment(&limited).unwrap();
    environment.start(&launch()).unwrap();
    let states = environment.read_back().unwrap();
    let found = |layer: &str| {
        let state = states.iter().find(|state| state.layer == layer);
        state.unwrap_or_else(|| panic!("no {layer} in {states:?}")).found.clone()
    };
    let runtime = found("runtime");
    assert!(runtime.contains("an overhead of 150m CPU and 48 MiB"), "{runtime}");
    assert!(runtime.contains("; inside: Linux version "), "{runtime}");
    let memory = found("limits.memory");
    assert!(memory.contains(&((256 + 48) << 20).to_string()), "{memory}");
    assert!(found("sandbox.platform").starts_with("systrap"), "{states:?}");
}

#[test]
fn pods_in_gvisor_are_refused_what_cannot_be_read_back() {
    let test = "gvisor::pods_in_gvisor_are_refused_what_cannot_be_read_back";
    let Some(_alone) = alone_on_node(test) else { return };
    let Some(handler) = gvisor(test) else { return };
    let _class = RuntimeClass::create(CLASS, &handler, "");
    let scratch = Scratch::open("kubernetes-gvisor-refuses");
    let check = |change: fn(&mut EnvironmentSpec), expect: &str| {
        let mut spec = in_gvisor("bridge", "shared", "default", "directory");
        change(&mut spec);
        let started = scratch.factory.environment(&spec);
        let started = started.and_then(|mut environment| environment.start(&launch()).map(drop));
        let line = tare_host::error_line(&*started.unwrap_err());
        eprintln!("{line}");
        let line = line.split("; its last output: ").next().unwrap();
        assert!(line.contains(expect) && !line.contains('\n'), "{expect}: {line}");
    };
    check(|spec| spec.sidecar = Sidecar::Idle, "one sandbox has both containers");
    check(
        |spec| spec.confinement.capabilities = Capabilities::None,
        "its kernel is not the node's",
    );
    check(
        |spec| spec.sandbox = vec![("platform".into(), "ptrace".into())],
        "only gVisor has sandbox options",
    );
    check(
        |spec| {
            spec.runtime = "kubernetes:gvisor".into();
            spec.sandbox = vec![("platform".into(), "ptrace".into())];
        },
        "the runtime class configures gVisor; leave out sandbox",
    );
    check(
        |spec| spec.network = "host".parse().unwrap(),
        "runsc starts a pod in the node's network without one",
    );
    // The kubelet gives the CPUs to the cgroup of the container, in which gVisor has no process.
    let pinned = in_gvisor("bridge", "pinned", "default", "directory");
    let mut environment = scratch.factory.environment(&pinned).unwrap();
    environment.start(&launch()).unwrap();
    let states = environment.read_back().unwrap();
    let cpu = states.iter().find(|state| state.layer == "cpu").unwrap();
    assert!(!cpu.in_force, "{cpu:?}");
    eprintln!("{}", cpu.found);
}

/// A paused sandbox is one that the kubelet cannot end.
#[test]
fn pods_in_gvisor_of_killed_harness_are_removed() {
    let test = "gvisor::pods_in_gvisor_of_killed_harness_are_removed";
    let Some(_alone) = alone_on_node(test) else { return };
    let Some(handler) = gvisor(test) else { return };
    let _class = RuntimeClass::create(CLASS, &handler, "");
    kill_and_clean(test, &["in-gvisor"]);
}
