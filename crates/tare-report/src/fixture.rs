//! Records made up for tests: no figure in them was measured. The shape is that of the quick study.

mod ladder;
mod many_blocks;
mod stacks;
mod ten_hours;

use std::time::Duration;

use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
use tare_lab::ablation::Plan;
use tare_lab::analysis::{Analysis, Cost, Finding, Interval};
use tare_lab::doubt::Doubt;
use tare_lab::environment::{
    CpuPlan, EnvironmentSpec, LayerState, Limits, NOTHING_INJECTED, StorageSpec,
};
use tare_lab::probe::Counter;
use tare_lab::record::{EnvironmentRecord, Header, HostFact, Phase, Record, Slice};
use tare_lab::study::*;
use tare_lab::system::OwnAccount;
use tare_std::cpus::CpuSet;
use tare_std::rng::Rng;

pub(crate) use ladder::ladder;
pub(crate) use many_blocks::many_blocks;
pub(crate) use stacks::stacks;
pub(crate) use ten_hours::ten_hours;

const STARTED_MS: u64 = 1_795_229_398_000;

/// A finished quick study: 12 blocks, seven environments, one left out, an A/A control.
pub(crate) fn quick() -> (Record, Analysis) {
    make(12, &["write"])
}

/// Two workloads.
pub(crate) fn two_workloads() -> (Record, Analysis) {
    make(8, &["write", "read"])
}

/// As long as the longest study that is delivered and with its names: 60 blocks, three workloads,
/// a cost published for an environment that was left out.
pub(crate) fn long() -> (Record, Analysis) {
    let (mut record, mut analysis) = make(60, &["write", "read", "read uniform"]);
    let rename = |name: &mut String| match name.as_str() {
        "docker-default" => *name = "container default".into(),
        "gvisor" => *name = "docker default".into(),
        _ => {}
    };
    record.study.environments.iter_mut().for_each(|e| rename(&mut e.name));
    record.study.published.iter_mut().for_each(|p| rename(&mut p.environment));
    record.study.published.insert(0, published("docker default", 69.0));
    record.environments.iter_mut().for_each(|e| rename(&mut e.spec.name));
    record.slices.iter_mut().for_each(|s| rename(&mut s.environment));
    analysis.findings.iter_mut().for_each(|f| rename(&mut f.environment));
    (record, analysis)
}

/// A study that still runs.
pub(crate) fn running() -> (Record, Analysis) {
    let (mut record, analysis) = make(4, &["write"]);
    record.header.ended_unix_ms = None;
    record.header.ending = None;
    (record, analysis)
}

/// One block: figures, but no interval.
pub(crate) fn single_block() -> (Record, Analysis) {
    make(1, &["write"])
}

/// A record that was opened and no more.
pub(crate) fn empty() -> (Record, Analysis) {
    let (mut record, mut analysis) = running();
    record.slices.clear();
    record.environments.clear();
    record.host.clear();
    record.header.rates.clear();
    analysis.findings.clear();
    analysis.doubts.clear();
    analysis.arithmetic.clear();
    analysis.blocks = 0;
    (record, analysis)
}

/// Names that try to be markup, steer the terminal, or are too long.
pub(crate) fn hostile() -> (Record, Analysis) {
    let (mut record, mut analysis) = make(4, &["write"]);
    let nasty = [
        ("docker-default", "<script>alert('x')</script>".to_string()),
        ("+ cpuset", format!("\"onload=\"x {} end", "long ".repeat(40))),
        ("+ host network", "\u{1f9a9} \u{202e}drowssap\u{202c} \u{1b}[31mred".to_string()),
        ("+ no seccomp", "\u{5e9}\u{5dc}\u{5d5}\u{5dd} {{ 7*7 }} {% raw %} ]]> -->".to_string()),
    ];
    let rename = |name: &mut String| {
        if let Some((_, new)) = nasty.iter().find(|(old, _)| *old == name.as_str()) {
            name.clone_from(new);
        }
    };
    record.study.environments.iter_mut().for_each(|e| rename(&mut e.name));
    record.study.published.iter_mut().for_each(|p| rename(&mut p.environment));
    for environment in &mut record.environments {
        rename(&mut environment.spec.name);
        environment.config = Some("{\"a\": \"</pre><script>1</script>\"}".to_string());
        environment.settings.push(("</td><b>".into(), "<img src=x onerror=alert(1)>".into()));
    }
    record.slices.iter_mut().for_each(|s| rename(&mut s.environment));
    analysis.findings.iter_mut().for_each(|f| rename(&mut f.environment));
    record.study.title = "</title><script>alert(1)</script>".to_string();
    record.header.command.push("$(rm -rf /) <b>".to_string());
    record.host.push(fact("<h1>", "</style>", "<svg onload=alert(1)>"));
    analysis.arithmetic.push("<i>1 / 0</i>".to_string());
    analysis.doubts.push(Doubt::ProbeFailed {
        probe: "<u>".into(),
        reason: "a\u{1b}[2Jb </script><script>alert(2)</script>".into(),
    });
    (record, analysis)
}

/// Two machines: the second is 1.5 times as fast.
pub(crate) fn hosts() -> [crate::compare::Named; 2] {
    let machine = |seed, speed, host: &str, model: &str, cpus: &str| {
        let made = Machine { seed, speed, burden: 1.0, latencies: true };
        let (mut record, analysis) = on(made, 12);
        record.host.push(fact("kernel", "host name", host));
        record.host[0].value = model.to_string();
        record.cpu_plan.system = CpuSet::parse_list(cpus).unwrap();
        record.header.rates[0].1 *= speed;
        (format!("{host}.tare"), record, analysis)
    };
    [
        machine(1, 1.0, "small", "AMD EPYC 7002", "2-3"),
        machine(2, 1.5, "large", "AMD EPYC 9005", "2-5"),
    ]
}

/// A record that `tare explain` made. The study has no environments between the two, so that all
/// layers are one step.
pub(crate) fn explained() -> (Record, Plan) {
    let (mut record, _) = quick();
    let spec = |name: &str| {
        let found = record.environments.iter().find(|one| one.spec.name == name);
        found.map(|one| one.spec.clone()).unwrap()
    };
    let (from, to) = (spec("native"), spec("docker-default"));
    let nothing_between = |_: &EnvironmentSpec| false;
    let (plan, _) = Plan::new(&from, &to, &nothing_between, 2, 1).unwrap();
    record.host.push(plan.fact());
    (record, plan)
}

struct Truth {
    name: &'static str,
    runtime: &'static str,
    network: &'static str,
    cpu: &'static str,
    security: &'static str,
    cgroup: &'static str,
    /// CPU per operation and throughput as ratios to the baseline.
    cpu_ratio: f64,
    throughput_ratio: f64,
    /// Latency as a ratio, and how heavy its tail is.
    latency_ratio: f64,
    tail: f64,
}

#[rustfmt::skip]
const TRUTHS: [Truth; 7] = [
    truth("native", "process", "host", "pinned", "none", "none", 1.0, 1.0, 1.0, 0.8),
    truth("docker-default", "docker", "bridge+proxy", "shared", "default", "own", 1.62, 0.41, 2.9, 1.6),
    truth("+ cpuset", "docker", "bridge", "pinned", "default", "own", 1.24, 0.87, 1.3, 1.0),
    truth("+ host network", "docker", "host", "pinned", "default", "own", 1.045, 0.965, 1.06, 0.85),
    truth("+ no seccomp", "oci:runc", "host", "pinned", "none", "own", 1.012, 0.99, 1.01, 0.8),
    truth("+ no cgroup", "oci:runc", "host", "pinned", "none", "none", 1.0, 1.003, 1.0, 0.8),
    truth("native again", "process", "host", "pinned", "none", "none", 1.0, 1.0, 1.0, 0.8),
];

#[expect(clippy::too_many_arguments, reason = "one line of a table")]
const fn truth(
    name: &'static str,
    runtime: &'static str,
    network: &'static str,
    cpu: &'static str,
    security: &'static str,
    cgroup: &'static str,
    cpu_ratio: f64,
    throughput_ratio: f64,
    latency_ratio: f64,
    tail: f64,
) -> Truth {
    Truth {
        name,
        runtime,
        network,
        cpu,
        security,
        cgroup,
        cpu_ratio,
        throughput_ratio,
        latency_ratio,
        tail,
    }
}

fn spec(truth: &Truth) -> EnvironmentSpec {
    EnvironmentSpec {
        name: truth.name.into(),
        runtime: truth.runtime.into(),
        network: truth.network.into(),
        cpu: truth.cpu.into(),
        security: truth.security.into(),
        cgroup: truth.cgroup.into(),
        host: "as-is".into(),
        storage: StorageSpec::default(),
        vm: Vec::new(),
        sandbox: Vec::new(),
        rootfs: Vec::new(),
        inject: NOTHING_INJECTED.into(),
        limits: Limits::default(),
        optional: false,
    }
}

fn fact(section: &str, key: &str, value: &str) -> HostFact {
    HostFact { section: section.into(), key: key.into(), value: value.into() }
}

fn workload(name: &str) -> WorkloadSpec {
    WorkloadSpec {
        name: name.into(),
        workload: None,
        write_share: if name == "write" { 1.0 } else { 0.0 },
        rows: 100_000,
        columns: 5,
        column_bytes: 64,
        keys: KeyDistribution::Gaussian { mean_share: 0.5, deviation_share: 1.0 / 6.0 },
        connections: 4,
        in_flight: 64,
        latency_share: 0.4,
        rate_per_s: None,
        options: Vec::new(),
    }
}

fn published(environment: &str, cost: f64) -> PublishedRelation {
    PublishedRelation {
        environment: environment.into(),
        against: None,
        workload: None,
        claim: Claim::Throughput(Expected::Value(cost)),
        within_percent: None,
        source: "The Cost of Containerization for Your Scylla, 2018".into(),
        hardware: None,
    }
}

/// How one made-up machine differs from another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    pub(crate) seed: u64,
    /// Factor on every throughput.
    pub(crate) speed: f64,
    /// Factor on the CPU per operation of everything in "docker-default" alone.
    pub(crate) burden: f64,
    /// Histograms take most of the time; without them there are no latencies.
    pub(crate) latencies: bool,
}

const MACHINE: Machine = Machine { seed: 42, speed: 1.0, burden: 1.0, latencies: true };

/// A quick study on another machine, with the conclusions that the product draws from its slices.
pub(crate) fn on(machine: Machine, blocks: u32) -> (Record, Analysis) {
    let mut record = unmeasured(&["write"]);
    record.slices = slices(blocks, &["write"], machine);
    // The account is made up for a machine of one speed.
    record.slices.iter_mut().for_each(|slice| slice.own_account = None);
    record.header.seed = machine.seed;
    let analyse = match machine.latencies {
        true => tare_lab::analysis::analyse,
        false => tare_lab::analysis::analyse_costs,
    };
    let analysis = analyse(&record);
    (record, analysis)
}

fn make(blocks: u32, workloads: &[&str]) -> (Record, Analysis) {
    let mut record = unmeasured(workloads);
    record.slices = slices(blocks, workloads, MACHINE);
    let mut analysis = analyse(&record.slices, blocks, workloads);
    // Latencies are the product's own conclusions.
    for concluded in tare_lab::analysis::analyse(&record).findings {
        let same = |f: &&mut Finding| {
            f.environment == concluded.environment && f.workload == concluded.workload
        };
        if let Some(finding) = analysis.findings.iter_mut().find(same) {
            (finding.response, finding.service) = (concluded.response, concluded.service);
        }
    }
    (record, analysis)
}

/// A record without slices.
fn unmeasured(workloads: &[&str]) -> Record {
    let mut specs: Vec<EnvironmentSpec> = TRUTHS.iter().map(spec).collect();
    let control = specs.pop().unwrap();
    let gvisor = EnvironmentSpec {
        name: "gvisor".into(),
        runtime: "oci:runsc".into(),
        optional: true,
        ..specs[1].clone()
    };
    specs.push(gvisor.clone());
    let study = Study {
        name: "quick".into(),
        title: "What does each layer of a container cost this database on this host?".into(),
        baseline: "native".into(),
        system: SystemSpec {
            name: "tare-db".into(),
            options: vec![("durability".into(), "periodic".into())],
        },
        driver: "tare-load".into(),
        schedule: ScheduleSpec {
            kind: ScheduleKind::Slices,
            data: DataStart::Loaded,
            window: Duration::from_millis(300),
            lead_in: Duration::from_millis(100),
            rounds: 40,
            rounds_min: 6,
            budget: Duration::from_secs(300),
            stop_width_percent: 2.0,
            seed: None,
        },
        cpus: CpuSpec::default(),
        environments: specs.clone(),
        workloads: workloads.iter().map(|name| workload(name)).collect(),
        published: vec![
            published("docker-default", 69.0),
            published("+ cpuset", 11.0),
            published("+ host network", 3.0),
            published("+ no seccomp", 0.0),
        ],
        quick: None,
    };
    let mut environments: Vec<EnvironmentRecord> =
        specs.iter().map(|spec| environment(spec, false)).collect();
    environments.push(environment(&control, true));
    Record {
        header: Header {
            tare_version: "0.1.0".into(),
            started_unix_ms: STARTED_MS,
            ended_unix_ms: Some(STARTED_MS + 231_000),
            seed: 0x7a5e_0001,
            command: ["tare", "weigh", "studies/quick.toml", "-o", "quick.tare"]
                .map(String::from)
                .to_vec(),
            ending: Some("intervals narrow enough".into()),
            rates: workloads.iter().map(|w| (w.to_string(), 32_000.0)).collect(),
        },
        study_text: "name = \"quick\"\nbaseline = \"native\"\n".into(),
        study,
        cpu_plan: CpuPlan {
            all: CpuSet::parse_list("0-3").unwrap(),
            system: CpuSet::parse_list("2-3").unwrap(),
            client: CpuSet::parse_list("0-1").unwrap(),
        },
        host: vec![
            fact("cpu", "model", "Intel(R) Xeon(R) Processor @ 2.50GHz"),
            fact("cpu", "online", "0-3"),
            fact("cpu", "governor", "not exposed"),
            fact("kernel", "release", "6.18.44"),
            fact("kernel", "mitigations", "Mitigation: IBRS; STIBP: conditional"),
            fact("network", "tcp_congestion_control", "bbr"),
            fact("versions", "docker", "20.10.24+dfsg1"),
            fact("versions", "runc", "1.1.5+ds1"),
        ],
        environments,
        slices: Vec::new(),
        doubts: Vec::new(),
    }
}

fn environment(spec: &EnvironmentSpec, control: bool) -> EnvironmentRecord {
    let left_out = (spec.runtime == "oci:runsc").then(|| {
        "runsc is not installed; see https://gvisor.dev/docs/user_guide/install".to_string()
    });
    let layer = |layer: &str, wanted: &str, found: &str| LayerState {
        layer: layer.into(),
        wanted: wanted.into(),
        found: found.into(),
        in_force: true,
    };
    let cpus = if spec.cpu == "pinned" { "2-3" } else { "0-3" };
    let seccomp = if spec.security == "none" { "Seccomp: 0" } else { "Seccomp: 2" };
    let uring = spec.security == "none";
    let config = (spec.runtime != "process").then(|| {
        let namespaces = if spec.network == "host" { "" } else { "{\"type\":\"network\"}," };
        format!(
            "{{\"linux\":{{\"namespaces\":[{namespaces}{{\"type\":\"pid\"}}],\"resources\":{{\"cpu\":{{\"cpus\":\"{cpus}\"}}}},\
             \"seccomp\":{}}},\"process\":{{\"args\":[\"/tare\",\"db\"],\"cwd\":\"/\"}}}}",
            if spec.security == "none" { "null" } else { "{\"defaultAction\":\"SCMP_ACT_ERRNO\"}" },
        )
    });
    let up = left_out.is_none();
    EnvironmentRecord {
        spec: spec.clone(),
        control,
        layers: if up {
            vec![
                layer("runtime", &spec.runtime, &spec.runtime),
                layer("network", &spec.network, "net:[4026532281]"),
                layer("cpu", &spec.cpu, &format!("Cpus_allowed_list: {cpus}")),
                layer("security", &spec.security, seccomp),
                layer("cgroup", &spec.cgroup, "/tare/x"),
            ]
        } else {
            Vec::new()
        },
        settings: if up {
            vec![
                ("io_engine".into(), if uring { "io_uring" } else { "epoll" }.into()),
                ("polling".into(), (spec.cpu == "pinned").to_string()),
                ("shards".into(), "2".into()),
            ]
        } else {
            Vec::new()
        },
        config: config.filter(|_| up),
        ready_ns: up.then_some(181_000_000),
        teardown_ns: up.then_some(64_000_000),
        left_out,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "made-up figures, small and positive"
)]
fn slices(blocks: u32, workloads: &[&str], machine: Machine) -> Vec<Slice> {
    let mut rng = Rng::new(machine.seed);
    let mut slices = Vec::new();
    let mut now = STARTED_MS + 9_000;
    for block in 0..blocks {
        let weather = (0.08 * rng.normal()).exp();
        let mut order: Vec<(usize, &str, Phase)> = Vec::new();
        for name in workloads {
            for index in 0..TRUTHS.len() {
                order.push((index, name, Phase::Capacity));
                order.push((index, name, Phase::Latency));
            }
        }
        rng.shuffle(&mut order);
        for (position, (index, workload, phase)) in order.into_iter().enumerate() {
            let truth = &TRUTHS[index];
            let read = if workload == "read" { 0.8 } else { 1.0 };
            let window_ns = 300_000_000u64;
            let per_s = match phase {
                Phase::Capacity => {
                    81_000.0
                        * machine.speed
                        * truth.throughput_ratio
                        * weather
                        * (0.015 * rng.normal()).exp()
                        / read
                }
                Phase::Latency | Phase::Traced => 32_000.0,
            };
            let operations = (per_s * 0.3) as u64;
            let burden = if truth.name == "docker-default" { machine.burden } else { 1.0 };
            let cpu_us = 11.6 * read * truth.cpu_ratio * burden * (0.008 * rng.normal()).exp();
            let system_cpu_ns = (operations as f64 * cpu_us * 1e3) as u64;
            let void = (block == 2 && truth.name == "+ cpuset" && phase == Phase::Capacity)
                .then(|| "security: wanted default, found Seccomp: 0".to_string());
            let open = phase == Phase::Latency;
            let service = match machine.latencies {
                true => histogram(&mut rng, truth.latency_ratio * read, truth.tail * 0.8),
                false => Vec::new(),
            };
            slices.push(Slice {
                id: slices.len() as i64 + 1,
                block,
                position: position as u32,
                environment: truth.name.into(),
                workload: workload.into(),
                phase,
                started_unix_ms: now,
                window_ns,
                operations,
                errors: Vec::new(),
                unsent: 0,
                rate_per_s: open.then_some(32_000.0),
                system_cpu_ns,
                layer_cpu_ns: if truth.network == "bridge+proxy" {
                    vec![("userland proxy".into(), system_cpu_ns / 5)]
                } else {
                    Vec::new()
                },
                own_account: Some(OwnAccount {
                    busy_ns: system_cpu_ns,
                    idle_poll_ns: 600_000_000 - system_cpu_ns.min(600_000_000),
                }),
                client_cpu_ns: operations * 4_800,
                throttled_ns: None,
                response: if open && machine.latencies {
                    histogram(&mut rng, truth.latency_ratio, truth.tail)
                } else {
                    Vec::new()
                },
                service,
                counters: counters(truth, block, operations),
                void,
            });
            now += 480;
        }
    }
    slices
}

/// Switches follow the CPU time, memory the network; steal is everybody's.
#[expect(clippy::cast_precision_loss, reason = "made-up figures")]
fn counters(truth: &Truth, block: u32, operations: u64) -> Vec<Counter> {
    let counter = |name: &str, value| Counter { name: name.into(), value };
    let wander = 1.0 + f64::from(block * 7 % 5) / 100.0;
    let buffers = if truth.network == "host" { 0.0 } else { 12e6 };
    vec![
        counter("steal_ns", 1_000_000.0),
        counter("system_switches_voluntary", 0.31 * truth.cpu_ratio * wander * operations as f64),
        counter("system_rss_anon_bytes_at_end", 402e6 * wander + buffers),
    ]
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "made-up latencies, positive"
)]
fn histogram(rng: &mut Rng, ratio: f64, tail: f64) -> Vec<u8> {
    let mut histogram = Histogram::<u64>::new_with_bounds(1_000, 10_000_000_000, 3).unwrap();
    for _ in 0..1_500 {
        let body = 240_000.0 * ratio * (0.25 * rng.normal()).exp();
        let stall = if rng.next_f64() < 0.01 * tail { 4e6 * tail * rng.next_f64() } else { 0.0 };
        histogram.saturating_record((body + stall) as u64);
    }
    let mut bytes = Vec::new();
    V2DeflateSerializer::new().serialize(&histogram, &mut bytes).unwrap();
    bytes
}

/// Means of log ratios with a rough interval: enough to draw, no statistics.
fn analyse(slices: &[Slice], blocks: u32, workloads: &[&str]) -> Analysis {
    let mut findings = Vec::new();
    let mut order: Vec<&Truth> = TRUTHS.iter().collect();
    let control = order.pop().unwrap();
    order.insert(1, control);
    for workload in workloads {
        for truth in &order {
            findings.push(finding(slices, truth, workload));
        }
    }
    let mut doubts = vec![Doubt::EnvironmentLeftOut {
        environment: "gvisor".into(),
        reason: "runsc is not installed; see https://gvisor.dev/docs/user_guide/install".into(),
    }];
    if blocks < 5 {
        doubts.push(Doubt::FewBlocks { blocks });
    }
    Analysis {
        findings,
        blocks,
        doubts,
        arithmetic: vec![
            "docker-default, server CPU per operation: 18.8 µs / 11.6 µs = 1.620, a cost of +62.0 %".into(),
            "median of 12 paired ratios, one per block; Student t on their logarithms".into(),
        ],
    }
}

#[expect(clippy::cast_precision_loss, reason = "made-up figures")]
fn finding(slices: &[Slice], truth: &Truth, workload: &str) -> Finding {
    let of = |name: &str| -> Vec<&Slice> {
        let mut found: Vec<&Slice> = slices
            .iter()
            .filter(|s| {
                s.environment == name && s.workload == workload && s.phase == Phase::Capacity
            })
            .collect();
        found.sort_by_key(|s| s.block);
        found
    };
    let (here, base) = (of(truth.name), of("native"));
    let cpu = |s: &&Slice| s.system_cpu_ns as f64 / s.operations as f64 / 1e3;
    let rate = |s: &&Slice| s.operations as f64 / (s.window_ns as f64 / 1e9);
    let client = |s: &&Slice| s.client_cpu_ns as f64 / s.operations as f64 / 1e3;
    let both = |s: &&Slice| cpu(s) + client(s);
    let logs =
        |f: &dyn Fn(&&Slice) -> f64| -> Vec<f64> { here.iter().map(|s| f(s).ln()).collect() };
    let ratios = |f: &dyn Fn(&&Slice) -> f64| -> Vec<f64> {
        here.iter().zip(&base).map(|(h, b)| (f(h) / f(b)).ln()).collect()
    };
    let baseline = truth.name == "native";
    let cpu_cost = |f: &dyn Fn(&&Slice) -> f64| {
        (!baseline).then(|| cost(interval(&ratios(f), |log| (log.exp() - 1.0) * 100.0)))
    };
    let throughput_cost = (!baseline).then(|| {
        let up = interval(&ratios(&rate), |log| (1.0 - log.exp()) * 100.0);
        cost(Interval { low: up.high, high: up.low, ..up })
    });
    let mut doubts = Vec::new();
    if truth.cpu == "shared" {
        doubts.push((
            Doubt::ClientSharesCpus { cpus: "0-1".into() },
            u32::try_from(here.len()).unwrap(),
        ));
        doubts.push((Doubt::Strangers { share: 0.11 }, 3));
    }
    if truth.security == "default" {
        doubts.push((
            Doubt::IoEngineDiffers { baseline: "io_uring".into(), here: "epoll".into() },
            0,
        ));
    }
    if truth.name == "native again" {
        doubts.push((Doubt::Steal { share: 0.04 }, 1));
    }
    let void = here.iter().filter(|s| s.void.is_some()).count();
    Finding {
        environment: truth.name.into(),
        workload: workload.into(),
        baseline,
        control: truth.name == "native again",
        slices: u32::try_from(2 * here.len() - void).unwrap(),
        slices_void: u32::try_from(void).unwrap(),
        server_cpu_us: Some(interval(&logs(&cpu), f64::exp)),
        server_cpu_is_busy_time: truth.cpu == "pinned",
        server_cpu_cost: cpu_cost(&cpu),
        server_cpu_us_at_rate: Some(interval(&logs(&|s| cpu(s) * 1.1), f64::exp)),
        server_cpu_cost_at_rate: cpu_cost(&cpu),
        total_cpu_us: Some(interval(&logs(&both), f64::exp)),
        total_cpu_cost: cpu_cost(&both),
        throughput_per_s: Some(interval(&logs(&rate), f64::exp)),
        throughput_cost,
        response: None,
        service: None,
        client_cpu_us: Some(interval(&logs(&client), f64::exp)),
        client_cpu_share: Some(if truth.throughput_ratio > 0.9 { 0.41 } else { 0.22 }),
        doubts,
    }
}

#[expect(clippy::cast_precision_loss, reason = "made-up figures")]
fn interval(logs: &[f64], form: impl Fn(f64) -> f64) -> Interval {
    let n = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / n;
    let variance = logs.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let half = 2.2 * (variance / n).sqrt();
    Interval {
        value: form(mean),
        low: form(mean - half),
        high: form(mean + half),
        blocks: u32::try_from(logs.len()).unwrap(),
    }
}

fn cost(percent: Interval) -> Cost {
    let found = percent.low > 0.0 || percent.high < 0.0;
    Cost { percent, found, within_percent: percent.low.abs().max(percent.high.abs()) }
}
