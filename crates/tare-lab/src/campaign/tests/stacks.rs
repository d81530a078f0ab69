use super::*;
use crate::PartError;
use crate::analysis::counters;
use crate::driver::Edge;
use crate::fake::FakeError;
use crate::probe::{Counter, Probe, Scope};
use crate::record::{Slice, read_stacks};
use crate::stacks::{CLIENT, SYSTEM, SampledStack, StackKind, StackSampler};

/// Runs a study with stack slices after its rounds.
fn run_with(
    study: &Study,
    world: &FakeHost,
    scratch: &RecordFolder,
    closer: ExtraRounds<'static>,
    stop: &AtomicBool,
) -> Result<Outcome, CampaignError> {
    let path = scratch.path();
    let writer = match path.exists() {
        true => RecordWriter::resume(&path).unwrap(),
        false => RecordWriter::create(&path, &opening(study)).unwrap(),
    };
    let (system, mut driver) = (world.system(), world.driver());
    let mut make = |spec: &EnvironmentSpec| world.environment(spec);
    let parts = Parts::new(&mut make, &system, &mut driver, world, plan());
    let afterwards = ExtraRounds { rounds: 3, window: Duration::from_millis(500), ..closer };
    run_with_extra_rounds(parts, study, writer, &mut NoObserver, stop, afterwards)
}

fn samplers(samplers: Vec<Box<dyn StackSampler>>) -> ExtraRounds<'static> {
    ExtraRounds { samplers, ..ExtraRounds::default() }
}

#[test]
fn samples_stacks_after_rounds_at_one_rate() {
    let (scratch, world, study) = (RecordFolder::new(), FakeHost::new(1), two());
    let never = AtomicBool::new(false);
    let on_cpu = |world: &FakeHost| samplers(vec![Box::new(world.sampler(StackKind::OnCpu))]);
    let outcome = run_with(&study, &world, &scratch, on_cpu(&world), &never).unwrap();
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
    // The rounds are the same as without stacks, and only one environment was thawed at a time.
    let record = Record::read(&scratch.path()).unwrap();
    assert_eq!(record.slices.len(), 2 * 3 * 12);
    let log = world.log();
    let first = log.iter().position(|line| line == "sampled").unwrap();
    assert!(log[first..].iter().all(|line| !line.ends_with("closed")), "{log:?}");
    assert!(!log.iter().any(|line| line.ends_with("with others thawed")));
    assert_eq!(world.up(), Vec::<String>::new());
    // A resumed study adds rounds.
    let world = FakeHost::new(1);
    run_with(&study, &world, &scratch, on_cpu(&world), &never).unwrap();
    let slices = read_stacks(&scratch.path()).unwrap();
    assert_eq!(slices.iter().map(|slice| slice.round).max(), Some(5));
}

/// A sampler that cannot begin.
struct BrokenSampler;

impl StackSampler for BrokenSampler {
    fn kind(&self) -> StackKind {
        StackKind::OnCpu
    }

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
fn failing_sampler_is_a_doubt() {
    let (scratch, world) = (RecordFolder::new(), FakeHost::new(1));
    let never = AtomicBool::new(false);
    let outcome =
        run_with(&two(), &world, &scratch, samplers(vec![Box::new(BrokenSampler)]), &never)
            .unwrap();
    assert_eq!((outcome.ending, outcome.rounds), (Ending::RoundsDone, 12));
    let slices = read_stacks(&scratch.path()).unwrap();
    assert_eq!(slices.len(), 3, "then the sampling ends");
    assert!(slices.iter().all(|slice| slice.void.is_some()));
    let record = Record::read(&scratch.path()).unwrap();
    let named = |one: &&DoubtRecord| matches!(&one.doubt, Doubt::ProbeFailed { probe, .. } if probe == "stacks");
    assert_eq!(record.doubts.iter().filter(named).count(), 1);
}

#[test]
fn stack_kinds_have_separate_slices() {
    let (scratch, world) = (RecordFolder::new(), FakeHost::new(1));
    let never = AtomicBool::new(false);
    let kinds = [StackKind::OnCpu, StackKind::OffCpu];
    let both = kinds.map(|kind| Box::new(world.sampler(kind)) as Box<dyn StackSampler>);
    run_with(&two(), &world, &scratch, samplers(both.into()), &never).unwrap();
    let slices = read_stacks(&scratch.path()).unwrap();
    for kind in kinds {
        let rounds: Vec<u32> =
            slices.iter().filter(|slice| slice.kind == kind).map(|slice| slice.round).collect();
        assert_eq!(rounds, [0, 0, 0, 1, 1, 1, 2, 2, 2], "{kind:?}");
    }
}

/// The fake host keeps no CPU for interrupts, so no probe counts their time.
#[test]
fn interrupt_cpus_need_their_time() {
    let (scratch, world) = (RecordFolder::new(), FakeHost::new(1));
    let never = AtomicBool::new(false);
    let sampler = Box::new(world.sampler(StackKind::InterruptCpus));
    run_with(&two(), &world, &scratch, samplers(vec![sampler]), &never).unwrap();
    let slices = read_stacks(&scratch.path()).unwrap();
    assert!(!slices.is_empty());
    for slice in slices {
        let reason = "no probe counted the time of the interrupt CPUs";
        assert_eq!((slice.kind, slice.void.as_deref()), (StackKind::InterruptCpus, Some(reason)));
    }
}

/// A probe that the campaign treats as disturbing.
struct Tracer;

impl Probe for Tracer {
    fn name(&self) -> &str {
        "tracer"
    }

    fn begin(&mut self) -> Result<(), PartError> {
        Ok(())
    }

    fn end(&mut self) -> Result<Vec<Counter>, PartError> {
        Ok(vec![Counter { name: "calls".into(), value: 1000.0 }])
    }
}

#[test]
fn traces_in_separate_slices() {
    let (scratch, world) = (RecordFolder::new(), FakeHost::new(1));
    let never = AtomicBool::new(false);
    let tracers = || ExtraRounds { tracers: vec![Box::new(Tracer)], ..ExtraRounds::default() };
    run_with(&two(), &world, &scratch, tracers(), &never).unwrap();
    let record = Record::read(&scratch.path()).unwrap();
    let traced = |slice: &&Slice| slice.phase == Phase::Traced;
    let calls = |slice: &Slice| slice.counters.iter().any(|one| one.name == "calls");
    assert_eq!(record.slices.iter().filter(traced).count(), 3 * 3);
    assert!(record.slices.iter().all(|slice| calls(slice) == (slice.phase == Phase::Traced)));
    let found = counters(&record);
    let calls: Vec<_> = found.iter().filter(|finding| finding.name == "calls").collect();
    assert_eq!(calls.len(), 3);
    assert!(calls.iter().all(|one| one.phase == Phase::Traced && one.value.rounds == 3));
    // A resume keeps them and adds rounds.
    let world = FakeHost::new(1);
    run_with(&two(), &world, &scratch, tracers(), &never).unwrap();
    let record = Record::read(&scratch.path()).unwrap();
    let rounds: Vec<u32> = record.slices.iter().filter(traced).map(|slice| slice.round).collect();
    assert_eq!(rounds, (0..6).flat_map(|round| [round; 3]).collect::<Vec<_>>());
}
