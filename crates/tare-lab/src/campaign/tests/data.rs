//! Data that is loaded once and restored into every start.

use std::cell::RefCell;
use std::path::Path;

use super::*;
use crate::PartError;
use crate::environment::{
    DataSnapshot, Endpoint, Environment, Launch, LayerState, Processes, RestoreStats, Usage,
};
use crate::fake::FakeSystem;
use crate::system::{BusyTime, System};

/// A fake system whose data can be saved.
struct SavingSystem {
    inner: FakeSystem,
    can_save: bool,
    saved: RefCell<Vec<PathBuf>>,
}

#[derive(Debug)]
struct FakeSnapshot;

impl DataSnapshot for FakeSnapshot {
    fn folder(&self) -> &Path {
        Path::new("saved")
    }

    fn restore(&self, _to: &Path) -> Result<RestoreStats, PartError> {
        let took = Duration::from_millis(3);
        Ok(RestoreStats { linked_bytes: 5 << 20, cloned_bytes: 0, copied_bytes: 1 << 10, took })
    }
}

impl System for SavingSystem {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn launch(&self, cpus: usize) -> Launch {
        self.inner.launch(cpus)
    }

    fn settings(&self, at: &Endpoint) -> Result<Vec<(String, String)>, PartError> {
        self.inner.settings(at)
    }

    fn can_save_data(&self) -> bool {
        self.can_save
    }

    fn save_data(
        &self,
        _at: &Endpoint,
        processes: &[u32],
        to: &Path,
    ) -> Result<Option<Rc<dyn DataSnapshot>>, PartError> {
        assert_eq!(processes, [7], "the process to stop");
        self.saved.borrow_mut().push(to.into());
        Ok(Some(Rc::new(FakeSnapshot)))
    }

    fn busy_time(&self, data: &Path) -> Result<Option<BusyTime>, PartError> {
        self.inner.busy_time(data)
    }
}

/// A fake environment that restores data, unless its name is `sealed`.
struct RestoringEnvironment {
    inner: Box<dyn Environment>,
    data: Option<Rc<dyn DataSnapshot>>,
    restored: Option<RestoreStats>,
}

impl Environment for RestoringEnvironment {
    fn spec(&self) -> &EnvironmentSpec {
        self.inner.spec()
    }

    fn start_from(&mut self, data: &Rc<dyn DataSnapshot>) {
        if self.spec().name != "sealed" {
            self.data = Some(Rc::clone(data));
        }
    }

    fn restored(&self) -> Option<RestoreStats> {
        self.restored
    }

    fn start(&mut self, launch: &Launch) -> Result<Endpoint, PartError> {
        self.restored =
            self.data.as_ref().map(|data| data.restore(Path::new("data"))).transpose()?;
        self.inner.start(launch)
    }

    fn read_back(&mut self) -> Result<Vec<LayerState>, PartError> {
        self.inner.read_back()
    }

    fn freeze(&mut self) -> Result<(), PartError> {
        self.inner.freeze()
    }

    fn thaw(&mut self) -> Result<(), PartError> {
        self.inner.thaw()
    }

    fn usage(&mut self) -> Result<Usage, PartError> {
        self.inner.usage()
    }

    fn processes(&mut self) -> Processes {
        Processes { system: vec![7], layer: Vec::new() }
    }

    fn config(&self) -> Option<String> {
        None
    }

    fn log_tail(&self) -> String {
        String::new()
    }

    fn stop(&mut self) -> Result<(), PartError> {
        self.inner.stop()
    }
}

/// What a study did with the cache, and what the cache has for it.
#[derive(Clone, Debug, Default)]
struct FakeCache {
    has_data: bool,
    asked: Rc<RefCell<Vec<u64>>>,
    kept: Rc<RefCell<Vec<Duration>>>,
}

impl DataCache for FakeCache {
    fn find(
        &mut self,
        wanted: &WantedData<'_>,
        to: &Path,
        lines: &mut Vec<String>,
    ) -> Option<CachedData> {
        assert_eq!((wanted.baseline.name.as_str(), to), ("native", Path::new("saved")));
        self.asked.borrow_mut().extend(wanted.rows.iter().map(|(_, seed)| seed));
        if !self.has_data {
            lines.push("nothing yet".into());
            return None;
        }
        let (age, load_time) = (Duration::from_secs(7200), Duration::from_millis(35_210));
        Some(CachedData { data: Rc::new(FakeSnapshot), age, load_time })
    }

    fn keep(&mut self, data: &dyn DataSnapshot, load_time: Duration, _lines: &mut Vec<String>) {
        assert_eq!(data.folder(), Path::new("saved"));
        self.kept.borrow_mut().push(load_time);
    }
}

/// Runs a study, and returns its record, the loads of each environment, and how often data was
/// saved.
fn run_saved(study: &Study, can_save: bool) -> (Record, Vec<String>, usize) {
    run_cached(study, can_save, &FakeCache::default())
}

fn run_cached(study: &Study, can_save: bool, cache: &FakeCache) -> (Record, Vec<String>, usize) {
    let (scratch, world) = (RecordFolder::new(), FakeHost::new(1));
    let writer = RecordWriter::create(&scratch.path(), &opening(study)).unwrap();
    let system = SavingSystem { inner: world.system(), can_save, saved: RefCell::default() };
    let mut driver = world.driver();
    let mut make = |spec: &EnvironmentSpec| {
        let inner = world.environment(spec)?;
        Ok(Box::new(RestoringEnvironment { inner, data: None, restored: None })
            as Box<dyn Environment>)
    };
    let parts = Parts {
        data_dir: Some("saved".into()),
        data_cache: Some(Box::new(cache.clone())),
        ..Parts::new(&mut make, &system, &mut driver, &world, plan())
    };
    let mut notes = EventLog::default();
    run(parts, study, writer, &mut notes, &AtomicBool::new(false)).unwrap();
    assert_eq!(world.up(), Vec::<String>::new(), "nothing is left running");
    let loaded: Vec<String> = notes
        .words
        .iter()
        .filter_map(|word| word.strip_prefix("populating "))
        .map(Into::into)
        .collect();
    let saves = system.saved.borrow().len();
    (Record::read(&scratch.path()).unwrap(), loaded, saves)
}

fn came(record: &Record, environment: &str) -> Option<String> {
    let found = record.environments.iter().find(|one| one.spec.name == environment)?;
    found
        .layers
        .iter()
        .find(|state| state.layer == crate::environment::DATA_LAYER)
        .map(|state| state.found.clone())
}

fn restoring(kind: ScheduleKind) -> Study {
    let mut study = study(kind, &[("native", "fake"), ("box", "fake"), ("sealed", "fake")]);
    study.schedule.data = DataStart::Restored;
    study.schedule.rounds = 2;
    study.schedule.rounds_min = 1;
    study
}

#[test]
fn restores_rows_into_each_start() {
    let restored = "restored in 3.0 ms: 5.0 MiB shared by hard links, 0.0 MiB copied; loaded in ";
    for kind in [ScheduleKind::Slices, ScheduleKind::Trials] {
        let (record, loaded, saves) = run_saved(&restoring(kind), true);
        // `sealed` loads its own data at each start.
        let starts = if kind == ScheduleKind::Slices { 1 } else { 2 };
        let expect = ["native"].into_iter().chain(std::iter::repeat_n("sealed", starts));
        assert_eq!(loaded, expect.collect::<Vec<_>>());
        assert_eq!(saves, 1);
        for name in ["native", "native again", "box"] {
            let found = came(&record, name).unwrap();
            assert!(found.starts_with(restored), "{name}: {found}");
        }
        assert_eq!(came(&record, "sealed").as_deref(), Some("loaded by the driver"));
        let slices = record.slices.iter().filter(|slice| slice.void.is_none()).count();
        assert_eq!(slices, 2 * 4 * 2, "two rounds of four environments, at capacity and at a rate");
    }
}

#[test]
fn second_study_takes_its_data_from_the_cache() {
    let study = restoring(ScheduleKind::Slices);
    let mut cache = FakeCache::default();
    run_cached(&study, true, &cache);
    assert_eq!(cache.kept.borrow().len(), 1);
    assert!(cache.kept.borrow()[0] > Duration::ZERO);
    cache.has_data = true;
    let (record, loaded, saves) = run_cached(&study, true, &cache);
    // The baseline starts no additional time, and only what cannot restore is loaded.
    assert_eq!((loaded, saves), (vec!["sealed".to_string()], 0));
    assert_eq!(cache.kept.borrow().len(), 1);
    let found = came(&record, "box").unwrap();
    assert!(found.ends_with("; from the cache: loaded 2 h ago in 35.2 s"), "{found}");
    // Without a seed of the study, the rows of both are the same.
    assert_eq!(cache.asked.borrow()[0], cache.asked.borrow()[1]);
    let seeded = Study {
        schedule: ScheduleSpec { seed: Some(7), ..study.schedule.clone() },
        ..study.clone()
    };
    run_cached(&seeded, true, &cache);
    assert_ne!(cache.asked.borrow()[0], cache.asked.borrow()[2]);
}

#[test]
fn loads_rows_when_restore_is_impossible() {
    let everywhere = ["native", "box", "sealed", "native again"];
    let (record, loaded, saves) = run_saved(&restoring(ScheduleKind::Slices), false);
    assert_eq!((loaded.as_slice(), saves), (everywhere.map(String::from).as_slice(), 0));
    assert_eq!(came(&record, "box").as_deref(), Some("loaded by the driver"));
    let mut study = restoring(ScheduleKind::Slices);
    study.schedule.data = DataStart::Loaded;
    let cache = FakeCache::default();
    let (record, loaded, saves) = run_cached(&study, true, &cache);
    assert!(cache.asked.borrow().is_empty(), "only restored data is cached");
    assert_eq!((loaded.as_slice(), saves), (everywhere.map(String::from).as_slice(), 0));
    assert_eq!(came(&record, "box"), None);
}
