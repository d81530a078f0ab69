//! The directory of a run that another host started: what was asked, what came of it, and whether
//! it lives.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use serde::{Deserialize, Serialize};
use tare_host::clean::Leftover;
use tare_std::file_lock::FileLock;

/// Where the directories are. They start with `PREFIX`.
const PARENT: &str = "/var/tmp";
const PREFIX: &str = "tare-on-";
/// The time that a command without a supervisor gets to end.
const ORPHAN: Duration = Duration::from_secs(20);

pub(super) const SPEC: &str = "session.json";
pub(super) const WORK: &str = "work";
/// The access of the command to a cluster, if it has one.
pub(super) const KUBECONFIG: &str = "kubeconfig";
pub(super) const SOCKET: &str = "socket";
pub(super) const LOG: &str = "log";
pub(super) const ENDED: &str = "ended.json";
pub(super) const CHILD: &str = "child";
/// Names the directory of the run that a process is the command of.
pub(super) const VARIABLE: &str = "TARE_SESSION";
const LOCK: &str = "lock";

/// What another host asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionSpec {
    /// The words after `tare`.
    pub(crate) arguments: Vec<String>,
    /// Whether the command goes on without a watcher.
    pub(crate) detach: bool,
    pub(crate) terminal: Option<TerminalSpec>,
    /// The account that the command has in the cluster of its node.
    #[serde(default)]
    pub(crate) account: Option<SessionAccount>,
    /// Names and values for the record's facts.
    pub(crate) facts: Vec<(String, String)>,
    /// Files that may be replaced on the host that asked, as they are called here.
    pub(crate) replace: Vec<PathBuf>,
    /// Directories here, and where their files go on the host that asked.
    pub(crate) outputs: Vec<(PathBuf, PathBuf)>,
}

/// An account, by the namespace that it is in. The host that asked deletes it after the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionAccount {
    pub(crate) namespace: String,
    /// The run in the label of the namespace.
    pub(crate) run: String,
}

/// The terminal of the user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TerminalSpec {
    pub(crate) term: String,
    /// `NO_COLOR`.
    pub(crate) no_colour: String,
    pub(crate) columns: u16,
    pub(crate) rows: u16,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
}

/// A run, as `list` prints it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Session {
    pub(crate) directory: PathBuf,
    pub(crate) alive: bool,
    pub(crate) spec: SessionSpec,
    pub(crate) ended: Option<Ended>,
}

impl Session {
    /// Returns the letters and digits that name the run.
    pub(crate) fn id(&self) -> String {
        id(&self.directory)
    }
}

pub(crate) fn id(directory: &Path) -> String {
    let name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
    name.strip_prefix(PREFIX).unwrap_or(&name).to_string()
}

/// Makes a new directory that only this user can read.
pub(super) fn create() -> anyhow::Result<PathBuf> {
    for _ in 0..64 {
        let mut bytes = [0; 4];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        let path = Path::new(PARENT).join(format!("{PREFIX}{:08x}", u32::from_be_bytes(bytes)));
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| path).context(format!("cannot write to {PARENT}")),
        }
    }
    bail!("no name is free in {PARENT}")
}

/// Refuses what is no directory of a run of this user.
pub(super) fn check(directory: &Path) -> anyhow::Result<()> {
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    let named = directory.parent() == Some(Path::new(PARENT)) && name.starts_with(PREFIX);
    let ours = fs::symlink_metadata(directory)
        .is_ok_and(|found| found.is_dir() && found.uid() == rustix::process::geteuid().as_raw());
    match named && ours {
        true => Ok(()),
        false => Err(anyhow!("{} is no directory of a run", directory.display())),
    }
}

/// Reads what was asked.
pub(super) fn read_spec(directory: &Path) -> anyhow::Result<SessionSpec> {
    let file = directory.join(SPEC);
    let text = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("cannot understand {}", file.display()))
}

/// Reads how the command ended; `None` while it runs, or if nobody saw its end.
pub(super) fn read_ended(directory: &Path) -> Option<Ended> {
    serde_json::from_slice(&fs::read(directory.join(ENDED)).ok()?).ok()
}

/// Holds the lock of a run until dropped; `None` if another process holds it.
pub(super) fn lock(directory: &Path) -> io::Result<Option<FileLock>> {
    FileLock::exclusive(File::options().create(true).append(true).open(directory.join(LOCK))?)
}

/// Keeps which process is the command: its number, and its start, as numbers are used again.
pub(super) fn write_child(directory: &Path, pid: u32) -> io::Result<()> {
    fs::write(directory.join(CHILD), format!("{pid} {}", started(pid).unwrap_or_default()))
}

fn started(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Field 22; the name before it may have blanks.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19).map(Into::into)
}

fn child_lives(directory: &Path) -> bool {
    let text = fs::read_to_string(directory.join(CHILD)).unwrap_or_default();
    let Some((pid, start)) = text.split_once(' ') else { return false };
    pid.parse().ok().and_then(started).is_some_and(|now| now == start)
}

/// Whether the supervisor lives, or the command without it, which ends then.
fn is_alive(directory: &Path) -> bool {
    let begun = Instant::now();
    loop {
        match lock(directory) {
            Ok(Some(_)) if !child_lives(directory) => return false,
            Ok(Some(_)) if begun.elapsed() < ORPHAN => {
                std::thread::sleep(Duration::from_millis(100));
            }
            Ok(Some(_) | None) => return true,
            Err(_) => return false,
        }
    }
}

/// Returns the runs of this user.
fn all() -> Vec<Session> {
    let entries = fs::read_dir(PARENT).into_iter().flatten().flatten();
    let mut sessions: Vec<Session> = entries
        .map(|entry| entry.path())
        .filter(|path| check(path).is_ok())
        .map(|directory| Session {
            alive: is_alive(&directory),
            spec: read_spec(&directory).unwrap_or_default(),
            ended: read_ended(&directory),
            directory,
        })
        .collect();
    sessions.sort_by(|a, b| a.directory.cmp(&b.directory));
    sessions
}

/// Returns the runs of this user, for `tare doctor`.
pub(super) fn leftovers(_state: &Path) -> Vec<Leftover> {
    let kind = "run of another host";
    let leftover = |session: Session| Leftover {
        kind,
        name: session.directory.display().to_string(),
        alive: session.alive.then(|| session.id()),
    };
    // This process may be the command of one itself.
    let own = std::env::var_os(VARIABLE).map(PathBuf::from);
    let others = all().into_iter().filter(|session| Some(&session.directory) != own.as_ref());
    others.map(leftover).collect()
}

/// Prints the runs of this user as JSON.
pub(super) fn print_all(out: &mut dyn Write) -> anyhow::Result<()> {
    serde_json::to_writer(&mut *out, &all())?;
    Ok(writeln!(out)?)
}

/// Removes the directory of a run that has ended.
pub(super) fn remove(directory: &Path) -> anyhow::Result<()> {
    check(directory)?;
    if is_alive(directory) {
        bail!("the run {} has not ended", id(directory));
    }
    fs::remove_dir_all(directory).with_context(|| format!("cannot remove {}", directory.display()))
}
