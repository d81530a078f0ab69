//! A tuning that survives reboots: a systemd unit that applies a stored plan at boot.
//!
//! `STATE/tune/plan.json` holds the options, the approved plan and the hardware. Before files
//! outside of the state directory are created, `STATE/tune/persist.journal` lists them, so that
//! exactly they are removed.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::SettingStore;
use super::journal::folder;
use super::lock::Lock;
use super::stored::{Hardware, PersistError, Stored, stored_path};
use crate::plan::Options;
use crate::planner::plan;
use tare_host::exec::Command;
use tare_host::line_file::{self, LineFile};

/// Name of the unit.
pub const UNIT: &str = "tare-tune.service";

/// First line of the unit, which identifies it as Tare's.
const MARK: &str = "# Made by tare tune persist; tare tune persist --remove removes it.";

/// The directory of a host's own units, and whether to reload systemd after changes.
#[derive(Clone, Debug)]
pub struct Units {
    folder: PathBuf,
    reload: bool,
}

/// A file or link outside of the state directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Installed {
    File(PathBuf),
    Link(PathBuf),
}

impl Units {
    /// Returns the units of the running systemd.
    ///
    /// # Errors
    /// `NoSystemd` when systemd does not run (sd_booted(3): /run/systemd/system is no directory).
    pub fn of_host() -> Result<Self, PersistError> {
        match Path::new("/run/systemd/system").is_dir() {
            true => Ok(Self { folder: "/etc/systemd/system".into(), reload: true }),
            false => Err(PersistError::NoSystemd),
        }
    }

    /// Uses another directory and never reloads systemd.
    pub fn at(folder: &Path) -> Self {
        Self { folder: folder.into(), reload: false }
    }
}

/// Returns the text of the unit. `tare` is the program, `state` its state directory, both absolute.
///
/// It starts when devices have their names and links (`network-online.target`), after services that
/// also write these settings at boot, and before databases and container engines, which read limits
/// when they start. A failed tuning blocks none of them.
pub fn unit(tare: &Path, state: &Path) -> String {
    // systemd expands variables in arguments, but not in the program's path.
    let (tare, state) = (quoted(tare), quoted(state).replace('$', "$$"));
    let before = [
        "scylla-server",
        "cassandra",
        "postgresql",
        "mysqld",
        "mysql",
        "mariadb",
        "mongod",
        "redis-server",
        "redis",
        "valkey",
        "clickhouse-server",
        "docker",
        "containerd",
        "crio",
        "kubelet",
    ];
    let before: Vec<String> = before.iter().map(|name| format!("{name}.service")).collect();
    format!(
        "{MARK}\n\
         [Unit]\n\
         Description=Tuning of this host by Tare\n\
         Wants=network-online.target\n\
         After=network-online.target local-fs.target irqbalance.service tuned.service\n\
         Before={}\n\
         \n\
         [Service]\n\
         Type=oneshot\n\
         RemainAfterExit=yes\n\
         ExecStart={tare} --state {state} tune apply --stored --yes\n\
         TimeoutStartSec=120\n\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n",
        before.join(" ")
    )
}

/// Quotes a path for a command line in a unit (systemd.service(5), systemd.unit(5) "Specifiers").
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%");
    format!("\"{escaped}\"")
}

/// Returns the current plan for these options as the content of `STATE/tune/plan.json`.
///
/// # Errors
/// When no plan can be made.
pub fn stored_plan(store: &dyn SettingStore, options: &Options) -> Result<String, PersistError> {
    let snapshot = store.snapshot();
    let plan = plan(&snapshot, options)?;
    let hardware = Hardware::read(&snapshot, options)?;
    Ok(Stored::new(options, plan, hardware).to_json())
}

/// Stores a plan that [`stored_plan`] made on a host like this one, without a unit.
///
/// # Errors
/// When this host has a plan of its own, another tuning is in progress, or the file cannot be
/// written.
pub fn store(state: &Path, plan: &str) -> Result<(), PersistError> {
    let folder = folder(state);
    let _lock = Lock::take(&folder)?;
    match persist_journal(&folder).exists() {
        true => Err(PersistError::HasOwn),
        false => write_whole(&stored_path(state), plan),
    }
}

/// Stores the current plan for these options and installs the unit. Returns the unit's text. A
/// second call replaces the stored plan.
///
/// # Errors
/// When no plan can be made, another tuning is in progress, or a file cannot be written. Then
/// neither the unit nor the stored plan remains.
pub fn persist(
    store: &dyn SettingStore,
    state: &Path,
    options: &Options,
    tare: &Path,
    units: &Units,
) -> Result<String, PersistError> {
    let stored = stored_plan(store, options)?;
    let folder = folder(state);
    let _lock = Lock::take(&folder)?;
    let path = units.folder.join(UNIT);
    match fs::read_to_string(&path) {
        Ok(text) if !text.starts_with(MARK) => return Err(PersistError::Foreign { path }),
        _ => {}
    }
    let text = unit(tare, state);
    let install = || -> Result<(), PersistError> {
        write_whole(&stored_path(state), &stored)?;
        let wants = units.folder.join("multi-user.target.wants");
        let link = wants.join(UNIT);
        note(&folder, &[Installed::File(path.clone()), Installed::Link(link.clone())])?;
        write_whole(&path, &text)?;
        // Not with `systemctl enable`, because the journal must list the link before it exists.
        fs::create_dir_all(&wants).map_err(|source| fail(&wants, source))?;
        match symlink(&path, &link) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(fail(&link, error));
            }
            _ => {}
        }
        reload(units.reload)
    };
    if let Err(error) = install() {
        let _ = uninstall(&folder, units.reload);
        return Err(error);
    }
    Ok(text)
}

/// Removes the unit and the stored plan. Returns the files that were removed; none when nothing was
/// persisted.
///
/// # Errors
/// When another tuning is in progress or a file cannot be removed.
pub fn remove(state: &Path) -> Result<Vec<PathBuf>, PersistError> {
    let folder = folder(state);
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let _lock = Lock::take(&folder)?;
    uninstall(&folder, Path::new("/run/systemd/system").is_dir())
}

/// Removes the installed files and the stored plan. The caller must hold the lock.
pub(super) fn uninstall(folder: &Path, reload_it: bool) -> Result<Vec<PathBuf>, PersistError> {
    let journal = persist_journal(folder);
    let text = match fs::read_to_string(&journal) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        text => text.map_err(|source| PersistError::Read { path: journal.clone(), source })?,
    };
    let mut removed = Vec::new();
    let installed: Vec<Installed> =
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    for file in installed.iter().rev() {
        let path = match file {
            // A third-party file of the same name stays.
            Installed::File(path) => match fs::read_to_string(path) {
                Ok(text) if text.starts_with(MARK) => path,
                _ => continue,
            },
            Installed::Link(path) if path.is_symlink() => path,
            Installed::Link(_) => continue,
        };
        fs::remove_file(path)
            .map_err(|source| PersistError::Remove { path: path.clone(), source })?;
        removed.push(path.clone());
    }
    if removed.iter().any(|path| path.starts_with("/etc/systemd")) {
        reload(reload_it)?;
    }
    for path in [journal, folder.join("plan.json")] {
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(PersistError::Remove { path, source }),
            Ok(()) => removed.push(path),
        }
    }
    Ok(removed)
}

fn reload(reload: bool) -> Result<(), PersistError> {
    if reload {
        Command::new("systemctl").arg("daemon-reload").run()?;
    }
    Ok(())
}

/// Returns the path of the list of what was installed.
fn persist_journal(folder: &Path) -> PathBuf {
    folder.join("persist.journal")
}

/// Records files before they are created.
fn note(folder: &Path, files: &[Installed]) -> Result<(), PersistError> {
    let path = persist_journal(folder);
    let write = || -> io::Result<()> {
        let mut file = match LineFile::create_new(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => LineFile::open(&path)?.0,
            file => file?,
        };
        file.append(files, true)?;
        line_file::sync_folder(folder)
    };
    write().map_err(|source| fail(&path, source))
}

/// Replaces a file atomically: a crash leaves the old content or the new.
fn write_whole(path: &Path, text: &str) -> Result<(), PersistError> {
    let beside = path.with_extension("new");
    let write = || -> io::Result<()> {
        fs::write(&beside, text)?;
        fs::File::open(&beside)?.sync_all()?;
        fs::rename(&beside, path)
    };
    write().map_err(|source| {
        let _ = fs::remove_file(&beside);
        fail(path, source)
    })
}

fn fail(path: &Path, source: io::Error) -> PersistError {
    PersistError::Write { path: path.into(), source }
}
