//! The journal of a run: what it is about to make on the host, written and synced before it is
//! made, so that a run that is killed at any instant can be undone by the next one.
//!
//! One file per run, `STATE/runs/RUN.journal`, JSON lines: a header, then entries with ascending
//! ids, then `done` lines for entries that were undone. The living run holds the file with flock,
//! which the kernel drops when the process ends however it ends; `clean` skips files that are held.
//! A line that was cut off by a crash is ignored: its thing was not made, because the sync had not
//! returned.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use crate::NAME_PREFIX;
use crate::line_file::{self, LineFile};
use crate::undo::{self, UndoError};

/// Format of the file. A newer one is left alone.
const VERSION: u32 = 1;

/// Something that a run makes on the host and that has to go again.
///
/// Every name begins with `tare-RUN`; undoing checks that before it touches anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Entry {
    /// Processes with `TARE_RUN=RUN` in their environment.
    Processes,
    /// A named network namespace.
    NetworkNamespace {
        name: String,
    },
    /// A network device, in the host's namespace or in the one behind the path.
    Link {
        name: String,
        namespace: Option<PathBuf>,
    },
    /// A table in the host's namespace, or in the one behind the path.
    NftTable {
        family: String,
        name: String,
        namespace: Option<PathBuf>,
    },
    /// One cgroup as its directories (one per hierarchy on cgroup v1), with all below it.
    Cgroup {
        paths: Vec<PathBuf>,
    },
    /// Controllers that were enabled for the children of a cgroup that is not ours.
    SubtreeControl {
        path: PathBuf,
        controllers: Vec<String>,
    },
    /// A container of an engine that speaks docker's API on a unix socket.
    Container {
        engine: String,
        socket: PathBuf,
        name: String,
    },
    /// An image in such an engine, with its tag.
    Image {
        engine: String,
        socket: PathBuf,
        name: String,
    },
    /// A container of an OCI runtime: `COMMAND... --root ROOT delete --force ID`.
    OciContainer {
        command: Vec<String>,
        root: PathBuf,
        id: String,
    },
    Mount {
        path: PathBuf,
    },
    /// What is mounted on a path in the mount namespace of another process, such as an engine.
    MountElsewhere {
        path: PathBuf,
        pid: u32,
    },
    /// The loop devices on a file of the run.
    LoopDevice {
        file: PathBuf,
    },
    /// A mapping of the device mapper.
    Mapping {
        name: String,
    },
    /// A target of NVMe over fabrics in this kernel: subsystem, namespace and port.
    NvmeTarget {
        name: String,
    },
    /// The controllers that a connection of this name made.
    NvmeController {
        name: String,
    },
    /// An RDMA device in software.
    RdmaDevice {
        name: String,
    },
    /// A named volume of an engine.
    Volume {
        engine: String,
        socket: PathBuf,
        name: String,
    },
    /// A directory with all in it.
    Directory {
        path: PathBuf,
    },
    File {
        path: PathBuf,
    },
}

/// Names an entry of one journal.
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

/// Why a journal could not be kept.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("cannot keep a journal in {}; run as root or choose another directory with --state", .path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("cannot write the journal {}; nothing was made", .path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot read the journal {}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("the journal {} has no header that this version understands", .path.display())]
    Header { path: PathBuf },
    #[error("run {run} is still alive (process {pid})")]
    Alive { run: String, pid: u32 },
    #[error("no free run id was found in {}", .path.display())]
    NoFreeId { path: PathBuf },
}

/// The journal of one run. Shared by everything that makes something during the run.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    header: Header,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    file: LineFile,
    next: u64,
    live: BTreeMap<EntryId, Entry>,
}

/// The directory of journals below a state directory.
pub fn folder(state: &Path) -> PathBuf {
    state.join("runs")
}

impl Journal {
    /// Begins a run: takes an id of four hexadecimal digits that no other journal has.
    ///
    /// # Errors
    /// When the state directory cannot be written.
    pub fn create(state: &Path) -> Result<Self, JournalError> {
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
            // A `clean` that came between these two steps holds or has removed the file.
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
            let journal = Self { path, header, state: Mutex::new(state) };
            journal.append(&mut journal.lock(), &journal.header, true)?;
            line_file::sync_folder(&folder).map_err(open)?;
            return Ok(journal);
        }
        Err(JournalError::NoFreeId { path: folder })
    }

    /// Takes over the journal of a run that is dead.
    ///
    /// # Errors
    /// `Alive` when its process still holds it, `Header` when it is no journal.
    pub fn adopt(path: &Path) -> Result<Self, JournalError> {
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
            // Died before the header was on disk, so before anything was made.
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
        Ok(Self { path: path.into(), header, state })
    }

    /// The run's id.
    pub fn run(&self) -> &str {
        &self.header.run
    }

    /// `tare-RUN`: what every name of this run begins with.
    pub fn prefix(&self) -> String {
        format!("{NAME_PREFIX}{}", self.header.run)
    }

    /// Writes down what is about to be made. Returns after the disk has it: only then make it.
    /// Entries that are made together are written together, for one sync.
    ///
    /// # Errors
    /// When the disk does not take it; then it must not be made.
    pub fn write(&self, entries: Vec<Entry>) -> Result<Vec<EntryId>, JournalError> {
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

    /// Undoes these entries, the last first, and writes down those that are gone. Idempotent: an
    /// entry that was undone before, or whose thing is gone, is no error.
    pub fn undo(&self, ids: &[EntryId]) -> Vec<UndoError> {
        let mut entries: Vec<(EntryId, Entry)> = {
            let state = self.lock();
            let live = |id: &EntryId| state.live.get(id).map(|entry| (*id, entry.clone()));
            ids.iter().filter_map(live).collect()
        };
        entries.sort_by_key(|(id, _)| std::cmp::Reverse(*id));
        let mut errors = Vec::new();
        let mut done = Vec::new();
        for (id, entry) in entries {
            match undo::undo(self.run(), &entry) {
                Ok(()) => done.push(id),
                Err(error) => errors.push(error),
            }
        }
        self.forget(&done);
        errors
    }

    /// Writes down that the caller has undone these itself. Not synced: undoing twice is harmless.
    pub fn forget(&self, ids: &[EntryId]) {
        if ids.is_empty() {
            return;
        }
        let mut state = self.lock();
        state.live.retain(|id, _| !ids.contains(id));
        // Should the line be lost, `clean` finds the things gone.
        let _ = self.append(&mut state, &Line::Done { done: ids.to_vec() }, false);
    }

    /// What is not undone yet.
    pub fn live(&self) -> Vec<(EntryId, Entry)> {
        self.lock().live.iter().map(|(id, entry)| (*id, entry.clone())).collect()
    }

    /// Undoes all that is left and, if all went well, removes the file. Idempotent.
    pub fn close(&self) -> Vec<UndoError> {
        let (ids, entries): (Vec<EntryId>, Vec<Entry>) = self.live().into_iter().unzip();
        // First of all, so that nothing is made any more behind the back of what follows. If it
        // fails, so does the entry of the processes, or the cgroup that they live in.
        let ended = undo::end_processes(self.run(), &entries);
        let mut errors = self.undo(&ids);
        errors.extend(ended.err());
        if errors.is_empty() {
            // A journal without live entries that stays is removed by the next `clean`.
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
    fn a_dead_run_is_adopted_with_what_was_not_undone() {
        let state = scratch("adopt");
        let journal = Journal::create(&state).unwrap();
        let folder_of_run = state.join(journal.prefix());
        let entries = vec![
            Entry::Directory { path: folder_of_run.clone() },
            Entry::File { path: state.join(format!("{}-file", journal.prefix())) },
        ];
        let ids = journal.write(entries).unwrap();
        fs::create_dir_all(folder_of_run.join("deep/er")).unwrap();
        journal.forget(&ids[1..]);
        let path = journal.path.clone();
        assert!(matches!(Journal::adopt(&path), Err(JournalError::Alive { .. })));
        drop(journal);
        File::options().append(true).open(&path).unwrap().write_all(b"{\"id\":2,\"ent").unwrap();

        let adopted = Journal::adopt(&path).unwrap();
        assert_eq!(adopted.live().len(), 1);
        assert!(adopted.close().is_empty());
        assert!(!folder_of_run.exists() && !path.exists());
        fs::remove_dir_all(&state).unwrap();
    }

    #[test]
    fn names_of_others_are_refused() {
        let state = scratch("refuse");
        let journal = Journal::create(&state).unwrap();
        let keep = state.join("keep");
        fs::create_dir(&keep).unwrap();
        let other = state.join("tare-zzzz");
        let entries = [keep.clone(), other, state.join(format!("{}/../keep", journal.prefix()))];
        journal.write(entries.map(|path| Entry::Directory { path }).to_vec()).unwrap();
        assert_eq!(journal.close().len(), 3);
        assert!(keep.exists());
        fs::remove_dir_all(&state).unwrap();
    }
}
