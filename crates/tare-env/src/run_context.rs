//! The context of a run for runtimes and layers: id, journal, work directory, program, CPU plan,
//! cgroup, and the network namespace of the client.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tare_host::cgroup::Layout;
use tare_host::journal::Journal;
use tare_lab::environment::CpuPlan;
use tare_lab::layer::Cpu;
use tare_std::cpus::CpuSet;

use crate::client::Client;
use crate::instance_slot::InstanceSlot;
use crate::reach::Reach;
use crate::rootfs::Roots;

/// The id of a run and its CPUs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunIdentity<'a> {
    /// The run's id.
    pub(crate) run: &'a str,
    /// The CPUs that the run may use.
    pub(crate) cpus: &'a CpuSet,
}

/// The context of a run, or of one instance in it.
#[derive(Debug)]
pub struct RunContext {
    common: Arc<SharedContext>,
    /// The CPUs of the run, or one instance's share of them.
    cpus: CpuPlan,
    slot: InstanceSlot,
}

/// The parts that all environments of a run share.
#[derive(Debug)]
pub(crate) struct SharedContext {
    pub(crate) journal: Journal,
    pub(crate) work: PathBuf,
    pub(crate) program: PathBuf,
    pub(crate) destroy: Vec<PathBuf>,
    pub(crate) cgroups: Layout,
    pub(crate) client: Client,
    /// The address at which loaders on other hosts reach the systems.
    pub(crate) reach: Option<Reach>,
    pub(crate) roots: Roots,
    pub(crate) environments: AtomicU32,
}

impl RunContext {
    pub(crate) fn new(common: SharedContext, cpus: CpuPlan) -> Self {
        Self { common: Arc::new(common), cpus, slot: InstanceSlot::single() }
    }

    /// Returns the context of one of several instances, with its share of the CPUs that a cpu layer
    /// leaves to all of them.
    pub(crate) fn with_slot(&self, slot: InstanceSlot, layer: Cpu) -> Arc<Self> {
        let cpus = slot.cpus(&self.cpus, layer);
        Arc::new(Self { common: Arc::clone(&self.common), cpus, slot })
    }

    pub(crate) fn slot(&self) -> &InstanceSlot {
        &self.slot
    }

    pub fn run(&self) -> &str {
        self.common.journal.run()
    }

    /// Returns `tare-RUN`, the prefix of every name of this run.
    pub fn prefix(&self) -> String {
        self.common.journal.prefix()
    }

    pub fn journal(&self) -> &Journal {
        &self.common.journal
    }

    /// Returns the directory of the run. Files in it need no journal entry, because it is removed
    /// whole.
    pub fn work(&self) -> &Path {
        &self.common.work
    }

    pub(crate) fn identity(&self) -> RunIdentity<'_> {
        RunIdentity { run: self.run(), cpus: &self.cpus.all }
    }

    /// Returns the path of the static program on the host.
    pub fn program(&self) -> &Path {
        &self.common.program
    }

    pub fn cpus(&self) -> &CpuPlan {
        &self.cpus
    }

    /// Returns the NUMA nodes to which the memory of a system with this cpu layer is bound: those
    /// of its CPUs, or the one that a study asks for. `None` if it is not bound.
    pub(crate) fn memory_nodes(&self, cpu: Cpu, node: Option<u32>) -> Option<CpuSet> {
        let asked = node.map(|node| [node].into_iter().collect());
        asked.or_else(|| self.cpus.memory_nodes(&cpu.set(&self.cpus)))
    }

    /// Returns the block devices and targets that may be overwritten.
    pub fn destroy(&self) -> &[PathBuf] {
        &self.common.destroy
    }

    pub fn cgroups(&self) -> &Layout {
        &self.common.cgroups
    }

    /// Returns the slice of the run for engines whose cgroups systemd creates. A name without a
    /// dash is directly below the root (systemd.slice(5)).
    pub(crate) fn slice(&self) -> String {
        format!("{}.slice", self.prefix().replace('-', ""))
    }

    pub fn client(&self) -> &Client {
        &self.common.client
    }

    /// Returns the address at which loaders on other hosts reach the systems, if there are such.
    pub(crate) fn reach(&self) -> Option<&Reach> {
        self.common.reach.as_ref()
    }

    /// Returns whether the client, or all loaders on other hosts, reach pods of this node.
    pub(crate) fn reaches_pods(&self) -> bool {
        self.reach().is_none_or(Reach::is_from_cluster)
    }

    /// Returns the device of the address that loaders on other hosts reach, if there are such.
    pub fn device_of_loaders(&self) -> Option<&str> {
        self.common.reach.as_ref().map(Reach::device)
    }

    /// Returns the unpacked root file systems of this run's containers.
    pub(crate) fn roots(&self) -> &Roots {
        &self.common.roots
    }

    /// Returns the number of the next start of an environment, from 0. Names of the objects of the
    /// start end in it.
    pub fn next_environment(&self) -> u32 {
        self.common.environments.fetch_add(1, Ordering::Relaxed)
    }
}
