//! Systems that are slow to answer, that never answer, and that are busy for a time or permanently.

use std::cell::Cell;
use std::path::Path;
use std::time::Duration;

use super::*;
use crate::PartError;
use crate::environment::{Endpoint, Launch};
use crate::fake::FakeSystem;
use crate::system::{BusyTime, QUIET_LIMIT, System};

/// A fake system that answers and becomes quiet at given polls.
struct SlowSystem {
    inner: FakeSystem,
    ready_at: u32,
    quiet_at: u32,
    announces: Option<&'static str>,
    ready_polls: Cell<u32>,
    quiet_polls: Cell<u32>,
}

impl SlowSystem {
    fn new(world: &FakeHost, ready_at: u32, quiet_at: u32) -> Self {
        let (ready_polls, quiet_polls) = (Cell::new(0), Cell::new(0));
        let inner = world.system();
        Self { inner, ready_at, quiet_at, announces: None, ready_polls, quiet_polls }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("not yet")]
struct NotReadyError;

impl System for SlowSystem {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn launch(&self, cpus: usize) -> Launch {
        self.inner.launch(cpus)
    }

    fn announces(&self) -> Option<&str> {
        self.announces
    }

    fn ready(&self, _at: &Endpoint) -> Result<(), PartError> {
        self.ready_polls.set(self.ready_polls.get() + 1);
        if self.ready_polls.get() < self.ready_at { Err(NotReadyError.into()) } else { Ok(()) }
    }

    fn settings(&self, at: &Endpoint) -> Result<Vec<(String, String)>, PartError> {
        self.inner.settings(at)
    }

    fn pending(&self, _at: &Endpoint) -> Result<Option<String>, PartError> {
        self.quiet_polls.set(self.quiet_polls.get() + 1);
        Ok((self.quiet_polls.get() < self.quiet_at).then(|| "a compaction".to_string()))
    }

    fn busy_time(&self, data: &Path) -> Result<Option<BusyTime>, PartError> {
        self.inner.busy_time(data)
    }
}

/// Runs a study with such a system, and returns the outcome, the polls for an answer and for quiet,
/// and the time.
fn run_slow(ready_at: u32, quiet_at: u32) -> (Result<Outcome, CampaignError>, u32, u32, Duration) {
    run_system(|world| SlowSystem::new(world, ready_at, quiet_at))
}

fn run_system(
    make: impl FnOnce(&FakeHost) -> SlowSystem,
) -> (Result<Outcome, CampaignError>, u32, u32, Duration) {
    let (scratch, world) = (RecordFolder::new(), FakeHost::new(1));
    let study = two();
    let writer = RecordWriter::create(&scratch.path(), &opening(&study)).unwrap();
    let never = AtomicBool::new(false);
    let system = make(&world);
    let (mut driver, mut make) = (world.driver(), |spec: &EnvironmentSpec| world.environment(spec));
    let parts = Parts::new(&mut make, &system, &mut driver, &world, plan());
    let outcome = run(parts, &study, writer, &mut NoObserver, &never);
    assert_eq!(world.up(), Vec::<String>::new(), "nothing is left running");
    (outcome, system.ready_polls.get(), system.quiet_polls.get(), world.now())
}

#[test]
fn waits_until_ready_and_quiet() {
    let (outcome, ready, quiet, _) = run_slow(5, 4);
    assert!(outcome.is_ok(), "{outcome:?}");
    // Three environments: the first needs five polls, the others one each.
    assert_eq!(ready, 5 + 1 + 1);
    // The first is busy for three polls and then quiet for three. The others are never busy.
    assert_eq!(quiet, 3 + 3 + 1 + 1);
}

#[test]
fn silent_or_busy_system_ends_campaign() {
    let (outcome, _, _, took) = run_slow(u32::MAX, 0);
    let error = error_line(&outcome.unwrap_err());
    assert!(error.contains("cannot wait for") && error.contains("not yet after 60 s"), "{error}");
    assert!(took < Duration::from_secs(70), "{took:?}");
    // A fake environment prints nothing.
    let says =
        |world: &FakeHost| SlowSystem { announces: Some("up"), ..SlowSystem::new(world, 0, 0) };
    let (outcome, ready, _, _) = run_system(says);
    let error = error_line(&outcome.unwrap_err());
    assert!(error.contains("it has not printed \"up\" after 60 s") && ready == 0, "{error}");
    let (outcome, _, _, took) = run_slow(0, u32::MAX);
    let error = error_line(&outcome.unwrap_err());
    assert!(error.contains("still busy 300 s") && error.contains("a compaction"), "{error}");
    assert!(took < QUIET_LIMIT + Duration::from_secs(10), "{took:?}");
}
