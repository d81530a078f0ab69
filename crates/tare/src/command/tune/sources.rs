//! `tare tune flags --for kubernetes --from pod.yaml`: reads the manifest of a user's pod and the
//! diff of what would change in it.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, anyhow};
use tare_tune::flags::manifest::{self, Manifest, ManifestDiff, ManifestError};
use tare_tune::flags::{Consumer, FlagsError, Host, Request};
use tare_tune::machine::Topology;
use tare_tune::plan::CpuSets;

use crate::cli::TuneFlags;
use crate::exit::{Exit, ExitWith, exit_error};

/// The first bytes of a record, which is a database of SQLite (its file format, section 1.3).
const RECORD_START: &[u8] = b"SQLite format 3\0";

/// The largest manifest that is read, in bytes; the API server takes objects of 1.5 MiB.
const MANIFEST_MAX: u64 = 4 << 20;

/// What `--from` names.
#[derive(Debug, Default)]
pub(super) struct Sources<'a> {
    pub(super) record: Option<&'a Path>,
    pub(super) manifest: Option<&'a Path>,
}

impl<'a> Sources<'a> {
    /// Tells records from manifests by their content.
    pub(super) fn of(arguments: &'a TuneFlags, consumer: &dyn Consumer) -> anyhow::Result<Self> {
        let mut sources = Self::default();
        let for_pods = consumer.name() == "kubernetes";
        for path in &arguments.from {
            let is_manifest = is_stdin(path) || for_pods && !is_record(path);
            let place = if is_manifest { &mut sources.manifest } else { &mut sources.record };
            if place.replace(path).is_some() {
                return usage("--from takes at most one record and one manifest");
            }
        }
        match sources.manifest {
            Some(_) if !for_pods => {
                usage("--from - reads a manifest, which is for kubernetes only")
            }
            Some(_) if arguments.image.is_some() => {
                usage("--image and a manifest both name the image; leave --image out")
            }
            None if arguments.object.is_some() || arguments.container.is_some() => {
                usage("--object and --container choose in a manifest; give one with --from")
            }
            _ => Ok(sources),
        }
    }
}

fn usage<T>(text: &str) -> anyhow::Result<T> {
    Err(anyhow!("{text}")).exit_with(Exit::Usage)
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn is_record(path: &Path) -> bool {
    let starts = || {
        let mut start = Vec::new();
        File::open(path)?.take(RECORD_START.len() as u64).read_to_end(&mut start)?;
        io::Result::Ok(start == RECORD_START)
    };
    path.extension().is_some_and(|extension| extension == "tare") || starts().unwrap_or(false)
}

/// Reads a manifest from a file or from standard input.
pub(super) fn read(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let read = match is_stdin(path) {
        true => io::stdin().take(MANIFEST_MAX + 1).read_to_string(&mut text),
        false => File::open(path).and_then(|f| f.take(MANIFEST_MAX + 1).read_to_string(&mut text)),
    };
    let what = || format!("cannot read {}", path.display());
    read.with_context(what).exit_with(Exit::Input)?;
    if text.len() as u64 > MANIFEST_MAX {
        return Err(anyhow!("{}: it is larger than 4 MiB", what())).exit_with(Exit::Input);
    }
    Ok(text)
}

/// Returns what would change in a manifest. Errors have their exit code.
pub(super) fn diff(
    path: &Path,
    text: &str,
    arguments: &TuneFlags,
    request: &Request,
    topology: &Topology,
    cpus: &CpuSets,
    host: &Host,
) -> anyhow::Result<ManifestDiff> {
    let name = path.display().to_string();
    let manifest = Manifest {
        file: if is_stdin(path) { "pod.yaml" } else { &name },
        text,
        object: arguments.object.as_deref(),
        container: arguments.container.as_deref(),
    };
    manifest::diff(&manifest, request, topology, cpus, host).map_err(|error| {
        let exit = match &error {
            ManifestError::TooLarge { .. } => Exit::Failure,
            ManifestError::Flags(FlagsError::Image { .. } | FlagsError::Path { .. }) => Exit::Usage,
            ManifestError::Flags(_) => Exit::Failure,
            _ => Exit::Input,
        };
        exit_error(error, exit)
    })
}
