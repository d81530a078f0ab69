//! The diffs of `tare tune flags --from`: of a manifest, a compose file, a unit or a container.

use std::path::Path;

use serde::Serialize;
use tare_env::runtime::docker::{self, InspectError};
use tare_tune::flags::compose_file::{self, ComposeError, ComposeFile};
use tare_tune::flags::manifest::{self, Manifest, ManifestDiff, ManifestError};
use tare_tune::flags::{Diff, FlagsError, Host, Request, running, unit_file};
use tare_tune::machine::Topology;
use tare_tune::plan::CpuSets;

use super::sources::{Subject, is_stdin};
use super::unit;
use crate::cli::TuneFlags;
use crate::exit::{Exit, exit_error};

/// What the diffs depend on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inputs<'a> {
    pub(super) request: &'a Request,
    pub(super) topology: &'a Topology,
    pub(super) cpus: &'a CpuSets,
    pub(super) host: &'a Host,
    /// The content of the requested seccomp profile in Moby's form.
    pub(super) profile: Option<&'a serde_json::Value>,
}

/// The diff of anything.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Found {
    Manifest(ManifestDiff),
    Other(Diff),
}

impl Found {
    pub(super) fn text(&self) -> String {
        match self {
            Self::Manifest(diff) => diff.text(),
            Self::Other(diff) => diff.text(),
        }
    }

    pub(super) fn notes(&mut self) -> &mut Vec<String> {
        match self {
            Self::Manifest(diff) => &mut diff.notes,
            Self::Other(diff) => &mut diff.notes,
        }
    }

    /// Returns the capabilities for a seccomp profile in OCI form.
    pub(super) fn capabilities(&self) -> &[&'static str] {
        match self {
            Self::Manifest(diff) => &diff.capabilities,
            Self::Other(_) => &[],
        }
    }
}

/// Returns what would change in something of the user's. Errors have their exit code.
pub(super) fn diff(
    subject: &Subject<'_>,
    arguments: &TuneFlags,
    inputs: Inputs<'_>,
) -> anyhow::Result<Found> {
    let Inputs { request, topology, cpus, host, profile } = inputs;
    let root = Path::new("/");
    let diff = match subject {
        Subject::Manifest { path, text } => {
            let file = name(path, "pod.yaml");
            let (object, container) = (arguments.object.as_deref(), arguments.container.as_deref());
            let manifest = Manifest { file: &file, text, object, container };
            let diff = manifest::diff(&manifest, request, topology, cpus, host);
            return diff.map(Found::Manifest).map_err(manifest_error);
        }
        Subject::Compose { path, text } => {
            let file = name(path, "compose.yaml");
            let compose = ComposeFile { file: &file, text, service: arguments.object.as_deref() };
            compose_file::diff(&compose, request, topology, cpus, host).map_err(compose_error)?
        }
        Subject::UnitFile { path, text } => {
            let unit = unit::of_file(root, path, text)?;
            unit_file::diff(&unit, request, topology, cpus, host)
                .map_err(|error| flags_error(error, &unit.name))?
        }
        Subject::Unit(name) => {
            let unit = unit::read(root, name)?;
            unit_file::diff(&unit, request, topology, cpus, host)
                .map_err(|error| flags_error(error, name))?
        }
        Subject::Container { engine, name } => {
            let inspection = docker::inspect(engine, name).map_err(inspect_error)?;
            running::diff(&inspection, profile, request, topology, cpus, host)
                .map_err(|error| flags_error(error, &format!("{engine}:{name}")))?
        }
    };
    Ok(Found::Other(diff))
}

fn name(path: &Path, of_stdin: &str) -> String {
    if is_stdin(path) { of_stdin.into() } else { path.display().to_string() }
}

fn flags_error(error: FlagsError, what: &str) -> anyhow::Error {
    let error = anyhow::Error::new(error).context(format!("cannot write flags for {what}"));
    exit_error(error, Exit::Failure)
}

fn manifest_error(error: ManifestError) -> anyhow::Error {
    let exit = match &error {
        ManifestError::TooLarge { .. } => Exit::Failure,
        ManifestError::Flags(FlagsError::Image { .. } | FlagsError::Path { .. }) => Exit::Usage,
        ManifestError::Flags(_) => Exit::Failure,
        _ => Exit::Input,
    };
    exit_error(error, exit)
}

fn compose_error(error: ComposeError) -> anyhow::Error {
    let exit =
        if matches!(error, ComposeError::Flags { .. }) { Exit::Failure } else { Exit::Input };
    exit_error(error, exit)
}

fn inspect_error(error: InspectError) -> anyhow::Error {
    let exit = match &error {
        InspectError::Engine(_) => Exit::Host,
        InspectError::Missing { .. } => Exit::Input,
        InspectError::Call(_) => Exit::Failure,
    };
    exit_error(error, exit)
}
