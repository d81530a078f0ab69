use super::*;
use crate::PartError;
use crate::driver::Edge;
use crate::fake::FakeError;
use crate::probe::Scope;
use crate::record::read_stacks;
use crate::stacks::{CLIENT, SYSTEM, SampledStack, StackOrder, StackSampler};

/// Runs a study with stack slices after its rounds.
fn run_with(
    study: &Study,
    world: &World,
    scratch: &Scratch,
    sampler: &mut dyn StackSampler,
    stop: &AtomicBool,
) -> Result<Outcome, CampaignError> {
    let path = scratch.path();
    let writer = match path.exists() {
        true => RecordWriter::resume(&path).unwrap(),
        false => RecordWriter::create(&path, &opening(study)).unwrap(),
    };
    let (system, mut driver) = (world.system(), world.driver());
    let mut make = |spec: &EnvironmentSpec| world.environment(spec);
    let parts = Parts {
        make: &mut make,
        system: &system,
        driver: &mut driver,
        probes: vec![],
        clock: world,
        plan: plan(),
        memory: None,
        doubts: vec![],
    };
    let window = Duration::from_millis(500);
    let order = StackOrder { sampler, rounds: 3, window };
    run_with_stacks(parts, study, writer, &mut NoObserver, stop, Some(order))
}

#[test]
fn stacks_are_sampled_after_the_rounds_at_one_rate() {
    let (scratch, world, study) = (Scratch::new(), World::new(1), two());
    let never = AtomicBool::new(false);
    let sampler = &mut world.sampler();
    let outcome = run_with(&study, &world, &scratch, sampler, &never).unwrap();
    assert_eq!(outcome.ending, Ending::RoundsDone);
    let slices = read_stacks(&scratch.path()).unwrap();
    assert_eq!(slices.len(), 3 * 3, "three environments with the control, three rounds");
    let rates: Vec<f64> = slices.iter().map(|slice| slice.rate_per_s).collect();
    assert!(rates.iter().all(|rate| *rate == rates[0] && *rate > 0.0), "{rates:?}");
    for slice in &slices {
        assert_eq!(slice.void, None);
        assert!(slice.operations > 0 && !slice.stacks.is_empty());
        assert!(slice.cpu.iter().any(|one| one.part == SYSTEM && one.cpu_ns > 0));
        assert!(slice.cpu.iter().any(|one| one.part == CLIENT && one.cpu_ns > 0));
    }
    // The rounds are as they are without stacks, and every environment was alone.
    let record = Record::read(&scratch.path()).unwrap();
    assert_eq!(record.slices.len(), 2 * 3 * 12);
    let log = world.log();
    let first = log.iter().position(|line| line == "sampled").unwrap();
    assert!(log[first..].iter().all(|line| !line.ends_with("closed")), "{log:?}");
    assert!(!log.iter().any(|line| line.ends_with("in company")));
    assert_eq!(world.up(), Vec::<String>::new());
    // Resumed, further rounds follow.
    run_with(&study, &World::new(1), &scratch, &mut World::new(1).sampler(), &never).unwrap();
    let slices = read_stacks(&scratch.path()).unwrap();
    assert_eq!(slices.iter().map(|slice| slice.round).max(), Some(5));
}

/// A sampler that cannot begin.
struct Blind;

impl StackSampler for Blind {
    fn event(&self) -> String {
        "nothing".into()
    }

    fn begin(&mut self, _scope: &Scope) -> Result<(), PartError> {
        Err(FakeError::Start.into())
    }

    fn edge(&mut self, _edge: Edge) -> Result<(), PartError> {
        Ok(())
    }

    fn end(&mut self) -> Result<Vec<SampledStack>, PartError> {
        Ok(Vec::new())
    }
}

#[test]
fn a_sampler_that_fails_is_a_doubt_and_the_record_is_whole() {
    let (scratch, world) = (Scratch::new(), World::new(1));
    let never = AtomicBool::new(false);
    let outcome = run_with(&two(), &world, &scratch, &mut Blind, &never).unwrap();
    assert_eq!((outcome.ending, outcome.blocks), (Ending::RoundsDone, 12));
    let slices = read_stacks(&scratch.path()).unwrap();
    assert_eq!(slices.len(), 3, "then it is given up");
    assert!(slices.iter().all(|slice| slice.void.is_some()));
    let record = Record::read(&scratch.path()).unwrap();
    let named = |one: &&DoubtRecord| matches!(&one.doubt, Doubt::ProbeFailed { probe, .. } if probe == "stacks");
    assert_eq!(record.doubts.iter().filter(named).count(), 1);
}
