//! The search for the capacity under an objective.

use super::*;
use crate::analysis::analyse;

#[test]
fn search_finds_the_capacity_of_each_environment() {
    let mut study = two();
    study.schedule.rounds = 60;
    // Any response time will do, but operations that were not sent break it.
    study.workloads[0].slo = Some("p99 = 10s".parse().unwrap());
    let (scratch, world) = (RecordFolder::new(), FakeHost::new(1));
    let writer = RecordWriter::create(&scratch.path(), &opening(&study)).unwrap();
    let never = AtomicBool::new(false);
    let (system, mut driver) = (world.system(), world.driver());
    let mut make = |spec: &EnvironmentSpec| world.environment(spec);
    let parts = Parts::new(&mut make, &system, &mut driver, &world, plan());
    run(parts, &study, writer, &mut NoObserver, &never).unwrap();
    let record = Record::read(&scratch.path()).unwrap();
    let missed = |doubt: &crate::doubt::Doubt| doubt.kind() == "rate_not_reached";
    assert!(!record.doubts.iter().any(|one| missed(&one.doubt)));
    let findings = analyse(&record).findings;
    let of = |name: &str| findings.iter().find(|one| one.environment == name).unwrap();
    for name in ["native", "native again", "box"] {
        let found = of(name);
        let (search, closed) = (found.slo.as_ref().unwrap(), &found.throughput_per_s);
        assert_eq!(search.slices, 60);
        assert!(search.slices_settled > 40, "{search:?}");
        // One percent of the operations may be missing.
        let closed = closed.as_ref().unwrap().value;
        let capacity = search.capacity_per_s.as_ref().unwrap().value;
        assert!((0.97..1.04).contains(&(capacity / closed)), "{name}: {capacity} {closed}");
    }
    let lost = of("box").slo.as_ref().unwrap().cost.as_ref().unwrap();
    assert!(lost.found && lost.percent.low <= 20.5 && lost.percent.high >= 19.5, "{lost:?}");
    assert!(of("native").slo.as_ref().unwrap().cost.is_none());
}
