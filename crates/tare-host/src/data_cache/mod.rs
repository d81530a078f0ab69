//! Loaded data of systems, kept on the host for later studies.
//!
//! Method: an entry is a directory named after the digest of its key. It has the files in `data`,
//! and a manifest with the key and the size and time of each file. An entry is made beside its
//! place, synced and renamed, so there is all of it or none. Its files are hard links to those of
//! the study that made it, or copies on another file system; nothing writes to them. A study takes
//! an entry in the same way, so what it has stays if the entry is removed meanwhile. One file locks
//! the cache: shared to take an entry, exclusive to add or remove one.
//!
//! Limits: of a file that has changed, only another size or time is noticed.

mod key;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::statvfs;
use serde::{Deserialize, Serialize};
use tare_std::file_lock::FileLock;

pub use key::{DataKey, file_digest, text_digest};

use crate::journal::{Entry, Journal, JournalError};
use crate::tree_copy::{FileUse, TreeCopyError, copy_tree};

/// The directory of the cache, unless the user names another.
pub const FOLDER: &str = "/var/cache/tare/data";

/// The format of entries.
const FORMAT: u32 = 1;
const MANIFEST: &str = "manifest.json";
const DATA: &str = "data";
const LOCK: &str = "lock";
/// Begins the name of an entry that is being removed.
const REMOVED: &str = "removed-";
/// Ends the name of an entry that is being made, which begins with that of the run.
const DRAFT: &str = "-draft";
/// The cache may have this part of its file system, unless the user sets a limit.
const LIMIT_PART: u64 = 10;
/// Nothing is added that would leave less than this part of the file system.
const FREE_PART: u64 = 20;
/// How long to wait for another study.
const LOCK_WAIT: Duration = Duration::from_secs(60);
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Why the cache cannot be used, or does not keep data.
#[derive(Debug, thiserror::Error)]
pub enum DataCacheError {
    #[error("cannot use {}", .path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("another study has used {} for {waited_s} s", .path.display())]
    Busy { path: PathBuf, waited_s: u64 },
    #[error(
        "its {} MiB are more than the {} MiB that {} may have (TARE_DATA_CACHE_LIMIT)",
        .bytes.div_ceil(1 << 20), .limit_bytes >> 20, .path.display()
    )]
    Large { path: PathBuf, bytes: u64, limit_bytes: u64 },
    #[error(
        "the file system of {} would have {} MiB left, less than {} %",
        .path.display(), .left_bytes >> 20, 100 / FREE_PART
    )]
    Space { path: PathBuf, left_bytes: u64 },
    #[error(transparent)]
    Copy(#[from] TreeCopyError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("cannot write the manifest")]
    Manifest { source: serde_json::Error },
}

/// The cache of loaded data on this host.
#[derive(Clone, Debug)]
pub struct DataCache {
    folder: PathBuf,
    /// `None`: a part of the file system.
    limit_bytes: Option<u64>,
    lock_wait: Duration,
}

/// What an entry has, as its manifest says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachedData {
    format: u32,
    pub key: DataKey,
    /// What the system needs to know of its files.
    pub description: String,
    /// The version of Tare that has loaded it.
    pub tare: String,
    pub made_unix_ms: u64,
    /// How long the load took, with the start and the stop of the system, in ns.
    pub load_ns: u64,
    pub bytes: u64,
    files: BTreeMap<PathBuf, CachedFile>,
    /// When it was last taken or made; the time of the manifest.
    #[serde(skip)]
    pub used_unix_ms: u64,
}

/// What identifies the content of a file: hard links share both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct CachedFile {
    bytes: u64,
    modified_s: i64,
    modified_ns: i64,
}

/// Data that a study has loaded.
#[derive(Clone, Debug)]
pub struct NewData {
    pub key: DataKey,
    pub description: String,
    pub tare: String,
    pub load_time: Duration,
}

/// What the cache has of a key.
#[derive(Clone, Debug)]
pub enum Taken {
    Nothing,
    /// An entry whose files are not those of its manifest. It was removed.
    Damaged {
        why: String,
    },
    Data(CachedData),
}

/// How exclusively the cache is locked.
#[derive(Clone, Copy, Debug)]
enum Use {
    Shared,
    Alone,
}

impl DataCache {
    /// Uses a directory, which is made when the first data is kept. Without a limit, the cache may
    /// have a tenth of the file system.
    pub fn new(folder: PathBuf, limit_bytes: Option<u64>) -> Self {
        Self { folder, limit_bytes, lock_wait: LOCK_WAIT }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns what the cache has, the last used first. An entry that cannot be read is left out.
    pub fn entries(&self) -> Vec<CachedData> {
        let read = |name: String| read_manifest(&self.folder.join(name)).ok();
        let mut entries: Vec<CachedData> = self.names(key::is_id).filter_map(read).collect();
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.used_unix_ms));
        entries
    }

    /// Returns what the cache has of a key. Whether it is whole shows when it is taken.
    pub fn entry(&self, key: &DataKey) -> Option<CachedData> {
        read_manifest(&self.folder.join(key.id())).ok()
    }

    /// Puts the data of a key into the new directory `to`. A damaged entry is removed.
    ///
    /// # Errors
    /// `to` is not there then.
    pub fn take(&self, key: &DataKey, to: &Path) -> Result<Taken, DataCacheError> {
        let place = self.folder.join(key.id());
        // Nothing is made for a cache that has nothing.
        if !place.exists() {
            return Ok(Taken::Nothing);
        }
        let locked = self.lock(Use::Shared)?;
        match check(&place) {
            Ok(entry) => {
                fs::create_dir_all(to).map_err(|source| fail(to, source))?;
                let copied = copy_tree(&place.join(DATA), to, &|_| FileUse::Constant);
                if let Err(error) = copied {
                    // The caller's directory is removed with its run in any case.
                    let _ = fs::remove_dir_all(to);
                    return Err(error.into());
                }
                mark_used(&place);
                Ok(Taken::Data(entry))
            }
            // Another study has removed it before the lock.
            Err(_) if !place.exists() => Ok(Taken::Nothing),
            Err(_) => {
                drop(locked);
                let _locked = self.lock(Use::Alone)?;
                // Another study may have made it again.
                match check(&place) {
                    Err(why) if place.exists() => {
                        self.remove(&place)?;
                        Ok(Taken::Damaged { why })
                    }
                    _ => Ok(Taken::Nothing),
                }
            }
        }
    }

    /// Keeps the data of the directory `from`, to which nothing writes any more. What was not used
    /// for the longest time makes room for it and is returned. Data that is there already stays.
    ///
    /// # Errors
    /// The cache is then as before, but for what has made room.
    pub fn keep(
        &self,
        new: &NewData,
        from: &Path,
        journal: &Journal,
    ) -> Result<Vec<CachedData>, DataCacheError> {
        let mut maker = DirBuilder::new();
        // Only root reads the data of systems with other owners.
        let made = maker.recursive(true).mode(0o700).create(&self.folder);
        made.map_err(|source| fail(&self.folder, source))?;
        let _locked = self.lock(Use::Alone)?;
        self.sweep_locked()?;
        let place = self.folder.join(new.key.id());
        if place.exists() {
            if check(&place).is_ok() {
                return Ok(Vec::new());
            }
            self.remove(&place)?;
        }
        let files = read_files(from).map_err(|source| fail(from, source))?;
        let bytes = files.values().map(|file| file.bytes).sum();
        let removed = self.make_room(from, bytes)?;
        let draft = self.folder.join(format!("{}{DRAFT}", journal.prefix()));
        let ids = journal.write(vec![Entry::directory(draft.clone())])?;
        let made = fill(&draft, from, new).and_then(|()| {
            let named = fs::rename(&draft, &place).and_then(|()| sync_folder(&self.folder));
            named.map_err(|source| fail(&place, source))
        });
        match made {
            Ok(()) => journal.forget(&ids),
            // What cannot be removed now stays in the journal.
            Err(_) => drop(journal.undo(&ids)),
        }
        made.map(|()| removed)
    }

    /// Removes everything, and returns what it was.
    ///
    /// # Errors
    /// If a study uses the cache.
    pub fn clear(&self) -> Result<Vec<CachedData>, DataCacheError> {
        if !self.folder.is_dir() {
            return Ok(Vec::new());
        }
        let _locked = self.lock(Use::Alone)?;
        let entries = self.entries();
        for name in self.names(key::is_id) {
            self.remove(&self.folder.join(name))?;
        }
        self.sweep_locked()?;
        let lock = self.folder.join(LOCK);
        fs::remove_file(&lock).map_err(|source| fail(&lock, source))?;
        // A directory that has something else is not of the cache alone.
        let _ = fs::remove_dir(&self.folder);
        Ok(entries)
    }

    /// Removes what killed studies left, unless one uses the cache. Returns the names.
    ///
    /// # Errors
    /// If something cannot be removed.
    pub fn sweep(&self) -> Result<Vec<String>, DataCacheError> {
        if self.names(is_left).next().is_none() {
            return Ok(Vec::new());
        }
        match (Self { lock_wait: Duration::ZERO, ..self.clone() }).lock(Use::Alone) {
            Ok(_locked) => self.sweep_locked(),
            Err(DataCacheError::Busy { .. }) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// With the exclusive lock, no process works on a draft.
    fn sweep_locked(&self) -> Result<Vec<String>, DataCacheError> {
        let left: Vec<String> = self.names(is_left).collect();
        for name in &left {
            let path = self.folder.join(name);
            fs::remove_dir_all(&path).map_err(|source| fail(&path, source))?;
        }
        Ok(left)
    }

    /// Removes entries until this many bytes more are within the limit.
    fn make_room(&self, from: &Path, bytes: u64) -> Result<Vec<CachedData>, DataCacheError> {
        let path = || self.folder.clone();
        let about = statvfs(&self.folder).map_err(|error| fail(&self.folder, error.into()))?;
        let size_bytes = about.f_blocks.saturating_mul(about.f_frsize);
        let limit_bytes = self.limit_bytes.unwrap_or(size_bytes / LIMIT_PART);
        if bytes > limit_bytes {
            return Err(DataCacheError::Large { path: path(), bytes, limit_bytes });
        }
        let device = |path: &Path| fs::metadata(path).map(|about| about.dev());
        let is_linked = device(from).ok() == device(&self.folder).ok();
        let needed_bytes = if is_linked { 0 } else { bytes };
        let free_bytes = about.f_bavail.saturating_mul(about.f_frsize);
        let left_bytes = free_bytes.saturating_sub(needed_bytes);
        if left_bytes < size_bytes / FREE_PART {
            return Err(DataCacheError::Space { path: path(), left_bytes });
        }
        let mut entries = self.entries();
        let mut all_bytes: u64 = entries.iter().map(|entry| entry.bytes).sum();
        let mut removed = Vec::new();
        while all_bytes.saturating_add(bytes) > limit_bytes
            && let Some(entry) = entries.pop()
        {
            self.remove(&self.folder.join(entry.key.id()))?;
            all_bytes = all_bytes.saturating_sub(entry.bytes);
            removed.push(entry);
        }
        Ok(removed)
    }

    /// Removes an entry. If this process is killed meanwhile, a part of it is left under another
    /// name.
    fn remove(&self, place: &Path) -> Result<(), DataCacheError> {
        let name = place.file_name().unwrap_or_default().to_string_lossy();
        let gone = self.folder.join(format!("{REMOVED}{name}"));
        let removed = fs::rename(place, &gone).and_then(|()| fs::remove_dir_all(&gone));
        removed.map_err(|source| fail(place, source))
    }

    fn names(&self, wanted: fn(&str) -> bool) -> impl Iterator<Item = String> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(move |name| wanted(name))
    }

    /// Locks the cache.
    fn lock(&self, usage: Use) -> Result<FileLock, DataCacheError> {
        let path = self.folder.join(LOCK);
        let until = Instant::now() + self.lock_wait;
        loop {
            let file = File::create(&path).map_err(|source| fail(&path, source))?;
            let locked = match usage {
                Use::Shared => FileLock::shared(file),
                Use::Alone => FileLock::exclusive(file),
            };
            match locked.map_err(|source| fail(&path, source))? {
                Some(lock) if is_at(&lock, &path) => return Ok(lock),
                // `clear` has removed the file meanwhile.
                Some(_) => {}
                None if Instant::now() < until => thread::sleep(LOCK_PAUSE),
                None => {
                    let (path, waited_s) = (self.folder.clone(), self.lock_wait.as_secs());
                    return Err(DataCacheError::Busy { path, waited_s });
                }
            }
        }
    }
}

impl CachedData {
    /// Returns how long ago it was loaded.
    pub fn age(&self) -> Duration {
        since(self.made_unix_ms)
    }

    /// Returns how long ago it was last used.
    pub fn unused(&self) -> Duration {
        since(self.used_unix_ms)
    }

    pub fn load_time(&self) -> Duration {
        Duration::from_nanos(self.load_ns)
    }
}

fn since(unix_ms: u64) -> Duration {
    Duration::from_millis(millis(SystemTime::now()).saturating_sub(unix_ms))
}

fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Whether it was left by a killed study: a draft, or an entry that was being removed.
fn is_left(name: &str) -> bool {
    let is_draft = name.starts_with(crate::NAME_PREFIX) && name.ends_with(DRAFT);
    is_draft || name.strip_prefix(REMOVED).is_some_and(key::is_id)
}

fn is_at(file: &File, path: &Path) -> bool {
    let inode = |about: io::Result<fs::Metadata>| about.ok().map(|about| about.ino());
    inode(file.metadata()) == inode(fs::metadata(path))
}

fn fail(path: &Path, source: io::Error) -> DataCacheError {
    DataCacheError::File { path: path.into(), source }
}

/// Makes a whole entry in the new directory `draft`, and syncs it.
fn fill(draft: &Path, from: &Path, new: &NewData) -> Result<(), DataCacheError> {
    let data = draft.join(DATA);
    fs::create_dir_all(&data).map_err(|source| fail(&data, source))?;
    copy_tree(from, &data, &|_| FileUse::Constant)?;
    let files = read_files(&data).map_err(|source| fail(&data, source))?;
    let entry = CachedData {
        format: FORMAT,
        key: new.key.clone(),
        description: new.description.clone(),
        tare: new.tare.clone(),
        made_unix_ms: millis(SystemTime::now()),
        load_ns: u64::try_from(new.load_time.as_nanos()).unwrap_or(u64::MAX),
        bytes: files.values().map(|file| file.bytes).sum(),
        files,
        used_unix_ms: 0,
    };
    let text = serde_json::to_string_pretty(&entry);
    let text = text.map_err(|source| DataCacheError::Manifest { source })?;
    let path = draft.join(MANIFEST);
    let written = fs::write(&path, text + "\n").and_then(|()| File::open(&path)?.sync_all());
    written.and_then(|()| sync_folder(draft)).map_err(|source| fail(&path, source))
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Makes an entry the last used one. Otherwise it is only removed earlier.
fn mark_used(place: &Path) {
    let file = File::options().write(true).open(place.join(MANIFEST));
    let _ = file.and_then(|file| file.set_modified(SystemTime::now()));
}

fn read_manifest(place: &Path) -> io::Result<CachedData> {
    let path = place.join(MANIFEST);
    let mut entry: CachedData = serde_json::from_slice(&fs::read(&path)?)?;
    entry.used_unix_ms = millis(fs::metadata(&path)?.modified()?);
    Ok(entry)
}

/// Compares an entry with its manifest. The error says what is wrong with it.
fn check(place: &Path) -> Result<CachedData, String> {
    let entry = read_manifest(place).map_err(|error| format!("{MANIFEST}: {error}"))?;
    if entry.format != FORMAT {
        return Err(format!("its format is {}, not {FORMAT}", entry.format));
    }
    let found = read_files(&place.join(DATA)).map_err(|error| format!("{DATA}: {error}"))?;
    let wrong = entry.files.iter().find_map(|(name, file)| match found.get(name) {
        None => Some(format!("{} is missing", name.display())),
        Some(now) if now.bytes != file.bytes => {
            Some(format!("{} has {} bytes, not {}", name.display(), now.bytes, file.bytes))
        }
        Some(now) if now != file => Some(format!("{} was changed", name.display())),
        Some(_) => None,
    });
    let more = found.keys().find(|name| !entry.files.contains_key(*name));
    let more = more.map(|name| format!("{} is not part of it", name.display()));
    wrong.or(more).map_or(Ok(entry), Err)
}

/// Returns the files of a directory, by their paths below it.
fn read_files(folder: &Path) -> io::Result<BTreeMap<PathBuf, CachedFile>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(below) = folders.pop() {
        for entry in fs::read_dir(folder.join(&below))? {
            let entry = entry?;
            let (name, about) = (below.join(entry.file_name()), entry.metadata()?);
            if about.is_dir() {
                folders.push(name);
            } else if about.is_file() {
                let (modified_s, modified_ns) = (about.mtime(), about.mtime_nsec());
                files.insert(name, CachedFile { bytes: about.len(), modified_s, modified_ns });
            }
        }
    }
    Ok(files)
}
