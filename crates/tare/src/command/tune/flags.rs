//! `tare tune flags`: writes flags for a container's command line, a unit or a database.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;

use anyhow::{Context, bail};
use tare_env::layer::security;
use tare_lab::layer::Security;
use tare_tune::flags::{self, Consumer, FlagsError, Host, ProfileForm, Request};
use tare_tune::plan::{Options, cpus};
use tare_tune::planner::read_machine;
use tare_tune::snapshot::Snapshot;

use super::found::{self, Inputs};
use super::sources::Sources;
use super::{gains, options};
use crate::cli::TuneFlags;
use crate::command::report;
use crate::exit::{Exit, ExitWith, exit_error};

/// The value of the security layer for the profile.
const SECURITY: Security = Security::DefaultWithIoUring;

/// Files that flags depend on in addition to those that the planner reads. The limits of this
/// process do not apply to a recorded host.
const LIVE_FILES: [&str; 7] = [
    "/proc/meminfo",
    "/proc/sys/fs/nr_open",
    "/proc/sys/kernel/osrelease",
    "/proc/1/limits",
    "/proc/1/status",
    "/proc/self/limits",
    "/proc/self/status",
];

pub(crate) fn run(arguments: &TuneFlags, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let sources = Sources::of(arguments)?;
    let consumer = sources.consumer;
    let mut snapshot = options::snapshot(arguments.snapshot.as_ref())?;
    if arguments.snapshot.is_none() {
        add_live_files(&mut snapshot);
    }
    let options = Options {
        cpus: arguments.cpus.clone(),
        irq_cpus: arguments.irq_cpus.clone(),
        ratio: arguments.ratio,
        ..Options::default()
    };
    let machine = read_machine(&snapshot, &options).exit_with(Exit::Host)?;
    let cpus = cpus::choose(&machine, &options).context("cannot divide the CPUs")?;
    let mut request = Request {
        instances: arguments.instances,
        memory_bytes: arguments.memory,
        image: arguments.image.clone(),
        seccomp: arguments.seccomp.as_deref().map(absolute).transpose()?,
        ..Request::default()
    };
    let mut notes = Vec::new();
    if let Some(path) = sources.record {
        let record = report::read(path)?;
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        (request.measured, notes) = gains::read(&record, &name, consumer.name());
    }
    let host = Host::read(&snapshot);
    if let Some(subject) = &sources.subject {
        let moby: Option<serde_json::Value> = match &request.seccomp {
            Some(_) => Some(serde_json::from_str(&profile(ProfileForm::Moby, &[], &snapshot)?)?),
            None => None,
        };
        let inputs = Inputs {
            request: &request,
            topology: &machine.topology,
            cpus: &cpus,
            host: &host,
            profile: moby.as_ref(),
        };
        let mut diff = found::diff(subject, arguments, inputs)?;
        diff.notes().extend(notes);
        if let Some(path) = &request.seccomp {
            let profile = profile(consumer.profile_form(), diff.capabilities(), &snapshot)?;
            write_profile(Path::new(path), &profile)?;
        }
        match arguments.json {
            true => writeln!(out, "{}", serde_json::to_string_pretty(&diff)?)?,
            false => write!(out, "{}", diff.text())?,
        }
        return Ok(Exit::Success);
    }
    let written = flags::write(consumer, &request, &machine.topology, &cpus, &host);
    let mut written = written.map_err(|error| flags_error(error, consumer))?;
    written.notes.extend(notes);
    if let Some(path) = &request.seccomp {
        let profile = profile(consumer.profile_form(), &written.capabilities, &snapshot)?;
        write_profile(Path::new(path), &profile)?;
    }
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&written)?)?;
    } else {
        write!(out, "{}", written.text())?;
    }
    Ok(Exit::Success)
}

/// Adds the exit code to an error of writing flags.
fn flags_error(error: FlagsError, consumer: &dyn Consumer) -> anyhow::Error {
    let exit = match error {
        FlagsError::Image { .. } | FlagsError::Path { .. } => Exit::Usage,
        _ => Exit::Failure,
    };
    let what = format!("cannot write flags for {}", consumer.name());
    exit_error(anyhow::Error::new(error).context(what), exit)
}

/// Adds files of this host that the snapshot lacks.
fn add_live_files(snapshot: &mut Snapshot) {
    for path in LIVE_FILES {
        if !snapshot.exists(path)
            && let Ok(text) = fs::read_to_string(path)
        {
            snapshot.write(path, &text);
        }
    }
}

/// Returns the absolute path as text for the flags.
fn absolute(path: &Path) -> anyhow::Result<String> {
    let absolute = std::path::absolute(path).exit_with(Exit::Usage)?;
    match absolute.into_os_string().into_string() {
        Ok(text) => Ok(text),
        Err(_) => bail!("cannot use {}: the path is not UTF-8", path.display()),
    }
}

/// Returns the seccomp profile in the format that the consumer reads.
fn profile(
    form: ProfileForm,
    added: &[&'static str],
    snapshot: &Snapshot,
) -> anyhow::Result<String> {
    match form {
        ProfileForm::Moby => Ok(security::moby_json(SECURITY)?.unwrap_or_default()),
        ProfileForm::Oci => {
            let own = security::CAPABILITIES.iter().chain(added);
            let capabilities: Vec<String> = own.map(|&name| name.to_owned()).collect();
            let profile = security::profile(SECURITY, &capabilities, kernel(snapshot))?;
            Ok(serde_json::to_string(&profile)?)
        }
    }
}

/// Returns version and major revision of the kernel; 0.0 if unknown, so that the profile allows
/// nothing that needs a newer kernel.
fn kernel(snapshot: &Snapshot) -> (u32, u32) {
    let release = snapshot.read("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Writes the profile, and refuses to replace a different file.
fn write_profile(path: &Path, profile: &str) -> anyhow::Result<()> {
    let text = format!("{profile}\n");
    match fs::File::create_new(path) {
        Ok(mut file) => {
            file.write_all(text.as_bytes())
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            if fs::read_to_string(path).ok() != Some(text) {
                let what = anyhow::anyhow!(
                    "{} exists already with different content; remove it or name another file",
                    path.display()
                );
                return Err(what).exit_with(Exit::Input);
            }
        }
        Err(error) => {
            return Err(error).with_context(|| format!("cannot write {}", path.display()));
        }
    }
    Ok(())
}
