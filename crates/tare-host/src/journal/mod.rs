//! The journal of a run: lists every host object before the run creates it, synced to disk, so that
//! a later process can undo a run that was killed at any instant.
//!
//! One file per run, `STATE/runs/RUN.journal`, JSON lines: a header, then entries with ascending
//! ids, then `done` lines for undone entries. A live run locks the file with flock, and the kernel
//! releases the lock however the process ends; `clean` skips locked files. A line that a crash cut
//! off is ignored: its object was never created, because the sync had not returned.
//!
//! An entry is a named kind with its data. The crate that owns a kind undoes it (`undo`); entries
//! of unknown kinds are kept.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use crate::NAME_PREFIX;
use crate::line_file::{self, LineFile};
use crate::undo::{self, HostKinds, KnownKinds, UndoError, UndoKinds};

pub use crate::undo::Entry;

/// Version of the file format. Files of newer versions are not touched.
const VERSION: u32 = 1;

/// Identifies an entry within one journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EntryId(u64);

/// First line of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    pub version: u32,
    pub run: String,
    pub pid: u32,
    pub started_unix_s: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Made { id: EntryId, entry: Entry },
    Done { done: Vec<EntryId> },
}

/// Why a journal could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("cannot keep a journal in {}; run as root or choose another directory with --state", .path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("cannot write the journal {}; nothing was created", .path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot read the journal {}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("the journal {} has no header that this version understands", .path.display())]
    Header { path: PathBuf },
    #[error("run {run} is still alive (process {pid})")]
    Alive { run: String, pid: u32 },
    #[error("no free run id was found in {}", .path.display())]
    NoFreeId { path: PathBuf },
    #[error("a journal cannot hold an entry of the kind {kind:?}; nothing was created")]
    UnknownKind { kind: String },
}

/// The journal of one run, shared by all code that creates host objects during the run.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    header: Header,
    kinds: KnownKinds,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    file: LineFile,
    next: u64,
    live: BTreeMap<EntryId, Entry>,
}

/// Returns the directory of journals below a state directory.
pub fn folder(state: &Path) -> PathBuf {
    state.join("runs")
}

impl Journal {
    /// Starts a run with an unused id of four hexadecimal digits. `kinds` are the kinds of other
    /// crates that the run may write in addition to those of this crate.
    ///
    /// # Errors
    /// When the state directory cannot be written.
    pub fn create(state: &Path, kinds: KnownKinds) -> Result<Self, JournalError> {
        let folder = folder(state);
        let open = |source| JournalError::Open { path: folder.clone(), source };
        fs::create_dir_all(&folder).map_err(open)?;
        for _ in 0..64 {
            let run = random_id().map_err(open)?;
            let path = folder.join(format!("{run}.journal"));
            let file = match LineFile::create_new(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(source) => return Err(JournalError::Open { path, source }),
            };
            // A `clean` between these two steps has locked or removed the file.
            if !file.lock().map_err(open)? {
                continue;
            }
            let header = Header {
                version: VERSION,
                run,
                pid: std::process::id(),
                started_unix_s: line_file::now_unix_s(),
            };
            let state = State { file, next: 0, live: BTreeMap::new() };
            let journal = Self { path, header, kinds, state: Mutex::new(state) };
            journal.append(&mut journal.lock(), &journal.header, true)?;
            line_file::sync_folder(&folder).map_err(open)?;
            return Ok(journal);
        }
        Err(JournalError::NoFreeId { path: folder })
    }

    /// Takes over the journal of a dead run.
    ///
    /// # Errors
    /// `Alive` when its process still holds the lock, `Header` when the file is no journal.
    pub fn adopt(path: &Path, kinds: KnownKinds) -> Result<Self, JournalError> {
        let read = |source| JournalError::Read { path: path.into(), source };
        let (file, text) = LineFile::open(path).map_err(read)?;
        let mut lines = text.lines();
        let header = lines.next().and_then(|line| serde_json::from_str::<Header>(line).ok());
        let pid = header.as_ref().map_or(0, |header| header.pid);
        if !file.lock_dead(pid) {
            let run = header.map_or_else(|| line_file::stem(path), |header| header.run);
            return Err(JournalError::Alive { run, pid });
        }
        let header = match header {
            Some(header) if header.version == VERSION => header,
            // The run died before the header was on disk, so before it created anything.
            None if text.lines().count() <= 1 => {
                Header { version: VERSION, run: line_file::stem(path), pid: 0, started_unix_s: 0 }
            }
            _ => return Err(JournalError::Header { path: path.into() }),
        };
        let mut live = BTreeMap::new();
        let mut next = 0;
        for line in lines {
            match serde_json::from_str::<Line>(line) {
                Ok(Line::Made { id, entry }) => {
                    next = next.max(id.0 + 1);
                    live.insert(id, entry);
                }
                Ok(Line::Done { done }) => live.retain(|id, _| !done.contains(id)),
                Err(_) => {}
            }
        }
        let state = Mutex::new(State { file, next, live });
        Ok(Self { path: path.into(), header, kinds, state })
    }

    /// Returns the run's id.
    pub fn run(&self) -> &str {
        &self.header.run
    }

    /// Returns `tare-RUN`, the prefix of every name of this run.
    pub fn prefix(&self) -> String {
        format!("{NAME_PREFIX}{}", self.header.run)
    }

    /// Appends entries with one sync and returns when the disk has them. Only then may the caller
    /// create their objects.
    ///
    /// # Errors
    /// When the write fails, or no known crate can undo an entry. The caller must then create
    /// nothing.
    pub fn write(&self, entries: Vec<Entry>) -> Result<Vec<EntryId>, JournalError> {
        if let Some(entry) = entries.iter().find(|entry| self.owner(entry).is_none()) {
            return Err(JournalError::UnknownKind { kind: entry.kind().into() });
        }
        let mut state = self.lock();
        let mut lines = Vec::with_capacity(entries.len());
        let mut ids = Vec::with_capacity(entries.len());
        for entry in entries {
            let id = EntryId(state.next);
            state.next += 1;
            ids.push(id);
            lines.push(Line::Made { id, entry });
        }
        self.append_all(&mut state, &lines, true)?;
        for line in lines {
            if let Line::Made { id, entry } = line {
                state.live.insert(id, entry);
            }
        }
        Ok(ids)
    }

    /// Undoes these entries, the last first, and records the undone ones. Idempotent: an entry that
    /// was undone before, or whose object is gone, is no error.
    pub fn undo(&self, ids: &[EntryId]) -> Vec<UndoError> {
        let mut entries: Vec<(EntryId, Entry)> = {
            let state = self.lock();
            let live = |id: &EntryId| state.live.get(id).map(|entry| (*id, entry.clone()));
            ids.iter().filter_map(live).collect()
        };
        entries.sort_by_key(|(id, _)| std::cmp::Reverse(*id));
        let mut errors = Vec::new();
        let mut done = Vec::new();
        let mut unknown: BTreeMap<String, usize> = BTreeMap::new();
        let mut silent: BTreeMap<String, (String, usize)> = BTreeMap::new();
        for (id, entry) in entries {
            match self.owner(&entry).map(|owner| owner.undo(self.run(), &entry)) {
                Some(Ok(())) => done.push(id),
                Some(Err(UndoError::NoAnswer { who, why, entries })) => {
                    silent.entry(who).or_insert((why, 0)).1 += entries;
                }
                Some(Err(error)) => errors.push(error),
                None => *unknown.entry(entry.kind().into()).or_default() += 1,
            }
        }
        self.forget(&done);
        let unknown = unknown.into_iter();
        errors.extend(unknown.map(|(kind, entries)| UndoError::UnknownKind { kind, entries }));
        let silent = silent.into_iter();
        errors.extend(silent.map(|(who, (why, entries))| UndoError::NoAnswer {
            who,
            why,
            entries,
        }));
        errors
    }

    /// Returns the owner of an entry's kind; `None` when this program does not know the kind.
    fn owner(&self, entry: &Entry) -> Option<&'static dyn UndoKinds> {
        const HOST: &dyn UndoKinds = &HostKinds;
        let all = std::iter::once(HOST).chain(self.kinds.iter().copied());
        all.into_iter().find(|owner| owner.kinds().contains(&entry.kind()))
    }

    /// Records that the caller has undone these entries itself. Not synced: undoing twice is
    /// harmless.
    pub fn forget(&self, ids: &[EntryId]) {
        if ids.is_empty() {
            return;
        }
        let mut state = self.lock();
        state.live.retain(|id, _| !ids.contains(id));
        // If the line is lost, `clean` finds the objects gone.
        let _ = self.append(&mut state, &Line::Done { done: ids.to_vec() }, false);
    }

    /// Returns the entries that are not undone yet.
    pub fn live(&self) -> Vec<(EntryId, Entry)> {
        self.lock().live.iter().map(|(id, entry)| (*id, entry.clone())).collect()
    }

    /// Undoes all remaining entries and, if none failed, removes the file. Idempotent.
    pub fn close(&self) -> Vec<UndoError> {
        let (ids, entries): (Vec<EntryId>, Vec<Entry>) = self.live().into_iter().unzip();
        // Processes end first, so that none creates objects while the rest is undone. If this
        // fails, the entry of the processes or of their cgroup fails too.
        let ended = undo::end_processes(self.run(), &entries);
        let mut errors = self.undo(&ids);
        errors.extend(ended.err());
        if errors.is_empty() {
            // The next `clean` removes a journal without live entries that stays here.
            let _ = fs::remove_file(&self.path);
        }
        errors
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn append<T: Serialize>(
        &self,
        state: &mut State,
        line: &T,
        sync: bool,
    ) -> Result<(), JournalError> {
        self.append_all(state, std::slice::from_ref(line), sync)
    }

    fn append_all<T: Serialize>(
        &self,
        state: &mut State,
        lines: &[T],
        sync: bool,
    ) -> Result<(), JournalError> {
        let wrote = state.file.append(lines, sync);
        wrote.map_err(|source| JournalError::Write { path: self.path.clone(), source })
    }
}

fn random_id() -> io::Result<String> {
    let mut bytes = [0; 2];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(format!("{:04x}", u16::from_be_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("tare-test-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn adopts_dead_run_with_live_entries() {
        let state = scratch("adopt");
        let journal = Journal::create(&state, &[]).unwrap();
        let folder_of_run = state.join(journal.prefix());
        let entries = vec![
            Entry::directory(folder_of_run.clone()),
            Entry::file(state.join(format!("{}-file", journal.prefix()))),
        ];
        let ids = journal.write(entries).unwrap();
        fs::create_dir_all(folder_of_run.join("deep/er")).unwrap();
        journal.forget(&ids[1..]);
        let path = journal.path.clone();
        assert!(matches!(Journal::adopt(&path, &[]), Err(JournalError::Alive { .. })));
        drop(journal);
        File::options().append(true).open(&path).unwrap().write_all(b"{\"id\":2,\"ent").unwrap();

        let adopted = Journal::adopt(&path, &[]).unwrap();
        assert_eq!(adopted.live().len(), 1);
        assert!(adopted.close().is_empty());
        assert!(!folder_of_run.exists() && !path.exists());
        fs::remove_dir_all(&state).unwrap();
    }

    #[test]
    fn refuses_names_of_other_owners() {
        let state = scratch("refuse");
        let journal = Journal::create(&state, &[]).unwrap();
        let keep = state.join("keep");
        fs::create_dir(&keep).unwrap();
        let other = state.join("tare-zzzz");
        let entries = [keep.clone(), other, state.join(format!("{}/../keep", journal.prefix()))];
        journal.write(entries.map(Entry::directory).to_vec()).unwrap();
        assert_eq!(journal.close().len(), 3);
        assert!(keep.exists());
        fs::remove_dir_all(&state).unwrap();
    }

    #[derive(Debug)]
    struct Toys;

    impl UndoKinds for Toys {
        fn kinds(&self) -> &'static [&'static str] {
            &["toy"]
        }

        fn undo(&self, run: &str, entry: &Entry) -> Result<(), UndoError> {
            let Toy::Toy { name } = entry.read()?;
            undo::check_name(run, &name)?;
            match name.ends_with("-silent") {
                true => Err(UndoError::NoAnswer { who: "its box".into(), why: name, entries: 1 }),
                false => Ok(()),
            }
        }
    }

    #[derive(Serialize, Deserialize)]
    #[serde(tag = "kind", rename_all = "snake_case")]
    enum Toy {
        Toy { name: String },
    }

    #[test]
    fn keeps_unknown_kind_until_owner_is_known() {
        let state = scratch("unknown");
        let journal = Journal::create(&state, &[&Toys]).unwrap();
        let toy = Entry::new(&Toy::Toy { name: format!("{}-ball", journal.prefix()) });
        let file = Entry::file(state.join(format!("{}-file", journal.prefix())));
        journal.write(vec![toy.clone(), toy.clone(), file]).unwrap();
        let path = journal.path.clone();
        drop(journal);

        let stranger = Journal::adopt(&path, &[]).unwrap();
        assert!(matches!(
            stranger.write(vec![toy.clone()]),
            Err(JournalError::UnknownKind { kind }) if kind == "toy"
        ));
        let errors = stranger.close();
        assert!(
            matches!(&errors[..], [UndoError::UnknownKind { kind, entries: 2 }] if kind == "toy"),
            "{errors:?}"
        );
        drop(stranger);

        let owner = Journal::adopt(&path, &[&Toys]).unwrap();
        assert_eq!(owner.live().len(), 2);
        assert!(owner.close().is_empty());
        assert!(!path.exists());
        fs::remove_dir_all(&state).unwrap();
    }

    #[test]
    fn what_does_not_answer_is_one_error() {
        let state = scratch("silent");
        let journal = Journal::create(&state, &[&Toys]).unwrap();
        let name = |end: &str| format!("{}{end}", journal.prefix());
        let toys = ["-a-silent", "-ball", "-b-silent"].map(|end| {
            let name = name(end);
            Entry::new(&Toy::Toy { name })
        });
        journal.write(toys.to_vec()).unwrap();
        let lines: Vec<String> = journal.close().iter().map(ToString::to_string).collect();
        let why = name("-b-silent");
        let expect =
            format!("its box does not answer ({why}); journal entries that wait for it: 2");
        assert_eq!(lines, [expect]);
        assert_eq!(journal.live().len(), 2);
        fs::remove_dir_all(&state).unwrap();
    }

    /// The lines are in the format from before kinds had owners.
    #[test]
    fn undoes_journal_of_older_version() {
        let state = scratch("older");
        let folder_of_run = state.join("tare-ab12");
        fs::create_dir_all(folder_of_run.join("deep")).unwrap();
        fs::create_dir_all(folder(&state)).unwrap();
        let path = folder(&state).join("ab12.journal");
        let text = format!(
            "{{\"version\":1,\"run\":\"ab12\",\"pid\":0,\"started_unix_s\":1}}\n\
             {{\"id\":0,\"entry\":{{\"kind\":\"processes\"}}}}\n\
             {{\"id\":1,\"entry\":{{\"kind\":\"directory\",\"path\":{folder_of_run:?}}}}}\n\
             {{\"id\":2,\"entry\":{{\"kind\":\"link\",\"name\":\"tare-ab12-x\",\"namespace\":null}}}}\n\
             {{\"done\":[2]}}\n"
        );
        fs::write(&path, text).unwrap();
        let journal = Journal::adopt(&path, &[]).unwrap();
        let live: Vec<Entry> = journal.live().into_iter().map(|(_, entry)| entry).collect();
        assert_eq!(live, [Entry::processes(), Entry::directory(folder_of_run.clone())]);
        assert!(journal.close().is_empty());
        assert!(!folder_of_run.exists() && !path.exists());
        fs::remove_dir_all(&state).unwrap();
    }
}
