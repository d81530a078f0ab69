//! Where a client runs: its network namespace and its CPUs.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::thread::{CpuSet as Affinity, LinkNameSpaceType, move_into_link_name_space};
use tare_std::cpus::CpuSet;

/// Why a client cannot be placed.
#[derive(Debug, thiserror::Error)]
pub enum PlacementError {
    #[error("cannot open the network namespace {path}", path = path.display())]
    OpenNamespace { path: PathBuf, source: std::io::Error },
    #[error("cannot enter the network namespace {path}; are you root?", path = path.display())]
    EnterNamespace { path: PathBuf, source: std::io::Error },
    #[error("cannot run on the client's CPUs {cpus}; are they online and in the cpuset?")]
    Affinity { cpus: CpuSet, source: std::io::Error },
}

/// Runs `work` in a network namespace on a thread of its own, so that no other thread moves.
pub(super) fn within<T: Send>(
    namespace: Option<&Path>,
    work: impl FnOnce() -> T + Send,
) -> Result<T, PlacementError> {
    std::thread::scope(|scope| {
        let placement = || enter(namespace).map(|()| work());
        scope.spawn(placement).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Moves the calling thread into a network namespace.
fn enter(path: Option<&Path>) -> Result<(), PlacementError> {
    let Some(path) = path else { return Ok(()) };
    let file = File::open(path)
        .map_err(|source| PlacementError::OpenNamespace { path: path.into(), source })?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(|errno| PlacementError::EnterNamespace { path: path.into(), source: errno.into() })
}

/// Binds the calling thread to a set of CPUs.
pub(super) fn bind(cpus: &CpuSet) -> Result<(), PlacementError> {
    let mut affinity = Affinity::new();
    for cpu in cpus.iter() {
        if (cpu as usize) < Affinity::MAX_CPU {
            affinity.set(cpu as usize);
        }
    }
    rustix::thread::sched_setaffinity(None, &affinity)
        .map_err(|errno| PlacementError::Affinity { cpus: cpus.clone(), source: errno.into() })
}
