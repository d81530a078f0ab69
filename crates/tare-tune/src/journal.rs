//! The journal of one tuning, `STATE/tune/ID.journal`: records the old value of every setting
//! before it is written.
//!
//! JSON lines: a header, then `write` lines (one batch, one sync, before the first write of the
//! batch), an `end` line when the batch is complete, `done` lines for restored settings, `again`
//! lines for settings that are written again with the same values. Without the last `end` the
//! tuning was interrupted. Which of its writes happened does not matter: a setting with its old
//! value was either not written or restored.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::TuneError;
use crate::plan::{Group, Identity, Key, ValueFormat};
use tare_host::line_file::{self, LineFile};
use tare_std::cpus::CpuSet;

/// Version of the file format. Files of newer versions are not touched.
const VERSION: u32 = 1;

/// The lifetime of a tuning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Purpose {
    /// It lasts until it is reverted or the host reboots.
    Keep,
    /// It lasts as long as the process of its run. After that process has died, `tare clean` or the
    /// next tuning reverts it.
    Temporary { run: String },
}

/// The first line of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    pub(super) version: u32,
    pub(super) id: String,
    pub(super) pid: u32,
    pub(super) started_unix_s: u64,
    /// The boot that the values belong to. A tuning never spans a boot, because one process makes
    /// it.
    pub(super) boot_id: String,
    pub(super) purpose: Purpose,
    pub(super) command: Vec<String>,
    /// The CPUs that the plan keeps for interrupts; `None` if it keeps none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) interrupt_cpus: Option<CpuSet>,
}

/// One setting that is about to be written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Write {
    pub(super) number: u64,
    pub(super) knob: String,
    pub(super) group: Group,
    pub(super) subject: String,
    pub(super) what: String,
    pub(super) key: Key,
    pub(super) form: ValueFormat,
    pub(super) old: String,
    pub(super) new: String,
    pub(super) identity: Identity,
    /// Values that this tuning wrote to the same setting before. A revert treats them like `new`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) earlier: Vec<String>,
    /// Settings that the kernel resets when this one is written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) companions: Vec<Companion>,
}

/// A setting that the kernel resets with another one: the queues of a device whose channels change,
/// the queue depth of a disk whose scheduler changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Companion {
    pub(super) key: Key,
    pub(super) form: ValueFormat,
    pub(super) old: String,
    #[serde(default)]
    pub(super) identity: Identity,
}

/// A write and its state.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) write: Write,
    /// The values of its companions after it; `None` until they are recorded.
    pub(super) after: Option<Vec<Option<String>>>,
    /// Whether it is not restored yet.
    pub(super) live: bool,
    /// Whether restoring has started, which may have reset its companions.
    pub(super) restoring: bool,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Write(Box<Write>),
    After { number: u64, values: Vec<Option<String>> },
    End {},
    Restoring(u64),
    Done(Vec<u64>),
    Again(Vec<u64>),
}

/// Returns the directory of tunings below a state directory.
pub fn folder(state: &Path) -> PathBuf {
    state.join("tune")
}

/// A journal in memory and, from its first batch on, on disk.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: Option<LineFile>,
    pub(super) header: Header,
    pub(super) entries: BTreeMap<u64, Entry>,
    /// The newest entry of each setting.
    newest: HashMap<Key, u64>,
    /// Whether its last batch is incomplete.
    pub(super) interrupted: bool,
}

impl Journal {
    /// Returns a journal with the next free id. The file is created with the first batch.
    pub(super) fn new(folder: &Path, purpose: Purpose, boot_id: String) -> Result<Self, TuneError> {
        let numbers = ids(folder)?.into_iter().filter_map(|id| id[1..].parse::<u32>().ok());
        let id = format!("t{:04}", numbers.max().unwrap_or(0) + 1);
        let header = Header {
            version: VERSION,
            pid: std::process::id(),
            started_unix_s: line_file::now_unix_s(),
            boot_id,
            purpose,
            command: std::env::args().collect(),
            interrupt_cpus: None,
            id,
        };
        let path = folder.join(format!("{}.journal", header.id));
        Ok(Self {
            path,
            file: None,
            header,
            entries: BTreeMap::new(),
            newest: HashMap::new(),
            interrupted: false,
        })
    }

    /// Opens a journal to revert it. `None` when it does not exist, or its process died before the
    /// first batch was on disk, and so before it wrote any setting.
    pub(super) fn open(folder: &Path, id: &str) -> Result<Option<Self>, TuneError> {
        let path = folder.join(format!("{id}.journal"));
        match LineFile::open(&path) {
            Ok((file, text)) => Self::parse(path, &text, Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(TuneError::Read { path, source }),
        }
    }

    /// Reads a journal without opening it for writing.
    pub(super) fn read(folder: &Path, id: &str) -> Result<Option<Self>, TuneError> {
        let path = folder.join(format!("{id}.journal"));
        match fs::read_to_string(&path) {
            Ok(text) => Self::parse(path, &text, None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(TuneError::Read { path, source }),
        }
    }

    fn parse(path: PathBuf, text: &str, file: Option<LineFile>) -> Result<Option<Self>, TuneError> {
        let mut lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let header = match lines.next().map(serde_json::from_str::<Header>) {
            None => return Ok(None),
            Some(Ok(header)) if header.version == VERSION => header,
            Some(_) => return Err(TuneError::Header { path }),
        };
        let mut journal = Self {
            path,
            file,
            header,
            entries: BTreeMap::new(),
            newest: HashMap::new(),
            interrupted: false,
        };
        // An unreadable line in the middle was torn by a crash; later lines were appended after it.
        for line in lines.filter_map(|line| serde_json::from_str(line).ok()) {
            journal.apply_line(line);
        }
        Ok(Some(journal))
    }

    fn apply_line(&mut self, line: Line) {
        match line {
            Line::Write(write) => {
                let newest = self.newest.insert(write.key.clone(), write.number);
                if let Some(entry) = newest.and_then(|number| self.entries.get_mut(&number)) {
                    entry.live = false;
                }
                let entry = Entry { after: None, live: true, restoring: false, write: *write };
                self.entries.insert(entry.write.number, entry);
                self.interrupted = true;
            }
            Line::After { number, values } => {
                if let Some(entry) = self.entries.get_mut(&number) {
                    entry.after = Some(values);
                }
            }
            Line::Restoring(number) => {
                if let Some(entry) = self.entries.get_mut(&number) {
                    entry.restoring = true;
                }
            }
            Line::End {} => self.interrupted = false,
            Line::Done(numbers) => self.set_live(&numbers, false),
            Line::Again(numbers) => {
                self.set_live(&numbers, true);
                self.interrupted = true;
            }
        }
    }

    fn set_live(&mut self, numbers: &[u64], live: bool) {
        for number in numbers {
            if let Some(entry) = self.entries.get_mut(number) {
                entry.live = live;
            }
        }
    }

    /// Returns the numbers of the settings that are not restored, in write order.
    pub(super) fn live(&self) -> Vec<u64> {
        let live = self.entries.iter().filter(|(_, entry)| entry.live);
        live.map(|(number, _)| *number).collect()
    }

    /// Returns the newest entry of a setting.
    pub(super) fn newest_of(&self, key: &Key) -> Option<&Entry> {
        self.entries.get(self.newest.get(key)?)
    }

    pub(super) fn next_number(&self) -> u64 {
        self.entries.keys().next_back().map_or(0, |last| last + 1)
    }

    /// Records a batch: settings that are written for the first time, and numbers of restored ones
    /// that are written again. Returns when the disk has it.
    pub(super) fn begin_batch(
        &mut self,
        writes: Vec<Write>,
        again: Vec<u64>,
    ) -> Result<(), TuneError> {
        let mut batch: Vec<Line> =
            writes.into_iter().map(|write| Line::Write(Box::new(write))).collect();
        if !again.is_empty() {
            batch.push(Line::Again(again));
        }
        let wrote = match &mut self.file {
            Some(file) => file.append(&batch, true),
            None => (|| {
                let mut file = LineFile::create_new(&self.path)?;
                file.append(std::slice::from_ref(&self.header), false)?;
                file.append(&batch, true)?;
                line_file::sync_folder(self.path.parent().unwrap_or(Path::new("/")))?;
                self.file = Some(file);
                Ok(())
            })(),
        };
        wrote.map_err(|source| TuneError::Write { path: self.path.clone(), source })?;
        batch.into_iter().for_each(|line| self.apply_line(line));
        Ok(())
    }

    /// Records the values of a write's companions after it.
    pub(super) fn after(&mut self, number: u64, values: Vec<Option<String>>) {
        self.note(Line::After { number, values });
    }

    /// Records that restoring a setting with companions starts.
    pub(super) fn restoring(&mut self, number: u64) {
        self.note(Line::Restoring(number));
    }

    /// Records the end of the batch.
    pub(super) fn end_batch(&mut self) {
        self.note(Line::End {});
    }

    /// Records restored settings.
    pub(super) fn done(&mut self, numbers: Vec<u64>) {
        if !numbers.is_empty() {
            self.note(Line::Done(numbers));
        }
    }

    /// Appends a line without a sync: if it is lost, the values themselves show the state.
    fn note(&mut self, line: Line) {
        if let Some(file) = &mut self.file {
            let _ = file.append(std::slice::from_ref(&line), false);
        }
        self.apply_line(line);
    }

    /// Removes the file if nothing is left to restore.
    pub(super) fn remove_if_done(&mut self) {
        if self.file.is_some() && self.live().is_empty() && fs::remove_file(&self.path).is_ok() {
            self.file = None;
            self.entries.clear();
            self.newest.clear();
        }
    }
}

/// Returns the ids of the journals in a folder, ascending.
pub(super) fn ids(folder: &Path) -> Result<Vec<String>, TuneError> {
    let paths = line_file::journals(folder)
        .map_err(|source| TuneError::Read { path: folder.into(), source })?;
    let is_id = |id: &String| {
        id.strip_prefix('t').is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let mut ids: Vec<String> =
        paths.iter().map(|path| line_file::stem(path)).filter(is_id).collect();
    ids.sort_by_key(|id| (id.len(), id.clone()));
    Ok(ids)
}
