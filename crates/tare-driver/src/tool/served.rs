//! A tool in the agent of a loader.
//!
//! A tool takes seconds to start, and differs in that from one loader to the other. So it is
//! started when the loader prepares for a slice, and loads the system from then on; the run begins
//! with the window. Its edges are times of the loader's clock: CPU time is read then, and what the
//! tool counts per interval is taken as even between the two lines around an edge. Latencies are
//! cut at the nearer one.
//!
//! The tool is started long enough for a wait that the harness names, and killed with the agent.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tare_lab::PartError;
use tare_lab::access::ClientAccess;
use tare_lab::driver::{Driver, Edge, SliceLoad, SliceOrder, TargetId};
use tare_load::clock_ns;

use super::driver::{LoadStart, LoadingTool, ToolDriver};
use super::process::{ClientPlacement, Keeper};
use super::scratch::Scratch;
use super::{EdgeSource, Tool, ToolError};
use crate::agent::path::OpenPath;
use crate::agent::protocol::{LoaderPart, SharedResult, SharedRun};
use crate::agent::{AgentContext, AgentDriver, Preparation, Readiness, Rows};

/// A tool as an agent serves it.
#[derive(Debug)]
pub(super) struct ServedTool<T> {
    driver: ToolDriver<T>,
    paths: HashMap<TargetId, OpenPath>,
    prepared: Option<PreparedSlice<T>>,
    /// Dropped after the tool that runs in it.
    _scratch: Scratch,
}

/// A slice whose tool loads the system.
#[derive(Debug)]
struct PreparedSlice<T> {
    target: TargetId,
    order: SliceOrder,
    wait: Duration,
    loading: LoadingTool<T>,
}

impl<T: Tool> ServedTool<T> {
    pub(super) fn start(tool: T, context: AgentContext) -> Result<Self, ToolError> {
        let AgentContext { cpus, program, signals, .. } = context;
        let scratch = Scratch::create()?;
        let placement = ClientPlacement {
            cpus,
            namespace: None,
            run: None,
            scratch: scratch.path().join("load-tool"),
            keeper: Some(Keeper { program, signals }),
        };
        let driver = ToolDriver::placed(tool, placement);
        Ok(Self { driver, paths: HashMap::new(), prepared: None, _scratch: scratch })
    }

    /// Measures the window that begins at a time of this host's clock.
    fn run_prepared(
        &mut self,
        target: TargetId,
        at_ns: u64,
    ) -> Result<(SliceLoad, SharedResult), ToolError> {
        let prepared = self.prepared.take().filter(|prepared| prepared.target == target);
        let unprepared = ToolError::Unprepared { tool: T::INFO.name };
        let PreparedSlice { order, wait, mut loading, .. } = prepared.ok_or(unprepared)?;
        let follower = &mut loading.follower;
        follower.sleep(Duration::from_nanos(at_ns.saturating_sub(clock_ns())))?;
        let begin_ns = clock_ns();
        let begin = follower.mark(Instant::now(), None);
        follower.sleep(order.window.saturating_sub(begin.at.elapsed()))?;
        let end_ns = clock_ns();
        let end = follower.mark(Instant::now(), None);
        let path = self.paths.get(&target).map(OpenPath::sample);
        let measured = match T::INFO.edges {
            EdgeSource::ByTheClock => loading.measured(begin, end),
            EdgeSource::AtLines => {
                follower.pass(&end)?;
                let [begin, end] = [begin, end].map(|edge| loading.follower.by_lines(edge));
                loading.measured(begin, end)
            }
        };
        let busiest_thread_ns = measured.busiest_thread_ns;
        let load = LoadStart { target, order: &order, part: LoaderPart::ALONE, wait };
        let mut load = self.driver.finish(measured, load)?;
        load.paths.extend(path);
        Ok((load, SharedResult { begin_ns, end_ns, busiest_thread_ns, waited_ns: None }))
    }
}

impl<T: Tool> AgentDriver for ServedTool<T> {
    fn open(
        &mut self,
        addresses: &[SocketAddr],
        deadline: Duration,
        _access: &ClientAccess,
    ) -> Result<TargetId, PartError> {
        let target = self.driver.open(addresses, deadline)?;
        self.paths.insert(target, OpenPath::new(addresses));
        Ok(target)
    }

    fn populate(
        &mut self,
        target: TargetId,
        Rows { workload, seed }: &Rows,
        _part: Option<LoaderPart>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), PartError> {
        self.driver.populate(target, workload, *seed, progress)
    }

    fn assume_rows(
        &mut self,
        target: TargetId,
        Rows { workload, .. }: &Rows,
    ) -> Result<(), PartError> {
        Ok(self.driver.note_rows(target, workload)?)
    }

    fn prepare(
        &mut self,
        target: TargetId,
        order: &SliceOrder,
        Preparation { part, wait }: Preparation,
        alive: &mut dyn FnMut(),
    ) -> Result<Readiness, PartError> {
        self.prepared = None;
        // Else every loader would draw the same.
        let seed = order.seed.wrapping_add(part.index.into());
        let order = SliceOrder { seed, ..order.clone() };
        let load = LoadStart { target, order: &order, part, wait };
        let loading = self.driver.begin_load(load, alive)?;
        self.prepared = Some(PreparedSlice { target, order, wait, loading });
        Ok(Readiness::Loading)
    }

    fn release(&mut self) {
        self.prepared = None;
    }

    fn run(
        &mut self,
        target: TargetId,
        order: &SliceOrder,
        shared: Option<SharedRun>,
        edge: &(dyn Fn(Edge) + Sync),
    ) -> Result<(SliceLoad, Option<SharedResult>), PartError> {
        match shared {
            Some(run) => {
                let (load, shared) = self.run_prepared(target, run.at_ns)?;
                Ok((load, Some(shared)))
            }
            None => Ok((self.driver.slice(target, order, &mut |at| edge(at))?, None)),
        }
    }

    fn close(&mut self, target: TargetId) -> Result<(), PartError> {
        self.prepared = None;
        self.paths.remove(&target);
        self.driver.close(target)
    }
}
