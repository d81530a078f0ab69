//! Compares every consumer with golden texts and checks properties of all of them.
//!
//! `SNAPSHOTS=overwrite cargo test -p tare-tune flags` writes the golden texts.

use std::path::PathBuf;

use tare_std::cpus::CpuSet;

use super::*;
use crate::machine::topology::{Core, Node};

/// Returns a machine where the sibling of CPU i is i + cores, as AWS and GCE number them.
pub(super) fn machine(nodes: u32, cores: u32, threads: u32) -> Topology {
    let core = |node: u32, core: u32| Core {
        cpus: (0..threads).map(|thread| thread * nodes * cores + node * cores + core).collect(),
    };
    let node = |id: u32| Node { id, cores: (0..cores).map(|index| core(id, index)).collect() };
    Topology { nodes: (0..nodes).map(node).collect(), ..Topology::default() }
}

fn list(text: &str) -> CpuSet {
    CpuSet::parse_list(text).unwrap()
}

fn sets(topology: &Topology, irq: &str, compute: &str) -> CpuSets {
    CpuSets {
        universe: topology.cpus(),
        irq: list(irq),
        compute: list(compute),
        why: String::new(),
    }
}

fn i3_8xlarge() -> (Topology, CpuSets) {
    let topology = machine(1, 16, 2);
    let cpus = sets(&topology, "0,16", "1-15,17-31");
    (topology, cpus)
}

fn i3_16xlarge() -> (Topology, CpuSets) {
    let topology = machine(2, 16, 2);
    let cpus = sets(&topology, "0,16,32,48", "1-15,17-31,33-47,49-63");
    (topology, cpus)
}

fn two_cpus() -> (Topology, CpuSets) {
    let topology = machine(1, 2, 1);
    let cpus = sets(&topology, "0-1", "0-1");
    (topology, cpus)
}

fn host() -> Host {
    Host { memory_bytes: Some(244 << 30), nr_open: Some(1_048_576), ..Host::default() }
}

fn flags(name: &str, request: &Request, (topology, cpus): &(Topology, CpuSets)) -> Flags {
    write(consumer(name).unwrap(), request, topology, cpus, &host()).unwrap()
}

fn golden(name: &str, text: &str) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/flags/goldens");
    tare_testkit::golden(&folder.join(format!("{name}.txt")), text);
}

fn with_profile() -> Request {
    Request { seccomp: Some("/etc/tare/seccomp.json".into()), ..Request::default() }
}

#[test]
fn writes_one_instance_on_one_node() {
    for consumer in ALL {
        let text = flags(consumer.name(), &with_profile(), &i3_8xlarge()).text();
        golden(&format!("{}-i3.8xlarge", consumer.name()), &text);
    }
}

#[test]
fn writes_two_instances_on_two_nodes() {
    let request = Request { instances: 2, ..Request::default() };
    for consumer in ALL {
        let text = flags(consumer.name(), &request, &i3_16xlarge()).text();
        golden(&format!("{}-two-nodes", consumer.name()), &text);
    }
}

#[test]
fn writes_flags_for_two_cpus() {
    let memory_bytes = Some(8 << 30);
    let request = Request { image: Some("postgres:18".into()), memory_bytes, ..with_profile() };
    for name in ["docker", "kubernetes", "quadlet"] {
        golden(&format!("{name}-two-cpus"), &flags(name, &request, &two_cpus()).text());
    }
    let request = Request { memory_bytes, ..Request::default() };
    for name in ["tare-db", "cassandra"] {
        golden(&format!("{name}-two-cpus"), &flags(name, &request, &two_cpus()).text());
    }
}

#[test]
fn flags_show_measured_gains() {
    let sentence = "r.tare, write: without it 12.3 % more CPU per operation [10.1, 14.6].";
    let mut request = Request::default();
    request.measured.insert(Layer::Network, vec![sentence.into()]);
    let flags = flags("docker", &request, &i3_8xlarge());
    let measured = |text: &str| {
        let mut all = flags.instances[0].flags.iter();
        all.find(|flag| flag.text.starts_with(text)).unwrap().measured.clone()
    };
    assert_eq!(measured("--network"), [sentence]);
    assert!(measured("--cpuset-cpus").is_empty());
    let one_line = flags.text().replace("\n  # ", " ");
    assert!(one_line.contains(&format!("Measured: {sentence}")), "{one_line}");
}

#[test]
fn shards_match_cpus_and_instances_are_disjoint() {
    for instances in [1, 2, 3, 7, 30] {
        let request = Request { instances, memory_bytes: Some(128 << 30), ..Request::default() };
        for consumer in ALL {
            let flags = flags(consumer.name(), &request, &i3_16xlarge());
            assert_eq!(flags.instances.len(), usize::try_from(instances).unwrap());
            let mut seen = CpuSet::new();
            for instance in &flags.instances {
                assert!(seen.is_disjoint(&instance.cpus), "{}", consumer.name());
                seen = seen.union(&instance.cpus);
                let smp = instance.flags.iter().find_map(|flag| flag.text.strip_prefix("--smp="));
                if let Some(smp) = smp {
                    assert_eq!(smp, instance.cpus.len().to_string(), "{}", consumer.name());
                }
            }
            assert!(seen.is_disjoint(&list("0,16,32,48")), "{}", consumer.name());
        }
    }
}

#[test]
fn no_flag_is_privileged() {
    for consumer in ALL {
        let text = flags(consumer.name(), &with_profile(), &i3_16xlarge()).text();
        assert!(!text.contains("privileged"), "{}", consumer.name());
        assert!(!text.contains("unconfined") && !text.contains("SYS_ADMIN"), "{}", consumer.name());
    }
}

#[test]
fn refuses_impossible_requests() {
    let (topology, cpus) = i3_8xlarge();
    let error = |name: &str, request: Request, host: &Host| {
        write(consumer(name).unwrap(), &request, &topology, &cpus, host).unwrap_err().to_string()
    };
    let many = error("docker", Request { instances: 16, ..Request::default() }, &host());
    assert!(many.contains("at most 15"), "{many}");
    let image =
        error("docker", Request { image: Some("a;id".into()), ..Request::default() }, &host());
    assert!(image.contains("is not an image name"), "{image}");
    let memory = error("kubernetes", Request::default(), &Host::default());
    assert!(memory.contains("give --memory"), "{memory}");
    let little = Request { memory_bytes: Some(4 << 30), ..Request::default() };
    assert!(error("scylla", little, &host()).contains("too little"));
    let path = Request { seccomp: Some("/a b".into()), ..Request::default() };
    assert!(error("quadlet", path, &host()).contains("cannot be quoted for quadlet"));
}

#[test]
fn kubelet_reserves_whole_cores() {
    // One thread of a core takes interrupts, as on 8 CPUs: its sibling must be reserved too.
    let topology = machine(1, 4, 2);
    let cpus = sets(&topology, "0", "1-7");
    let flags = flags("kubernetes", &Request::default(), &(topology, cpus));
    assert!(flags.shared[0].body.contains("reservedSystemCPUs: \"0,4\""), "{flags:?}");
    assert_eq!(flags.instances[0].cpus, list("1-3,5-7"));
    assert!(flags.instances[0].texts[0].body.contains("cpu: \"6\""), "{flags:?}");
}
