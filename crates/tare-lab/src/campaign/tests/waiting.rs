//! Systems that are slow to answer, that never do, and that are busy for a while or for ever.

use std::cell::Cell;
use std::path::Path;
use std::time::Duration;

use super::*;
use crate::PartError;
use crate::environment::{Endpoint, Launch};
use crate::fake::FakeSystem;
use crate::system::{OwnAccount, QUIET_LIMIT, System};

/// A fake system that answers and gets quiet at certain looks.
struct SlowSystem {
    inner: FakeSystem,
    ready_at: u32,
    quiet_at: u32,
    announces: Option<&'static str>,
    ready_looks: Cell<u32>,
    quiet_looks: Cell<u32>,
}

impl SlowSystem {
    fn new(world: &FakeHost, ready_at: u32, quiet_at: u32) -> Self {
        let (ready_looks, quiet_looks) = (Cell::new(0), Cell::new(0));
        let inner = world.system();
        Self { inner, ready_at, quiet_at, announces: None, ready_looks, quiet_looks }
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
        self.ready_looks.set(self.ready_looks.get() + 1);
        if self.ready_looks.get() < self.ready_at { Err(NotReadyError.into()) } else { Ok(()) }
    }

    fn settings(&self, at: &Endpoint) -> Result<Vec<(String, String)>, PartError> {
        self.inner.settings(at)
    }

    fn pending(&self, _at: &Endpoint) -> Result<Option<String>, PartError> {
        self.quiet_looks.set(self.quiet_looks.get() + 1);
        Ok((self.quiet_looks.get() < self.quiet_at).then(|| "a compaction".to_string()))
    }

    fn own_account(&self, data: &Path) -> Result<Option<OwnAccount>, PartError> {
        self.inner.own_account(data)
    }
}

/// Runs a study with such a system: how it ended, looks for an answer, looks for quiet, and time.
fn run_slow(ready_at: u32, quiet_at: u32) -> (Result<Outcome, CampaignError>, u32, u32, Duration) {
    run_that(|world| SlowSystem::new(world, ready_at, quiet_at))
}

fn run_that(
    make: impl FnOnce(&FakeHost) -> SlowSystem,
) -> (Result<Outcome, CampaignError>, u32, u32, Duration) {
    let (scratch, world) = (RecordFolder::new(), FakeHost::new(1));
    let study = two();
    let writer = RecordWriter::create(&scratch.path(), &opening(&study)).unwrap();
    let never = AtomicBool::new(false);
    let system = make(&world);
    let (mut driver, mut make) = (world.driver(), |spec: &EnvironmentSpec| world.environment(spec));
    let parts = Parts {
        make: &mut make,
        system: &system,
        driver: &mut driver,
        probes: vec![],
        clock: &world,
        plan: plan(),
        memory: None,
        keep: None,
        doubts: vec![],
    };
    let outcome = run(parts, &study, writer, &mut NoObserver, &never);
    assert_eq!(world.up(), Vec::<String>::new(), "everything is ended");
    (outcome, system.ready_looks.get(), system.quiet_looks.get(), world.now())
}

#[test]
fn waits_until_ready_and_quiet() {
    let (outcome, ready, quiet, _) = run_slow(5, 4);
    assert!(outcome.is_ok(), "{outcome:?}");
    // Three environments: the first takes five looks, the others one each.
    assert_eq!(ready, 5 + 1 + 1);
    // The first is busy three times and then quiet three times in a row, the others were never
    // busy.
    assert_eq!(quiet, 3 + 3 + 1 + 1);
}

#[test]
fn silent_or_busy_system_ends_campaign() {
    let (outcome, _, _, took) = run_slow(u32::MAX, 0);
    let error = error_line(&outcome.unwrap_err());
    assert!(error.contains("cannot wait for") && error.contains("not yet after 60 s"), "{error}");
    assert!(took < Duration::from_secs(70), "{took:?}");
    // What a fake environment prints is nothing.
    let says =
        |world: &FakeHost| SlowSystem { announces: Some("up"), ..SlowSystem::new(world, 0, 0) };
    let (outcome, ready, _, _) = run_that(says);
    let error = error_line(&outcome.unwrap_err());
    assert!(error.contains("it has not printed \"up\" after 60 s") && ready == 0, "{error}");
    let (outcome, _, _, took) = run_slow(0, u32::MAX);
    let error = error_line(&outcome.unwrap_err());
    assert!(error.contains("still busy 300 s") && error.contains("a compaction"), "{error}");
    assert!(took < QUIET_LIMIT + Duration::from_secs(10), "{took:?}");
}
