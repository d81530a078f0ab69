//! Runtimes, which start a system in its layers. One file each; `ALL` drives `tare list`, the words
//! that a study may use, and the documentation.

use std::path::Path;
use std::sync::Arc;

use tare_lab::PartError;
use tare_lab::environment::{Environment, EnvironmentSpec};

use crate::layer::{Layers, confinement, limits, neighbour, network};
use crate::rootfs::Source;
use crate::run_context::RunContext;
use crate::storage;
use crate::unavailable::Unavailable;

pub mod attached;
pub(crate) mod bundle;
pub mod containerd;
pub(crate) mod contract;
pub mod docker;
pub mod gvisor;
mod host_environment;
pub mod kata;
pub mod kubernetes;
pub mod oci;
pub mod process;
pub mod vm;

pub use contract::{Argument, LeftBehind, Make, Runtime, RuntimeError};
pub use host_environment::NotStarted;

/// Every runtime.
pub const ALL: &[Runtime] = &[
    process::RUNTIME,
    oci::RUNTIME,
    containerd::RUNTIME,
    docker::RUNTIME,
    docker::PODMAN,
    kubernetes::RUNTIME,
    vm::RUNTIME,
    attached::RUNTIME,
];

/// Returns the runtime that a study names, with its argument.
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

/// Returns every runtime as studies write it; `NAME:*` means any argument.
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

/// Checks that this host can run an environment as it is specified.
pub fn check(spec: &EnvironmentSpec) -> Result<(), PartError> {
    let (runtime, argument) = find(spec.runtime.as_str())?;
    let layers = Layers::checked(spec)?;
    vm::check(spec, &layers, (runtime.name, argument))?;
    gvisor::check(spec, &layers, argument)?;
    Source::parse(spec)?.map_or(Ok(()), |root| root.needs())?;
    (runtime.needs)(argument)?;
    network::needs(spec.network)?;
    confinement::check_host(spec)?;
    neighbour::check(spec)?;
    storage::check(spec)
}

/// Checks that an environment's guest boots on this host, if only a boot can show it. `state` is
/// the state directory, which holds the journal of the trial boot.
///
/// # Errors
/// Reports why the guest does not boot, and what to do about it.
pub fn check_boot(spec: &EnvironmentSpec, state: &Path) -> Result<(), PartError> {
    match find(spec.runtime.as_str())? {
        (runtime, argument) if runtime.name == vm::RUNTIME.name => {
            vm::check_boot(spec, argument, state)
        }
        _ => Ok(()),
    }
}

/// Returns the names of a runtime that work on this host, as studies write them, and why installed
/// ones do not work.
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

/// Returns the memory limit of a system in an environment, in bytes: that of its cgroup or of its
/// guest. `None` if there is no limit, or if the options of the guest are invalid.
pub fn memory_bytes(spec: &EnvironmentSpec) -> Option<u64> {
    let guest = find(spec.runtime.as_str())
        .ok()
        .filter(|(runtime, _)| runtime.name == vm::RUNTIME.name)
        .and_then(|(_, argument)| vm::memory_bytes(spec, argument));
    guest.into_iter().chain(spec.limits.memory_bytes).min()
}

pub(crate) fn make(
    context: &Arc<RunContext>,
    spec: &EnvironmentSpec,
) -> Result<Box<dyn Environment>, PartError> {
    let (runtime, argument) = find(spec.runtime.as_str())?;
    let layers = Layers::checked(spec)?;
    vm::check(spec, &layers, (runtime.name, argument))?;
    gvisor::check(spec, &layers, argument)?;
    Source::parse(spec)?.map_or(Ok(()), |root| root.needs())?;
    (runtime.needs)(argument)?;
    network::needs(spec.network)?;
    network::check_hosts(spec, context)?;
    storage::check(spec)?;
    storage::allow(spec, context)?;
    limits::check_host(spec, context)?;
    confinement::check_host(spec)?;
    // The work directory of a run is in the state directory.
    check_boot(spec, context.work().parent().unwrap_or(Path::new("/")))?;
    (runtime.make)(context, spec.clone(), layers, argument)
}
