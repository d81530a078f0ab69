//! The division of the CPUs on known machines (`fixtures/hosts`) and on generated ones.
//!
//! The masks are public: scylla-cluster-tests #6192 and #11639, scylladb #25320.
#![expect(clippy::unwrap_used, reason = "a test says what it could not do, and stops")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use proptest::prelude::*;
use tare_std::cpus::CpuSet;
use tare_tune::fixture::{Cpus, Host, Numbering};
use tare_tune::machine::{Interrupts, Machine, Owners, Topology, TopologyError};
use tare_tune::plan::cpus::{choose, notes};
use tare_tune::plan::{CpuSets, CpuSetsError, Mode, Options, PlanError};
use tare_tune::planner::plan;

fn host(name: &str) -> Host {
    let path = fixtures().join(format!("{name}.toml"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    Host::parse(&text).unwrap_or_else(|error| panic!("{path:?}: {error}"))
}

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hosts")
}

fn machine(host: &Host) -> Machine {
    Machine {
        topology: Topology::read(&host.build()).unwrap(),
        interrupts: Interrupts::default(),
        nics: Vec::new(),
        disks: Vec::new(),
        owners: Owners::default(),
        interrupt_share: BTreeMap::new(),
    }
}

fn list(text: &str) -> CpuSet {
    text.parse().unwrap()
}

fn divide(host: &Host, options: &Options) -> Result<CpuSets, CpuSetsError> {
    choose(&machine(host), options)
}

/// Divides with Tare's and perftune.py's rules, which agree where nothing is isolated or hybrid.
fn both(host: &Host, options: &Options) -> Result<CpuSets, CpuSetsError> {
    let own = divide(host, options);
    let like = divide(host, &Options { like_perftune: true, ..options.clone() });
    assert_eq!(own, like);
    own
}

#[test]
fn divides_known_machines() {
    // Description, interrupt mask as perftune.py prints it, interrupt CPUs.
    let goldens = [
        ("i3.large", "0x00000003", "0-1"),
        ("i3.xlarge", "0x0000000f", "0-3"),
        ("i3.2xlarge", "0x00000001", "0"),
        ("azure-l8s", "0x00000001", "0"),
        ("gce-12", "0x00000041", "0,6"),
        ("i3.4xlarge", "0x00000101", "0,8"),
        ("azure-l16s", "0x00000003", "0-1"),
        ("azure-mana", "0x00000003", "0-1"),
        ("aws-24", "0x00001001", "0,12"),
        ("i3.8xlarge", "0x00010001", "0,16"),
        ("gke-n2d-32", "0x00010001", "0,16"),
        ("azure-l32s", "0x00000003", "0-1"),
        ("i3en.12xlarge", "0x03000003", "0-1,24-25"),
        ("gce-n2-48", "0x00000010,0x01001001", "0,12,24,36"),
        ("azure-l48s", "0x0000000f", "0-3"),
        ("i4i.16xlarge", "0x00000003,0x00000003", "0-1,32-33"),
        ("i3.16xlarge", "0x00010001,0x00010001", "0,16,32,48"),
        ("azure-l64s", "0x00000003,0x00000003", "0-1,32-33"),
        ("gce-n2-80", "0x30000300,0x00300003", "0-1,20-21,40-41,60-61"),
        ("azure-l80s", "0x00000f00,0x0000000f", "0-3,40-43"),
        ("i4i.24xlarge", "0x00000300,0x00030000,0x03000003", "0-1,24-25,48-49,72-73"),
        ("metal-256", "", "0-3,64-67,128-131,192-195"),
    ];
    for (name, mask, irq) in goldens {
        let host = host(name);
        let cpus = both(&host, &Options::default()).unwrap();
        assert_eq!(cpus.irq.to_string(), irq, "{name}");
        if !mask.is_empty() {
            assert_eq!(cpus.irq.to_mask(), mask, "{name}");
        }
        assert_eq!(cpus.universe, host.cpus.online(), "{name}");
        let rest = cpus.universe.difference(&cpus.irq);
        let compute = if rest.is_empty() { &cpus.universe } else { &rest };
        assert_eq!(&cpus.compute, compute, "{name}");
    }
    // Every described machine is in the list or has its own test.
    for entry in std::fs::read_dir(fixtures()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_string();
        if let Some(name) = name.strip_suffix(".toml") {
            let own = goldens.iter().any(|golden| golden.0 == name) || name == "im4gn.4xlarge";
            assert!(own, "{name} has no golden");
        }
    }
}

#[test]
fn compute_cpus_match_published_examples() {
    let cpus = both(&host("i3.8xlarge"), &Options::default()).unwrap();
    assert_eq!(cpus.compute.to_string(), "1-15,17-31");
    assert_eq!(cpus.compute.to_mask(), "0xfffefffe");
    assert_eq!(
        cpus.why,
        "16 cores with 32 threads: one core takes the interrupts; up to 16 cores need no second one"
    );
    let cpus = both(&host("i3.2xlarge"), &Options::default()).unwrap();
    assert_eq!(cpus.compute.to_mask(), "0x000000fe");
}

#[test]
fn ratio_sets_interrupt_cores() {
    let host = host("i4i.24xlarge");
    let check = |ratio: u32, irq: &str| {
        let options = Options { ratio: Some(ratio), ..Options::default() };
        assert_eq!(both(&host, &options).unwrap().irq.to_string(), irq, "{ratio}");
    };
    check(5, "0-4,24-28,48-52,72-76");
    check(8, "0-2,24-26,48-50,72-74");
    check(32, "0,24,48,72");
    let error = |ratio| {
        let options = Options { ratio: Some(ratio), ..Options::default() };
        both(&host, &options).unwrap_err()
    };
    assert_eq!(error(4), CpuSetsError::Ratio { ratio: 4 });
    assert_eq!(error(0), CpuSetsError::Ratio { ratio: 0 });
}

#[test]
fn modes_set_interrupt_cpus() {
    let check = |name: &str, mode: Mode, irq: &str, compute: &str| {
        let cpus = both(&host(name), &Options { mode, ..Options::default() }).unwrap();
        let name = format!("{name} {}: {}", mode.name(), cpus.why);
        assert_eq!(
            (cpus.irq.to_mask().as_str(), cpus.compute.to_mask().as_str()),
            (irq, compute),
            "{name}"
        );
    };
    check("i3.8xlarge", Mode::Sq, "0x00000001", "0xfffffffe");
    check("i3.8xlarge", Mode::SqSplit, "0x00010001", "0xfffefffe");
    check("i3.8xlarge", Mode::Mq, "0xffffffff", "0xffffffff");
    check("i3.8xlarge", Mode::None, "0xffffffff", "0xffffffff");
    check("azure-l8s", Mode::SqSplit, "0x00000003", "0x000000fc");
    // One core: nothing is left to compute.
    let options = Options { mode: Mode::SqSplit, ..Options::default() };
    let error = both(&host("i3.large"), &options).unwrap_err();
    assert!(matches!(error, CpuSetsError::NoCompute { .. }), "{error}");
}

#[test]
fn uses_cpus_named_by_user() {
    let host = host("i3.8xlarge");
    let by_hand = |cpus: Option<&str>, irq: Option<&str>| {
        let options =
            Options { cpus: cpus.map(list), irq_cpus: irq.map(list), ..Options::default() };
        both(&host, &options)
    };
    let cpus = by_hand(None, Some("0-1,16-17")).unwrap();
    assert_eq!(cpus.compute.to_string(), "2-15,18-31");
    let cpus = by_hand(Some("4-7"), Some("4-7")).unwrap();
    assert_eq!((cpus.irq.to_string(), cpus.compute.to_string()), ("4-7".into(), "4-7".into()));
    let cpus = by_hand(Some("8-15,24-31"), None).unwrap();
    assert_eq!((cpus.irq.to_string().as_str(), cpus.compute.len()), ("8,24", 14));

    let error = |cpus: Option<&str>, irq: Option<&str>| by_hand(cpus, irq).unwrap_err().to_string();
    assert_eq!(
        error(Some("1-7"), Some("0-2")),
        "CPUs 0 of --irq-cpus are not among the usable CPUs 1-7; leave them out or add them to --cpus"
    );
    assert_eq!(
        error(Some("30-33"), None),
        "CPUs 32-33 of --cpus are not on this machine; online are 0-31"
    );
    assert!(error(Some(""), None).contains("--cpus is empty"));
    assert!(error(None, Some("")).contains("--irq-cpus names no CPU"));
    let both_rules = Options { irq_cpus: Some(list("0")), mode: Mode::Sq, ..Options::default() };
    let error = divide(&host, &both_rules).unwrap_err();
    assert_eq!(error, CpuSetsError::TwoRules { mode: Mode::Sq });
}

/// Tuning defect 4: perftune.py uses the node's number before it restricts the machine to the mask,
/// and hangs on more than 16 cores of a socket other than the first.
#[test]
fn defect_4_cpus_of_one_socket() {
    let check = |name: &str, cpus: &str, irq: &str| {
        let options = Options { cpus: Some(list(cpus)), ..Options::default() };
        assert_eq!(both(&host(name), &options).unwrap().irq.to_string(), irq, "{name} {cpus}");
    };
    check("i4i.24xlarge", "24-47,72-95", "24-25,72-73");
    check("i4i.24xlarge", "0-23,48-71", "0-1,48-49");
    check("i3.16xlarge", "16-31,48-63", "16,48");
    check("metal-256", "64-127,192-255", "64-67,192-195");
    // One thread of each core of the second socket.
    check("i4i.24xlarge", "24-47", "24-25");
    check("i3.16xlarge", "16-19", "16-19");
}

#[test]
fn refuses_uneven_nodes_with_suggestion() {
    // The first 24 CPUs of 2 nodes with 16 cores: 16 cores here, 8 there.
    let options = Options { cpus: Some(list("0xffffff")), ..Options::default() };
    let error = both(&host("i3.16xlarge"), &options).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the automatic rule does not divide uneven NUMA nodes (node 0: 16 cores, node 1: 8 cores); \
         name the interrupt CPUs, such as --irq-cpus 0,16"
    );
    // The suggestion works.
    let CpuSetsError::Uneven { suggestion, .. } = error else { panic!("another error") };
    let by_hand = Options { irq_cpus: Some(suggestion), ..options };
    assert!(both(&host("i3.16xlarge"), &by_hand).is_ok());
    // An offline CPU makes nodes uneven too.
    let mut uneven = host("i3.16xlarge");
    uneven.cpus.offline = list("63");
    let error = both(&uneven, &Options::default()).unwrap_err();
    assert!(matches!(error, CpuSetsError::Uneven { .. }), "{error}");
}

#[test]
fn offline_cpus_and_smt_off() {
    let mut host = host("i3.8xlarge");
    host.cpus.offline = list("16-31");
    let cpus = both(&host, &Options::default()).unwrap();
    assert_eq!((cpus.irq.to_string().as_str(), cpus.compute.to_string().as_str()), ("0", "1-15"));
    let said = notes(&machine(&host), &Options::default(), &cpus);
    assert_eq!(said, ["CPUs 16-31 are offline and not used; plan again when they are online"]);
    let options = Options { cpus: Some(list("15-16")), ..Options::default() };
    let error = both(&host, &options).unwrap_err().to_string();
    assert_eq!(error, "CPUs 16 of --cpus are offline; online are 0-15");
    // The first core is offline, so the next one is used.
    host.cpus.offline = list("0,16");
    assert_eq!(both(&host, &Options::default()).unwrap().irq.to_string(), "1,17");
}

#[test]
fn isolated_cpus_are_left_out_unless_requested() {
    let mut host = host("i3.8xlarge");
    host.cpus.isolated = list("8-15,24-31");
    let options = Options::default();
    let cpus = divide(&host, &options).unwrap();
    assert_eq!(cpus.universe.to_string(), "0-7,16-23");
    assert_eq!(cpus.irq.to_string(), "0,16");
    let said = notes(&machine(&host), &options, &cpus);
    assert!(said[0].contains("8-15,24-31 are isolated (isolcpus=) and left out"), "{said:?}");
    assert!(said[0].contains("does not balance"), "{said:?}");
    // perftune.py ignores isolation.
    let like = Options { like_perftune: true, ..options };
    assert_eq!(divide(&host, &like).unwrap().universe.len(), 32);
    // On request they are used, and interrupts go to CPUs that are not isolated.
    let requested = Options { cpus: Some(list("7-15,23-31")), ..Options::default() };
    let cpus = divide(&host, &requested).unwrap();
    assert_eq!(cpus.irq.to_string(), "7,23");
    assert!(
        notes(&machine(&host), &requested, &cpus)[0].contains("right for a database that pins")
    );
    let only = Options { cpus: Some(list("8-15,24-31")), ..Options::default() };
    assert_eq!(divide(&host, &only).unwrap().irq.to_string(), "8,24");
    // A cpuset partition isolates at run time.
    host.cpus.isolated = CpuSet::new();
    host.cpus.partitioned = list("4-7,20-23");
    let cpus = divide(&host, &Options::default()).unwrap();
    assert_eq!(cpus.universe.to_string(), "0-3,8-19,24-31");
    assert!(notes(&machine(&host), &Options::default(), &cpus)[0].contains("cpuset partition"));
    host.cpus.partitioned = list("0-31");
    let error = divide(&host, &Options::default()).unwrap_err();
    assert!(matches!(error, CpuSetsError::NoUniverse { .. }), "{error}");
}

#[test]
fn cpus_without_a_tick_take_no_interrupts() {
    let mut host = host("i3.8xlarge");
    let irq = |host: &Host, cpus: &str| {
        let options = Options { cpus: Some(list(cpus)), ..Options::default() };
        divide(host, &options).map(|cpus| cpus.irq.to_string())
    };
    host.cpus.nohz_full = list("1-31");
    assert_eq!(irq(&host, "0-31").unwrap(), "0");
    host.cpus.nohz_full = list("0-3,16-19");
    assert_eq!(irq(&host, "0-31").unwrap(), "4,20");
    host.cpus.nohz_full = list("1-3,17-31");
    assert_eq!(irq(&host, "0-3").unwrap(), "0");
    let error = irq(&host, "1-3").unwrap_err();
    assert!(matches!(error, CpuSetsError::OnlyTickless { .. }), "{error}");
    let options = Options::default();
    let cpus = divide(&host, &options).unwrap();
    let said = notes(&machine(&host), &options, &cpus);
    assert!(said[0].contains("so they get no interrupts"), "{said:?}");
    // A node without a tick takes no interrupts, and a note reports it.
    let mut two_nodes = crate::host("i3.16xlarge");
    two_nodes.cpus.nohz_full = list("16-31,48-63");
    let cpus = divide(&two_nodes, &options).unwrap();
    assert_eq!(cpus.irq.to_string(), "0,32");
    let said = notes(&machine(&two_nodes), &options, &cpus);
    assert!(said[1].contains("NUMA node 1 takes no interrupts"), "{said:?}");
    // On request they take interrupts, with a note.
    let insisted = Options { irq_cpus: Some(list("1,17")), ..Options::default() };
    let cpus = divide(&host, &insisted).unwrap();
    assert!(notes(&machine(&host), &insisted, &cpus)[0].contains("which defeats its purpose"));
}

#[test]
fn efficiency_cores_take_interrupts_only_on_request() {
    let mut host = Host::new(1, 24, 1);
    host.cpus.efficiency = list("0-7");
    let options = Options::default();
    let cpus = divide(&host, &options).unwrap();
    assert_eq!(cpus.irq.to_string(), "8-9");
    let said = notes(&machine(&host), &options, &cpus);
    assert_eq!(
        said,
        [
            "CPUs 0-7 are efficiency cores: a shard there is slower than the others; leave them out with \
         --cpus 8-23; interrupts go to them only on request (--irq-cpus 0-1)"
        ]
    );
    let requested = Options { irq_cpus: Some(list("0-1")), ..Options::default() };
    assert_eq!(divide(&host, &requested).unwrap().compute.to_string(), "2-23");
    let like = Options { like_perftune: true, ..options };
    assert_eq!(divide(&host, &like).unwrap().irq.to_string(), "0-1");
}

/// scylladb #11639: im4gn shows no topology; perftune.py exits with 3.
#[test]
fn machine_without_topology_needs_irq_cpus() {
    let snapshot = host("im4gn.4xlarge").build();
    let error = Topology::read(&snapshot).unwrap_err();
    let path = "/sys/devices/system/cpu/cpu0/topology".to_string();
    assert_eq!(error, TopologyError::Missing { path });
    let error = plan(&snapshot, &Options::default()).unwrap_err();
    assert!(matches!(error, PlanError::Topology(_)), "{error}");
    assert!(error.to_string().ends_with("give --irq-cpus"), "{error}");
    let options = Options { irq_cpus: Some(list("0-1")), ..Options::default() };
    let planned = plan(&snapshot, &options).unwrap();
    assert_eq!(planned.cpus.compute.to_string(), "2-15");
    assert!(
        planned.notes.iter().any(|note| note.contains("no CPU topology")),
        "{:?}",
        planned.notes
    );
}

prop_compose! {
    fn any_machine()(
        nodes in 1u32..=4,
        cores in 1u32..=32,
        threads in 1u32..=2,
        adjacent in any::<bool>(),
    ) -> Host {
        let numbering = if adjacent { Numbering::Adjacent } else { Numbering::Split };
        Host { cpus: Cpus { numbering, ..Cpus::new(nodes, cores, threads) }, ..Host::default() }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn sets_are_equal_or_disjoint_and_cover_all(host in any_machine(), ratio in 5u32..40) {
        let options = Options { ratio: Some(ratio), ..Options::default() };
        let machine = machine(&host);
        let cpus = choose(&machine, &options).unwrap();
        let apart = cpus.irq.is_disjoint(&cpus.compute);
        prop_assert!(apart || cpus.irq == cpus.compute);
        prop_assert_eq!(&cpus.irq.union(&cpus.compute), &cpus.universe);
        prop_assert_eq!(&cpus.universe, &host.cpus.online());
        // On a big machine every node has the same number of interrupt cores.
        let cores: usize = machine.topology.nodes.iter().map(|node| node.cores.len()).sum();
        if cores > ratio as usize && cpus.universe.len() > 4 {
            for node in &machine.topology.nodes {
                let own = node.cpus().intersection(&cpus.irq).len();
                let threads = host.cpus.threads as usize;
                prop_assert_eq!(own, node.cores.len().div_ceil(ratio as usize) * threads);
            }
        }
    }

    #[test]
    fn any_subset_is_divided_or_refused(
        host in any_machine(),
        picks in proptest::collection::btree_set(0u32..256, 0..64),
        isolated in proptest::collection::btree_set(0u32..256, 0..32),
        tickless in proptest::collection::btree_set(0u32..256, 0..32),
    ) {
        let mut host = host;
        let within = |set: std::collections::BTreeSet<u32>| -> CpuSet {
            set.into_iter().filter(|cpu| *cpu < host.cpus.count()).collect()
        };
        let picked = within(picks);
        (host.cpus.isolated, host.cpus.nohz_full) = (within(isolated), within(tickless));
        let options = Options { cpus: Some(picked.clone()), ..Options::default() };
        let machine = machine(&host);
        if let Ok(cpus) = choose(&machine, &options) {
            prop_assert_eq!(&cpus.universe, &picked);
            prop_assert_eq!(&cpus.irq.union(&cpus.compute), &picked);
            prop_assert!(cpus.irq.is_disjoint(&cpus.compute) || cpus.irq == cpus.compute);
            let tickless = cpus.irq.intersection(&machine.topology.nohz_full);
            prop_assert!(tickless.is_empty(), "{} without a tick", tickless);
        }
    }
}
