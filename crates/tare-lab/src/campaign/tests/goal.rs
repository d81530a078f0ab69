//! A caller's question ends the rounds; a finished record holds its response times.

use std::cell::RefCell;
use std::rc::Rc;

use super::*;
use crate::analysis::{analyse, analyse_costs, analyse_with};

/// Runs a study with a goal that is reached after this many rounds. Returns the outcome and the
/// numbers of rounds at which it was asked.
fn asked(study: &Study, rounds: Option<u32>, enough: u32) -> (Outcome, Vec<u32>) {
    let (scratch, world) = (RecordFolder::new(), FakeHost::new(1));
    let writer = RecordWriter::create(&scratch.path(), &opening(study)).unwrap();
    let looks = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&looks);
    let is_reached = Box::new(move |path: &std::path::Path| {
        let rounds = analyse_costs(&Record::read(path).unwrap()).rounds;
        seen.borrow_mut().push(rounds);
        rounds >= enough
    });
    let goal = Goal { rounds, is_reached };
    let never = AtomicBool::new(false);
    let (system, mut driver) = (world.system(), world.driver());
    let mut make = |spec: &EnvironmentSpec| world.environment(spec);
    let parts =
        Parts { goal: Some(&goal), ..Parts::new(&mut make, &system, &mut driver, &world, plan()) };
    let outcome = run(parts, study, writer, &mut NoObserver, &never);
    let looks = looks.borrow().clone();
    (outcome.unwrap(), looks)
}

#[test]
fn goal_goes_on_beyond_the_rounds_of_the_study() {
    let mut study = two();
    (study.schedule.rounds, study.schedule.rounds_min) = (12, 10);
    // Narrow intervals do not end it.
    study.schedule.stop_width_percent = 50.0;
    let (outcome, looks) = asked(&study, None, 20);
    assert_eq!(looks, [10, 15, 23]);
    assert_eq!((outcome.ending, outcome.rounds), (Ending::GoalReached, 23));
}

#[test]
fn goal_ends_at_its_rounds_and_at_the_budget() {
    let mut study = two();
    study.schedule.rounds_min = 4;
    let (outcome, looks) = asked(&study, Some(14), 100);
    assert_eq!((outcome.ending, outcome.rounds), (Ending::RoundsDone, 14));
    assert_eq!(looks, [4, 6, 9, 14]);
    study.schedule.budget = Duration::from_secs(30);
    let (outcome, _) = asked(&study, None, u32::MAX);
    assert_eq!(outcome.ending, Ending::BudgetSpent);
    assert!(outcome.rounds > 12, "{}", outcome.rounds);
}

#[test]
fn finished_record_holds_its_response_times() {
    let (scratch, world) = (RecordFolder::new(), FakeHost::new(1));
    let study = two();
    let writer = RecordWriter::create(&scratch.path(), &opening(&study)).unwrap();
    let never = AtomicBool::new(false);
    run_campaign(&world, &study, writer, &mut NoObserver, &never, |_| {}).unwrap();
    let (_, stored) = Record::read_costs(&scratch.path()).unwrap();
    assert_eq!(stored.len(), 3);
    let record = Record::read(&scratch.path()).unwrap();
    let (whole, costs) = (analyse(&record), analyse_with(&record, stored));
    for (computed, read) in whole.findings.iter().zip(&costs.findings) {
        assert_eq!(computed.response, read.response, "{}", computed.environment);
        assert!(read.service.is_none());
    }
    let over = |finding: &crate::analysis::Finding| {
        finding.response.as_ref().unwrap().percentile(99.0).unwrap().over_baseline.is_some()
    };
    assert_eq!(costs.findings.iter().map(over).collect::<Vec<_>>(), [false, true, true]);

    // A study that goes on writes them again at its end.
    let writer = RecordWriter::resume(&scratch.path()).unwrap();
    drop(writer);
    assert!(Record::read_costs(&scratch.path()).unwrap().1.is_empty());
}
