//! The choice of the window, and restarts during the rounds.

use super::*;
use crate::analysis::analyse;
use crate::study::AutoWindow;

fn auto() -> Study {
    let mut study = two();
    study.schedule.auto_window = Some(AutoWindow::default());
    study.schedule.window = AutoWindow::AT_RATE;
    study.schedule.rounds = 16;
    study
}

#[test]
fn short_window_is_chosen_for_capacity_alone() {
    let (outcome, record, _) = run_study(&auto());
    assert_eq!(outcome.unwrap().ending, Ending::RoundsDone);
    // The noise of the fake host does not depend on the window.
    let schedule = &record.study.schedule;
    assert!(schedule.window < Duration::from_millis(200), "{schedule:?}");
    let tried = &schedule.auto_window.as_ref().unwrap().tried;
    assert_eq!(tried.len(), AutoWindow::CANDIDATES.len());
    assert!(tried.iter().all(|one| one.pairs == 16 && one.noise_percent > 0.1), "{tried:?}");
    let length = |window: Duration| u64::try_from(window.as_nanos()).unwrap();
    let every = u32::try_from(200 / schedule.window.as_millis()).unwrap();
    for slice in &record.slices {
        let expect = match slice.phase {
            Phase::Capacity => schedule.window,
            _ => AutoWindow::AT_RATE,
        };
        assert_eq!(slice.window_ns, length(expect));
        assert!(slice.phase == Phase::Capacity || slice.round.is_multiple_of(every));
    }
    let of = |phase| record.slices.iter().filter(|slice| slice.phase == phase).count();
    let rounds_at_rate = 16usize.div_ceil(every as usize);
    assert_eq!((of(Phase::Capacity), of(Phase::Latency)), (3 * 16, 3 * rounds_at_rate));
}

#[test]
fn quota_needs_long_windows() {
    let mut study = auto();
    study.environments[1].cpu = "quota=0.5".parse().unwrap();
    let (outcome, record, _) = run_study(&study);
    outcome.unwrap();
    let schedule = &record.study.schedule;
    assert_eq!(schedule.window, AutoWindow::AT_RATE);
    let why = schedule.auto_window.as_ref().unwrap().kept_because.as_deref().unwrap();
    assert!(why.contains("CPU quota"), "{why}");
}

#[test]
fn accounts_of_ticks_need_long_windows() {
    let (scratch, world) = (RecordFolder::new(), FakeHost::new(1));
    let study = auto();
    let writer = RecordWriter::create(&scratch.path(), &opening(&study)).unwrap();
    let never = AtomicBool::new(false);
    let with = |parts: &mut Parts<'_>| parts.accounts_are_exact = false;
    run_campaign(&world, &study, writer, &mut NoObserver, &never, with).unwrap();
    let schedule = Record::read(&scratch.path()).unwrap().study.schedule;
    assert_eq!(schedule.window, AutoWindow::AT_RATE);
    let why = schedule.auto_window.unwrap().kept_because.unwrap();
    assert!(why.contains("scheduler tick"), "{why}");
}

#[test]
fn resumed_campaign_keeps_its_window() {
    let (scratch, world) = (RecordFolder::new(), FakeHost::new(1));
    let never = AtomicBool::new(false);
    let mut study = auto();
    let writer = RecordWriter::create(&scratch.path(), &opening(&study)).unwrap();
    study.schedule.rounds = 4;
    run_campaign(&world, &study, writer, &mut NoObserver, &never, |_| {}).unwrap();
    let writer = RecordWriter::resume(&scratch.path()).unwrap();
    let mut study = writer.record().study.clone();
    let window = study.schedule.window;
    study.schedule.rounds = 8;
    let mut events = EventLog::default();
    run_campaign(&world, &study, writer, &mut events, &never, |_| {}).unwrap();
    assert!(!events.words.iter().any(|word| word.starts_with("window")), "{:?}", events.words);
    let record = Record::read(&scratch.path()).unwrap();
    assert_eq!(record.study.schedule.window, window);
}

#[test]
fn environments_are_started_again_in_turn() {
    let mut study = two();
    (study.schedule.restarts, study.schedule.rounds) = (3, 60);
    let (outcome, record, world) = run_study(&study);
    assert_eq!(outcome.unwrap().ending, Ending::RoundsDone);
    let log = world.log();
    let count = |line: &str| log.iter().filter(|one| *one == line).count();
    assert_eq!((count("start native"), count("start box"), count("start native again")), (4, 4, 4));
    assert!(!log.iter().any(|line| line.ends_with("with others thawed")), "{log:?}");
    assert_eq!(record.slices.len(), 2 * 3 * 60);
    for slice in &record.slices {
        assert!(slice.void.is_none());
        // The baseline starts at once, the others one round later each.
        let late = record.environments.iter().position(|one| one.spec.name == slice.environment);
        let late = u32::try_from(late.unwrap()).unwrap();
        assert_eq!(slice.start, slice.round.saturating_sub(late) / 15, "{slice:?}");
    }
    let analysis = analyse(&record);
    let of = |name: &str| analysis.findings.iter().find(|one| one.environment == name).unwrap();
    let starts = of("box").starts.unwrap();
    assert_eq!(starts.count, 4);
    let cost = of("box").server_cpu_cost.as_ref().unwrap();
    assert!((cost.percent.value - 20.0).abs() < 3.0, "{cost:?}");
    // The pairs of unequal starts do not count.
    assert!((50..60).contains(&cost.percent.rounds), "{cost:?}");
    assert_eq!(of("native").starts, None);
}

#[test]
fn failed_restart_leaves_the_environment_out() {
    let mut study = two();
    (study.schedule.restarts, study.schedule.rounds) = (1, 20);
    let (scratch, world) = (RecordFolder::new(), FakeHost::new(1));
    let writer = RecordWriter::create(&scratch.path(), &opening(&study)).unwrap();
    let (system, mut driver, mut starts) = (world.system(), world.driver(), 0);
    let mut make = |spec: &EnvironmentSpec| {
        let mut spec = spec.clone();
        starts += u32::from(spec.name == "box");
        if starts > 1 && spec.name == "box" {
            spec.runtime = "fake:start=fail".into();
        }
        world.environment(&spec)
    };
    let parts = Parts::new(&mut make, &system, &mut driver, &world, plan());
    run(parts, &study, writer, &mut NoObserver, &AtomicBool::new(false)).unwrap();
    assert_eq!(world.up(), Vec::<String>::new(), "nothing is left running");
    let record = Record::read(&scratch.path()).unwrap();
    assert!(kinds(&record, "box").contains(&"environment_left_out"), "{:?}", record.doubts);
    let last = |name: &str| record.slices.iter().rfind(|s| s.environment == name).unwrap().round;
    assert_eq!(last("native"), 19);
    assert!(last("box") < 13);
}
