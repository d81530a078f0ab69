mod climb;
mod data;
mod goal;
mod instances;
mod objective;
mod stacks;
mod system_options;
mod waiting;
mod windows;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::environment::CpuPlan;
use crate::fake::{self, FakeHost, spec};
use crate::layer::{Cpu, Neighbour, NeighbourKind, Network, Placement};
use crate::record::{Opening, Phase, Record};
use crate::study::{CpuSpec, DataStart, KeyDistribution, ScheduleSpec, SystemSpec, WorkloadSpec};
use tare_std::cpus::CpuSet;

/// A temporary folder for a record.
struct RecordFolder(tempfile::TempDir);

impl RecordFolder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("study.tare")
    }
}

fn study(kind: ScheduleKind, environments: &[(&str, &str)]) -> Study {
    let workload = WorkloadSpec {
        name: "write".into(),
        workload: None,
        workload_text: None,
        write_share: 1.0,
        rows: 1000,
        columns: 5,
        column_bytes: 64,
        keys: KeyDistribution::Uniform,
        connections: 1,
        in_flight: 16,
        load: crate::study::LoadSize::default(),
        latency_share: 0.5,
        rate_only: false,
        slo: None,
        reads_from_disk: None,
        replicas: crate::study::Replicas::default(),
        connection: crate::study::ClientConnection::default(),
        attached_rows: None,
        rate_per_s: None,
        options: Vec::new(),
    };
    Study {
        name: "test".into(),
        title: String::new(),
        baseline: "native".into(),
        system: SystemSpec { name: fake::NAME.into(), options: vec![] },
        driver: fake::NAME.into(),
        schedule: ScheduleSpec {
            kind,
            data: DataStart::Loaded,
            without_data_cache: false,
            window: Duration::from_millis(100),
            lead_in: Duration::from_millis(20),
            rounds: 12,
            rounds_min: 4,
            budget: Duration::from_secs(600),
            stop_width_percent: 0.0,
            seed: None,
            auto_window: None,
            restarts: 0,
            warm_up: Duration::ZERO,
        },
        cpus: CpuSpec::default(),
        environments: environments.iter().map(|(name, runtime)| spec(name, runtime)).collect(),
        workloads: vec![workload],
        published: vec![],
        quick: None,
        budget_part: None,
        runtime_controls: Vec::new(),
        loaders: Vec::new(),
        loader_selectors: Vec::new(),
        hosts: Vec::new(),
        access: None,
    }
}

fn two() -> Study {
    study(ScheduleKind::Slices, &[("native", "fake"), ("box", "fake:cpu=1.2,throughput=0.8")])
}

fn plan() -> CpuPlan {
    let list = |text: &str| CpuSet::parse_list(text).unwrap();
    CpuPlan { all: list("0-1"), system: list("1"), client: list("0"), ..CpuPlan::default() }
}

fn opening(study: &Study) -> Opening {
    Opening {
        tare_version: "0".into(),
        started_unix_ms: 1,
        seed: 7,
        command: vec!["tare".into()],
        study: study.clone(),
        study_text: String::new(),
        cpu_plan: plan(),
        host: vec![],
    }
}

/// Logs each event in a few words. Can raise the stop flag or panic at an event.
#[derive(Default)]
struct EventLog<'n> {
    words: Vec<String>,
    stop: Option<(&'n AtomicBool, &'n str)>,
    panic_at: Option<&'n str>,
}

impl Observer for EventLog<'_> {
    fn event(&mut self, event: &Event<'_>) {
        let word = match event {
            Event::Stage(stage) => format!("{stage:?}").to_lowercase(),
            Event::EnvironmentStarting { name } => format!("starting {name}"),
            Event::EnvironmentStarted { environment } => {
                format!("started {}", environment.spec.name)
            }
            Event::EnvironmentLeftOut { name, reason } => format!("left out {name}: {reason}"),
            Event::Populating { environment, .. } => format!("populating {environment}"),
            Event::Climbed { workload, in_flight, .. } => format!("climbed {workload} {in_flight}"),
            Event::WindowChosen { window, .. } => format!("window {} ms", window.as_millis()),
            Event::Restarting { name, start } => format!("restarting {name} {start}"),
            Event::Calibrated { workload, .. } => format!("calibrated {workload}"),
            Event::RoundStarted { round, .. } => format!("round {round}"),
            // Other events cover these.
            Event::SliceStarting { .. }
            | Event::WarmingUp { .. }
            | Event::ExtraRoundStarted { .. }
            | Event::Doubted { .. } => return,
            Event::SliceDone { slice, .. } => format!("slice {}.{}", slice.round, slice.position),
            Event::RoundDone { round, rounds_expected, .. } => {
                format!("done {round} of {rounds_expected}")
            }
            Event::TeardownFailed { name, .. } => format!("leftover {name}"),
            Event::DataSaved { line } => format!("data: {line}"),
        };
        if let Some((flag, at)) = self.stop
            && at == word
        {
            flag.store(true, Ordering::Relaxed);
        }
        assert!(self.panic_at != Some(word.as_str()), "the test panics here");
        self.words.push(word);
    }
}

fn run_campaign(
    world: &FakeHost,
    study: &Study,
    writer: RecordWriter,
    observer: &mut dyn Observer,
    stop: &AtomicBool,
    change: impl FnOnce(&mut Parts<'_>),
) -> Result<Outcome, CampaignError> {
    let (system, mut driver) = (world.system(), world.driver());
    let mut make = |spec: &EnvironmentSpec| world.environment(spec);
    let mut parts = Parts {
        probes: vec![Box::new(world.probe())],
        ..Parts::new(&mut make, &system, &mut driver, world, plan())
    };
    change(&mut parts);
    run(parts, study, writer, observer, stop)
}

/// Runs a study from its start, and reads the record even if the campaign failed.
fn run_study(study: &Study) -> (Result<Outcome, CampaignError>, Record, FakeHost) {
    let (scratch, world) = (RecordFolder::new(), FakeHost::new(1));
    let writer = RecordWriter::create(&scratch.path(), &opening(study)).unwrap();
    let never = AtomicBool::new(false);
    let outcome = run_campaign(&world, study, writer, &mut NoObserver, &never, |_| {});
    assert_eq!(world.up(), Vec::<String>::new(), "nothing is left running");
    let left: Vec<_> = std::fs::read_dir(scratch.0.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "a single file: {left:?}");
    (outcome, Record::read(&scratch.path()).unwrap(), world)
}

fn kinds(record: &Record, environment: &str) -> Vec<&'static str> {
    let about = |doubt: &&DoubtRecord| doubt.environment.as_deref() == Some(environment);
    let mut kinds: Vec<_> =
        record.doubts.iter().filter(about).map(|doubt| doubt.doubt.kind()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

#[test]
fn slices_freeze_all_but_one() {
    let (outcome, record, world) = run_study(&two());
    let outcome = outcome.unwrap();
    assert_eq!((outcome.ending, outcome.rounds), (Ending::RoundsDone, 12));
    assert_eq!(record.header.ending.as_deref(), Some("rounds done"));
    assert!(record.header.ended_unix_ms.is_some());
    let log = world.log();
    assert_eq!(log[..3], ["start native", "start box", "start native again"]);
    assert!(!log.iter().any(|line| line.ends_with("with others thawed")), "{log:?}");
    // Two phases, three environments with the control, 12 rounds, in the order of the schedule.
    assert_eq!(record.slices.len(), 2 * 3 * 12);
    let names = ["native", "box", "native again"];
    let cells = schedule::cells(&record.study);
    for round in 0..12 {
        let slices_in_order = schedule::round(ScheduleKind::Slices, 7, round, 3, &cells);
        let slices = record.slices.iter().filter(|slice| slice.round == round);
        for (scheduled, slice) in slices_in_order.iter().zip(slices) {
            assert_eq!(slice.environment, names[scheduled.environment]);
            assert_eq!((slice.position, slice.phase), (scheduled.position, scheduled.cell.phase));
        }
    }
    assert!(record.environments[2].control && record.environments[2].ready_ns.is_some());
    assert!(record.doubts.is_empty(), "{:?}", record.doubts);
}

#[test]
fn calibrates_one_rate_for_all() {
    let (_, record, _) = run_study(&two());
    let [(workload, rate)] = &record.header.rates[..] else { panic!() };
    assert_eq!(workload, "write");
    assert!((rate / fake::CAPACITY_PER_S - 0.5).abs() < 0.02, "{rate}");
    for slice in &record.slices {
        let expect = (slice.phase == Phase::Latency).then_some(*rate);
        assert_eq!(slice.rate_per_s, expect);
        assert_eq!(slice.response.is_empty(), slice.phase == Phase::Capacity);
    }
}

#[test]
fn finds_known_costs() {
    let (_, record, _) = run_study(&two());
    let analysis = crate::analysis::analyse(&record);
    let of = |name: &str| analysis.findings.iter().find(|one| one.environment == name).unwrap();
    let cpu = of("box").server_cpu_cost.as_ref().unwrap().percent.value;
    let throughput = of("box").throughput_cost.as_ref().unwrap().percent.value;
    assert!((cpu - 20.0).abs() < 3.0 && (throughput - 20.0).abs() < 3.0, "{cpu} {throughput}");
    let control = of("native again").server_cpu_cost.as_ref().unwrap();
    assert!(control.percent.value.abs() < 1.5, "{control:?}");
}

#[test]
fn trials_restart_environments_each_round() {
    let environments = [("native", "fake"), ("box", "fake:cpu=1.2")];
    let mut study = study(ScheduleKind::Trials, &environments);
    study.schedule.rounds = 3;
    let (outcome, record, world) = run_study(&study);
    assert_eq!(outcome.unwrap().rounds, 3);
    let log = world.log();
    let count = |line: &str| log.iter().filter(|one| *one == line).count();
    // Once more for the baseline, whose capacity is found first.
    assert_eq!((count("start native"), count("start box"), count("stop box")), (4, 3, 3));
    assert!(!log.iter().any(|line| line.ends_with("with others thawed")), "{log:?}");
    assert_eq!(record.slices.len(), 3 * 3 * 2);
    assert!(record.slices.iter().all(|slice| slice.void.is_none()));
    assert!(record.environments.iter().all(|one| one.teardown_ns.is_some()));
}

#[test]
fn long_windows_are_recorded_by_the_second() {
    let seconds_with = |window: Duration| {
        let mut study = study(ScheduleKind::Trials, &[("native", "fake"), ("box", "fake:cpu=1.2")]);
        (study.schedule.rounds, study.schedule.window) = (1, window);
        study.schedule.budget = Duration::from_secs(3600);
        let (_, record, _) = run_study(&study);
        assert!(!record.slices.is_empty());
        record.slices.iter().map(|slice| slice.seconds.load.len()).collect::<Vec<_>>()
    };
    assert!(seconds_with(Duration::from_secs(12)).iter().all(|seconds| *seconds == 12));
    assert!(seconds_with(Duration::from_secs(9)).iter().all(|seconds| *seconds == 0));
}

#[test]
fn stops_early_on_narrow_intervals() {
    let mut study = two();
    study.schedule.rounds = 200;
    study.schedule.stop_width_percent = 3.0;
    let (outcome, record, _) = run_study(&study);
    let outcome = outcome.unwrap();
    assert_eq!(outcome.ending, Ending::IntervalsNarrow);
    assert!((4..100).contains(&outcome.rounds), "{outcome:?}");
    assert_eq!(record.header.ending.as_deref(), Some("intervals narrow enough"));
}

#[test]
fn stays_within_budget() {
    for kind in [ScheduleKind::Slices, ScheduleKind::Trials] {
        let mut study = study(kind, &[("native", "fake"), ("box", "fake")]);
        study.schedule.rounds = 1000;
        study.schedule.budget = Duration::from_secs(10);
        let (outcome, _, world) = run_study(&study);
        let outcome = outcome.unwrap();
        assert_eq!(outcome.ending, Ending::BudgetSpent);
        assert!(outcome.rounds >= 2, "{outcome:?}");
        let spent = world.now();
        assert!((7.5..10.0).contains(&spent.as_secs_f64()), "{kind:?} took {spent:?}");
    }
}

#[test]
fn stop_flag_ends_campaign_cleanly() {
    for at in ["starting native", "populating box", "calibrating", "calibrated write", "slice 2.3"]
    {
        let (scratch, world, flag) =
            (RecordFolder::new(), FakeHost::new(1), AtomicBool::new(false));
        let study = two();
        let writer = RecordWriter::create(&scratch.path(), &opening(&study)).unwrap();
        let mut notes = EventLog { stop: Some((&flag, at)), ..EventLog::default() };
        let outcome = run_campaign(&world, &study, writer, &mut notes, &flag, |_| {}).unwrap();
        assert_eq!(outcome.ending, Ending::Interrupted, "{at}");
        assert_eq!(world.up(), Vec::<String>::new(), "{at}");
        let record = Record::read(&scratch.path()).unwrap();
        assert_eq!(record.header.ending.as_deref(), Some("interrupted"));
        if at == "slice 2.3" {
            assert_eq!((outcome.rounds, record.slices.len()), (2, 2 * 6 + 4));
        }
    }
}

#[test]
fn crash_loses_running_round_and_resumes() {
    let study = two();
    let (_, whole, _) = run_study(&study);
    let (scratch, world, never) = (RecordFolder::new(), FakeHost::new(1), AtomicBool::new(false));
    let writer = RecordWriter::create(&scratch.path(), &opening(&study)).unwrap();
    let crash = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut notes = EventLog { panic_at: Some("slice 5.2"), ..EventLog::default() };
        run_campaign(&world, &study, writer, &mut notes, &never, |_| {})
    }));
    assert!(crash.is_err());
    assert_eq!(world.up(), Vec::<String>::new(), "no environment outlives a panic");
    let crashed = Record::read(&scratch.path()).unwrap();
    assert_eq!((crashed.slices.len(), crashed.header.ending), (5 * 6 + 3, None));

    let writer = RecordWriter::resume(&scratch.path()).unwrap();
    assert_eq!((writer.rounds(), writer.record().slices.len()), (5, 5 * 6));
    let rates = writer.record().header.rates.clone();
    let mut notes = EventLog::default();
    let world = FakeHost::new(2);
    let outcome = run_campaign(&world, &study, writer, &mut notes, &never, |_| {}).unwrap();
    assert_eq!((outcome.ending, outcome.rounds), (Ending::RoundsDone, 12));
    assert!(notes.words.contains(&"round 5".into()) && !notes.words.contains(&"round 4".into()));
    assert!(!notes.words.contains(&"calibrating".into()), "the rate is kept");
    let resumed = Record::read(&scratch.path()).unwrap();
    assert_eq!(resumed.header.rates, rates);
    let order = |record: &Record| {
        let slices = record.slices.iter();
        slices.map(|one| (one.round, one.position, one.environment.clone())).collect::<Vec<_>>()
    };
    assert_eq!(order(&resumed), order(&whole));
}

#[test]
fn leaves_out_optional_environment_that_fails_to_start() {
    let mut study = study(
        ScheduleKind::Slices,
        &[("native", "fake"), ("absent", "fake:start=fail"), ("box", "fake")],
    );
    let (outcome, record, _) = run_study(&study);
    let error = outcome.unwrap_err();
    assert_eq!(error_line(&error), "cannot start \"absent\": configured to fail at its start");
    let ending = record.header.ending.unwrap();
    assert_eq!(ending, "failed: cannot start \"absent\": configured to fail at its start");

    study.environments[1].optional = true;
    for kind in [ScheduleKind::Slices, ScheduleKind::Trials] {
        study.schedule.kind = kind;
        let (outcome, record, _) = run_study(&study);
        assert_eq!(outcome.unwrap().ending, Ending::RoundsDone);
        let reason = record.environments[1].left_out.as_deref();
        assert_eq!(reason, Some("cannot start it: configured to fail at its start"));
        assert!(record.slices.iter().all(|slice| slice.environment != "absent"));
        assert_eq!(record.slices.len(), 12 * 2 * 3);
    }
}

/// A slice that was void before its layers are read back stays void when they are in force. The
/// fake's neighbours use no CPU time.
#[test]
fn layers_in_force_do_not_clear_a_void() {
    let mut study = study(ScheduleKind::Slices, &[("native", "fake"), ("beside", "fake")]);
    study.environments[1].neighbours = vec![Neighbour {
        name: "burner".into(),
        kind: NeighbourKind::Cpu,
        command: Vec::new(),
        placement: Placement::SameCpus,
        workers: None,
        load_percent: None,
        system: None,
        size_bytes: None,
        rate_bytes: None,
    }];
    let (outcome, record, _) = run_study(&study);
    assert_eq!(outcome.unwrap().ending, Ending::RoundsDone);
    let beside = || record.slices.iter().filter(|one| one.environment == "beside");
    assert!(beside().any(|slice| slice.round == READ_BACK_ROUNDS));
    for slice in beside() {
        let void = slice.void.as_deref();
        assert!(void.is_some_and(|why| why.contains("no CPU time")), "{slice:?}");
    }
    assert!(record.slices.iter().any(|one| one.environment == "native" && one.void.is_none()));
}

#[test]
fn lost_layer_leaves_out_or_voids() {
    let environments =
        [("native", "fake"), ("off", "fake:layer=off"), ("lost", "fake:layer_after=11")];
    let (outcome, record, _) = run_study(&study(ScheduleKind::Slices, &environments));
    assert_eq!(outcome.unwrap().ending, Ending::RoundsDone);
    let reason = "layer network was not in force: wanted host, found nothing";
    assert_eq!(record.environments[1].left_out.as_deref(), Some(reason));
    assert!(!record.environments[1].layers[0].in_force);
    // Read back again in round 10, and after each slice from then on.
    let void = |round: u32| {
        let slices = record.slices.iter().filter(|one| one.environment == "lost");
        slices.filter(|one| one.round == round && one.void.as_deref() == Some(reason)).count()
    };
    assert_eq!((void(9), void(10), void(11)), (0, 2, 2));
    assert_eq!(kinds(&record, "lost"), ["layer_not_in_force"]);
    let baseline_off = study(ScheduleKind::Slices, &[("native", "fake:layer=off")]);
    let (outcome, ..) = run_study(&baseline_off);
    let error = outcome.unwrap_err().to_string();
    assert_eq!(error, format!("the baseline \"native\" lacks a layer: {reason}"));
}

#[test]
fn leaves_out_environment_after_repeated_failures() {
    let environments =
        [("native", "fake"), ("flaky", "fake:fail_after=4"), ("bad", "fake:fail_after=0")];
    for kind in [ScheduleKind::Slices, ScheduleKind::Trials] {
        let (outcome, record, _) = run_study(&study(kind, &environments));
        assert_eq!(outcome.unwrap().rounds, 12, "{kind:?}");
        let slices = |name: &str, void: bool| {
            let of = record.slices.iter().filter(|one| one.environment == name);
            of.filter(|one| one.void.is_some() == void).count()
        };
        assert_eq!((slices("bad", false), slices("bad", true)), (0, 3));
        let reason = "it failed 3 times in a row, the last time: cannot load it: configured to fail under load";
        assert_eq!(record.environments[2].left_out.as_deref(), Some(reason));
        assert_eq!(slices("native", false), 24);
        if kind == ScheduleKind::Slices {
            // Its earlier slices count, and a doubt reports that it was left out.
            assert_eq!((slices("flaky", false), slices("flaky", true)), (3, 3));
            assert_eq!(record.environments[1].left_out, None);
            assert_eq!(kinds(&record, "flaky"), ["environment_left_out"]);
        }
    }
    let (outcome, ..) = run_study(&study(ScheduleKind::Slices, &[("native", "fake:fail_after=9")]));
    let error = outcome.unwrap_err().to_string();
    assert!(error.starts_with("\"native\" failed 3 times in a row"), "{error}");
    let (outcome, ..) = run_study(&study(ScheduleKind::Slices, &[("native", "fake:fail_after=0")]));
    let error = outcome.unwrap_err().to_string();
    let expect = "cannot find the baseline's capacity under \"write\": cannot load it";
    assert!(error.starts_with(expect), "{error}");
}

#[test]
fn records_doubts_of_slices_and_environments() {
    let (scratch, world, never) = (RecordFolder::new(), FakeHost::new(1), AtomicBool::new(false));
    world.disturb(0.2, 0.05);
    let mut study = two();
    study.environments[1].cpu = Cpu::Shared;
    let slow = "fake:throughput=0.3";
    study.environments.push(spec("slow", slow));
    let writer = RecordWriter::create(&scratch.path(), &opening(&study)).unwrap();
    let found = "table ip nat".to_string();
    let given = Doubt::BaselineNotClean { found };
    run_campaign(&world, &study, writer, &mut NoObserver, &never, |parts| {
        parts.doubts.push(given.clone());
    })
    .unwrap();
    let record = Record::read(&scratch.path()).unwrap();
    assert_eq!(kinds(&record, "native"), ["steal", "strangers"]);
    assert_eq!(kinds(&record, "box"), ["client_shares_cpus", "steal", "strangers"]);
    assert_eq!(kinds(&record, "slow"), ["rate_not_reached", "steal", "strangers"]);
    let whole = record.doubts.iter().find(|one| one.environment.is_none()).unwrap();
    assert_eq!(whole.doubt, given);
}

#[test]
fn refuses_study_beyond_memory() {
    let (scratch, world, never) = (RecordFolder::new(), FakeHost::new(1), AtomicBool::new(false));
    let mut study = two();
    study.environments[1].limits.memory_bytes = Some(64 << 20);
    let memory =
        Memory { available_bytes: 500 << 20, per_environment_bytes: 300 << 20, instances: 1 };
    let writer = RecordWriter::create(&scratch.path(), &opening(&study)).unwrap();
    let outcome = run_campaign(&world, &study, writer, &mut NoObserver, &never, |parts| {
        parts.memory = Some(memory)
    });
    let error = outcome.unwrap_err().to_string();
    let expect = "3 environments at once need about 664 MiB of memory and 500 MiB are available";
    assert!(error.starts_with(expect), "{error}");
    assert!(world.log().is_empty());
    assert!(Record::read(&scratch.path()).unwrap().header.ending.unwrap().starts_with("failed"));
}

#[test]
fn what_the_caller_leaves_out_needs_no_memory() {
    let (scratch, world, never) = (RecordFolder::new(), FakeHost::new(1), AtomicBool::new(false));
    let study = two();
    let memory =
        Memory { available_bytes: 500 << 20, per_environment_bytes: 200 << 20, instances: 1 };
    let writer = RecordWriter::create(&scratch.path(), &opening(&study)).unwrap();
    let outcome = run_campaign(&world, &study, writer, &mut NoObserver, &never, |parts| {
        parts.memory = Some(memory);
        parts.left_out = vec![("box".into(), "no room".into())];
    });
    outcome.unwrap();
    let record = Record::read(&scratch.path()).unwrap();
    let left = record.environments.iter().find(|one| one.spec.name == "box").unwrap();
    assert_eq!(left.left_out.as_deref(), Some("no room"));
    assert!(record.slices.iter().all(|slice| slice.environment != "box"));
    assert!(record.slices.iter().any(|slice| slice.environment == "native again"));
    assert!(world.log().iter().all(|line| !line.contains("box")), "{:?}", world.log());
}

#[test]
fn counts_idle_polling_and_proxies() {
    let mut study = two();
    study.environments[0].runtime = "fake:polling=1".into();
    study.environments[1].network = Network::Bridge { proxy: true };
    let (_, record, _) = run_study(&study);
    for slice in record.slices.iter().filter(|one| one.environment == "native") {
        let account = slice.busy_time.unwrap();
        assert!(slice.system_cpu_ns >= 100_000_000);
        assert!(slice.system_cpu_ns.abs_diff(account.busy_ns + account.idle_poll_ns) <= 2);
    }
    for slice in record.slices.iter().filter(|one| one.environment == "box") {
        let [(part, ns)] = &slice.layer_cpu_ns[..] else { panic!() };
        assert_eq!(part, "userland proxy");
        assert!(*ns > 0 && slice.busy_time.is_none());
    }
}

#[test]
fn reports_time_left() {
    let (scratch, world, never) = (RecordFolder::new(), FakeHost::new(1), AtomicBool::new(false));
    let study = two();
    let writer = RecordWriter::create(&scratch.path(), &opening(&study)).unwrap();
    let mut notes = EventLog::default();
    run_campaign(&world, &study, writer, &mut notes, &never, |_| {}).unwrap();
    let expect = ["starting", "starting native", "populating native", "started native"];
    assert_eq!(notes.words[..4], expect);
    assert!(notes.words.contains(&"done 11 of 12".into()));
    assert_eq!(notes.words.last().map(String::as_str), Some("tearingdown"));
}

#[test]
fn ends_environment_that_cannot_freeze() {
    let environments = [("native", "fake"), ("restless", "fake:thaw_after=5")];
    let (outcome, record, world) = run_study(&study(ScheduleKind::Slices, &environments));
    assert_eq!(outcome.unwrap().rounds, 12);
    assert!(
        !world.log().iter().any(|line| line.ends_with("with others thawed")),
        "{:?}",
        world.log()
    );
    let slices = record.slices.iter().filter(|one| one.environment == "restless");
    let void: Vec<bool> = slices.map(|one| one.void.is_some()).collect();
    // One to warm up, four valid slices, and the one after which freezing failed.
    assert_eq!(void, [false, false, false, false, true]);
    assert_eq!(kinds(&record, "restless"), ["environment_left_out"]);
}

#[test]
fn slice_without_operation_is_void_and_ends_nothing() {
    let empty = |slices: u32, window_ms: u64| {
        let baseline = format!("fake:empty_after=5,empty={slices}");
        let mut study = study(ScheduleKind::Slices, &[("native", &baseline), ("box", "fake")]);
        study.schedule.window = Duration::from_millis(window_ms);
        study.schedule.rounds = 40;
        study.workloads[0].latency_share = 0.0;
        let (outcome, record, _) = run_study(&study);
        let ours = record.slices.iter().filter(|one| one.environment == "native");
        let reasons: Vec<String> = ours.filter_map(|one| one.void.clone()).collect();
        let is_reason = |reason: &String| reason == "no operation ended in the window";
        assert!(reasons.iter().all(is_reason), "{reasons:?}");
        (outcome.map(|outcome| outcome.rounds).map_err(|error| error.to_string()), record)
    };
    let (rounds, record) = empty(1, 50);
    assert_eq!(rounds, Ok(40));
    let native = crate::analysis::analyse(&record).findings.remove(0);
    assert_eq!((native.environment.as_str(), native.slices_void), ("native", 1));
    assert_eq!(native.doubts, [(Doubt::EmptySlices { slices: 1, of: 40 }, 1)]);
    // Short slices may be empty for a while; long ones may not.
    assert_eq!(empty(EMPTY_SLICES_MAX - 1, 50).0, Ok(40));
    let error = empty(EMPTY_SLICES_MAX, 50).0.unwrap_err();
    assert!(error.starts_with("\"native\" failed 10 times in a row"), "{error}");
    let error = empty(FAILURES_MAX, 2000).0.unwrap_err();
    assert!(error.starts_with("\"native\" failed 3 times in a row"), "{error}");
}

#[test]
fn early_stop_ignores_left_out_environments() {
    let mut study = study(
        ScheduleKind::Slices,
        &[("native", "fake"), ("flaky", "fake:noise=0.5,fail_after=5")],
    );
    study.schedule.rounds = 200;
    study.schedule.stop_width_percent = 3.0;
    let (outcome, record, _) = run_study(&study);
    assert_eq!(outcome.unwrap().ending, Ending::IntervalsNarrow);
    assert_eq!(kinds(&record, "flaky"), ["environment_left_out"]);
}
