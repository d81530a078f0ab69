//! What runtimes and layers see of a run: its id and journal, its work directory, its program, its
//! division of the CPUs, its cgroup, and the network namespace in which the client stands.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tare_host::cgroup::Layout;
use tare_host::journal::Journal;
use tare_lab::environment::CpuPlan;
use tare_std::cpus::CpuSet;

use crate::instance_slot::InstanceSlot;
use crate::layer::network::client::Client;
use crate::rootfs::Roots;

/// What all that a run starts and makes is known by, and where it goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunIdentity<'a> {
    /// The run's id.
    pub(crate) run: &'a str,
    /// Its directory, in the state directory.
    pub(crate) work: &'a Path,
    /// The CPUs that it may use.
    pub(crate) cpus: &'a CpuSet,
}

/// What runtimes and layers see of the site.
#[derive(Debug)]
pub struct RunContext {
    common: Arc<SharedContext>,
    /// Those of the run, or an instance's share.
    cpus: CpuPlan,
    slot: InstanceSlot,
}

/// What is the same for all environments of a run.
#[derive(Debug)]
pub(crate) struct SharedContext {
    pub(crate) journal: Journal,
    pub(crate) work: PathBuf,
    pub(crate) program: PathBuf,
    pub(crate) destroy: Vec<PathBuf>,
    pub(crate) cgroups: Layout,
    pub(crate) client: Client,
    pub(crate) roots: Roots,
    pub(crate) environments: AtomicU32,
}

impl RunContext {
    pub(crate) fn new(common: SharedContext, cpus: CpuPlan) -> Self {
        Self { common: Arc::new(common), cpus, slot: InstanceSlot::single() }
    }

    /// The same ground for one of several instances.
    pub(crate) fn with_slot(&self, slot: InstanceSlot) -> Arc<Self> {
        let cpus = slot.cpus(&self.cpus);
        Arc::new(Self { common: Arc::clone(&self.common), cpus, slot })
    }

    pub(crate) fn slot(&self) -> &InstanceSlot {
        &self.slot
    }

    pub fn run(&self) -> &str {
        self.common.journal.run()
    }

    /// `tare-RUN`: what every name of this run begins with.
    pub fn prefix(&self) -> String {
        self.common.journal.prefix()
    }

    pub fn journal(&self) -> &Journal {
        &self.common.journal
    }

    /// Directory of the run. What is made in it goes with it and needs no entry of its own.
    pub fn work(&self) -> &Path {
        &self.common.work
    }

    pub(crate) fn identity(&self) -> RunIdentity<'_> {
        RunIdentity { run: self.run(), work: self.work(), cpus: &self.cpus.all }
    }

    /// The static program, as the host sees it.
    pub fn program(&self) -> &Path {
        &self.common.program
    }

    pub fn cpus(&self) -> &CpuPlan {
        &self.cpus
    }

    /// Block devices that may be written over.
    pub fn destroy(&self) -> &[PathBuf] {
        &self.common.destroy
    }

    pub fn cgroups(&self) -> &Layout {
        &self.common.cgroups
    }

    pub fn client(&self) -> &Client {
        &self.common.client
    }

    /// What containers' root file systems are made of.
    pub(crate) fn roots(&self) -> &Roots {
        &self.common.roots
    }

    /// A number for the next start of an environment, from 0. The names of what it makes end in it.
    pub fn next_environment(&self) -> u32 {
        self.common.environments.fetch_add(1, Ordering::Relaxed)
    }
}
