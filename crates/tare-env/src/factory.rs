//! The factory of a run. It creates environments and removes everything that the run created.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use tare_host::cgroup::{CgroupError, Layout};
use tare_host::journal::{Entry, Journal, JournalError};
use tare_host::{UndoError, exec};
use tare_lab::PartError;
use tare_lab::environment::{CpuPlan, Environment, EnvironmentSpec};

use crate::client::{Client, NetworkError};
use crate::inside::{self, GuestEnvironment};
use crate::instance_slot::{InstanceSlot, Peers, StartedPods};
use crate::layer::confinement::huge_pages::WithHugePages;
use crate::layer::host::{HostError, TunedEnvironment, TunedHost};
use crate::layer::limits;
use crate::multi_instance::{self, MultiInstance};
use crate::neighbour::EnvironmentWithNeighbours;
use crate::reach::{Reach, ReachOptions};
use crate::rootfs::Roots;
use crate::run_context::{RunContext, SharedContext};
use crate::runtime;
use tare_lab::layer::Host;

/// The programs that every run needs, with their packages.
pub const PROGRAMS: [(&str, &str); 2] = [("ip", "iproute2"), ("nft", "nftables")];

/// The options of a run.
#[derive(Clone, Debug)]
pub struct FactoryOptions {
    /// Where journals and data are kept, such as `/var/lib/tare`.
    pub state: PathBuf,
    /// The static program that runs in every environment.
    pub program: PathBuf,
    pub cpus: CpuPlan,
    /// Block devices that the user allows Tare to overwrite. Storage layers overwrite no others.
    pub destroy: Vec<PathBuf>,
    /// `None`: only the client of this host loads the systems.
    pub reach: Option<ReachOptions>,
}

/// Why a run could not start.
#[derive(Debug, thiserror::Error)]
pub enum FactoryError {
    #[error("environments need root: they create network namespaces and cgroups; run with sudo")]
    NoRoot,
    #[error("cannot find the program {}", .path.display())]
    Program { path: PathBuf, source: io::Error },
    #[error("cannot create the work directory {}", .path.display())]
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

/// Creates the environments of one run. Dropping it removes everything that the run created.
#[derive(Debug)]
pub struct EnvironmentFactory {
    context: Arc<RunContext>,
    /// `None`: no environment of this run changes the host.
    host: Option<TunedHost>,
    /// The tunings that are in force on the host from before this run, if it must not be changed.
    tuned_already: Option<String>,
}

impl EnvironmentFactory {
    /// Starts a run: creates the journal, the work directory, the cgroup, and the client's network
    /// namespace.
    ///
    /// # Errors
    /// Fails without root, iproute2, nftables or a writable state directory. A failure leaves
    /// nothing behind.
    pub fn open(options: FactoryOptions) -> Result<Self, FactoryError> {
        if !rustix::process::geteuid().is_root() {
            return Err(FactoryError::NoRoot);
        }
        for (program, package) in PROGRAMS {
            if exec::find(program).is_none() {
                return Err(FactoryError::Missing { program, package });
            }
        }
        let FactoryOptions { state, program, cpus, destroy, reach } = options;
        let program = fs::canonicalize(&program)
            .map_err(|source| FactoryError::Program { path: program, source })?;
        let journal = Journal::create(&state, crate::undo::KINDS)?;
        match Self::make_shared_parts(&journal, &state, reach) {
            Ok((work, cgroups, client, reach)) => {
                let environments = AtomicU32::new(0);
                let common = SharedContext {
                    journal,
                    work,
                    program,
                    destroy,
                    cgroups,
                    client,
                    reach,
                    roots: Roots::default(),
                    environments,
                };
                let context = Arc::new(RunContext::new(common, cpus));
                Ok(Self { context, host: None, tuned_already: None })
            }
            Err(error) => {
                journal.close();
                Err(error)
            }
        }
    }

    fn make_shared_parts(
        journal: &Journal,
        state: &Path,
        reach: Option<ReachOptions>,
    ) -> Result<(PathBuf, Layout, Client, Option<Reach>), FactoryError> {
        let state = fs::canonicalize(state)
            .map_err(|source| FactoryError::Work { path: state.into(), source })?;
        let work = state.join(journal.prefix());
        // The entry for the processes precedes the first command: a command that outlives a killed
        // harness would create its namespace after everything was undone. Undoing a whole journal
        // ends the processes first, at any position of their entry.
        journal.write(vec![Entry::processes(), Entry::directory(work.clone())])?;
        fs::create_dir(&work)
            .map_err(|source| FactoryError::Work { path: work.clone(), source })?;
        let cgroups = Layout::read(Path::new("/proc"))?;
        cgroups.make_root(journal)?;
        let client = Client::make(journal)?;
        let reach = reach.map(|options| Reach::open(options, journal, &client)).transpose()?;
        Ok((work, cgroups, client, reach))
    }

    /// Creates an environment without starting it.
    ///
    /// # Errors
    /// Names what this host lacks to run it, and how to get it.
    pub fn environment(&self, spec: &EnvironmentSpec) -> Result<Box<dyn Environment>, PartError> {
        self.environment_of(spec, 1)
    }

    /// Uses this access to the cluster of this node for pods, in place of the user's.
    ///
    /// # Errors
    /// If it cannot be stored, or is no access.
    pub fn use_kubeconfig(&self, text: &str) -> Result<(), PartError> {
        crate::kubernetes::use_sent(self.context.work(), text)
    }

    /// Creates an environment for the only instance on this host of a system on several hosts.
    /// `pods` are the pods of the instances that start before it, known by then.
    ///
    /// # Errors
    /// Fails when this host cannot run it.
    pub fn environment_among(
        &self,
        spec: &EnvironmentSpec,
        peers: Peers,
        pods: StartedPods,
    ) -> Result<Box<dyn Environment>, PartError> {
        limits::check_cpus(spec, self.context.cpus())?;
        let context = self.context.with_slot(InstanceSlot::among(peers, pods), spec.cpu);
        WithHugePages::around(runtime::make(&context, spec)?, &self.context)
    }

    /// Creates an environment for this many instances of a system.
    ///
    /// # Errors
    /// Fails when this host, or an environment of this kind, cannot run them.
    pub fn environment_of(
        &self,
        spec: &EnvironmentSpec,
        instances: u32,
    ) -> Result<Box<dyn Environment>, PartError> {
        limits::check_cpus(spec, self.context.cpus())?;
        // Created for any number of instances, because its errors name what the host lacks.
        let one = runtime::make(&self.context, spec)?;
        multi_instance::check(spec, instances)?;
        let environment = match instances {
            0 | 1 => one,
            _ => Box::new(MultiInstance::new(&self.context, spec)),
        };
        let environment: Box<dyn Environment> = match inside::current_guest() {
            Some(here) => Box::new(GuestEnvironment::new(environment, here)),
            None => environment,
        };
        let environment = EnvironmentWithNeighbours::around(environment, &self.context)?;
        let environment = WithHugePages::around(environment, &self.context)?;
        match (&self.host, spec.host.clone()) {
            (Some(host), layer) => {
                let refused = host.without_effect(&layer).filter(|_| !layer.is_as_is());
                match refused {
                    Some(error) => Err(error.into()),
                    None => Ok(Box::new(TunedEnvironment::new(environment, layer, host.clone()))),
                }
            }
            (None, Host::AsIs) => Ok(environment),
            (None, value) => {
                let environment = spec.name.clone();
                Err(match self.tuned_already.clone() {
                    Some(tunings) => HostError::TunedAlready { value, tunings },
                    None => HostError::NoPlan { environment, value },
                }
                .into())
            }
        }
    }

    /// Lets the environments that are created after this call tune the host.
    pub fn tune(&mut self, host: TunedHost) {
        self.host = Some(host);
    }

    /// Refuses environments that tune the host, because these tunings are in force on it already.
    pub fn leave_tuned(&mut self, tunings: String) {
        self.tuned_already = Some(tunings);
    }

    /// Restores the settings of the host, for any environment. Idempotent.
    ///
    /// # Errors
    /// Names the setting that could not be restored.
    pub fn untune(&self) -> Result<(), PartError> {
        self.host.as_ref().map_or(Ok(()), TunedHost::revert)
    }

    /// Returns the network namespace in which the client must run.
    pub fn client_namespace(&self) -> &Path {
        self.context.client().namespace()
    }

    /// Returns the run's id: four hexadecimal digits.
    pub fn run(&self) -> &str {
        self.context.run()
    }

    pub fn context(&self) -> &Arc<RunContext> {
        &self.context
    }

    /// Removes everything that the run created, including environments. Idempotent. What could not
    /// be removed stays in the journal for the next `clean`.
    pub fn close(&self) -> Vec<UndoError> {
        self.context.journal().close()
    }
}

impl Drop for EnvironmentFactory {
    fn drop(&mut self) {
        self.close();
    }
}
