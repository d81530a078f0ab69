//! Compares spreading with the real `hwloc-distrib` (Debian package `hwloc`) on random topologies.
//!
//! hwloc gets a synthetic topology, Tare the snapshot of a host of the same shape. The numbering is
//! passed to hwloc as its list of PU indexes, so that both mean the same CPUs.
#![expect(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]

use std::process::Command;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tare_std::cpus::CpuSet;
use tare_tune::fixture::{Cpus, Host, Numbering};
use tare_tune::machine::Topology;
use tare_tune::plan::spread::{spread, spread_sets};

/// The number of random topologies.
const CASES: usize = 500;

#[derive(Debug)]
struct Case {
    host: Host,
    universe: CpuSet,
    count: usize,
}

/// Returns the topology in hwloc's syntax: `pack:2 [numa] l3:2 core:4 pu:2(indexes=0,8,1,9,...)`.
fn synthetic(cpus: &Cpus) -> String {
    let places =
        (0..cpus.nodes * cpus.cores).flat_map(|core| (0..cpus.threads).map(move |t| (core, t)));
    let indexes: Vec<String> =
        places.map(|(core, thread)| cpus.number(core, thread).to_string()).collect();
    let cores = match cpus.cores_per_cache {
        0 => format!("core:{}", cpus.cores),
        per_cache => format!("l3:{} core:{per_cache}", cpus.cores / per_cache),
    };
    format!("pack:{} [numa] {cores} pu:{}(indexes={})", cpus.nodes, cpus.threads, indexes.join(","))
}

fn hwloc_distrib(case: &Case, single: bool) -> Vec<CpuSet> {
    let mut command = Command::new("hwloc-distrib");
    command.args(["--input", &synthetic(&case.host.cpus)]);
    command.args(["--restrict", &case.universe.to_mask()]);
    if single {
        command.arg("--single");
    }
    let output = command.arg(case.count.to_string()).output().unwrap();
    assert!(output.status.success(), "{case:?}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| CpuSet::parse_mask(line).unwrap()).collect()
}

fn cases() -> Vec<Case> {
    let shape = (1u32..=4, 1u32..=12, 1u32..=2, 0u32..3, proptest::bool::ANY);
    let universe = proptest::collection::vec(proptest::bool::weighted(0.6), 1..400);
    let strategy = (shape, universe, 1usize..40).prop_map(|(shape, picks, count)| {
        let (nodes, groups, threads, per_cache, adjacent) = shape;
        let cores = groups * per_cache.max(1);
        let cpus = Cpus {
            numbering: if adjacent { Numbering::Adjacent } else { Numbering::Split },
            cores_per_cache: per_cache,
            ..Cpus::new(nodes, cores, threads)
        };
        let all = 0..cpus.count();
        let picked = |cpu: &u32| picks.get(*cpu as usize).copied().unwrap_or(picks.len() % 2 == 0);
        let mut universe: CpuSet = all.clone().filter(picked).collect();
        // A third of the cases have all CPUs.
        if universe.is_empty() || picks.len() % 3 == 0 {
            universe = all.collect();
        }
        Case { host: Host { cpus, ..Host::default() }, universe, count }
    });
    // The same cases every time, so that a difference is reproducible.
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    (0..CASES).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect()
}

#[test]
fn spreads_like_hwloc_distrib() {
    let test = "spreads_like_hwloc_distrib";
    if tare_testkit::skipped(test, &[tare_testkit::Need::Program("hwloc-distrib")]) {
        return;
    }
    for (index, case) in cases().iter().enumerate() {
        let topology = Topology::read(&case.host.build()).unwrap();
        let own = spread_sets(&topology, &case.universe, case.count);
        assert_eq!(own, hwloc_distrib(case, false), "{index}: {case:?}");
        // --single prints each slot's first CPU; some cases compare that with hwloc too.
        let singles = spread(&topology, &case.universe, case.count);
        let first: Vec<u32> = own.iter().filter_map(|slot| slot.iter().next()).collect();
        assert_eq!(singles, first, "{index}: {case:?}");
        if index % 2 == 0 {
            let of_hwloc = hwloc_distrib(case, true);
            let of_hwloc: Vec<u32> =
                of_hwloc.iter().filter_map(|slot| slot.iter().next()).collect();
            assert_eq!(singles, of_hwloc, "{index}: {case:?}");
        }
    }
}

#[test]
fn spreads_known_cases() {
    let check = |cpus: Cpus, universe: &str, count: usize, expect: &str| {
        let host = Host { cpus, ..Host::default() };
        let topology = Topology::read(&host.build()).unwrap();
        let found = spread(&topology, &universe.parse().unwrap(), count);
        let found: Vec<String> = found.iter().map(u32::to_string).collect();
        assert_eq!(found.join(","), expect, "{count} on {universe}");
    };
    check(Cpus::new(1, 16, 2), "0,16", 2, "0,16");
    check(Cpus::new(1, 16, 2), "0,16", 5, "0,0,0,16,16");
    let two_nodes = "0,1,24,25,48,49,72,73";
    check(Cpus::new(2, 24, 2), two_nodes, 8, "0,48,1,49,24,72,25,73");
    check(Cpus::new(2, 24, 2), two_nodes, 9, "0,0,48,1,49,24,72,25,73");
    let all =
        "0,16,1,17,2,18,3,19,4,20,5,21,6,22,7,23,8,24,9,25,10,26,11,27,12,28,13,29,14,30,15,31";
    check(Cpus::new(1, 16, 2), "0-31", 32, all);
    check(Cpus::new(1, 16, 2), "0-31", 0, "");
    check(Cpus::new(1, 16, 2), "40-50", 4, "");
    // More sets than parts: no CPU is lost.
    check(Cpus::new(1, 16, 2), "0-31", 1, "0");
}
