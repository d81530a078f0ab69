//! The table of cases: a rule, a record to which it applies, and one to which it does not.

use tare_lab::doubt::Doubt;
use tare_lab::environment::EnvironmentSpec;
use tare_lab::layer::{Apparmor, Capabilities, Cgroup, Layer, Network, Pages, Sidecar, User};
use tare_lab::probe::{Counter, names};
use tare_lab::record::Phase;
use tare_std::rng::Rng;

use super::world::{FakeEnvironment, World};

pub(super) type Case = (&'static str, fn() -> World, fn() -> World);

const NATIVE: FakeEnvironment = ("native", 10.0, |_| {});

/// A process and a box that differs in one layer and costs `us` more.
fn pair(us: f64, change: fn(&mut EnvironmentSpec)) -> World {
    World::of(&[NATIVE, ("box", 10.0 + us, change)])
}

fn bridge(spec: &mut EnvironmentSpec) {
    spec.network = "bridge".parse().unwrap();
}

pub(super) fn bridged(us: f64) -> World {
    pair(us, bridge)
}

pub(super) fn quiet() -> World {
    bridged(0.0)
}

/// A box with a proxy that uses this much CPU time for an operation.
fn proxied(ns: u64) -> World {
    let both: FakeEnvironment = ("box", 10.0, |spec| {
        spec.network = "bridge+proxy".parse().unwrap();
        spec.cpu = "shared".parse().unwrap();
    });
    World::of(&[NATIVE, both]).slices("box", |block, slice| {
        let cpu_ns = slice.operations * (ns + u64::from(block % 3));
        slice.layer_cpu_ns.push(("userland proxy".into(), cpu_ns));
    })
}

/// A box whose layer has a part that takes CPU time.
fn served_by(part: &'static str) -> World {
    quiet().slices("box", move |block, slice| {
        let cpu_ns = slice.operations * (500 + u64::from(block % 3));
        slice.layer_cpu_ns.push((part.into(), cpu_ns));
    })
}

/// A box whose filter takes io_uring away, or leaves it.
fn filtered(us: f64, from: &'static str, engine: &str) -> World {
    let places: &[FakeEnvironment] = match from {
        "none" => &[NATIVE, ("box", 0.0, |spec| spec.security = "default".parse().unwrap())],
        _ => &[
            ("native", 10.0, |spec| spec.security = "default+io_uring".parse().unwrap()),
            ("box", 0.0, |spec| spec.security = "default".parse().unwrap()),
        ],
    };
    let places: Vec<FakeEnvironment> = places
        .iter()
        .map(|one| if one.1 == 0.0 { (one.0, 10.0 + us, one.2) } else { *one })
        .collect();
    World::of(&places).setting("box", "io_engine", engine)
}

/// A process beside a neighbour that costs it `us`, and makes it wait for a CPU if that is not 0.
fn neighbours(us: f64) -> World {
    let beside: fn(&mut EnvironmentSpec) = |spec| {
        spec.neighbours = tare_lab::fake::changed(Layer::Neighbours, spec).neighbours;
    };
    let waits = "system_run_queue_wait_ns";
    World::of(&[NATIVE, ("box", 10.0 + us, beside)])
        .counter("native", waits, 100.0)
        .counter("native again", waits, 100.0)
        .counter("box", waits, 100.0 + 1000.0 * us)
}

fn runtime(us: f64, from: fn(&mut EnvironmentSpec), to: fn(&mut EnvironmentSpec)) -> World {
    World::of(&[("native", 10.0, from), ("box", 10.0 + us, to)])
}

/// A process and a box under another runtime, both with a cgroup of their own. With the layers of
/// the baseline, the box would be the control of its runtime.
fn own_cgroups(us: f64, to: fn(&mut EnvironmentSpec)) -> World {
    let mut process = World::of(&[NATIVE]).record.study.environments.remove(0);
    let native = process.clone();
    (process.name, process.cgroup) = ("process".into(), Cgroup::Own);
    let mut other = EnvironmentSpec { name: "box".into(), ..process.clone() };
    to(&mut other);
    World::with(&[(native, 10.0), (process, 10.0), (other, 10.0 + us)])
}

fn runc(spec: &mut EnvironmentSpec) {
    spec.runtime = "oci:runc".into();
}

fn docker(spec: &mut EnvironmentSpec) {
    spec.runtime = "docker".into();
}

fn runsc(spec: &mut EnvironmentSpec) {
    spec.runtime = "oci:runsc".into();
}

fn nothing(_: &mut EnvironmentSpec) {}

/// Network and cgroup, explained.
fn two_layers(spec: &mut EnvironmentSpec) {
    bridge(spec);
    spec.cgroup = "own".parse().unwrap();
}

fn has(spec: &EnvironmentSpec) -> (bool, bool) {
    (spec.network == Network::Bridge { proxy: false }, spec.cgroup == Cgroup::Own)
}

fn throttled(slices: usize) -> World {
    pair(2.0, |spec| spec.cpu = "quota=0.5".parse().unwrap())
        .doubt("box", &Doubt::Throttled { share: 0.2 }, slices)
        .slices("box", |_, slice| slice.throttled_ns = Some(slice.window_ns / 5))
}

/// Throughput falls by a third, CPU per operation does not change.
fn waiting(factor: u64) -> World {
    quiet().slices("box", |_, slice| slice.window_ns = slice.window_ns * factor / 2)
}

/// One instance, and two with this many times the throughput.
fn instances(times: u64) -> World {
    let one: FakeEnvironment = ("native", 10.0, |spec| spec.instances = Some(1));
    let two: FakeEnvironment = ("box", 10.0, |spec| spec.instances = Some(2));
    World::of(&[one, two]).slices("box", |_, slice| slice.window_ns /= times)
}

/// Two instances that did this many operations in each slice.
fn each_did(operations: [u32; 2]) -> World {
    instances(1).slices("box", |_, slice| {
        for (number, count) in operations.into_iter().enumerate() {
            let name = names::of_instance(number, names::INSTANCE_OPERATIONS);
            slice.counters.push(Counter { name, value: count.into() });
        }
    })
}

fn tuned(us: f64) -> World {
    pair(us, |spec| spec.host = "tuned=network".parse().unwrap())
}

/// Interrupts of a device on the system's CPUs, in each slice.
fn interrupted(per_operation: f64) -> World {
    quiet().counter("native", "interrupts_virtio3_input_0_cpu2", per_operation).slices(
        "native",
        |_, slice| {
            let name = "cpu2_interrupt_share".to_string();
            slice.counters.push(tare_lab::probe::Counter { name, value: 0.08 });
        },
    )
}

/// What the CPUs kept for interrupts do in the box.
fn interrupt_cpus(busy: f64) -> World {
    quiet().slices("box", |block, slice| {
        let shares = [("interrupt_cpus_busy_share", busy), ("interrupt_cpus_softirq_share", 0.6)];
        for (name, share) in shares {
            let value = share + f64::from(block % 3) / 100.0;
            slice.counters.push(Counter { name: name.into(), value });
        }
    })
}

/// Traced slices in which the box has more TLB misses than the other environments.
fn missing_the_tlb(native: f64, there: f64) -> World {
    let mut world = quiet();
    let mut traced = world.record.slices.clone();
    for slice in &mut traced {
        slice.id += 100_000;
        slice.phase = Phase::Traced;
        let per_operation = if slice.environment == "box" { there } else { native };
        let wander = 1.0 + f64::from(slice.round % 3) / 100.0;
        let value = per_operation * wander * slice.operations as f64;
        slice.counters.push(Counter { name: "system_dtlb_misses".into(), value });
    }
    world.record.slices.extend(traced);
    world
}

fn counted(name: &str, there: f64) -> World {
    let world = quiet().counter("native", name, 0.0).counter("native again", name, 0.0);
    world.counter("box", name, there)
}

fn doubted(environment: &str, doubt: &Doubt, slices: usize) -> World {
    bridged(2.0).doubt(environment, doubt, slices)
}

const SATURATED: Doubt = Doubt::ClientSaturated { share: 0.97, busiest_thread_share: None };
const STARVED: Doubt = Doubt::NeitherSaturated { system_share: 0.13, client_share: 0.06 };
pub(super) const STRANGERS: Doubt = Doubt::Strangers { share: 0.3 };
const STEAL: Doubt = Doubt::Steal { share: 0.1 };
pub(super) const RATE: Doubt = Doubt::RateNotReached { asked_per_s: 100.0, reached_per_s: 80.0 };

fn failed() -> Doubt {
    Doubt::OperationErrors { error: "timeout".into(), count: 3, operations: 100 }
}

fn no_layer() -> Doubt {
    let found = "Seccomp: 0".into();
    Doubt::LayerNotInForce { layer: "security".into(), wanted: "default".into(), found }
}

/// Response times of about 100 µs; a share of them takes several times as long.
pub(super) fn stalls(share: f64, factor: f64) -> impl Fn(&mut Rng) -> f64 {
    move |rng| {
        let us = 80.0 - 20.0 * (1.0 - rng.next_f64()).ln();
        if rng.next_f64() < share { us * factor } else { us }
    }
}

/// Usual response times except in the box.
pub(super) fn slow(world: World, box_us: impl Fn(&mut Rng) -> f64) -> World {
    let world = world.latencies("native", 1_000, stalls(0.0, 1.0));
    let world = world.latencies("native again", 1_000, stalls(0.0, 1.0));
    world.latencies("box", 1_000, box_us)
}

pub(super) fn stalling() -> World {
    slow(quiet(), stalls(0.03, 20.0))
}

fn longer() -> World {
    slow(quiet(), |rng| 1.5 * stalls(0.0, 1.0)(rng))
}

fn alike() -> World {
    slow(quiet(), stalls(0.0, 1.0))
}

/// A box, and one of its counters.
fn beside(world: World, name: &'static str, per_operation: f64) -> World {
    let world = world.counter("native", name, 0.0).counter("native again", name, 0.0);
    world.counter("box", name, per_operation)
}

fn stalling_beside(name: &'static str, per_operation: f64) -> World {
    beside(stalling(), name, per_operation)
}

fn longer_beside(name: &'static str, per_operation: f64) -> World {
    beside(longer(), name, per_operation)
}

fn off_control(us: f64) -> World {
    bridged(2.0).slices("native again", |_, slice| {
        slice.system_cpu_ns += super::world::ns(us);
    })
}

pub(super) const CASES: &[Case] = &[
    ("scaling", || instances(2), || instances(1)),
    ("scaling_none", || instances(1), || instances(2)),
    ("instances_unequal", || each_did([8_000, 2_000]), || each_did([5_000, 5_000])),
    ("control_failed", || off_control(1.0), || bridged(2.0)),
    ("no_control", || bridged(2.0).without_control(), || bridged(2.0)),
    (
        "baseline_not_clean",
        || quiet().stacks("native", &[("database", 80), ("netfilter and conntrack", 8)]),
        || quiet().stacks("native", &[("database", 80), ("network stack", 8)]),
    ),
    ("bridge", || bridged(2.0), quiet),
    (
        "published_by_proxy",
        || pair(5.0, |spec| spec.network = "bridge+proxy".parse().unwrap()),
        || bridged(5.0),
    ),
    (
        "io_uring_lost",
        || filtered(2.0, "default+io_uring", "epoll"),
        || filtered(2.0, "default+io_uring", "io_uring"),
    ),
    ("seccomp_filter", || filtered(1.0, "none", "io_uring"), || filtered(1.0, "none", "epoll")),
    (
        "seccomp_and_io_uring",
        || filtered(1.0, "none", "epoll"),
        || filtered(1.0, "none", "io_uring"),
    ),
    (
        "no_capabilities",
        || pair(1.0, |spec| spec.confinement.capabilities = Capabilities::None),
        || pair(0.0, |spec| spec.confinement.capabilities = Capabilities::None),
    ),
    (
        "user_namespace",
        || pair(1.0, |spec| spec.confinement.user = User::Namespace),
        || pair(0.0, |spec| spec.confinement.user = User::Namespace),
    ),
    (
        "apparmor",
        || pair(1.0, |spec| spec.confinement.apparmor = Apparmor::Default),
        || pair(0.0, |spec| spec.confinement.apparmor = Apparmor::Default),
    ),
    (
        "sidecar",
        || pair(1.0, |spec| spec.sidecar = Sidecar::Proxy),
        || pair(0.0, |spec| spec.sidecar = Sidecar::Proxy),
    ),
    (
        "huge_pages",
        || pair(1.0, |spec| spec.confinement.pages = Pages::Always),
        || pair(0.0, |spec| spec.confinement.pages = Pages::Always),
    ),
    (
        "memory_node",
        || pair(1.0, |spec| spec.confinement.node = Some(1)),
        || pair(0.0, |spec| spec.confinement.node = Some(1)),
    ),
    (
        "cgroup",
        || pair(1.0, |spec| spec.cgroup = "own".parse().unwrap()),
        || pair(0.0, |spec| spec.cgroup = "own".parse().unwrap()),
    ),
    (
        "shared_cpus",
        || pair(1.0, |spec| spec.cpu = "shared".parse().unwrap()),
        || pair(0.0, |spec| spec.cpu = "shared".parse().unwrap()),
    ),
    (
        "cpu_quota",
        || pair(1.0, |spec| spec.cpu = "quota=0.5".parse().unwrap()),
        || pair(1.0, |spec| spec.cpu = "shared".parse().unwrap()),
    ),
    ("neighbours", || neighbours(5.0), || neighbours(0.0)),
    ("neighbours_contained", || neighbours(0.0), || neighbours(5.0)),
    (
        "memory_limit",
        || pair(1.0, |spec| spec.limits.memory_bytes = Some(1 << 30)),
        || pair(0.0, |spec| spec.limits.memory_bytes = Some(1 << 30)),
    ),
    (
        "resource_limits",
        || pair(1.0, |spec| spec.limits.write_bytes_per_s = Some(1 << 24)),
        || pair(1.0, |spec| spec.limits.memory_bytes = Some(1 << 30)),
    ),
    ("sandbox", || runtime(9.0, nothing, runsc), || runtime(9.0, nothing, runc)),
    (
        "virtual_machine",
        || runtime(4.0, nothing, |spec| spec.runtime = "vm".into()),
        || runtime(4.0, nothing, runc),
    ),
    (
        "storage",
        || pair(1.0, |spec| spec.storage.kind = "ext4".into()),
        || pair(0.0, |spec| spec.storage.kind = "ext4".into()),
    ),
    (
        "injected",
        || pair(2.0, |spec| spec.inject = "busy=2us".parse().unwrap()),
        || pair(0.0, |spec| spec.inject = "busy=2us".parse().unwrap()),
    ),
    ("engine", || runtime(1.0, runc, docker), || runtime(0.0, runc, docker)),
    ("runtime", || own_cgroups(1.0, runc), || own_cgroups(1.0, runsc)),
    ("layer_gives_back", || bridged(-1.0), || bridged(1.0)),
    (
        "layer_mixed",
        || bridged(2.0).slices("box", |_, slice| slice.window_ns /= 2),
        || bridged(2.0),
    ),
    ("layer_process", || proxied(2_000), || proxied(50)),
    ("nvme_target", || served_by("nvme target"), || served_by("nvme initiator")),
    (
        "retransmits",
        || counted("system_tcp_retransmits", 0.01),
        || counted("system_tcp_retransmits", 0.00001),
    ),
    ("throttled", || throttled(12), || throttled(1)),
    ("device_interrupts", || interrupted(0.05), || interrupted(0.0001)),
    ("hardware_counters", || missing_the_tlb(10.0, 14.0), || missing_the_tlb(10.0, 10.2)),
    ("interrupt_cpus", || interrupt_cpus(0.9), || interrupt_cpus(0.7)),
    (
        "page_faults",
        || counted("system_page_faults_minor", 0.5),
        || counted("system_page_faults_minor", 0.001),
    ),
    ("waits", || waiting(3), || bridged(2.0)),
    ("latency_tail", stalling, longer),
    ("latency_shift", longer, || longer_beside("system_run_queue_wait_ns", 5_000.0)),
    ("latency_waits", || longer_beside("system_run_queue_wait_ns", 5_000.0), longer),
    (
        "tail_throttled",
        || {
            stalling()
                .slices("box", |block, one| one.throttled_ns = Some(1_000_000 + u64::from(block)))
        },
        stalling,
    ),
    (
        "tail_run_queue",
        || stalling_beside("system_run_queue_wait_ns", 5_000.0),
        || slow(counted("system_run_queue_wait_ns", 5_000.0), stalls(0.0, 1.0)),
    ),
    (
        "tail_disk",
        || stalling_beside("disk_flush_latency_ns_max", 1e3),
        || stalling_beside("disk_flush_latency_ns_max", 0.0),
    ),
    ("tail_retransmits", || stalling_beside("client_tcp_timeouts", 0.01), stalling),
    (
        "tail_proxy",
        || {
            stalling().slices("box", |_, slice| {
                slice.layer_cpu_ns.push(("userland proxy".into(), 1_000));
            })
        },
        || {
            stalling().slices("box", |_, slice| {
                slice.layer_cpu_ns.push(("kernel threads".into(), 1_000));
            })
        },
    ),
    ("latency_not_found", alike, stalling),
    (
        "percentile_not_told",
        || {
            let world = quiet().latencies("native", 200, stalls(0.0, 1.0));
            world.latencies("box", 200, stalls(0.0, 1.0))
        },
        alike,
    ),
    (
        "code",
        || {
            let world = bridged(2.0).stacks("native", &[("database", 80)]);
            world.stacks("box", &[("database", 80), ("bridge and veth", 20)])
        },
        || bridged(2.0).stacks("native", &[("database", 80)]).stacks("box", &[("database", 80)]),
    ),
    (
        "interaction",
        || {
            World::explained(two_layers, |spec| match has(spec) {
                (true, true) => 14.0,
                (true, false) => 11.0,
                (false, true) => 10.5,
                (false, false) => 10.0,
            })
        },
        || {
            World::explained(two_layers, |spec| {
                let (bridge, cgroup) = has(spec);
                10.0 + f64::from(u8::from(bridge)) + 0.5 * f64::from(u8::from(cgroup))
            })
        },
    ),
    (
        "not_attributed",
        // Each share is below the control's noise, their sum is not.
        || {
            World::explained(two_layers, |spec| {
                let (bridge, cgroup) = has(spec);
                10.0 + 0.16 * f64::from(u8::from(bridge)) + 0.16 * f64::from(u8::from(cgroup))
            })
            .slices("native again", |_, slice| slice.system_cpu_ns += super::world::ns(0.18))
        },
        || {
            World::explained(two_layers, |spec| {
                let (bridge, cgroup) = has(spec);
                10.0 + f64::from(u8::from(bridge)) + f64::from(u8::from(cgroup))
            })
        },
    ),
    ("not_taken_apart", || pair(2.0, two_layers), || bridged(2.0)),
    ("tuning_helps", || tuned(-1.0), || tuned(1.0)),
    ("tuning_hurts", || tuned(1.0), || tuned(-1.0)),
    ("tuning_not_proven", || tuned(0.0), || tuned(1.0)),
    ("client_saturated", || doubted("native", &SATURATED, 12), || doubted("native", &SATURATED, 1)),
    ("neither_saturated", || doubted("box", &STARVED, 12), || doubted("box", &STARVED, 1)),
    ("strangers", || doubted("box", &STRANGERS, 12), || doubted("box", &STRANGERS, 1)),
    ("steal", || doubted("box", &STEAL, 12), || doubted("box", &STEAL, 1)),
    ("rate_not_reached", || doubted("box", &RATE, 12), || doubted("box", &RATE, 1)),
    ("errors", || doubted("box", &failed(), 1), || bridged(2.0)),
    ("not_in_force", || doubted("box", &no_layer(), 1), || bridged(2.0)),
    ("layers_not_found", quiet, || bridged(2.0)),
    ("nothing_found", quiet, || bridged(2.0)),
    ("few_blocks", || bridged(2.0).blocks(4), || bridged(2.0)),
];
