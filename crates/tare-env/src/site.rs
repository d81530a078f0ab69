//! What all environments of a run share: its id and journal, its work directory, its program, its
//! division of the CPUs, its cgroup, and the network namespace in which the client stands.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tare_host::cgroup::{CgroupError, Layout};
use tare_host::journal::{Entry, Journal, JournalError};
use tare_host::{UndoError, exec};
use tare_lab::PartError;
use tare_lab::environment::{CpuPlan, Environment, EnvironmentSpec};
use tare_std::cpus::CpuSet;

use crate::inside::{self, InGuest};
use crate::layer::host::{HostError, OnHost, TunedHost};
use crate::layer::network::{Client, NetworkError};
use crate::layer::{HostLayer, Layers};
use crate::rootfs::Roots;
use crate::runtime;
use crate::seat::Seat;
use crate::several::{self, Several};

/// What a run is given.
#[derive(Clone, Debug)]
pub struct SiteOptions {
    /// Where journals and data are kept, such as `/var/lib/tare`.
    pub state: PathBuf,
    /// The static program that runs in every environment.
    pub program: PathBuf,
    pub cpus: CpuPlan,
    /// Block devices that the user has given up: a storage layer may write over these alone.
    pub destroy: Vec<PathBuf>,
}

/// Why a run could not begin.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    #[error("environments need root: they make network namespaces and cgroups; run with sudo")]
    NoRoot,
    #[error("cannot find the program {}", .path.display())]
    Program { path: PathBuf, source: io::Error },
    #[error("cannot make the work directory {}", .path.display())]
    Work { path: PathBuf, source: io::Error },
    #[error("{program} is not installed: the network layers need it; apt-get install {package}")]
    Missing { program: &'static str, package: &'static str },
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    #[error(transparent)]
    Network(#[from] NetworkError),
}

/// What all that a run starts and makes is known by, and where it goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark<'a> {
    /// The run's id.
    pub(crate) run: &'a str,
    /// Its directory, in the state directory.
    pub(crate) work: &'a Path,
    /// The CPUs that it may use.
    pub(crate) cpus: &'a CpuSet,
}

/// The ground of one run. Dropping it removes everything that the run made.
#[derive(Debug)]
pub struct Site {
    ground: Arc<Ground>,
    /// `None`: no environment of this run changes the host.
    host: Option<TunedHost>,
}

/// What runtimes and layers see of the site.
#[derive(Debug)]
pub struct Ground {
    common: Arc<Common>,
    /// Those of the run, or an instance's share.
    cpus: CpuPlan,
    seat: Seat,
}

/// What is the same for all.
#[derive(Debug)]
struct Common {
    journal: Journal,
    work: PathBuf,
    program: PathBuf,
    destroy: Vec<PathBuf>,
    cgroups: Layout,
    client: Client,
    roots: Roots,
    environments: AtomicU32,
}

impl Site {
    /// Begins a run: journal, work directory, cgroup, and the client's network namespace.
    ///
    /// # Errors
    /// Without root, iproute2 or a writable state directory. Nothing is left then.
    pub fn open(options: SiteOptions) -> Result<Self, SiteError> {
        if !rustix::process::geteuid().is_root() {
            return Err(SiteError::NoRoot);
        }
        for (program, package) in [("ip", "iproute2"), ("nft", "nftables")] {
            if exec::find(program).is_none() {
                return Err(SiteError::Missing { program, package });
            }
        }
        let SiteOptions { state, program, cpus, destroy } = options;
        let program = fs::canonicalize(&program)
            .map_err(|source| SiteError::Program { path: program, source })?;
        let journal = Journal::create(&state, crate::undo::KINDS)?;
        match Self::lay(&journal, &state) {
            Ok((work, cgroups, client)) => {
                let environments = AtomicU32::new(0);
                let common = Common {
                    journal,
                    work,
                    program,
                    destroy,
                    cgroups,
                    client,
                    roots: Roots::default(),
                    environments,
                };
                let ground = Ground { common: Arc::new(common), cpus, seat: Seat::only() };
                Ok(Self { ground: Arc::new(ground), host: None })
            }
            Err(error) => {
                journal.close();
                Err(error)
            }
        }
    }

    fn lay(journal: &Journal, state: &Path) -> Result<(PathBuf, Layout, Client), SiteError> {
        let state = fs::canonicalize(state)
            .map_err(|source| SiteError::Work { path: state.into(), source })?;
        let work = state.join(journal.prefix());
        // The mark of the processes is there before the first command is started: one that outlives a
        // killed harness would make its namespace after everything was undone. Whoever undoes a whole
        // journal ends them first of all, wherever the entry stands.
        journal.write(vec![Entry::processes(), Entry::directory(work.clone())])?;
        fs::create_dir(&work).map_err(|source| SiteError::Work { path: work.clone(), source })?;
        let cgroups = Layout::read(Path::new("/proc"))?;
        cgroups.make_root(journal)?;
        let client = Client::make(journal)?;
        Ok((work, cgroups, client))
    }

    /// Makes an environment that is not started.
    ///
    /// # Errors
    /// When this host cannot run it: what is missing and how to get it.
    pub fn environment(&self, spec: &EnvironmentSpec) -> Result<Box<dyn Environment>, PartError> {
        self.environment_of(spec, 1)
    }

    /// The same for so many instances of a system.
    ///
    /// # Errors
    /// When this host, or such an environment, cannot run them.
    pub fn environment_of(
        &self,
        spec: &EnvironmentSpec,
        instances: u32,
    ) -> Result<Box<dyn Environment>, PartError> {
        // Made in any case: it says what is missing.
        let one = runtime::make(&self.ground, spec)?;
        several::check(spec, instances)?;
        let environment = match instances {
            0 | 1 => one,
            _ => Box::new(Several::new(&self.ground, spec)),
        };
        let environment: Box<dyn Environment> = match inside::here() {
            Some(here) => Box::new(InGuest::new(environment, here)),
            None => environment,
        };
        match (&self.host, Layers::parse(spec)?.host) {
            (Some(host), layer) => Ok(Box::new(OnHost::new(environment, layer, host.clone()))),
            (None, HostLayer::AsIs) => Ok(environment),
            (None, HostLayer::Tuned(_)) => {
                let (environment, value) = (spec.name.clone(), spec.host.clone());
                Err(HostError::NoPlan { environment, value }.into())
            }
        }
    }

    /// Gives the environments that are made from now on a host that can be tuned.
    pub fn tune(&mut self, host: TunedHost) {
        self.host = Some(host);
    }

    /// Puts the host back as it was found, whatever environment it is tuned for. Idempotent.
    ///
    /// # Errors
    /// What could not be put back.
    pub fn untune(&self) -> Result<(), PartError> {
        self.host.as_ref().map_or(Ok(()), TunedHost::revert)
    }

    /// The network namespace in which the client has to stand.
    pub fn client_namespace(&self) -> &Path {
        self.ground.client().namespace()
    }

    /// The run's id: four hexadecimal digits.
    pub fn run(&self) -> &str {
        self.ground.run()
    }

    pub fn ground(&self) -> &Arc<Ground> {
        &self.ground
    }

    /// Removes everything that the run made, environments included. Idempotent. What could not be
    /// removed stays in the journal for the next `clean`.
    pub fn close(&self) -> Vec<UndoError> {
        self.ground.journal().close()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.close();
    }
}

impl Ground {
    /// The same ground for one of several instances.
    pub(crate) fn seated(&self, seat: Seat) -> Arc<Self> {
        let cpus = seat.cpus(&self.cpus);
        Arc::new(Self { common: Arc::clone(&self.common), cpus, seat })
    }

    pub(crate) fn seat(&self) -> &Seat {
        &self.seat
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

    pub(crate) fn mark(&self) -> Mark<'_> {
        Mark { run: self.run(), work: self.work(), cpus: &self.cpus.all }
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
