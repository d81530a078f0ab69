//! The load generator in its agent: connections to all systems of a study, one of which is loaded
//! at a time.
//!
//! A load thread reports the edges of a slice at the moment at which it reads its CPU clock, so
//! that the harness reads its CPU times at the same time. The load continues after the window until
//! the harness has read them (`Signals::read`); then it waits for the requests in flight and leaves
//! the system idle. Connections that break meanwhile are replaced, as by `tare load`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tare_lab::PartError;
use tare_lab::driver::{Edge, Pacing, SliceLoad, SliceOrder, TargetId};
use tare_lab::path::PathSample;
use tare_load::access::{Access, Protocol, Recovery};
use tare_load::engine::{self, Engine, LoadObserver, StartTime, Target};
use tare_load::{Stats, histogram};

use super::workload;
use crate::agent::path::OpenPath;
use crate::agent::protocol::{LoaderPart, SharedResult, SharedRun};
use crate::agent::{AgentContext, AgentDriver, Preparation, Readiness, Rows, Signals};
use crate::targets::Targets;

/// The generator, with the systems that it has open.
pub(super) struct LoadEngine {
    engine: Engine,
    protocol: Protocol,
    targets: Targets<OpenSystem>,
    signals: Arc<Signals>,
}

struct OpenSystem {
    target: Target,
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

/// Returns the result of a slice for the harness.
fn slice_load(stats: &Stats, pacing: Pacing, path: PathSample) -> SliceLoad {
    let response = match pacing {
        Pacing::Closed => Vec::new(),
        Pacing::Open { .. } => histogram::encode(&stats.response()),
    };
    SliceLoad {
        window_ns: stats.window_ns(),
        operations: stats.operations,
        errors: stats.errors_by_kind(),
        unsent: stats.dropped,
        client_cpu_ns: stats.cpu_ns,
        busiest_thread_ns: 0,
        response,
        service: histogram::encode(&stats.service()),
        loaders: Vec::new(),
        instances: Vec::new(),
        paths: vec![path],
    }
}

impl AgentDriver for LoadEngine {
    fn open(
        &mut self,
        addresses: &[SocketAddr],
        deadline: Duration,
    ) -> Result<TargetId, PartError> {
        let recovery = Recovery { reconnect: true, ..Recovery::default() };
        let access = Access { recovery, protocol: self.protocol, ..Access::to_all(addresses) };
        let target = self.engine.open(&access, deadline, &self.signals.stop)?;
        Ok(self.targets.add(OpenSystem { target, path: OpenPath::new(addresses) }))
    }

    fn populate(
        &mut self,
        target: TargetId,
        Rows { workload, seed }: &Rows,
        part: Option<LoaderPart>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), PartError> {
        let spec = workload::load_spec(workload, part)?;
        let opened = &mut self.targets.get_mut(target)?.target;
        Ok(self.engine.populate(opened, &spec, *seed, &self.signals.stop, progress)?)
    }

    fn assume_rows(
        &mut self,
        target: TargetId,
        Rows { workload, seed }: &Rows,
    ) -> Result<(), PartError> {
        let spec = workload::load_spec(workload, None)?;
        self.targets.get_mut(target)?.target.assume_rows(&spec.workload, *seed);
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
        self.engine.prepare(&mut self.targets.get_mut(target)?.target, &spec, 0)?;
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
        let OpenSystem { target, path } = self.targets.get_mut(target)?;
        let spec = workload::load_spec(&order.workload, shared.map(|shared| shared.part))?;
        let pace = workload::pace(order.pacing, order.window)?;
        let load = engine::LoadOrder {
            spec: &spec,
            pace: &pace,
            lead_in: order.lead_in,
            stretch: order.window,
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
        let mut follow = LoadObserver {
            stop: &self.signals.stop,
            edge: &report,
            accounts_read: Some(&self.signals.read),
            stretch: &mut |_| {},
            outlives: false,
        };
        let stats = self.engine.run(target, &load, &mut follow)?;
        let (begin_ns, end_ns) = stats.edges_ns();
        let shared = shared.map(|_| SharedResult {
            begin_ns,
            end_ns,
            busiest_thread_ns: stats.busiest_thread_ns,
            waited_ns: stats.run_delay_ns,
        });
        let load = slice_load(&stats, order.pacing, path.sample());
        Ok((load, shared))
    }

    fn close(&mut self, target: TargetId) -> Result<(), PartError> {
        self.targets.remove(target)?;
        Ok(())
    }
}
