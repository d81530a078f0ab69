//! Runtimes: what starts a system in its layers. One file each; `ALL` drives `tare list`, the words
//! that a study may use, and the documentation.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tare_host::error_line;
use tare_host::journal::EntryId;
use tare_lab::PartError;
use tare_lab::environment::{Environment, EnvironmentSpec};

use crate::layer::Layers;
use crate::rootfs::Source;
use crate::site::Ground;
use crate::storage;

pub mod docker;
pub mod gvisor;
pub mod kata;
pub mod oci;
pub mod process;
pub mod vm;

/// How long a killed process may take to end. It is at most waiting for its disk.
pub(crate) const KILL_LIMIT: Duration = Duration::from_secs(10);

/// A kind of runtime. In a study it is written `name` or `name:argument`.
#[derive(Clone, Copy)]
pub struct Runtime {
    pub name: &'static str,
    /// One line: what it is.
    pub help: &'static str,
    /// What stands after the colon, if anything may or must.
    pub argument: Argument,
    /// Values of layers and other options that it understands, as (name, one line).
    pub options: &'static [(&'static str, &'static str)],
    /// Whether this host can run it (with this argument); otherwise what is missing.
    pub needs: fn(Option<&str>) -> Result<(), Unavailable>,
    /// How it cleans up.
    pub cleanup: &'static str,
    /// How it is read back that it is in force.
    pub read_back: &'static str,
    /// Names that work on this host, as a study writes them.
    pub found: fn() -> Vec<String>,
    make: Make,
}

/// Makes an environment. The layers are those of the specification, parsed and checked.
pub type Make = fn(
    &Arc<Ground>,
    EnvironmentSpec,
    Layers,
    Option<&str>,
) -> Result<Box<dyn Environment>, PartError>;

/// Whether a runtime takes an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    None,
    /// May be given; the text says what it is.
    Optional(&'static str),
    Required(&'static str),
}

/// Why a runtime or a layer cannot be used on this host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} cannot run here: {why}; {remedy}")]
pub struct Unavailable {
    pub what: String,
    pub why: String,
    /// How to get it.
    pub remedy: String,
}

/// Why a runtime's name in a study means nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeError {
    #[error("unknown runtime {name:?}; known are {known}")]
    Unknown { name: String, known: String },
    #[error("runtime {name:?} needs an argument: write {name}:{what}")]
    NoArgument { name: String, what: &'static str },
    #[error("runtime {name:?} takes no argument, but {argument:?} was given")]
    Argument { name: String, argument: String },
}

/// Why an environment is not gone without trace. What is left stays in the journal.
#[derive(Debug, thiserror::Error)]
#[error("environment {environment:?} left something behind, try tare clean: {errors}")]
pub struct LeftBehind {
    environment: String,
    errors: String,
}

/// Undoes an environment's journal entries, in `stop`. Idempotent.
pub(crate) fn undo(
    ground: &Ground,
    environment: &str,
    entries: &mut Vec<EntryId>,
) -> Result<(), LeftBehind> {
    let errors = ground.journal().undo(&std::mem::take(entries));
    if errors.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = errors.iter().map(|error| error_line(error)).collect();
    Err(LeftBehind { environment: environment.into(), errors: lines.join("; ") })
}

/// Every runtime.
pub const ALL: &[Runtime] =
    &[process::RUNTIME, oci::RUNTIME, docker::RUNTIME, docker::PODMAN, vm::RUNTIME];

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The runtime that a study's word names, with its argument.
pub fn find(word: &str) -> Result<(&'static Runtime, Option<&str>), RuntimeError> {
    let (name, argument) = match word.split_once(':') {
        Some((name, argument)) => (name, Some(argument)),
        None => (word, None),
    };
    let Some(runtime) = ALL.iter().find(|runtime| runtime.name == name) else {
        let known = words().join(", ");
        return Err(RuntimeError::Unknown { name: word.into(), known });
    };
    match (runtime.argument, argument) {
        (Argument::Required(what), None | Some("")) => {
            Err(RuntimeError::NoArgument { name: name.into(), what })
        }
        (Argument::None, Some(argument)) => {
            Err(RuntimeError::Argument { name: name.into(), argument: argument.into() })
        }
        (Argument::Optional(what), Some("")) => {
            Err(RuntimeError::NoArgument { name: name.into(), what })
        }
        _ => Ok((runtime, argument)),
    }
}

/// Every runtime as a word of a study; `NAME:*` stands for any argument.
pub fn words() -> Vec<String> {
    let mut words = Vec::new();
    for runtime in ALL {
        if !matches!(runtime.argument, Argument::Required(_)) {
            words.push(runtime.name.to_string());
        }
        if runtime.argument != Argument::None {
            words.push(format!("{}:*", runtime.name));
        }
    }
    words
}

/// Whether this host can run an environment as it is specified.
pub fn check(spec: &EnvironmentSpec) -> Result<(), PartError> {
    let (runtime, argument) = find(&spec.runtime)?;
    let layers = Layers::parse(spec)?;
    vm::check(spec, &layers, (runtime.name, argument))?;
    gvisor::check(spec, &layers, argument)?;
    Source::parse(spec)?.map_or(Ok(()), |root| root.needs())?;
    (runtime.needs)(argument)?;
    storage::check(spec)
}

/// Checks that an environment's guest boots on this host, where only a boot tells. `state` is the state
/// directory, where the outcome is kept.
///
/// # Errors
/// Why it does not boot, and what to do about it.
pub fn check_boot(spec: &EnvironmentSpec, state: &Path) -> Result<(), PartError> {
    match find(&spec.runtime)? {
        (runtime, argument) if runtime.name == vm::RUNTIME.name => {
            vm::check_boot(spec, argument, state)
        }
        _ => Ok(()),
    }
}

/// The names of a runtime that work on this host, as a study writes them, and why others do not that
/// are installed.
pub fn usable(runtime: &Runtime, state: &Path) -> (Vec<String>, Vec<Unavailable>) {
    let (mut names, mut not) = ((runtime.found)(), Vec::new());
    names.retain(|name| {
        let found = match name == "vm:uml" {
            true => vm::check_user_mode(None, state),
            false => Ok(()),
        };
        found.map_err(|why| not.push(why)).is_ok()
    });
    (names, not)
}

/// The memory that a system can have in an environment at most, in bytes, where that is limited: by its
/// cgroup, or by the size of its guest. `None` too where the options of the guest mean nothing.
pub fn memory_bytes(spec: &EnvironmentSpec) -> Option<u64> {
    let guest = find(&spec.runtime)
        .ok()
        .filter(|(runtime, _)| runtime.name == vm::RUNTIME.name)
        .and_then(|(_, argument)| vm::memory_bytes(spec, argument));
    guest.into_iter().chain(spec.limits.memory_bytes).min()
}

pub(crate) fn make(
    ground: &Arc<Ground>,
    spec: &EnvironmentSpec,
) -> Result<Box<dyn Environment>, PartError> {
    let (runtime, argument) = find(&spec.runtime)?;
    let layers = Layers::parse(spec)?;
    vm::check(spec, &layers, (runtime.name, argument))?;
    gvisor::check(spec, &layers, argument)?;
    Source::parse(spec)?.map_or(Ok(()), |root| root.needs())?;
    (runtime.needs)(argument)?;
    storage::check(spec)?;
    storage::allow(spec, ground)?;
    // The work directory of a run lies in the state directory.
    check_boot(spec, ground.work().parent().unwrap_or(Path::new("/")))?;
    (runtime.make)(ground, spec.clone(), layers, argument)
}
