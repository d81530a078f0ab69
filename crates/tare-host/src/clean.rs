//! Removes what dead runs left on the host, and lists host objects whose names start with `tare-`.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::cgroup::Layout;
use crate::exec::{Command, find};
use crate::journal::{self, Journal, JournalError};
use crate::nvme::{self, Target, soft_roce};
use crate::undo::KnownKinds;
use crate::{NAME_PREFIX, RUN_VARIABLE, block, error_line, line_file, mounts, netns, process};

/// The outcome of `clean` for one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its process is alive and holds its journal, so nothing was done.
    Alive { pid: u32 },
    /// All entries were undone; nothing is left.
    Cleaned { entries: usize },
    /// Some entries could not be undone, one line each; the journal stays.
    Failed { errors: Vec<String> },
}

/// The outcomes of all runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Run id and outcome, sorted by id.
    pub runs: Vec<(String, Outcome)>,
}

/// Why `clean` could not start.
#[derive(Debug, thiserror::Error)]
pub enum CleanError {
    #[error("cannot read the journals in {}", .path.display())]
    Read { path: PathBuf, source: io::Error },
}

/// Undoes what every dead run in this state directory left. Live runs are not touched. Idempotent.
/// `kinds` are the kinds of other crates that journals may hold.
///
/// # Errors
/// When the directory of journals exists but cannot be read.
pub fn clean(state: &Path, kinds: KnownKinds) -> Result<Report, CleanError> {
    let mut report = Report::default();
    for path in journals(state)? {
        let run = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let outcome = match Journal::adopt(&path, kinds) {
            Ok(journal) => {
                let entries = journal.live().len();
                let errors = journal.close();
                match errors.is_empty() {
                    true => Outcome::Cleaned { entries },
                    false => {
                        Outcome::Failed { errors: errors.iter().map(|e| error_line(e)).collect() }
                    }
                }
            }
            Err(JournalError::Alive { pid, .. }) => Outcome::Alive { pid },
            // Another `clean` has removed it meanwhile.
            Err(JournalError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                continue;
            }
            Err(error) => Outcome::Failed { errors: vec![error_line(&error)] },
        };
        report.runs.push((run.unwrap_or_default(), outcome));
    }
    Ok(report)
}

/// Why a run was not forgotten.
#[derive(Debug, thiserror::Error)]
pub enum ForgetError {
    #[error("no journal of a run {run} in {}; tare clean lists those that are not clean", .folder.display())]
    NoJournal { run: String, folder: PathBuf },
    #[error("run {run} is alive (process {pid}); end it first")]
    Alive { run: String, pid: u32 },
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// Undoes what a dead run left, and removes its journal even if some of it could not be undone,
/// because the engine that has it is gone for ever. Returns one line for each of those errors.
///
/// # Errors
/// When there is no journal of that run, it cannot be read, or the run is alive.
pub fn forget(state: &Path, run: &str, kinds: KnownKinds) -> Result<Vec<String>, ForgetError> {
    let folder = journal::folder(state);
    let journals = line_file::journals(&folder).unwrap_or_default();
    let Some(path) = journals.iter().find(|path| line_file::stem(path) == run) else {
        return Err(ForgetError::NoJournal { run: run.into(), folder });
    };
    let journal = match Journal::adopt(path, kinds) {
        Err(JournalError::Alive { run, pid }) => return Err(ForgetError::Alive { run, pid }),
        adopted => adopted?,
    };
    let errors = journal.close().iter().map(|error| error_line(error)).collect();
    let (left, _): (Vec<_>, Vec<_>) = journal.live().into_iter().unzip();
    journal.forget(&left);
    journal.close();
    Ok(errors)
}

fn journals(state: &Path) -> Result<Vec<PathBuf>, CleanError> {
    let path = journal::folder(state);
    line_file::journals(&path).map_err(|source| CleanError::Read { path, source })
}

/// A host object whose name starts with `tare-`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Leftover {
    /// `link`, `network namespace`, `cgroup`, `mount`, `loop device`, `mapping`, `NVMe target`,
    /// `NVMe controller`, `RDMA device`, `nft table`, `process`.
    pub kind: &'static str,
    pub name: String,
    /// The live run that owns it; `None` when no live run does.
    pub alive: Option<String>,
}

/// Lists everything named `tare-*` on the host, for `doctor`, with the live run that owns it.
/// Containers of engines are found by their processes.
pub fn leftovers(state: &Path) -> Vec<Leftover> {
    let living: Vec<String> = journals(state)
        .unwrap_or_default()
        .iter()
        .filter_map(|path| match Journal::adopt(path, &[]) {
            Err(JournalError::Alive { run, .. }) => Some(run),
            _ => None,
        })
        .collect();
    let mut found: BTreeSet<(&'static str, String)> = BTreeSet::new();
    let mut add = |kind, name: String| found.insert((kind, name));

    for line in fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default().lines() {
        if let Some((name, _)) = line.split_once(':')
            && name.trim().starts_with(NAME_PREFIX)
        {
            add("link", name.trim().into());
        }
    }
    for name in names_in(Path::new(netns::FOLDER)) {
        add("network namespace", name);
    }
    if let Ok(layout) = Layout::read(Path::new("/proc")) {
        for folder in layout.folders("") {
            for name in names_in(&folder) {
                add("cgroup", folder.join(name).display().to_string());
            }
        }
    }
    for mount in mounts::points().unwrap_or_default() {
        let named = mount.iter().any(|part| part.to_string_lossy().starts_with(NAME_PREFIX));
        if named && !mount.starts_with(netns::FOLDER) {
            add("mount", mount.display().to_string());
        }
    }
    for (device, file) in block::loops() {
        if file.iter().any(|part| part.to_string_lossy().starts_with(NAME_PREFIX)) {
            add("loop device", format!("{device} of {}", file.display()));
        }
    }
    for name in block::mappings().into_iter().filter(|name| name.starts_with(NAME_PREFIX)) {
        add("mapping", name);
    }
    if let Ok(Some(target)) = Target::open() {
        for name in target.names() {
            add("NVMe target", name);
        }
    }
    for name in nvme::host_names() {
        add("NVMe controller", name);
    }
    for name in soft_roce::devices().into_iter().filter(|name| name.starts_with(NAME_PREFIX)) {
        add("RDMA device", name);
    }
    if find("nft").is_some()
        && let Ok(output) = Command::new("nft").args(["list", "tables"]).run()
    {
        for line in output.stdout.lines() {
            if line.rsplit(' ').next().is_some_and(|name| name.starts_with(NAME_PREFIX)) {
                add("nft table", line.trim_start_matches("table ").into());
            }
        }
    }
    let own = std::process::id();
    for pid in process::all().into_iter().filter(|pid| *pid != own) {
        if let Some(run) = process::variable(pid, RUN_VARIABLE) {
            let name = process::name(pid).unwrap_or_default();
            add("process", format!("{pid} ({name}) of {NAME_PREFIX}{run}"));
        }
    }
    let alive = |name: &str| {
        living.iter().find(|run| name.contains(&format!("{NAME_PREFIX}{run}"))).cloned()
    };
    found.into_iter().map(|(kind, name)| Leftover { kind, alive: alive(&name), name }).collect()
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(NAME_PREFIX)).collect()
}
