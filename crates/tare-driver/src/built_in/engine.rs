//! The load generator in its agent: connections to all systems of a study, one of which is loaded
//! at a time.
//!
//! A load thread reports the edges of a slice at the moment at which it reads its CPU clock, so
//! that the harness reads its CPU times at the same time. The load continues after the window until
//! the harness has read them (`Signals::read`); then it waits for the requests in flight and leaves
//! the system idle. Connections that break meanwhile are replaced, as by `tare load`.
//!
//! Workloads that connect in different ways have connections of their own to each system. They stay
//! open, and those of the other workloads are idle while one runs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tare_lab::PartError;
use tare_lab::access::ClientAccess;
use tare_lab::driver::{Edge, Pacing, SliceLoad, SliceOrder, TargetId};
use tare_lab::path::PathSample;
use tare_lab::seconds::{self, LoadSecond};
use tare_lab::study::ClientConnection;
use tare_load::access::{Access, Login, Protocol, Recovery, Tls, Trust, Version};
use tare_load::engine::{self, Engine, LoadObserver, StartTime, Target};
use tare_load::{LoadError, LoadSpec, Stats, histogram};

use super::workload;
use crate::agent::path::OpenPath;
use crate::agent::protocol::{LoaderPart, SharedResult, SharedRun};
use crate::agent::{AgentContext, AgentDriver, Preparation, Readiness, Rows, Signals};
use crate::targets::Targets;
use crate::tool::outcome::ns;

/// The generator, with the systems that it has open.
pub(super) struct LoadEngine {
    engine: Engine,
    protocol: Protocol,
    targets: Targets<OpenSystem>,
    signals: Arc<Signals>,
}

/// Time limit for connections of another kind to a system that has answered.
const CONNECT: Duration = Duration::from_secs(10);

struct OpenSystem {
    addresses: Vec<SocketAddr>,
    access: ClientAccess,
    /// The connections of each kind. The first ones were opened with the system.
    targets: Vec<(ClientConnection, Target)>,
    /// The workloads whose rows were written, with their seeds.
    rows: Vec<(LoadSpec, u64)>,
    path: OpenPath,
}

impl LoadEngine {
    /// Starts one load thread on each of the CPUs.
    pub(super) fn start(context: AgentContext) -> Result<Self, PartError> {
        let engine = Engine::new(&context.cpus)?;
        let protocol = Protocol::find(&context.speaks).unwrap_or_default();
        Ok(Self { engine, protocol, targets: Targets::default(), signals: context.signals })
    }
}

impl OpenSystem {
    /// Returns the connections of a kind, which are opened the first time.
    fn target(
        &mut self,
        connection: ClientConnection,
        (engine, protocol): (&Engine, Protocol),
        signals: &Signals,
    ) -> Result<&mut Target, LoadError> {
        let known = self.targets.iter().position(|(kind, _)| *kind == connection);
        let index = match known {
            Some(index) => index,
            None => {
                let access = access_of(&self.addresses, &self.access, connection, protocol);
                let mut target = engine.open(&access, CONNECT, &signals.stop)?;
                for (spec, seed) in &self.rows {
                    target.assume_rows(&spec.workload, *seed);
                }
                self.targets.push((connection, target));
                self.targets.len() - 1
            }
        };
        Ok(&mut self.targets[index].1)
    }

    /// Notes that the rows of a workload were written.
    fn assume_rows(&mut self, spec: LoadSpec, seed: u64) {
        for (_, target) in &mut self.targets {
            target.assume_rows(&spec.workload, seed);
        }
        self.rows.push((spec, seed));
    }
}

/// Returns how the generator reaches a system.
fn access_of(
    addresses: &[SocketAddr],
    access: &ClientAccess,
    connection: ClientConnection,
    protocol: Protocol,
) -> Access {
    let authorities = access.authorities.clone().unwrap_or_default();
    let tls = Tls { trust: Trust::Pem(authorities), server_name: access.server_name.clone() };
    let login = access.login.as_ref();
    let protocol = match (protocol, connection.protocol_version) {
        (Protocol::Cql(_), 5) => Protocol::Cql(Version::V5),
        (protocol, _) => protocol,
    };
    Access {
        protocol,
        lz4: connection.compression.is_some(),
        tls: connection.tls.then_some(tls),
        login: login
            .map(|login| Login { user: login.username.clone(), password: login.password.clone() }),
        recovery: Recovery { reconnect: true, ..Recovery::default() },
        ..Access::to_all(addresses)
    }
}

/// Returns the result of a slice for the harness.
fn slice_load(
    stats: &Stats,
    pacing: Pacing,
    path: PathSample,
    seconds: Vec<LoadSecond>,
) -> SliceLoad {
    let response = match pacing {
        Pacing::Closed => Vec::new(),
        Pacing::Open { .. } => histogram::encode(&stats.response()),
    };
    SliceLoad {
        window_ns: stats.window_ns(),
        operations: stats.operations,
        errors: stats.errors_by_kind(),
        unsent: stats.dropped,
        sent_late: stats.sent_late_count(),
        client_cpu_ns: stats.cpu_ns,
        busiest_thread_ns: 0,
        response,
        service: histogram::encode(&stats.service()),
        loaders: Vec::new(),
        instances: Vec::new(),
        paths: vec![path],
        seconds,
    }
}

/// How long a stretch of a load is whose counts are handed over on their own.
const SECOND: Duration = Duration::from_secs(1);

/// Returns what happened in one second.
fn second(stats: &Stats, pacing: Pacing) -> LoadSecond {
    let times = match pacing {
        Pacing::Closed => stats.service(),
        Pacing::Open { .. } => stats.response(),
    };
    let mean_ns = ns(times.mean() / 1e9).unwrap_or(0);
    LoadSecond { operations: stats.operations, mean_ns, max_ns: times.max() }
}

impl AgentDriver for LoadEngine {
    fn open(
        &mut self,
        addresses: &[SocketAddr],
        deadline: Duration,
        access: &ClientAccess,
    ) -> Result<TargetId, PartError> {
        let first = access.connection;
        let how = access_of(addresses, access, first, self.protocol);
        let target = self.engine.open(&how, deadline, &self.signals.stop)?;
        Ok(self.targets.add(OpenSystem {
            addresses: addresses.to_vec(),
            access: access.clone(),
            targets: vec![(first, target)],
            rows: Vec::new(),
            path: OpenPath::new(addresses),
        }))
    }

    fn populate(
        &mut self,
        target: TargetId,
        Rows { workload, seed }: &Rows,
        part: Option<LoaderPart>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), PartError> {
        let spec = workload::load_spec(workload, part)?;
        let parts = (&self.engine, self.protocol);
        let system = self.targets.get_mut(target)?;
        let opened = system.target(workload.connection, parts, &self.signals)?;
        self.engine.populate(opened, &spec, *seed, &self.signals.stop, progress)?;
        system.assume_rows(spec, *seed);
        Ok(())
    }

    fn assume_rows(
        &mut self,
        target: TargetId,
        Rows { workload, seed }: &Rows,
    ) -> Result<(), PartError> {
        let spec = workload::load_spec(workload, None)?;
        self.targets.get_mut(target)?.assume_rows(spec, *seed);
        Ok(())
    }

    /// Opens connections and prepares statements.
    fn prepare(
        &mut self,
        target: TargetId,
        order: &SliceOrder,
        Preparation { part, .. }: Preparation,
        _alive: &mut dyn FnMut(),
    ) -> Result<Readiness, PartError> {
        let spec = workload::load_spec(&order.workload, Some(part))?;
        let parts = (&self.engine, self.protocol);
        let system = self.targets.get_mut(target)?;
        let opened = system.target(order.workload.connection, parts, &self.signals)?;
        self.engine.prepare(opened, &spec, 0)?;
        Ok(Readiness::Connected)
    }

    fn release(&mut self) {}

    fn run(
        &mut self,
        target: TargetId,
        order: &SliceOrder,
        shared: Option<SharedRun>,
        edge: &(dyn Fn(Edge) + Sync),
    ) -> Result<(SliceLoad, Option<SharedResult>), PartError> {
        let parts = (&self.engine, self.protocol);
        let system = self.targets.get_mut(target)?;
        let opened = system.target(order.workload.connection, parts, &self.signals)?;
        let spec = workload::load_spec(&order.workload, shared.map(|shared| shared.part))?;
        let pace = workload::pace(order.pacing, order.window)?;
        let is_long = order.window >= seconds::WINDOW_MIN;
        let whole_seconds = usize::try_from(order.window.as_secs()).unwrap_or(usize::MAX);
        let load = engine::LoadOrder {
            spec: &spec,
            pace: &pace,
            lead_in: order.lead_in,
            stretch: if is_long { SECOND } else { order.window },
            seed: order.seed,
            verify: false,
            start: shared
                .map(|shared| StartTime { at_ns: shared.at_ns, phase_ns: shared.phase_ns }),
        };
        let report = |at| match (at, shared) {
            (_, Some(_)) => {}
            (engine::Edge::Begin, None) => edge(Edge::Begin),
            (engine::Edge::End, None) => edge(Edge::End),
        };
        let mut by_second = Vec::new();
        let mut follow = LoadObserver {
            stop: &self.signals.stop,
            edge: &report,
            accounts_read: Some(&self.signals.read),
            stretch: &mut |stats| {
                if is_long && by_second.len() < whole_seconds {
                    by_second.push(second(stats, order.pacing));
                }
            },
            outlives: false,
        };
        let stats = self.engine.run(opened, &load, &mut follow)?;
        let (begin_ns, end_ns) = stats.edges_ns();
        let shared = shared.map(|_| SharedResult {
            begin_ns,
            end_ns,
            busiest_thread_ns: stats.busiest_thread_ns,
            waited_ns: stats.run_delay_ns,
        });
        let load = slice_load(&stats, order.pacing, system.path.sample(), by_second);
        Ok((load, shared))
    }

    fn close(&mut self, target: TargetId) -> Result<(), PartError> {
        self.targets.remove(target)?;
        Ok(())
    }
}
