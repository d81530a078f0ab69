use proptest::prelude::*;

use super::*;

fn list(text: &str) -> CpuSet {
    CpuSet::parse_list(text).unwrap()
}

fn flat(cpus: &str) -> CpuTopology {
    CpuTopology::flat(&list(cpus))
}

/// A host whose threads are numbered as Linux does on x86: first all cores, then their siblings.
fn host(nodes: u32, caches: u32, cores: u32, threads: u32) -> CpuTopology {
    let all = nodes * caches * cores;
    let core = |number: u32| (0..threads).map(|thread| number + thread * all).collect();
    let cache = |number: u32| (number * cores..(number + 1) * cores).map(core).collect();
    let node = |id: u32| Node { id, caches: (id * caches..(id + 1) * caches).map(cache).collect() };
    CpuTopology { nodes: (0..nodes).map(node).collect() }
}

fn spec(system: &str, client: &str) -> CpuSpec {
    let some = |text: &str| (!text.is_empty()).then(|| list(text));
    CpuSpec { system: some(system), client: some(client), ..CpuSpec::default() }
}

fn number(system_count: u32) -> CpuSpec {
    CpuSpec { system_count: Some(system_count), ..CpuSpec::default() }
}

fn check(topology: &CpuTopology, spec: &CpuSpec, client: &str, system: &str) {
    let plan = plan(topology, spec).unwrap();
    assert_eq!((plan.client, plan.system), (list(client), list(system)), "{topology:?} {spec:?}");
}

#[test]
fn divides_cpus() {
    check(&flat("0-1"), &spec("", ""), "0", "1");
    check(&flat("0-7"), &spec("", ""), "0-3", "4-7");
    check(&flat("0,2,4"), &spec("", ""), "0", "2,4");
    check(&flat("3"), &spec("", ""), "3", "3");
    check(&flat("0-3"), &spec("3", ""), "0-2", "3");
    check(&flat("0-3"), &spec("", "1"), "1", "0,2-3");
    check(&flat("0-3"), &spec("3", "1"), "1", "3");
}

#[test]
fn hardware_threads_of_a_core_stay_together() {
    // i3.8xlarge: 16 cores of two threads, n and n+16.
    check(&host(1, 1, 16, 2), &spec("", ""), "0-7,16-23", "8-15,24-31");
    check(&host(1, 1, 16, 2), &number(4), "0-1,16-17", "14-15,30-31");
    // The sibling of an odd CPU is idle.
    check(&host(1, 1, 4, 2), &number(3), "0-1,4-5", "2-3,6");
    // The rest of a named set is whole cores.
    check(&host(1, 1, 4, 2), &spec("3", ""), "0-2,4-6", "3");
    // With no whole core left, the client gets the free threads.
    check(&host(1, 1, 2, 2), &spec("0-1", ""), "2-3", "0-1");
    // One core is divided by its threads.
    check(&host(1, 1, 1, 2), &spec("", ""), "0", "1");
    check(&host(1, 1, 1, 4), &number(3), "0", "1-3");
}

#[test]
fn siblings_are_left_idle_on_request() {
    let idle = |spec: CpuSpec| CpuSpec { smt: SmtUse::LeaveIdle, ..spec };
    check(&host(1, 1, 4, 2), &idle(spec("", "")), "0-1", "2-3");
    check(&host(1, 1, 4, 2), &idle(number(3)), "0", "1-3");
    check(&host(1, 1, 4, 2), &idle(spec("3", "")), "0-2", "3");
}

#[test]
fn the_system_gets_the_smallest_part_that_fits() {
    // One cache of four cores, of four caches: the client is on the same node.
    check(&host(1, 4, 4, 1), &number(4), "0-3", "12-15");
    // A cache and a half.
    check(&host(1, 4, 4, 1), &number(6), "0-5", "10-15");
    // Half of two nodes is the last node.
    check(&host(2, 1, 4, 1), &spec("", ""), "0-3", "4-7");
    // More than a node: as much of each.
    check(&host(2, 1, 4, 1), &number(6), "0,4", "1-3,5-7");
    // The client stays on the node of the system.
    check(&host(2, 1, 4, 1), &number(2), "4-5", "6-7");
    check(&host(2, 1, 4, 1), &CpuSpec { node: Some(0), ..number(2) }, "0-1", "2-3");
}

#[test]
fn a_client_on_another_node_is_reported() {
    let distant = |topology: &CpuTopology, spec: &CpuSpec| {
        distant_client(topology, &plan(topology, spec).unwrap())
    };
    assert_eq!(distant(&host(2, 1, 4, 1), &spec("", "")), Some(vec![0]));
    assert_eq!(distant(&host(2, 1, 4, 1), &number(3)), None);
    assert_eq!(distant(&host(1, 1, 4, 1), &spec("", "")), None);
}

#[test]
fn refuses_impossible_plans() {
    let error = |topology: &CpuTopology, spec: &CpuSpec| plan(topology, spec).unwrap_err();
    assert_eq!(
        error(&flat("0-1"), &spec("1-2", "")).to_string(),
        "[cpus] system = \"1-2\" names CPU 2, which may not be used here; there are 0-1"
    );
    assert_eq!(
        error(&flat("0-1"), &spec("", "0-1")).to_string(),
        "[cpus] client = \"0-1\" takes every CPU (0-1); leave one for the system"
    );
    assert_eq!(error(&flat(""), &spec("", "")), PlanError::NoCpu);
    let (wanted, cores, cpus, most) = (7, 4, 8, 6);
    let too_many = PlanError::TooMany { wanted, cores, cpus, most };
    assert_eq!(error(&host(1, 1, 4, 2), &number(7)), too_many);
    let no_node = PlanError::NoSuchNode { wanted: 2, nodes: "0, 1".into() };
    let node = CpuSpec { node: Some(2), ..CpuSpec::default() };
    assert_eq!(error(&host(2, 1, 4, 1), &node), no_node);
}

proptest! {
    /// No core is shared, everything is used, and the nodes of the system are balanced.
    #[test]
    fn no_core_is_shared_and_none_is_lost(
        nodes in 1_u32..=8,
        caches in 1_u32..=4,
        cores in 1_u32..=8,
        threads in 1_u32..=2,
        wanted in proptest::option::of(1_u32..=512),
    ) {
        let topology = host(nodes, caches, cores, threads);
        let all = topology.cores().count();
        let spec = CpuSpec { system_count: wanted, ..CpuSpec::default() };
        let Ok(plan) = plan(&topology, &spec) else {
            prop_assert!(wanted.is_some_and(|wanted| wanted.div_ceil(threads) as usize >= all));
            return Ok(());
        };
        if let Some(wanted) = wanted {
            prop_assert_eq!(plan.system.len(), if all == 1 && threads == 1 { 1 } else { wanted as usize });
        }
        if all > 1 {
            let used_by = |core: &CpuSet, cpus: &CpuSet| !core.is_disjoint(cpus);
            for core in topology.cores() {
                prop_assert!(!(used_by(core, &plan.system) && used_by(core, &plan.client)));
                prop_assert!(
                    wanted.is_some() || used_by(core, &plan.system) || used_by(core, &plan.client)
                );
            }
            let of_node = |node: &Node| node.cores().filter(|core| used_by(core, &plan.system)).count();
            let shares: Vec<usize> =
                topology.nodes.iter().map(of_node).filter(|cores| *cores > 0).collect();
            let spread = shares.iter().max().unwrap() - shares.iter().min().unwrap();
            prop_assert!(spread <= 1, "{shares:?}");
            let needed: usize = shares.iter().sum();
            prop_assert!(shares.len() == needed.div_ceil((caches * cores) as usize));
        }
        prop_assert!(!plan.system.is_empty() && !plan.client.is_empty());
    }
}
