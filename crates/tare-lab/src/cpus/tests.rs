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
    let memory = (0..nodes).collect();
    CpuTopology { nodes: (0..nodes).map(node).collect(), memory, ..CpuTopology::default() }
}

fn spec(system: &str, client: &str) -> CpuSpec {
    let some = |text: &str| (!text.is_empty()).then(|| list(text));
    CpuSpec { system: some(system), client: some(client), ..CpuSpec::default() }
}

fn interrupts(text: &str) -> CpuSpec {
    match text.parse() {
        Ok(count) => CpuSpec { interrupts_count: Some(count), ..CpuSpec::default() },
        Err(_) => CpuSpec { interrupts: Some(list(text)), ..CpuSpec::default() },
    }
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
fn interrupts_get_cores_of_their_own() {
    let check = |topology: &CpuTopology, spec: &CpuSpec, expect: [&str; 4]| {
        let plan = plan(topology, spec).unwrap();
        let found = [plan.interrupts, plan.client, plan.system, plan.shared];
        assert_eq!(found.map(|set| set.to_string()), expect, "{topology:?} {spec:?}");
    };
    let none = CpuSpec::default();
    check(&host(1, 1, 16, 2), &none, ["", "0-7,16-23", "8-15,24-31", "8-15,24-31"]);
    check(
        &host(1, 1, 16, 2),
        &interrupts("2"),
        ["0,16", "1-7,17-23", "8-15,24-31", "0,8-16,24-31"],
    );
    // The sibling of a single interrupt CPU is idle.
    check(&host(1, 1, 4, 2), &interrupts("1"), ["0", "1,5", "2-3,6-7", "0,2-3,6-7"]);
    // The first core of each node, as the tuner chooses.
    check(&host(2, 1, 4, 1), &interrupts("2"), ["0,4", "1-3", "5-7", "0,4-7"]);
    check(&host(2, 1, 4, 1), &interrupts("0,4"), ["0,4", "1-3", "5-7", "0,4-7"]);
    check(&host(2, 1, 4, 1), &interrupts("0"), ["", "0-3", "4-7", "4-7"]);
    let named = CpuSpec { system: Some(list("6-7")), ..interrupts("1") };
    check(&host(1, 1, 8, 1), &named, ["0", "1-5", "6-7", "0,6-7"]);
    // Interrupts of the other node than the study's.
    let elsewhere = CpuSpec { node: Some(1), ..interrupts("0-1") };
    check(&host(2, 1, 4, 1), &elsewhere, ["0-1", "4-5", "6-7", "0-1,6-7"]);
}

#[test]
fn a_system_that_is_not_pinned_leaves_the_client_alone_where_there_is_room() {
    let shared =
        |topology: &CpuTopology| plan(topology, &CpuSpec::default()).unwrap().shared.to_string();
    assert_eq!(shared(&host(1, 1, 1, 1)), "0");
    assert_eq!(shared(&host(1, 1, 2, 1)), "0-1");
    assert_eq!(shared(&host(1, 1, 2, 2)), "0-3");
    assert_eq!(shared(&host(1, 1, 3, 1)), "1-2");
    assert_eq!(shared(&host(1, 1, 4, 2)), "2-3,6-7");
}

#[test]
fn memory_is_that_of_the_nodes_of_the_cpus() {
    let nodes = |topology: &CpuTopology, cpus: &str| {
        let plan = plan(topology, &CpuSpec::default()).unwrap();
        plan.memory_nodes(&list(cpus)).map(|nodes| nodes.to_string())
    };
    assert_eq!(nodes(&host(1, 1, 4, 1), "2-3"), None);
    assert_eq!(nodes(&host(2, 1, 4, 1), "6-7").as_deref(), Some("1"));
    assert_eq!(nodes(&host(2, 1, 4, 1), "3-4"), None, "both nodes");
    assert_eq!(nodes(&host(4, 1, 4, 1), "0,5").as_deref(), Some("0-1"));
    let mut half = host(2, 1, 4, 1);
    half.memory = list("0");
    assert_eq!(nodes(&half, "6-7"), None, "the node has no memory");
    let plan = plan(&half, &CpuSpec::default()).unwrap();
    assert_eq!(nodes_without_memory(&half, &plan), Some(vec![1]));
    // This process may use one node of two.
    let part = host(2, 1, 4, 1).restrict(&list("0-3"));
    assert_eq!(nodes(&part, "2-3").as_deref(), Some("0"));
}

#[test]
fn instances_get_cores_of_one_node() {
    let of = |topology: &CpuTopology, spec: &CpuSpec, count| {
        let sets = plan(topology, spec).unwrap().of_instances(count)?;
        Some(sets.iter().map(CpuSet::to_string).collect::<Vec<_>>().join(" "))
    };
    let all = number(12);
    assert_eq!(of(&host(2, 1, 8, 1), &all, 2).as_deref(), Some("2-7 10-15"));
    assert_eq!(of(&host(2, 1, 8, 1), &all, 3).as_deref(), Some("2-4 5-7 10-15"));
    assert_eq!(of(&host(1, 1, 4, 2), &number(4), 2).as_deref(), Some("2,6 3,7"));
    assert_eq!(of(&host(1, 1, 4, 2), &number(4), 3), None);
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
        "[cpus] system = \"1-2\" names CPU 2, which this host does not have; name some of 0-1"
    );
    assert_eq!(
        error(&flat("0-1"), &spec("", "0-1")).to_string(),
        "[cpus] client = \"0-1\" takes every CPU (0-1); leave one for the system"
    );
    let isolated = CpuSet::new();
    assert_eq!(error(&flat(""), &spec("", "")), PlanError::NoCpu { isolated });
    let (wanted, cores, cpus, most) = (7, 4, 8, 6);
    let too_many = PlanError::TooMany { wanted, cores, cpus, most };
    assert_eq!(error(&host(1, 1, 4, 2), &number(7)), too_many);
    let no_node = PlanError::NoSuchNode { wanted: 2, nodes: "0, 1".into() };
    let node = CpuSpec { node: Some(2), ..CpuSpec::default() };
    assert_eq!(error(&host(2, 1, 4, 1), &node), no_node);
}

#[test]
fn bad_input_names_what_to_write_instead() {
    let mut four = host(1, 1, 4, 1);
    four.excluded =
        ExcludedCpus { offline: list("4-5"), isolated: list("6"), not_allowed: list("7") };
    let check = |topology: &CpuTopology, spec: CpuSpec, expect: &[&str]| {
        let error = plan(topology, &spec).unwrap_err().to_string();
        assert!(!error.contains('\n'), "{error}");
        for part in expect {
            assert!(error.contains(part), "{part:?} is not in {error}");
        }
    };
    let some = ", which is offline; name some of 0-3";
    check(&four, spec("3-5", ""), &["system = \"3-5\" names CPU 4-5", some]);
    check(&four, spec("", "6"), &["client = \"6\"", "is isolated (isolcpus="]);
    check(
        &four,
        CpuSpec { interrupts: Some(list("7")), ..CpuSpec::default() },
        &["interrupts = \"7\"", "cpuset of this process does not allow"],
    );
    check(&four, spec("8", ""), &["CPU 8, which this host does not have"]);
    let other = CpuSpec { node: Some(0), ..spec("5", "") };
    check(&host(2, 1, 4, 1), other, &["CPU 5, which is not on the node", "some of 0-3"]);
    let both = CpuSpec { interrupts: Some(list("0")), ..spec("0-1", "") };
    check(&four, both, &["names CPU 0, which is kept for interrupts", "interrupts = 0"]);
    check(&four, interrupts("3"), &["3 of the CPUs 0-3 for interrupts", "interrupts = 2 or less"]);
    check(
        &four,
        interrupts("0-2"),
        &["3 of the CPUs 0-3 for interrupts", "interrupts = 2 or less"],
    );
    check(&four, interrupts("9"), &["9 of the CPUs 0-3 for interrupts", "interrupts = 2 or less"]);
    check(&host(1, 1, 2, 1), interrupts("1"), &["leave out [cpus] interrupts"]);
    let node = |node| CpuSpec { node: Some(node), ..CpuSpec::default() };
    let mut half = host(2, 1, 4, 1);
    half.memory = list("0");
    check(&half, node(1), &["node = 1: that NUMA node has no memory", "write one of 0"]);
    let idle = CpuSpec { smt: SmtUse::LeaveIdle, ..CpuSpec::default() };
    check(&flat("0-3"), idle, &["does not show which CPUs share a core", "system = \"...\""]);
    check(&four, number(4), &["leaves no core for the client", "write system = 3 or less"]);
    check(&host(1, 1, 1, 1), number(4), &["leave out [cpus] system"]);
    let excluded = ExcludedCpus { isolated: list("0-3"), ..ExcludedCpus::default() };
    let none = CpuTopology { excluded, ..CpuTopology::default() };
    check(&none, CpuSpec::default(), &["no CPU to use: CPUs 0-3 are isolated", "taskset"]);
}

proptest! {
    /// No core is shared, everything is used, and the nodes of each group are balanced.
    #[test]
    fn no_core_is_shared_and_none_is_lost(
        nodes in 1_u32..=8,
        caches in 1_u32..=4,
        cores in 1_u32..=8,
        threads in 1_u32..=2,
        wanted in proptest::option::of(1_u32..=512),
        kept in 0_u32..=8,
    ) {
        let topology = host(nodes, caches, cores, threads);
        let interrupts_count = (kept > 0).then_some(kept);
        let spec = CpuSpec { system_count: wanted, interrupts_count, ..CpuSpec::default() };
        let all = topology.cores().count();
        // Cores that are left for system and client.
        let free = all.checked_sub(kept.div_ceil(threads) as usize);
        let plan = match plan(&topology, &spec) {
            Ok(plan) => plan,
            Err(PlanError::InterruptsTakeAll { .. }) => {
                prop_assert!(kept > 0 && free.is_none_or(|free| free * (threads as usize) < 2));
                return Ok(());
            }
            Err(_) => {
                let free = free.unwrap_or(0);
                prop_assert!(wanted.is_some_and(|wanted| wanted.div_ceil(threads) as usize >= free));
                return Ok(());
            }
        };
        prop_assert!(!plan.system.is_empty() && !plan.client.is_empty());
        prop_assert_eq!(plan.interrupts.len(), kept as usize);
        if let Some(wanted) = wanted {
            prop_assert_eq!(plan.system.len(), if all == 1 && threads == 1 { 1 } else { wanted as usize });
        }
        let groups = [&plan.system, &plan.client, &plan.interrupts];
        let users = |core: &CpuSet| groups.iter().filter(|cpus| !core.is_disjoint(cpus)).count();
        for core in topology.cores() {
            // A single core is divided by its threads.
            prop_assert!(users(core) <= 1 || free == Some(1));
            prop_assert!(wanted.is_some() || users(core) > 0);
        }
        if all > 2 {
            prop_assert!(plan.shared.is_disjoint(&plan.client));
            prop_assert!(plan.system.is_subset(&plan.shared));
        }
        if free.is_some_and(|free| free > 1) {
            let shares = |cpus: &CpuSet| -> Vec<usize> {
                let of_node = |node: &Node| node.cores().filter(|core| !core.is_disjoint(cpus)).count();
                topology.nodes.iter().map(of_node).filter(|cores| *cores > 0).collect()
            };
            for cpus in [&plan.system, &plan.interrupts].into_iter().filter(|cpus| !cpus.is_empty()) {
                let shares = shares(cpus);
                let spread = shares.iter().max().unwrap() - shares.iter().min().unwrap();
                prop_assert!(spread <= 1, "{cpus} {shares:?}");
            }
            if kept == 0 {
                let shares = shares(&plan.system);
                let needed: usize = shares.iter().sum();
                prop_assert!(shares.len() == needed.div_ceil((caches * cores) as usize));
            }
        }
    }
}
