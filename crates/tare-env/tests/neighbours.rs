//! Every kind of neighbour on this host: it starts, uses CPU time on its CPUs, stops while its
//! environment is frozen, and is gone afterwards, even if the harness is killed.
#![expect(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]

mod common;

use std::thread;
use std::time::{Duration, Instant};

use common::{State, program};
use tare_env::{EnvironmentFactory, FactoryOptions};
use tare_lab::environment::{CpuPlan, Environment, EnvironmentSpec, Launch};
use tare_lab::layer::{Neighbour, NeighbourKind, Placement};
use tare_std::cpus::CpuSet;
use tare_testkit::host_state::left_of_run;
use tare_testkit::{EnvironmentBuilder, Need, skipped};

/// How long a neighbour may take to use CPU time.
const WORK_LIMIT: Duration = Duration::from_secs(20);

fn plan() -> CpuPlan {
    let all = tare_host::process::cpus_of_this_thread().unwrap();
    let last = all.iter().last().unwrap();
    let system = CpuSet::parse_list(&last.to_string()).unwrap();
    CpuPlan { client: all.difference(&system), system, all, ..CpuPlan::default() }
}

fn open(state: &State) -> EnvironmentFactory {
    EnvironmentFactory::open(FactoryOptions {
        state: state.0.clone(),
        program: program(),
        cpus: plan(),
        destroy: Vec::new(),
        reach: None,
    })
    .unwrap()
}

fn launch() -> Launch {
    let words = ["serve", "{listen}", "{port}", "{data}"];
    Launch { arguments: words.map(String::from).to_vec(), ..Launch::default() }
}

fn neighbour(kind: NeighbourKind) -> Neighbour {
    let busy = ["/bin/sh", "-c", "while :; do :; done"].map(String::from).to_vec();
    let is_command = kind == NeighbourKind::Command;
    Neighbour {
        name: "next".into(),
        kind,
        command: if is_command { busy } else { Vec::new() },
        placement: Placement::SameCpus,
        workers: (!is_command).then_some(1),
        load_percent: None,
        system: None,
        size_bytes: kind.default_size_bytes().map(|_| 16 << 20),
        rate_bytes: None,
    }
}

fn with(one: Neighbour) -> EnvironmentSpec {
    let mut spec = EnvironmentBuilder::new("process").cpu("pinned").cgroup("none").build();
    spec.neighbours = vec![one];
    spec
}

fn cpu_ns(environment: &mut dyn Environment) -> u64 {
    environment.usage().unwrap().neighbour_cpu_ns[0]
}

fn check(factory: &EnvironmentFactory, kind: NeighbourKind) {
    let name = kind.name();
    let mut environment = factory.environment(&with(neighbour(kind))).unwrap();
    environment.start(&launch()).unwrap_or_else(|error| panic!("{name}: {error}"));
    let layers = environment.read_back().unwrap();
    let states: Vec<_> = layers.iter().filter(|one| one.layer == "neighbours").collect();
    assert_eq!(states.len(), 1, "{name}: {layers:?}");
    assert!(layers.iter().all(|one| one.in_force), "{name}: {layers:?}");

    let (before, deadline) = (cpu_ns(&mut *environment), Instant::now() + WORK_LIMIT);
    while cpu_ns(&mut *environment) == before {
        assert!(Instant::now() < deadline, "{name} uses no CPU time");
        thread::sleep(Duration::from_millis(5));
    }
    environment.freeze().unwrap();
    let frozen = cpu_ns(&mut *environment);
    thread::sleep(Duration::from_millis(100));
    assert_eq!(cpu_ns(&mut *environment), frozen, "{name} runs while it is frozen");
    environment.thaw().unwrap();
    environment.freeze().unwrap();
    environment.stop().unwrap();
    environment.stop().unwrap();
    let left = left_of_run(factory.run());
    let parts = ["/n", "-n"].map(|part| format!("tare-{}{part}", factory.run()));
    let is_ours = |line: &&String| {
        line.starts_with("process") || parts.iter().any(|part| line.contains(part))
    };
    let left: Vec<_> = left.iter().filter(is_ours).collect();
    assert!(left.is_empty(), "{name}: {left:?}");
}

#[test]
fn every_kind_runs_beside_its_environment_alone() {
    let name = "every_kind_runs_beside_its_environment_alone";
    if skipped(name, &[Need::Root, Need::Program("stress-ng")]) {
        return;
    }
    let state = State::new("neighbours");
    let factory = open(&state);
    // Another system is started by Tare's program: crates/tare/tests/neighbours.rs.
    let kinds = NeighbourKind::ALL.iter().filter(|(kind, ..)| *kind != NeighbourKind::System);
    for (kind, ..) in kinds {
        check(&factory, *kind);
    }
    let run = factory.run().to_string();
    drop(factory);
    let left = left_of_run(&run);
    assert!(left.is_empty(), "left on the host: {left:#?}");
}

#[test]
fn a_neighbour_that_ended_is_not_in_force() {
    if skipped("a_neighbour_that_ended_is_not_in_force", &[Need::Root]) {
        return;
    }
    let state = State::new("neighbours-ended");
    let factory = open(&state);
    let mut short = neighbour(NeighbourKind::Command);
    short.command = ["/bin/sh", "-c", "sleep 0.2; exit 3"].map(String::from).to_vec();
    let mut environment = factory.environment(&with(short)).unwrap();
    environment.start(&launch()).unwrap();
    let deadline = Instant::now() + WORK_LIMIT;
    let found = loop {
        let layers = environment.read_back().unwrap();
        let state = layers.into_iter().find(|one| one.layer == "neighbours").unwrap();
        if !state.in_force {
            break state.found;
        }
        assert!(Instant::now() < deadline, "{state:?}");
        thread::sleep(Duration::from_millis(20));
    };
    assert!(found.starts_with("it has ended: exit status: 3"), "{found}");
    // Its environment can go on, and be stopped.
    environment.freeze().unwrap();
    environment.thaw().unwrap();
    environment.stop().unwrap();
}

#[test]
fn neighbours_that_this_host_cannot_have_are_refused() {
    if skipped("neighbours_that_this_host_cannot_have_are_refused", &[Need::Root]) {
        return;
    }
    let state = State::new("neighbours-refused");
    let factory = open(&state);
    let refused = |one: Neighbour| match factory.environment(&with(one)) {
        Ok(_) => panic!("it is not refused"),
        Err(error) => tare_host::error_line(error.as_ref()),
    };
    // The plan of this test names no core with two threads.
    let sibling =
        Neighbour { placement: Placement::SiblingThreads, ..neighbour(NeighbourKind::Command) };
    let error = refused(sibling);
    assert!(error.contains("has no CPU on this host: the cores of the system"), "{error}");
    let mut absent = neighbour(NeighbourKind::Command);
    absent.command = vec!["tare-no-such-program".into()];
    assert!(refused(absent).contains("tare-no-such-program is not installed"));
}
