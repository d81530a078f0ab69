//! The server of the bench, and the loaders that take turns on it.

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tare_driver::Client;
use tare_driver::loaders::{AgentPipes, AgentProcess, LocalAgent, MultiLoader, StartAgent};
use tare_env::{EnvironmentFactory, FactoryOptions, ReachOptions};
use tare_host::account::Account;
use tare_lab::PartError;
use tare_lab::access::ClientAccess;
use tare_lab::driver::{Driver, Edge, Pacing, SliceOrder, TargetId};
use tare_lab::environment::{CpuPlan, Environment};
use tare_lab::study::{CpuSpec, SystemSpec, WorkloadSpec};
use tare_probe::AccountRefresh;
use tare_remote::{RemoteHost, RemoteProcess};
use tare_std::cpus::CpuSet;
use tare_std::host_address::{HostAddress, RemoteAddress, SshAddress};
use tare_system::ClientRoute;
use tare_testkit::EnvironmentBuilder;
use tare_testkit::ssh_bed::SshBed;
use tempfile::TempDir;

use crate::Result;

const LEAD_IN: Duration = Duration::from_millis(50);
const DEADLINE: Duration = Duration::from_secs(30);
const ROWS: u64 = 10_000;

/// The CPUs of server and client.
pub(crate) fn plan() -> Result<CpuPlan> {
    let allowed = tare_host::process::cpus_of_this_thread()?;
    let topology = tare_lab::cpus::CpuTopology::flat(&allowed);
    Ok(tare_lab::cpus::plan(&topology, &CpuSpec::default())?)
}

/// What one slice showed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) per_s: f64,
    pub(crate) server_us: f64,
    pub(crate) client_us: f64,
    pub(crate) service_us: f64,
    pub(crate) beyond_ms: f64,
    /// The larger distance of an edge of any loader, and the larger clock error.
    pub(crate) apart_us: f64,
    pub(crate) clock_us: f64,
}

impl Figures {
    pub(crate) const HEAD: &str =
        "      op/s  server µs  client µs  service µs  beyond ms   edges µs   clock µs";

    fn medians_of(all: &[Self], figure: fn(&Self) -> f64) -> f64 {
        tare_stats::median(all.iter().map(figure)).unwrap_or(f64::NAN)
    }

    pub(crate) fn medians(all: &[Self]) -> Self {
        let of = |figure| Self::medians_of(all, figure);
        Self {
            per_s: of(|one| one.per_s),
            server_us: of(|one| one.server_us),
            client_us: of(|one| one.client_us),
            service_us: of(|one| one.service_us),
            beyond_ms: of(|one| one.beyond_ms),
            apart_us: of(|one| one.apart_us),
            clock_us: of(|one| one.clock_us),
        }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>10.0}{:>11.3}{:>11.3}{:>12.1}{:>11.2}{:>11.1}{:>11.1}",
            self.per_s,
            self.server_us,
            self.client_us,
            self.service_us,
            self.beyond_ms,
            self.apart_us,
            self.clock_us
        )
    }
}

/// Loaders that load the server together.
pub(crate) struct Side {
    pub(crate) name: &'static str,
    driver: MultiLoader,
    target: TargetId,
    workload: WorkloadSpec,
}

/// One server, and what reads its CPU time.
pub(crate) struct LoadedServer {
    plan: CpuPlan,
    config: PathBuf,
    sockets: TempDir,
    _state: TempDir,
    // Before the factory, which removes what is left of it.
    environment: Box<dyn Environment>,
    address: std::net::SocketAddr,
    server: Vec<u32>,
    refresh: AccountRefresh,
    factory: EnvironmentFactory,
}

impl LoadedServer {
    /// Starts a server that listens at the address at which this machine sees the host.
    pub(crate) fn open(bed: &SshBed, machine: &str, inject: Option<&str>) -> Result<Self> {
        let plan = plan()?;
        let state = tempfile::tempdir()?;
        let factory = EnvironmentFactory::open(FactoryOptions {
            state: state.path().to_path_buf(),
            program: program(),
            cpus: plan.clone(),
            destroy: Vec::new(),
            reach: Some(ReachOptions { address: bed.ip_here(machine).into(), from_cluster: false }),
        })?;
        let builder = EnvironmentBuilder::new("process").cpu("pinned").cgroup("none");
        let mut spec = builder.build();
        if let Some(inject) = inject {
            spec.inject = inject.parse()?;
        }
        let mut environment = factory.environment(&spec)?;
        let system = SystemSpec { name: "tare-db".into(), options: Vec::new() };
        let route = ClientRoute {
            namespace: Some(factory.client_namespace().into()),
            ..ClientRoute::default()
        };
        let system = tare_system::find(&system.name).ok_or("no tare-db")?.make(&system, &route)?;
        let address = environment.start(&system.launch(plan.system.len()))?.address;
        let server = environment.processes().system;
        let refresh = AccountRefresh::start(&plan.all);
        // The path of a socket is short.
        let sockets = tempfile::Builder::new().prefix("tl").tempdir_in("/tmp")?;
        let config = bed.config();
        Ok(Self {
            plan,
            config,
            sockets,
            _state: state,
            environment,
            address,
            server,
            refresh,
            factory,
        })
    }

    /// Returns a loader that this process starts, in the client's network namespace or in another.
    pub(crate) fn local(
        &mut self,
        name: &'static str,
        namespace: Option<&str>,
        connections: u32,
    ) -> Result<Side> {
        let named = namespace.map(|name| PathBuf::from("/run/netns").join(name));
        let program = program();
        let client = Client {
            program: &program,
            cpus: &self.plan.client,
            namespace: Some(named.as_deref().unwrap_or(self.factory.client_namespace())),
            scratch: self.factory.context().work(),
            run: self.factory.run(),
            speaks: "cql",
            access: &ClientAccess::default(),
        };
        let agent: Box<dyn StartAgent> = Box::new(LocalAgent::new(&client));
        let agents = vec![(agent, Some(self.plan.client.clone()))];
        self.side(name, agents, connections)
    }

    /// Returns loaders on these machines, through ssh.
    pub(crate) fn remote(
        &mut self,
        name: &'static str,
        machines: &[&str],
        connections: u32,
    ) -> Result<Side> {
        let mut agents: Vec<(Box<dyn StartAgent>, Option<CpuSet>)> = Vec::new();
        for machine in machines {
            let address: HostAddress = format!("ssh:{machine}").parse()?;
            let Some(RemoteAddress::Ssh(ssh)) = address.remote() else {
                return Err("no address".into());
            };
            let agent = OverSsh {
                name: address.to_string(),
                address: ssh.clone(),
                sockets: self.sockets.path().into(),
                config: self.config.clone(),
            };
            agents.push((Box::new(agent), Some(self.plan.client.clone())));
        }
        self.side(name, agents, connections)
    }

    fn side(
        &mut self,
        name: &'static str,
        agents: Vec<(Box<dyn StartAgent>, Option<CpuSet>)>,
        connections: u32,
    ) -> Result<Side> {
        let driver = tare_driver::find("tare-load").ok_or("no driver tare-load")?;
        let mut driver = MultiLoader::start(driver, "cql", &ClientAccess::default(), agents)?;
        let target = driver.open(&[self.address], DEADLINE)?;
        let in_flight = if connections == crate::NINE { connections } else { 8 * connections };
        let workload = WorkloadSpec {
            rows: ROWS,
            columns: 5,
            column_bytes: 64,
            connections,
            in_flight,
            ..tare_testkit::workload()
        };
        // The same rows again: each driver has to know the seed of those that it reads.
        driver.populate(target, &workload, 1, &mut |_, _| {})?;
        Ok(Side { name, driver, target, workload })
    }

    /// Runs one slice.
    pub(crate) fn slice(
        &mut self,
        side: &mut Side,
        pacing: Pacing,
        window: Duration,
        seed: u64,
    ) -> Result<Figures> {
        let workload = side.workload.clone();
        let order = SliceOrder { workload, pacing, lead_in: LEAD_IN, window, seed };
        let (refresh, server) = (&mut self.refresh, &self.server);
        let mut account = Account::new();
        let mut read = [(0, Instant::now()); 2];
        let began = Instant::now();
        let load = side.driver.run(side.target, &order, &mut |edge| {
            refresh.refresh();
            read[usize::from(edge == Edge::End)] = (account.read(server), Instant::now());
        })?;
        let beyond = began.elapsed().saturating_sub(LEAD_IN + window);
        let [(before_ns, from), (after_ns, to)] = read;
        // As the campaign does: the accounts cover a little more or less than the window.
        let covered = load.window_ns as f64 / to.duration_since(from).as_nanos() as f64;
        let operations = load.operations.max(1) as f64;
        let service = tare_load::histogram::decode(&load.service)?;
        let worst = |figure: fn(&tare_lab::loader::LoaderSlice) -> u64| {
            load.loaders.iter().map(figure).max().unwrap_or(0) as f64 / 1e3
        };
        if !load.errors.is_empty() {
            return Err(format!("{}: {:?}", side.name, load.errors).into());
        }
        Ok(Figures {
            per_s: operations * 1e9 / load.window_ns as f64,
            server_us: (after_ns - before_ns) as f64 * covered / 1e3 / operations,
            client_us: load.client_cpu_ns as f64 / 1e3 / operations,
            service_us: service.mean() / 1e3,
            beyond_ms: beyond.as_secs_f64() * 1e3,
            apart_us: worst(tare_lab::loader::LoaderSlice::apart_ns),
            clock_us: worst(|one| one.clock_error_ns),
        })
    }

    /// Ends the loaders and the server.
    pub(crate) fn close(mut self, sides: impl IntoIterator<Item = Side>) -> Result<()> {
        for mut side in sides {
            side.driver.stop()?;
        }
        self.environment.stop()?;
        let left = self.factory.close();
        if left.is_empty() { Ok(()) } else { Err(format!("left behind: {left:?}").into()) }
    }
}

fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_tare"))
}

/// Starts agents through ssh.
struct OverSsh {
    name: String,
    address: SshAddress,
    sockets: PathBuf,
    config: PathBuf,
}

impl StartAgent for OverSsh {
    fn host(&self) -> &str {
        &self.name
    }

    fn start(&mut self, arguments: &[String]) -> std::result::Result<AgentPipes, PartError> {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let host = RemoteHost::connect_with(&self.address, &self.sockets, Some(&self.config))?;
        let mut process = host.start(&host.install(&program())?.path, &arguments)?;
        Ok(AgentPipes {
            orders: Box::new(process.stdin.take().ok_or("no pipe")?),
            answers: Box::new(process.stdout.take().ok_or("no pipe")?),
            errors: Box::new(process.stderr.take().ok_or("no pipe")?),
            pid: None,
            process: Box::new(AgentThere(process)),
        })
    }
}

#[derive(Debug)]
struct AgentThere(RemoteProcess);

impl AgentProcess for AgentThere {
    fn end(&mut self, limit: Duration) {
        // The machine ends with the bed in any case.
        let _ = self.0.wait_at_most(limit);
    }
}
