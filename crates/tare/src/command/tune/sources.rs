//! What `--from` of `tare tune flags` names: a record, and something of the user's whose diff is
//! wanted: a manifest, a compose file, a unit, a container.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, anyhow};
use tare_tune::flags::{self, Consumer, compose_file};

use crate::cli::TuneFlags;
use crate::command::report;
use crate::exit::{Exit, ExitWith};

/// The largest file that is read, in bytes; the API server takes objects of 1.5 MiB.
const FILE_MAX: u64 = 4 << 20;

/// Something of the user's.
#[derive(Debug)]
pub(super) enum Subject<'a> {
    Manifest {
        path: &'a Path,
        text: String,
    },
    Compose {
        path: &'a Path,
        text: String,
    },
    UnitFile {
        path: &'a Path,
        text: String,
    },
    /// A unit of this host, by its name.
    Unit(&'a str),
    Container {
        engine: &'a str,
        name: &'a str,
    },
}

impl Subject<'_> {
    /// Returns the consumer whose flags it takes.
    fn consumer(&self) -> &str {
        match self {
            Self::Manifest { .. } => "kubernetes",
            Self::Compose { .. } => "compose",
            Self::UnitFile { .. } | Self::Unit(_) => "systemd",
            Self::Container { engine, .. } => engine,
        }
    }
}

/// What `--from` and `--for` name.
#[derive(Debug)]
pub(super) struct Sources<'a> {
    pub(super) record: Option<&'a Path>,
    pub(super) subject: Option<Subject<'a>>,
    pub(super) consumer: &'static dyn Consumer,
}

impl<'a> Sources<'a> {
    /// Tells records, files, containers and units apart, and reads the files.
    pub(super) fn of(arguments: &'a TuneFlags) -> anyhow::Result<Self> {
        let (mut record, mut subject) = (None, None);
        for path in &arguments.from {
            let is_twice = match subject_of(arguments.consumer.as_deref(), path)? {
                Some(found) => subject.replace(found).is_some(),
                None => record.replace(path.as_path()).is_some(),
            };
            if is_twice {
                return usage(
                    "--from takes at most one record and one manifest, compose file, unit or container",
                );
            }
        }
        check_options(arguments, subject.as_ref())?;
        let name = match (&subject, &arguments.consumer) {
            (Some(subject), Some(name)) if subject.consumer() != name => {
                return usage(&format!(
                    "--from names something for {}, not for {name}; leave --for out",
                    subject.consumer()
                ));
            }
            (Some(subject), _) => subject.consumer(),
            (None, Some(name)) => name,
            (None, None) => {
                return usage(
                    "give --for CONSUMER, or --from with docker:NAME, podman:NAME, unit:NAME.service or a \
                     file whose diff is wanted",
                );
            }
        };
        // The command line accepts only known names.
        let Some(consumer) = flags::consumer(name) else { return usage("unknown consumer") };
        Ok(Self { record, subject, consumer })
    }
}

/// Returns what a value of `--from` names; `None` is a record.
fn subject_of<'a>(consumer: Option<&str>, path: &'a Path) -> anyhow::Result<Option<Subject<'a>>> {
    match path.to_str().and_then(|text| text.split_once(':')) {
        Some((engine @ ("docker" | "podman"), name)) if !name.is_empty() => {
            return Ok(Some(Subject::Container { engine, name }));
        }
        Some(("unit", name)) => return Ok(Some(Subject::Unit(name))),
        Some(("container" | "docker" | "podman", name)) => {
            let name = if name.is_empty() { "NAME" } else { name };
            return usage(&format!(
                "a container is named with its engine: --from docker:{name} or podman:{name}"
            ));
        }
        _ => {}
    }
    let is_for_file = matches!(consumer, None | Some("kubernetes" | "compose" | "systemd"));
    if is_stdin(path) && !is_for_file {
        return usage("--from - reads a manifest, which is for kubernetes and compose only");
    }
    if !is_for_file || (!is_stdin(path) && report::is_record(path)) {
        return Ok(None);
    }
    let text = read(path)?;
    let is_unit = consumer == Some("systemd")
        || consumer.is_none() && path.extension().is_some_and(|end| end == "service");
    let is_compose =
        consumer == Some("compose") || consumer.is_none() && compose_file::is_compose(&text);
    Ok(Some(match () {
        () if is_unit => Subject::UnitFile { path, text },
        () if is_compose => Subject::Compose { path, text },
        () => Subject::Manifest { path, text },
    }))
}

/// Checks that the options that choose in something fit what it is.
fn check_options(arguments: &TuneFlags, subject: Option<&Subject<'_>>) -> anyhow::Result<()> {
    let (object, container) = (arguments.object.is_some(), arguments.container.is_some());
    match subject {
        Some(_) if arguments.image.is_some() => {
            usage("--image and what --from names both have the image; leave --image out")
        }
        None if object || container => {
            usage("--object and --container choose in a manifest; give one with --from")
        }
        Some(Subject::Compose { .. }) if container => usage(
            "--container chooses in a manifest; a compose file has services: --object SERVICE",
        ),
        Some(Subject::UnitFile { .. } | Subject::Unit(_) | Subject::Container { .. })
            if object || container =>
        {
            usage("--object and --container choose in a manifest or a compose file; leave them out")
        }
        Some(Subject::Unit(_) | Subject::Container { .. }) if arguments.snapshot.is_some() => {
            usage("a container or a unit runs on this host; leave --snapshot out")
        }
        _ => Ok(()),
    }
}

fn usage<T>(text: &str) -> anyhow::Result<T> {
    Err(anyhow!("{text}")).exit_with(Exit::Usage)
}

pub(super) fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Reads a text from a file or from standard input.
fn read(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let read = match is_stdin(path) {
        true => io::stdin().take(FILE_MAX + 1).read_to_string(&mut text),
        false => File::open(path).and_then(|f| f.take(FILE_MAX + 1).read_to_string(&mut text)),
    };
    let what = || format!("cannot read {}", path.display());
    read.with_context(what).exit_with(Exit::Input)?;
    if text.len() as u64 > FILE_MAX {
        return Err(anyhow!("{}: it is larger than 4 MiB", what())).exit_with(Exit::Input);
    }
    Ok(text)
}
