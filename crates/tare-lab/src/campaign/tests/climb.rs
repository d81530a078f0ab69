//! Loads that a campaign finds by itself.

use super::*;
use crate::record::Slice;
use crate::study::{ClimbEnd, LoadSize, Saturate};

/// A study whose systems reach their full speed with 64 requests in flight, 16 being its default.
fn saturating(kind: ScheduleKind, runtime: &str) -> Study {
    let mut study = study(kind, &[("native", runtime), ("box", runtime)]);
    study.workloads[0].load =
        LoadSize { saturate: Some(Saturate::default()), ..Default::default() };
    study
}

const KNEE: &str = "fake:noise=0.001,knee=64";

#[test]
fn climbs_to_the_knee_and_keeps_it_for_all() {
    for kind in [ScheduleKind::Slices, ScheduleKind::Trials] {
        let (outcome, record, world) = run_study(&saturating(kind, KNEE));
        outcome.unwrap();
        let workload = &record.study.workloads[0];
        assert_eq!(workload.in_flight, 64);
        assert!(workload.load.suffices());
        let climb = workload.load.climb().unwrap();
        assert_eq!(climb.end, ClimbEnd::Knee);
        let loads: Vec<u32> = climb.steps.iter().map(|step| step.in_flight).collect();
        assert_eq!(loads, [2, 4, 8, 16, 32, 64, 128, 256]);
        let slow = climb.steps[0].operations_per_s / fake::CAPACITY_PER_S;
        assert!((slow - 2.0 / 64.0).abs() < 0.01, "{slow}");
        // The fixed rate is a share of the capacity that was found.
        let rate = record.header.rates[0].1 / fake::CAPACITY_PER_S;
        assert!((rate - 0.5).abs() < 0.02, "{rate}");
        let full = |slice: &Slice| slice.operations as f64 * 1e9 / slice.window_ns as f64;
        let mut slices = record.slices.iter().filter(|slice| slice.phase == Phase::Capacity);
        assert!(slices.all(|slice| full(slice) > 0.98 * fake::CAPACITY_PER_S));
        assert_eq!(world.up(), Vec::<String>::new());
    }
}

#[test]
fn climbs_with_the_option_of_a_load_tool() {
    let mut study = saturating(ScheduleKind::Slices, KNEE);
    let workload = &mut study.workloads[0];
    let saturate = Saturate { option: Some("clients".into()), climb: None };
    workload.load.saturate = Some(saturate);
    workload.options = vec![("test".into(), "get".into())];
    let (_, record, _) = run_study(&study);
    let pair = |name: &str, value: &str| (name.to_string(), value.to_string());
    let found = &record.study.workloads[0];
    assert_eq!(found.options, [pair("test", "get"), pair("clients", "64")]);
    assert_eq!(found.in_flight, 64);
}

#[test]
fn climb_ends_without_a_knee() {
    // 256 in flight are the most, sixteen times the default.
    let (_, record, _) = run_study(&saturating(ScheduleKind::Slices, "fake:knee=1000"));
    let workload = &record.study.workloads[0];
    assert_eq!((workload.in_flight, workload.load.suffices()), (256, false));
    assert_eq!(workload.load.climb().unwrap().end, ClimbEnd::Most);
    // A fifth of two seconds is over after the second step.
    let mut study = saturating(ScheduleKind::Slices, KNEE);
    study.schedule.budget = Duration::from_secs(2);
    let (_, record, _) = run_study(&study);
    let workload = &record.study.workloads[0];
    let climb = workload.load.climb().unwrap();
    assert_eq!(workload.in_flight, 16, "no less than the default");
    assert!(climb.end == ClimbEnd::Time && climb.steps.len() < 4, "{climb:?}");
}

#[test]
fn resumed_campaign_keeps_its_load() {
    let (scratch, world) = (RecordFolder::new(), FakeHost::new(1));
    let study = saturating(ScheduleKind::Slices, KNEE);
    let writer = RecordWriter::create(&scratch.path(), &opening(&study)).unwrap();
    let flag = AtomicBool::new(false);
    let mut log = EventLog { stop: Some((&flag, "done 2 of 12")), ..EventLog::default() };
    run_campaign(&world, &study, writer, &mut log, &flag, |_| {}).unwrap();
    assert!(log.words.contains(&"climbed write 64".to_string()), "{:?}", log.words);
    let (found, rates) = {
        let record = Record::read(&scratch.path()).unwrap();
        (record.study.workloads, record.header.rates)
    };
    // The study of the file, which knows of no climb, and that of the record end alike.
    let world = FakeHost::new(2);
    let writer = RecordWriter::resume(&scratch.path()).unwrap();
    let mut log = EventLog::default();
    let never = AtomicBool::new(false);
    run_campaign(&world, &study, writer, &mut log, &never, |_| {}).unwrap();
    assert!(!log.words.iter().any(|word| word.starts_with("climb")), "{:?}", log.words);
    let record = Record::read(&scratch.path()).unwrap();
    assert_eq!((record.study.workloads, record.header.rates), (found, rates));
}
