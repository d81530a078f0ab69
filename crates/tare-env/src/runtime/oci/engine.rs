//! What creates and runs the container of a bundle. Everything else of an environment is the same
//! for all engines: the bundle, the network, the storage, the cgroups and the read-back.

use std::fs::File;
use std::path::{Path, PathBuf};

use tare_host::journal::Entry;
use tare_lab::PartError;
use tare_std::cpus::CpuSet;

use crate::run_context::RunContext;

/// A container of one start.
pub(crate) struct Place<'a> {
    pub(crate) context: &'a RunContext,
    /// The bundle, which is also the directory of the start.
    pub(crate) folder: PathBuf,
    pub(crate) id: String,
}

impl Place<'_> {
    /// Returns the directory for the state of the OCI runtime.
    pub(crate) fn state_folder(&self) -> PathBuf {
        self.folder.join("runtime")
    }
}

/// How to create a container.
pub(crate) struct Creation<'a> {
    /// The text of the bundle's `config.json`.
    pub(crate) config: &'a str,
    /// The files of standard output and standard error, and their paths.
    pub(crate) outputs: [File; 2],
    pub(crate) logs: [&'a Path; 2],
    pub(crate) cpus: &'a CpuSet,
    /// The NUMA nodes for a container that leaves its cgroup.
    pub(crate) nodes: Option<&'a CpuSet>,
}

/// Creates and runs containers of bundles.
pub(crate) trait Engine {
    /// Returns the name in read-backs and errors.
    fn name(&self) -> &str;

    /// Makes what all containers of a run share. Journals it first. Idempotent.
    fn prepare(&self, _context: &RunContext) -> Result<(), PartError> {
        Ok(())
    }

    /// Returns the journal entry of a container.
    fn entry(&self, at: &Place<'_>) -> Entry;

    /// Creates a container, whose first process waits for `start`. Returns its pid.
    fn create(&self, at: &Place<'_>, how: Creation<'_>) -> Result<u32, PartError>;

    fn start(&self, at: &Place<'_>) -> Result<(), PartError>;

    /// Returns the container's status, such as `running`, and its process if that is not `pid`.
    fn state(&self, at: &Place<'_>, pid: u32) -> String;

    fn pause(&self, at: &Place<'_>) -> Result<(), PartError>;

    fn resume(&self, at: &Place<'_>) -> Result<(), PartError>;

    /// Executes a program in the container and returns what it printed.
    ///
    /// # Errors
    /// Returns the error on one line.
    fn exec(&self, at: &Place<'_>, words: &[&str]) -> Result<String, String>;
}
