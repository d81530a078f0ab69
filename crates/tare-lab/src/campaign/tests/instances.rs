//! Several instances of a system in one environment: the campaign starts each, waits for it, reads
//! its settings and its CPU time.

use std::cell::RefCell;
use std::path::Path;

use super::*;
use crate::PartError;
use crate::environment::{Endpoint, Environment, Launch, LayerState, Usage};
use crate::fake::FakeSystem;
use crate::system::{BusyTime, Instances, System};

/// A system of two instances that logs its calls.
struct TwoInstanceSystem {
    inner: FakeSystem,
    words: RefCell<Vec<String>>,
}

impl System for TwoInstanceSystem {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn instances(&self) -> Instances {
        Instances { count: 2, cluster: true }
    }

    fn launch(&self, cpus: usize) -> Launch {
        self.inner.launch(cpus)
    }

    fn launch_instance(&self, cpus: usize, number: u32) -> Launch {
        self.words.borrow_mut().push(format!("launch {number} on {cpus}"));
        self.launch(cpus)
    }

    fn ready(&self, _at: &Endpoint) -> Result<(), PartError> {
        self.words.borrow_mut().push("ready".into());
        Ok(())
    }

    fn settings(&self, at: &Endpoint) -> Result<Vec<(String, String)>, PartError> {
        let mut settings = self.inner.settings(at)?;
        let calls = self.words.borrow().iter().filter(|word| *word == "settings").count();
        self.words.borrow_mut().push("settings".into());
        settings.push(("calls".into(), calls.to_string()));
        Ok(settings)
    }

    fn pending(&self, _at: &Endpoint) -> Result<Option<String>, PartError> {
        self.words.borrow_mut().push("pending".into());
        Ok(None)
    }

    fn busy_time(&self, _data: &Path) -> Result<Option<BusyTime>, PartError> {
        self.words.borrow_mut().push("account".into());
        let accounts = self.words.borrow().iter().filter(|word| *word == "account").count();
        let busy_ns = u64::try_from(accounts)?;
        Ok(Some(BusyTime { busy_ns, idle_poll_ns: 0 }))
    }
}

/// A fake environment that runs two instances of its system.
struct TwoInstances(Box<dyn Environment>);

impl Environment for TwoInstances {
    fn spec(&self) -> &EnvironmentSpec {
        self.0.spec()
    }

    fn start(&mut self, launch: &Launch) -> Result<Endpoint, PartError> {
        self.0.start(launch)
    }

    fn start_all(&mut self, launches: &[Launch]) -> Result<Vec<Endpoint>, PartError> {
        let at = self.0.start(&launches[0])?;
        Ok(launches.iter().map(|_| at.clone()).collect())
    }

    fn read_back(&mut self) -> Result<Vec<LayerState>, PartError> {
        self.0.read_back()
    }

    fn freeze(&mut self) -> Result<(), PartError> {
        self.0.freeze()
    }

    fn thaw(&mut self) -> Result<(), PartError> {
        self.0.thaw()
    }

    fn usage(&mut self) -> Result<Usage, PartError> {
        self.0.usage()
    }

    fn config(&self) -> Option<String> {
        self.0.config()
    }

    fn log_tail(&self) -> String {
        self.0.log_tail()
    }

    fn stop(&mut self) -> Result<(), PartError> {
        self.0.stop()
    }
}

fn run_two(
    factory: &mut EnvironmentFactory<'_>,
    world: &FakeHost,
) -> (Result<Outcome, CampaignError>, TwoInstanceSystem, RecordFolder) {
    let scratch = RecordFolder::new();
    let study = study(ScheduleKind::Slices, &[("native", "fake")]);
    let writer = RecordWriter::create(&scratch.path(), &opening(&study)).unwrap();
    let system = TwoInstanceSystem { inner: world.system(), words: RefCell::default() };
    let mut driver = world.driver();
    let parts = Parts::new(factory, &system, &mut driver, world, plan());
    let outcome = run(parts, &study, writer, &mut NoObserver, &AtomicBool::new(false));
    (outcome, system, scratch)
}

#[test]
fn accounts_for_every_instance() {
    let world = FakeHost::new(1);
    let mut make = |spec: &EnvironmentSpec| -> Result<Box<dyn Environment>, PartError> {
        Ok(Box::new(TwoInstances(world.environment(spec)?)))
    };
    let (outcome, system, scratch) = run_two(&mut make, &world);
    outcome.unwrap();
    let words = system.words.borrow();
    // The two CPUs are divided, and both instances are queried before the first measurement.
    let first = ["launch 0 on 1", "launch 1 on 1", "ready", "ready", "settings", "settings"];
    assert_eq!(words[..first.len()], first);
    assert_eq!(words[first.len()..][..2], ["pending", "pending"]);
    let record = Record::read(&scratch.path()).unwrap();
    let settings = &record.environments[0].settings;
    let of = |name: &str| settings.iter().find(|(known, _)| known == name);
    assert_eq!(of("calls").unwrap().1, "0");
    assert_eq!(of("calls of instance 2").unwrap().1, "1");
    assert_eq!(settings.len(), 3, "equal settings appear once: {settings:?}");
    // Each reading of the busy time returns 1 ns more: at the edges 1 + 2 and 3 + 4, and so on.
    let busy = record.slices[0].busy_time.unwrap().busy_ns;
    assert_eq!(busy, 4);
}

#[test]
fn single_instance_environment_refuses_two() {
    let world = FakeHost::new(1);
    let mut make = |spec: &EnvironmentSpec| world.environment(spec);
    let (outcome, _, _scratch) = run_two(&mut make, &world);
    let error = error_line(&outcome.unwrap_err());
    assert!(error.contains("runs one instance of a system, not 2"), "{error}");
}
