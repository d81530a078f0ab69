//! `--inside`: a command starts a guest and itself in it, with the same words.
//!
//! Method: both processes see the same arguments. The one on the host checks them, boots the guest,
//! passes on what the other prints, takes what it leaves behind, and shows it. The one in the guest
//! measures, and writes to a directory of its own that the other knows. Which of the two it is, a
//! process learns from `inside::here`.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use anyhow::{Context, anyhow};
use tare_env::inside::{self, Command, DISK, Guest, GuestInfo, InsideError, RESULTS, Status};
use tare_lab::environment::INSIDE;
use tare_lab::record::HostFact;

use super::{clean, weigh};
use crate::cli::{RunInside, ServePage};
use crate::exit::{Exit, ExitWith};
use crate::stream::{Errors, UntilClosed};

/// The record, in the guest's directory.
const RECORD: &str = "record.tare";

/// Files that belong to a record that was not closed in good order, as SQLite names them.
const BESIDE: [&str; 3] = ["", "-wal", "-shm"];

/// The guest that this process runs in because of its own `--inside`.
pub(super) fn arrived(asked: &RunInside) -> Option<GuestInfo> {
    asked.inside.as_ref().and_then(|_| inside::current_guest())
}

/// Whether this process has to start a guest and itself in it.
pub(super) fn is_asked(asked: &RunInside) -> bool {
    asked.inside.is_some() && inside::current_guest().is_none()
}

/// The state directory of the process: in a guest, on the guest's own disk.
pub(super) fn state<'a>(asked: &RunInside, typed: &'a Path) -> &'a Path {
    if arrived(asked).is_some() { Path::new(DISK) } else { typed }
}

/// Refuses what does not reach out of a guest.
pub(super) fn check(asked: &RunInside, page: ServePage) -> anyhow::Result<()> {
    if asked.inside.is_none() || page.serve.is_none() {
        return Ok(());
    }
    Err(anyhow!(
        "--serve does not go with --inside: the guest has no network; leave one of them out"
    ))
    .exit_with(Exit::Usage)
}

/// Where the record is written in the guest; one that is to be gone on with is brought there.
pub(super) fn record(resume: Option<&Path>) -> anyhow::Result<PathBuf> {
    let path = Path::new(RESULTS).join(RECORD);
    if let Some(from) = resume {
        copy_record(from, &path)?;
    }
    Ok(path)
}

/// What the guest is, as facts for a record.
pub(super) fn facts() -> Vec<HostFact> {
    let Some(here) = inside::current_guest() else { return Vec::new() };
    let fact =
        |key: &str, value: String| HostFact { section: INSIDE.into(), key: key.into(), value };
    vec![fact("Linux", here.kernel), fact("on", here.accelerator)]
}

/// Runs this very command in a guest, passes on what it prints, and calls `take` with the directory
/// of what it left behind. Returns how the command ended.
pub(super) fn run(
    asked: &RunInside,
    state: &Path,
    out: &mut dyn Write,
    stop: &AtomicBool,
    take: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<Exit> {
    let options = asked.inside.clone().unwrap_or_default();
    clean::quietly(state);
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    inside::check(&options, state).or_else(refused)?;
    weigh::warn("booting a guest with this host's files");
    let mut guest = Guest::boot(&options, state, &program).or_else(refused)?;
    weigh::warn(&format!("inside Linux {} on {}", guest.kernel(), guest.accelerator()));
    let mut words = vec![program.to_string_lossy().into_owned()];
    words.extend(std::env::args().skip(1));
    // When a reader goes away, `stop` is set and the command in the guest ends in good order.
    let (mut out, mut err) = (UntilClosed(out), UntilClosed(&mut Errors));
    let ran = guest.run(&Command::new(words), &mut out, &mut err, stop);
    let taken = guest.collect().map_err(anyhow::Error::from).and_then(|folder| take(&folder));
    weigh::tell_left(&guest.close());
    let exit = exit_of(ran?)?;
    taken?;
    Ok(exit)
}

/// The error of a guest that could not be started, with its exit code.
fn refused<T>(error: InsideError) -> anyhow::Result<T> {
    let exit = match &error {
        InsideError::NoRoot | InsideError::Needs(_) | InsideError::Kernel(_) => Exit::Host,
        _ => Exit::Failure,
    };
    Err(error).exit_with(exit)
}

/// The exit code of the process in the guest is that of the one on the host.
fn exit_of(status: Status) -> anyhow::Result<Exit> {
    match status {
        Status::Code(code) => {
            Ok(Exit::ALL.into_iter().find(|exit| *exit as i32 == code).unwrap_or(Exit::Failure))
        }
        Status::Signal(signal) => {
            Err(anyhow!("the command was ended in the guest by signal {signal}"))
        }
    }
}

/// Puts the record in its place. Whether there is one.
pub(super) fn take_record(folder: &Path, to: &Path) -> anyhow::Result<bool> {
    let from = folder.join(RECORD);
    if !from.exists() {
        return Ok(false);
    }
    copy_record(&from, to)?;
    Ok(true)
}

/// Where a file that is asked for as `path` is written in the guest; `-` is standard output.
pub(super) fn result(path: &Path) -> PathBuf {
    match path.file_name() {
        Some(name) if path != Path::new("-") => Path::new(RESULTS).join(name),
        _ => path.into(),
    }
}

/// Puts such a file in its place, if it was written.
pub(super) fn take_result(folder: &Path, to: &Path) -> anyhow::Result<()> {
    let from = to.file_name().map(|name| folder.join(name)).filter(|from| from.is_file());
    match from {
        Some(from) => {
            fs::copy(&from, to).map(drop).with_context(|| format!("cannot write {}", to.display()))
        }
        None => Ok(()),
    }
}

fn copy_record(from: &Path, to: &Path) -> anyhow::Result<()> {
    for end in BESIDE {
        let with = |path: &Path| PathBuf::from(format!("{}{end}", path.display()));
        let (from, to) = (with(from), with(to));
        if end.is_empty() || from.exists() {
            fs::copy(&from, &to)
                .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
        }
    }
    Ok(())
}
