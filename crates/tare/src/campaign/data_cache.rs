//! The cache of loaded data as a study uses it: what its data depends on, and the variables that
//! place and limit the cache.

use std::env;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use anyhow::anyhow;
use tare_driver::DriverInfo;
use tare_env::inside as guest;
use tare_host::clean::Outcome;
use tare_host::data_cache::{
    self, DataCache, DataCacheError, DataKey, NewData, Taken, file_digest, text_digest,
};
use tare_host::error_line;
use tare_host::exec::find;
use tare_host::housekeeping::{Cleaned, Cleanup, Housekeeping};
use tare_host::journal::Journal;
use tare_lab::campaign::{CachedData, WantedData, instance_cpus, rows_to_write, system_cpus};
use tare_lab::environment::{CpuPlan, DataSnapshot};
use tare_lab::study::{DataStart, WorkloadSpec};
use tare_std::units::{parse_bytes, rough_duration, thousands};

use super::space::amount;
use super::{CampaignConfig, fit};
use crate::exit::{Exit, ExitWith};

/// The directory of the cache, or `off`.
const PLACE: &str = "TARE_DATA_CACHE";
const OFF: &str = "off";
/// Most bytes of the cache.
const LIMIT: &str = "TARE_DATA_CACHE_LIMIT";

/// Returns the cache of this host; `None` if the user turns it off, or in a guest, whose files are
/// lost with it.
///
/// # Errors
/// If a variable has a wrong value.
pub(crate) fn of_host() -> anyhow::Result<Option<DataCache>> {
    let limit = match env::var(LIMIT) {
        Err(_) => None,
        Ok(text) => {
            let wrong = |_| anyhow!("{LIMIT} = {text:?} is not an amount such as \"50G\"");
            Some(parse_bytes(&text).map_err(wrong).exit_with(Exit::Input)?)
        }
    };
    let place = env::var_os(PLACE).filter(|place| !place.is_empty());
    let place = place.map_or_else(|| PathBuf::from(data_cache::FOLDER), PathBuf::from);
    if place.as_os_str() == OFF || guest::current_guest().is_some() {
        return Ok(None);
    }
    if !place.is_absolute() {
        let error = anyhow!("{PLACE} = {:?} is neither an absolute path nor \"{OFF}\"", place);
        return Err(error).exit_with(Exit::Input);
    }
    Ok(Some(DataCache::new(place, limit)))
}

/// Returns what an entry has and how large it is, in a few words.
pub(crate) fn summary(entry: &data_cache::CachedData) -> String {
    let system = entry.key.value(SYSTEM).unwrap_or("unknown");
    let unused = rough_duration(entry.unused());
    format!("{system}, {}, last used {unused} ago", amount(entry.bytes))
}

/// The word for entries in the JSON of `tare clean`.
pub(crate) const WHAT: &str = "data";

/// Removes what killed studies left in the cache.
pub(crate) const HOUSEKEEPING: Housekeeping = Housekeeping {
    cleanups: &[Cleanup { what: "drafts", clean: |_| sweep() }],
    ..Housekeeping::NOTHING
};

fn sweep() -> Vec<Cleaned> {
    // A wrong variable is an error of the command.
    let Ok(Some(cache)) = of_host() else { return Vec::new() };
    match cache.sweep() {
        Ok(left) => {
            let line = |id: &String| format!("{}: cleaned", cache.folder().join(id).display());
            let cleaned = Outcome::Cleaned { entries: 1 };
            left.iter()
                .map(|id| Cleaned { id: id.clone(), outcome: cleaned.clone(), line: line(id) })
                .collect()
        }
        Err(error) => vec![not_clean(&cache, &error)],
    }
}

/// Removes everything in the cache.
pub(crate) fn clear(cache: &DataCache) -> Vec<Cleaned> {
    match cache.clear() {
        Ok(removed) => {
            let one = |entry: &data_cache::CachedData| Cleaned {
                id: entry.key.id(),
                outcome: Outcome::Cleaned { entries: 1 },
                line: format!("data {}: removed ({})", entry.key.id(), summary(entry)),
            };
            removed.iter().map(one).collect()
        }
        Err(error) => vec![not_clean(cache, &error)],
    }
}

fn not_clean(cache: &DataCache, error: &DataCacheError) -> Cleaned {
    let (id, error) = (cache.folder().display().to_string(), error_line(error));
    let line = format!("{id}: not clean: {error}");
    Cleaned { id, outcome: Outcome::Failed { errors: vec![error] }, line }
}

/// The cache for one study.
#[derive(Debug)]
pub(super) struct StudyDataCache<'j> {
    cache: DataCache,
    driver: &'static DriverInfo,
    journal: &'j Journal,
    /// The key of the data that was not found.
    missing: Option<DataKey>,
}

impl<'j> StudyDataCache<'j> {
    pub(super) fn new(cache: DataCache, driver: &'static DriverInfo, journal: &'j Journal) -> Self {
        Self { cache, driver, journal, missing: None }
    }
}

impl tare_lab::campaign::DataCache for StudyDataCache<'_> {
    fn find(
        &mut self,
        wanted: &WantedData<'_>,
        to: &Path,
        lines: &mut Vec<String>,
    ) -> Option<CachedData> {
        let key = key(wanted, self.driver)?;
        let taken = self.cache.take(&key, to);
        self.missing = Some(key);
        match taken {
            Ok(Taken::Nothing) => None,
            Ok(Taken::Damaged { why }) => {
                let from = self.cache.folder().display();
                lines.push(format!(
                    "the data in {from} was damaged ({why}): removed, and loaded again"
                ));
                None
            }
            Ok(Taken::Data(entry)) => match wanted.system.open_data(to, &entry.description) {
                Ok(data) => data.map(|data: Rc<dyn DataSnapshot>| {
                    self.missing = None;
                    CachedData { data, age: entry.age(), load_time: entry.load_time() }
                }),
                Err(error) => {
                    lines.push(format!("cannot use the cached data: {}", error_line(&*error)));
                    None
                }
            },
            Err(error) => {
                lines.push(format!("cannot use the cached data: {}", error_line(&error)));
                None
            }
        }
    }

    fn keep(&mut self, data: &dyn DataSnapshot, load_time: Duration, lines: &mut Vec<String>) {
        let Some(key) = self.missing.take() else { return };
        let (description, tare) = (data.description(), env!("CARGO_PKG_VERSION").to_string());
        let new = NewData { key, description, tare, load_time };
        match self.cache.keep(&new, data.folder(), self.journal) {
            Ok(removed) => lines.extend(removed.iter().map(|entry| {
                format!("removed from the cache of data, to make room: {}", summary(entry))
            })),
            Err(error) => lines
                .push(format!("the data is not kept for later studies: {}", error_line(&error))),
        }
    }
}

/// Returns what the cache has of the data of a study that is to run; `None` if the study loads its
/// data, or if only its start shows what the data depends on. `plan` divides the CPUs.
///
/// # Errors
/// If a variable has a wrong value, or the CPUs cannot be divided.
pub(crate) fn expected(
    config: &CampaignConfig,
    plan: impl FnOnce(&CampaignConfig) -> anyhow::Result<CpuPlan>,
) -> anyhow::Result<Option<data_cache::CachedData>> {
    let study = &config.study;
    let restores = study.schedule.data == DataStart::Restored;
    if !restores || study.schedule.without_data_cache || !study.hosts.is_empty() {
        return Ok(None);
    }
    let (Some(cache), Some(system)) = (of_host()?, fit::known_system(study)) else {
        return Ok(None);
    };
    let Some(driver) = tare_driver::find(&study.driver) else { return Ok(None) };
    let plan = plan(config)?;
    let instances = fit::instances_of_baseline(study, system.instances());
    let study = config.sized(&plan, instances, &[]);
    let cpus = instance_cpus(system_cpus(&study, &plan), system.instances().count);
    let Some(baseline) = study.baseline_environment() else { return Ok(None) };
    let rows = rows_to_write(&study, config.seed);
    let wanted = WantedData { baseline, system: &*system, cpus, rows: &rows };
    Ok(key(&wanted, driver).and_then(|key| cache.entry(&key)))
}

const SYSTEM: &str = "system";

/// Returns what the data of a study depends on; `None` if Tare does not know all of it.
fn key(wanted: &WantedData<'_>, driver: &DriverInfo) -> Option<DataKey> {
    // The program of another root file system is not looked at.
    if wanted.baseline.rootfs.option().is_some() {
        return None;
    }
    let mut key = DataKey::default();
    key.add(SYSTEM, wanted.system.name());
    for (name, value) in wanted.system.data_identity(wanted.cpus)? {
        key.add(name, value);
    }
    // The rows of its load, and the files of its database.
    key.add("tare", env!("CARGO_PKG_VERSION"));
    key.add("driver", driver.name);
    if let Some(program) = &driver.program
        && let Some(path) = find(program.name)
    {
        key.add(program.name, file_digest(&path).ok()?);
    }
    let mut all: Vec<Vec<(String, String)>> = Vec::new();
    for (workload, seed) in wanted.rows {
        let rows = match workload.options.is_empty() && driver.options.is_empty() {
            true => rows(workload, *seed),
            false => rows_of_tool(workload, driver.load_options),
        };
        if !all.contains(&rows) {
            all.push(rows);
        }
    }
    all.into_iter().flatten().for_each(|(name, value)| key.add(name, value));
    Some(key)
}

/// Returns what the rows of the built-in load depend on.
fn rows(workload: &WorkloadSpec, seed: u64) -> Vec<(String, String)> {
    let mut rows = vec![("rows".to_string(), thousands(workload.rows))];
    match &workload.workload {
        Some(name) => rows.push(("workload".into(), name.clone())),
        None => {
            rows.push(("columns".into(), workload.columns.to_string()));
            rows.push(("column_bytes".into(), workload.column_bytes.to_string()));
        }
    }
    rows.extend(workload.workload_text.as_deref().map(|text| ("file".into(), text_digest(text))));
    let replicas = &workload.replicas;
    rows.push(("replication".into(), replicas.replication.to_string()));
    rows.push(("consistency".into(), replicas.consistency.clone()));
    rows.push(("seed".into(), seed.to_string()));
    rows
}

/// Returns what the rows of a tool depend on: its options but those of the load alone, and the
/// content of the files that they name.
fn rows_of_tool(workload: &WorkloadSpec, load_options: &[&str]) -> Vec<(String, String)> {
    let is_of_rows = |(name, _): &&(String, String)| !load_options.contains(&name.as_str());
    let mut rows: Vec<(String, String)> =
        workload.options.iter().filter(is_of_rows).cloned().collect();
    rows.sort();
    let files = rows.iter().filter(|(_, value)| Path::new(value).is_absolute());
    let digests = files.filter_map(|(name, value)| {
        Some((format!("content of {name}"), file_digest(Path::new(value)).ok()?))
    });
    let digests: Vec<_> = digests.collect();
    rows.into_iter().chain(digests).collect()
}

#[cfg(test)]
mod tests {
    use tare_lab::campaign::DataCache as _;
    use tare_lab::study::{SystemSpec, WorkloadSpec};
    use tare_lab::system::System;
    use tare_system::ClientRoute;
    use tare_testkit::EnvironmentBuilder;

    use super::*;

    fn system(options: &[(&str, &str)]) -> Box<dyn System> {
        let options = options.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        let spec = SystemSpec { name: "tare-db".into(), options };
        tare_system::find("tare-db").unwrap().make(&spec, &ClientRoute::default()).unwrap()
    }

    /// Returns the id of the key of a study with one workload.
    fn id(options: &[(&str, &str)], cpus: usize, driver: &str, workload: &WorkloadSpec) -> String {
        let baseline = EnvironmentBuilder::new("process").build();
        let system = system(options);
        let rows = [(workload, 7)];
        let wanted = WantedData { baseline: &baseline, system: &*system, cpus, rows: &rows };
        key(&wanted, tare_driver::find(driver).unwrap()).unwrap().id()
    }

    #[test]
    fn key_has_what_data_depends_on() {
        let workload = tare_testkit::workload();
        let of = |workload: &WorkloadSpec| id(&[], 2, "tare-load", workload);
        let first = of(&workload);
        let same: [fn(&mut WorkloadSpec); 5] = [
            |one| one.name = "other".into(),
            |one| one.write_share = 0.3,
            |one| one.connections = 99,
            |one| one.in_flight = 99,
            |one| one.rate_per_s = Some(5.0),
        ];
        let other: [fn(&mut WorkloadSpec); 5] = [
            |one| one.rows += 1,
            |one| one.columns += 1,
            |one| one.column_bytes += 1,
            |one| one.replicas.replication += 1,
            |one| one.workload = Some("ycsb-a".into()),
        ];
        let changed = |change: &fn(&mut WorkloadSpec)| {
            let mut workload = workload.clone();
            change(&mut workload);
            of(&workload)
        };
        same.iter().for_each(|change| assert_eq!(changed(change), first));
        other.iter().for_each(|change| assert_ne!(changed(change), first));
        let with = |options: &[(&str, &str)], cpus| id(options, cpus, "tare-load", &workload);
        assert_eq!(with(&[("io", "epoll"), ("durability", "sync")], 2), first);
        assert_ne!(with(&[("memory", "1G")], 2), first);
        assert_ne!(with(&[], 1), first, "another number of shards");
    }

    #[test]
    fn key_of_a_tool_has_the_options_of_its_rows() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("setup.sql");
        std::fs::write(&file, "one").unwrap();
        let with = |options: &[(&str, &str)]| {
            let options = options.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
            let workload = WorkloadSpec { options, ..tare_testkit::workload() };
            id(&[], 1, "pgbench", &workload)
        };
        let first = with(&[("scale", "2"), ("clients", "4")]);
        assert_eq!(with(&[("clients", "8"), ("jobs", "1"), ("scale", "2")]), first);
        assert_ne!(with(&[("scale", "3"), ("clients", "4")]), first);
        let setup = [("setup", file.to_str().unwrap())];
        let before = with(&setup);
        std::fs::write(&file, "two").unwrap();
        assert_ne!(with(&setup), before, "the content counts");
    }

    #[test]
    fn data_of_another_root_is_not_cached() {
        let place = tempfile::tempdir().unwrap();
        let journal = Journal::create(place.path(), &[]).unwrap();
        let mut baseline = EnvironmentBuilder::new("oci:runc").build();
        baseline.rootfs = tare_lab::layer::Rootfs::new("directory", "/srv/root".into()).unwrap();
        let (system, workload) = (system(&[]), tare_testkit::workload());
        let rows = [(&workload, 7)];
        let wanted = WantedData { baseline: &baseline, system: &*system, cpus: 1, rows: &rows };
        let cache = DataCache::new(place.path().join("cache"), None);
        let driver = tare_driver::find("tare-load").unwrap();
        let mut cache = StudyDataCache::new(cache, driver, &journal);
        let mut lines = Vec::new();
        assert!(cache.find(&wanted, &place.path().join("to"), &mut lines).is_none());
        assert_eq!((lines, cache.missing), (Vec::<String>::new(), None));
    }
}
