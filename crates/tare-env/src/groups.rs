//! The cgroups of one start. Every system, whatever its runtime and its cgroup layer, competes with
//! the rest of the host with the same weight.
//!
//! Method: the run has the cgroup `/tare-RUN`, which competes at the top with the sessions and
//! services of the host. Each start has a cgroup `/tare-RUN/eN` below it. With `cgroup = "none"`
//! the processes are in it for the scheduler alone (on v1 in the cpu hierarchy only). With `own`
//! they are in `/tare-RUN/eN/own`, and an engine creates its containers in `/tare-RUN/eN`. All
//! other starts are frozen, so that one system has the weight of the run to itself.
//!
//! Without this, a native process shares the scheduler's group of the session that started Tare,
//! and a container does not. On a busy host the same layers then get different shares of a CPU.

use tare_host::cgroup::{Cgroup, CgroupError};
use tare_host::journal::Entry;

use crate::layer;
use crate::run_context::RunContext;

/// The cgroups of one start.
#[derive(Clone, Debug)]
pub(crate) struct Groups {
    /// `tare-RUN/eN`
    name: String,
    /// The cgroup of the processes.
    of_system: Cgroup,
    layer: layer::Cgroup,
    entry: Entry,
}

impl Groups {
    /// Returns the cgroups of a start, which do not exist yet.
    pub(crate) fn plan(context: &RunContext, number: u32, layer: layer::Cgroup) -> Self {
        let name = format!("{}/e{number}", context.prefix());
        let cgroups = context.cgroups();
        let of_system = match layer {
            layer::Cgroup::Own => cgroups.group(&format!("{name}/own")),
            layer::Cgroup::None => cgroups.cpu_group(&name),
        };
        Self { entry: cgroups.entry(&name), name, of_system, layer }
    }

    /// Returns the journal entry of all cgroups of the start.
    pub(crate) fn entry(&self) -> Entry {
        self.entry.clone()
    }

    /// Returns the path of the parent of an engine's container.
    pub(crate) fn parent(&self) -> String {
        format!("/{}", self.name)
    }

    /// Returns the system's own cgroup, if its layer is `own`.
    pub(crate) fn own(&self) -> Option<&Cgroup> {
        (self.layer == layer::Cgroup::Own).then_some(&self.of_system)
    }

    /// Returns the cgroup that a runtime creates: the system's own, or one that its processes leave
    /// at once. On v2 a cgroup with processes has no other below it.
    pub(crate) fn of_runtime(&self, context: &RunContext) -> Cgroup {
        let left = || context.cgroups().group(&format!("{}-oci", self.name));
        self.own().cloned().unwrap_or_else(left)
    }

    /// Creates the cgroups. The caller has written [`Groups::entry`] to the journal.
    pub(crate) fn make(&self) -> Result<(), CgroupError> {
        self.of_system.make_folders()
    }

    /// Creates the cgroups above the system's own, which a runtime or an engine then creates.
    pub(crate) fn make_parent(&self) -> Result<(), CgroupError> {
        self.of_system.make_parents()
    }

    /// Moves a process with all its threads to the system's cgroup.
    pub(crate) fn add(&self, pid: u32) -> Result<(), CgroupError> {
        self.of_system.add(pid)
    }
}
