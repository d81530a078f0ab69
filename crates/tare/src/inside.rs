//! `--inside`: a command boots a guest and runs itself in it, with the same arguments.
//!
//! Method: both processes have the same arguments. The process on the host checks them, boots the
//! guest, relays what the other prints, copies its files, and shows the result. The process in the
//! guest measures, and writes to the directory `RESULTS`. A process reads from
//! `tare_env::inside::current_guest` which of the two it is.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use anyhow::{Context, anyhow};
use tare_env::inside::{
    self as guest, Command, DISK, Guest, GuestInfo, InsideError, RESULTS, Status,
};
use tare_lab::environment::INSIDE;
use tare_lab::record::{HostFact, copy_record};

use crate::cleanup;
use crate::cli::{RunInside, ServePage};
use crate::exit::{Exit, ExitWith};
use crate::stream::{DropWhenClosed, Errors, warn};

/// The name of the record in the guest's directory.
const RECORD: &str = "record.tare";

/// Returns the guest that this process runs in because of its own `--inside`.
pub(crate) fn current_guest(options: &RunInside) -> Option<GuestInfo> {
    options.inside.as_ref().and_then(|_| guest::current_guest())
}

/// Returns whether this process has to boot a guest and run itself in it.
pub(crate) fn must_boot(options: &RunInside) -> bool {
    options.inside.is_some() && guest::current_guest().is_none()
}

/// Returns the state directory of this process: in a guest, one on the guest's own disk.
pub(crate) fn state_directory<'a>(options: &RunInside, on_host: &'a Path) -> &'a Path {
    if current_guest(options).is_some() { Path::new(DISK) } else { on_host }
}

/// Refuses options that cannot work in a guest.
pub(crate) fn check(options: &RunInside, page: ServePage) -> anyhow::Result<()> {
    if options.inside.is_none() || page.serve.is_none() {
        return Ok(());
    }
    Err(anyhow!(
        "--serve does not work with --inside: the guest has no network; leave out one of them"
    ))
    .exit_with(Exit::Usage)
}

/// Returns the path of the record in the guest. A record to continue is copied there.
pub(crate) fn record(resume: Option<&Path>) -> anyhow::Result<PathBuf> {
    let path = Path::new(RESULTS).join(RECORD);
    if let Some(from) = resume {
        copy_record(from, &path)?;
    }
    Ok(path)
}

/// Returns what the guest is, as facts for a record; none on the host.
pub(crate) fn guest_facts() -> Vec<HostFact> {
    let Some(guest) = guest::current_guest() else { return Vec::new() };
    let fact =
        |key: &str, value: String| HostFact { section: INSIDE.into(), key: key.into(), value };
    vec![fact("Linux", guest.kernel), fact("on", guest.accelerator)]
}

/// Runs this command in a guest, relays what it prints, and calls `fetch` with the directory of its
/// files. Returns the exit code of the command.
pub(crate) fn run(
    options: &RunInside,
    state: &Path,
    out: &mut dyn Write,
    stop: &AtomicBool,
    fetch: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<Exit> {
    let options = options.inside.clone().unwrap_or_default();
    cleanup::before_run(state);
    let program = crate::own_program()?;
    guest::check(&options, state).or_else(guest_error)?;
    warn("booting a guest with this host's files");
    let mut machine = Guest::boot(&options, state, &program).or_else(guest_error)?;
    warn(&format!("inside Linux {} on {}", machine.kernel(), machine.accelerator()));
    let mut words = vec![program.to_string_lossy().into_owned()];
    words.extend(std::env::args().skip(1));
    // When a reader goes away, `stop` is set and the command in the guest ends cleanly.
    let (mut out, mut err) = (DropWhenClosed(out), DropWhenClosed(&mut Errors));
    let ran = machine.run(&Command::new(words), &mut out, &mut err, stop);
    let fetched = machine.collect().map_err(anyhow::Error::from).and_then(|folder| fetch(&folder));
    cleanup::warn_left(&machine.close());
    let exit = exit_of(ran?)?;
    fetched?;
    Ok(exit)
}

/// Adds the exit code to the error of a guest that could not be started.
fn guest_error<T>(error: InsideError) -> anyhow::Result<T> {
    let exit = match &error {
        InsideError::NoRoot | InsideError::Needs(_) | InsideError::Kernel(_) => Exit::Host,
        _ => Exit::Failure,
    };
    Err(error).exit_with(exit)
}

/// Returns the exit code of the process in the guest, for the process on the host.
fn exit_of(status: Status) -> anyhow::Result<Exit> {
    match status {
        Status::Code(code) => Ok(Exit::of_code(code)),
        Status::Signal(signal) => Err(anyhow!("signal {signal} ended the command in the guest")),
    }
}

/// Copies the record out of the guest's directory. Returns whether there is one.
pub(crate) fn fetch_record(folder: &Path, to: &Path) -> anyhow::Result<bool> {
    let from = folder.join(RECORD);
    if !from.exists() {
        return Ok(false);
    }
    copy_record(&from, to)?;
    Ok(true)
}

/// Returns where the guest writes the result file `path`; `-` is standard output.
pub(crate) fn result(path: &Path) -> PathBuf {
    match path.file_name() {
        Some(name) if path != Path::new("-") => Path::new(RESULTS).join(name),
        _ => path.into(),
    }
}

/// Copies the result file `to` out of the guest's directory, if it was written.
pub(crate) fn fetch_result(folder: &Path, to: &Path) -> anyhow::Result<()> {
    let from = to.file_name().map(|name| folder.join(name)).filter(|from| from.is_file());
    match from {
        Some(from) => {
            fs::copy(&from, to).map(drop).with_context(|| format!("cannot write {}", to.display()))
        }
        None => Ok(()),
    }
}
