use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::clean::clean;

/// A directory with loaded data, a cache, and the journal of a run.
struct Bed {
    place: tempfile::TempDir,
    cache: DataCache,
    journal: Journal,
}

impl Bed {
    fn new(limit_bytes: Option<u64>) -> Self {
        let place = tempfile::tempdir().unwrap();
        let loaded = place.path().join("loaded");
        fs::create_dir_all(loaded.join("inner")).unwrap();
        fs::write(loaded.join("rows"), vec![b'x'; 1000]).unwrap();
        fs::write(loaded.join("inner/log"), vec![b'y'; 24]).unwrap();
        fs::set_permissions(loaded.join("inner"), fs::Permissions::from_mode(0o700)).unwrap();
        let mut cache = DataCache::new(place.path().join("cache"), limit_bytes);
        cache.lock_wait = Duration::from_millis(50);
        let journal = Journal::create(&place.path().join("state"), &[]).unwrap();
        Self { place, cache, journal }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn keep(&self, rows: u32) -> Result<Vec<CachedData>, DataCacheError> {
        self.cache.keep(&new(rows), &self.path("loaded"), &self.journal)
    }

    fn take(&self, rows: u32, to: &str) -> Taken {
        self.cache.take(&new(rows).key, &self.path(to)).unwrap()
    }

    fn entry(&self, rows: u32) -> PathBuf {
        self.path("cache").join(new(rows).key.id())
    }

    /// Makes an entry one that was last used so many hours ago.
    fn age(&self, rows: u32, hours: u64) {
        let file = File::options().write(true).open(self.entry(rows).join(MANIFEST)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(3600 * hours)).unwrap();
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("cache")).unwrap().map(Result::unwrap);
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.retain(|name| name != LOCK);
        names.sort();
        names
    }
}

fn new(rows: u32) -> NewData {
    let mut key = DataKey::default();
    key.add("system", "redis");
    key.add("rows", rows.to_string());
    let (description, tare) = ("of 7.0".to_string(), "1.2.3".to_string());
    NewData { key, description, tare, load_time: Duration::from_secs(35) }
}

/// Returns why an entry was removed.
fn damage(taken: Taken) -> String {
    match taken {
        Taken::Damaged { why } => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn kept_data_is_taken_whole() {
    let bed = Bed::new(None);
    assert!(matches!(bed.take(1, "none"), Taken::Nothing));
    assert!(!bed.path("cache").exists(), "a look makes nothing");
    assert_eq!(bed.keep(1).unwrap(), []);
    // The directory of the study that has loaded it is removed.
    fs::remove_dir_all(bed.path("loaded")).unwrap();
    let Taken::Data(entry) = bed.take(1, "taken") else { panic!("it is not there") };
    assert_eq!((entry.bytes, entry.load_ns), (1024, 35_000_000_000));
    assert_eq!((entry.description.as_str(), entry.tare.as_str()), ("of 7.0", "1.2.3"));
    assert_eq!(fs::read(bed.path("taken/rows")).unwrap(), vec![b'x'; 1000]);
    assert_eq!(fs::metadata(bed.path("taken/inner")).unwrap().mode() & 0o777, 0o700);
    assert!(matches!(bed.take(2, "other"), Taken::Nothing));
    assert!(!bed.path("other").exists());
    // What was taken does not go with the cache.
    let removed = bed.cache.clear().unwrap();
    assert_eq!(removed.len(), 1);
    assert!(!bed.path("cache").exists());
    assert_eq!(fs::read(bed.path("taken/inner/log")).unwrap().len(), 24);
    assert_eq!(bed.cache.clear().unwrap(), []);
}

#[test]
fn data_that_is_there_stays() {
    let bed = Bed::new(None);
    bed.keep(1).unwrap();
    let made = bed.cache.entries()[0].made_unix_ms;
    bed.keep(1).unwrap();
    assert_eq!(bed.cache.entries()[0].made_unix_ms, made);
    assert_eq!(bed.names(), [new(1).key.id()]);
    assert_eq!(bed.journal.live(), [], "a whole entry is no part of the run");
}

#[test]
fn unused_data_makes_room() {
    let bed = Bed::new(Some(2500));
    bed.keep(1).unwrap();
    bed.keep(2).unwrap();
    bed.age(1, 1);
    bed.age(2, 2);
    let rows = |entries: &[CachedData]| -> Vec<String> {
        entries.iter().map(|entry| entry.key.value("rows").unwrap().to_string()).collect()
    };
    assert_eq!(rows(&bed.cache.entries()), ["1", "2"], "the last used first");
    let removed = bed.keep(3).unwrap();
    assert_eq!(rows(&removed), ["2"]);
    // A use counts.
    bed.age(3, 1);
    bed.age(1, 3);
    assert!(matches!(bed.take(1, "taken"), Taken::Data(_)));
    assert_eq!(rows(&bed.keep(4).unwrap()), ["3"]);
    assert_eq!(rows(&bed.cache.entries()).len(), 2);
    let small = DataCache { limit_bytes: Some(1000), ..bed.cache.clone() };
    let error = small.keep(&new(5), &bed.path("loaded"), &bed.journal).unwrap_err().to_string();
    assert!(error.starts_with("its 1 MiB are more than the 0 MiB that "), "{error}");
    assert_eq!(bed.cache.entries().len(), 2, "nothing was removed for it");
}

#[test]
fn damaged_data_is_removed() {
    let bed = Bed::new(None);
    let damaged = |harm: &dyn Fn(&Path), expect: &str| {
        bed.keep(1).unwrap();
        // The files of the study that has made it are the same: damage only those of the entry.
        let rows = bed.entry(1).join("data/rows");
        fs::copy(bed.path("loaded/rows"), bed.path("copy")).unwrap();
        harm(&bed.entry(1));
        let why = damage(bed.take(1, "taken"));
        assert!(why.starts_with(expect), "{why}");
        assert!(!bed.path("taken").exists() && !rows.exists());
        assert_eq!(bed.names(), [""; 0]);
        fs::remove_file(bed.path("loaded/rows")).unwrap();
        fs::rename(bed.path("copy"), bed.path("loaded/rows")).unwrap();
    };
    damaged(&|entry| fs::remove_file(entry.join("data/rows")).unwrap(), "rows is missing");
    damaged(
        &|entry| fs::write(entry.join("data/rows"), "short").unwrap(),
        "rows has 5 bytes, not 1000",
    );
    damaged(
        &|entry| {
            let file = File::options().write(true).open(entry.join("data/rows")).unwrap();
            file.set_modified(UNIX_EPOCH).unwrap();
        },
        "rows was changed",
    );
    damaged(&|entry| fs::write(entry.join("data/more"), "").unwrap(), "more is not part of it");
    damaged(&|entry| fs::write(entry.join(MANIFEST), "{").unwrap(), "manifest.json: ");
    damaged(&|entry| fs::remove_dir_all(entry.join(DATA)).unwrap(), "data: ");
    // Damage is also noticed where the data is kept again.
    bed.keep(1).unwrap();
    fs::remove_file(bed.entry(1).join("data/inner/log")).unwrap();
    bed.keep(1).unwrap();
    assert!(matches!(bed.take(1, "again"), Taken::Data(_)));
}

/// A run that was killed while it made an entry, and one that was killed while it removed one.
#[test]
fn rest_of_a_killed_study_is_removed() {
    let bed = Bed::new(None);
    bed.keep(1).unwrap();
    let draft = bed.path("cache").join(format!("{}{DRAFT}", bed.journal.prefix()));
    bed.journal.write(vec![Entry::directory(draft.clone())]).unwrap();
    fs::create_dir_all(draft.join("data/inner")).unwrap();
    let state = bed.path("state");
    let Bed { place, cache, journal } = bed;
    drop(journal);
    let removed = cache.folder.join(format!("{REMOVED}{}", new(2).key.id()));
    fs::create_dir_all(removed.join("data")).unwrap();
    // A draft is no entry.
    assert_eq!(cache.entries().len(), 1);
    let report = clean(&state, &[]).unwrap();
    assert_eq!(report.runs.len(), 1);
    assert!(!draft.exists(), "the journal has it");
    // The journal of another state directory is not known.
    fs::create_dir_all(draft.join("data")).unwrap();
    let mut left = cache.sweep().unwrap();
    left.sort();
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(!draft.exists() && !removed.exists());
    assert_eq!(cache.sweep().unwrap(), [""; 0]);
    assert_eq!(cache.entries().len(), 1);
    drop(place);
}

#[test]
fn two_studies_take_turns() {
    let bed = Bed::new(None);
    bed.keep(1).unwrap();
    let shared = bed.cache.lock(Use::Shared).unwrap();
    assert!(matches!(bed.take(1, "taken"), Taken::Data(_)), "both take it at once");
    let busy = bed.keep(2).unwrap_err().to_string();
    assert!(busy.starts_with("another study has used "), "{busy}");
    fs::create_dir(bed.path("cache").join(format!("tare-0000{DRAFT}"))).unwrap();
    assert_eq!(bed.cache.sweep().unwrap(), [""; 0], "it may be of a running study");
    assert!(bed.cache.clear().is_err());
    drop(shared);
    bed.keep(2).unwrap();
    assert_eq!(bed.cache.entries().len(), 2);
    assert_eq!(bed.names().len(), 2, "the draft is gone");
}

#[test]
fn other_files_of_the_directory_stay() {
    let bed = Bed::new(None);
    bed.keep(1).unwrap();
    let own = bed.path("cache/tare-results");
    fs::create_dir(&own).unwrap();
    bed.cache.clear().unwrap();
    assert!(own.is_dir());
    assert_eq!(bed.names(), ["tare-results"]);
}
