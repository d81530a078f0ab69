//! Runs the neighbours of environments: other programs, while an environment runs.
//!
//! Method: a neighbour starts after the system, is frozen and thawed with it, and ends before it.
//! All other environments are frozen meanwhile, so their neighbours are too. Each neighbour has a
//! cgroup of its own beside that of the environment, with the default weight: the scheduler weighs
//! it as another container. Its cpuset keeps it on the CPUs that `where` names, and its CPU time is
//! that of the cgroup, so it is neither the system's nor that of other programs.
//!
//! Another system (`kind = "system"`) is a process of Tare's own program (`tare neighbour-system`)
//! that starts the system and its load, both in that cgroup, in a network namespace of their own.
//! It creates a file once the system is under load.
//!
//! Limits: work that the kernel does for it in its own threads (writing back pages, softirqs in
//! ksoftirqd) is in no account. Files of a neighbour are on the disk of Tare's state directory.

mod running;

use std::net::SocketAddrV4;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use tare_lab::PartError;
use tare_lab::environment::{
    DataSnapshot, Endpoint, Environment, EnvironmentSpec, Launch, LayerState, Processes,
    RestoreStats, Usage,
};
use tare_lab::layer::{Layer, Neighbour, NoPlace};
use tare_std::cpus::CpuSet;

use crate::layer;
use crate::run_context::RunContext;
use crate::{storage, system};
use running::RunningNeighbour;

/// The file in a neighbour's directory that shows that another system is under load.
pub const UNDER_LOAD: &str = "under-load";

/// Returns the arguments with which Tare's program starts a system as a process of this host that
/// listens on `listen`.
///
/// # Errors
/// If the system's program is not installed, or is that of an image.
pub fn arguments(
    launch: &Launch,
    listen: SocketAddrV4,
    data: &Path,
) -> Result<Vec<String>, PartError> {
    let program = system::program(launch)?;
    Ok(system::arguments(launch, listen, &data.to_string_lossy(), &program, None))
}

/// Why an environment cannot have a neighbour.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NeighbourError {
    #[error("neighbour {neighbour:?} of environment {environment:?} has no CPU on this host")]
    Place { environment: String, neighbour: String, source: NoPlace },
    #[error(
        "neighbour {neighbour:?} of environment {environment:?} would not use the disk of the data: \
         storage {kind:?} has a device of its own, and a neighbour's files are in Tare's state \
         directory; use another kind of storage or of neighbour"
    )]
    OtherDevice { environment: String, neighbour: String, kind: String },
}

/// Returns the CPUs of a neighbour of an environment.
///
/// # Errors
/// If `where` names none on this host.
fn cpus(
    neighbour: &Neighbour,
    spec: &EnvironmentSpec,
    context: &RunContext,
) -> Result<CpuSet, NeighbourError> {
    let system = spec.cpu.set(context.cpus());
    let found = neighbour.placement.cpus(&system, context.cpus());
    found.map_err(|source| NeighbourError::Place {
        environment: spec.name.clone(),
        neighbour: neighbour.name.clone(),
        source,
    })
}

/// A neighbour of one environment.
pub(crate) trait Beside {
    /// Starts it, and returns once all of its workers run. Idempotent.
    ///
    /// # Errors
    /// If it does not start, or ends at once.
    fn start(&mut self) -> Result<(), PartError>;

    fn freeze(&mut self) -> Result<(), PartError>;

    fn thaw(&mut self) -> Result<(), PartError>;

    /// Returns its CPU time since its start, in ns.
    fn cpu_ns(&self) -> Result<u64, PartError>;

    fn read_back(&mut self) -> LayerState;

    /// Ends it and removes everything that it had. Idempotent.
    fn stop(&mut self) -> Result<(), PartError>;
}

/// An environment with neighbours.
pub(crate) struct EnvironmentWithNeighbours {
    inner: Box<dyn Environment>,
    neighbours: Vec<Box<dyn Beside>>,
}

impl EnvironmentWithNeighbours {
    /// Adds the neighbours of its specification to an environment.
    ///
    /// # Errors
    /// If this host cannot run one of them.
    pub(crate) fn around(
        inner: Box<dyn Environment>,
        context: &Arc<RunContext>,
    ) -> Result<Box<dyn Environment>, PartError> {
        let spec = inner.spec().clone();
        if spec.neighbours.is_empty() {
            return Ok(inner);
        }
        layer::neighbour::check(&spec)?;
        let mut neighbours: Vec<Box<dyn Beside>> = Vec::new();
        for one in &spec.neighbours {
            if one.kind.uses_disk() && storage::is_shared(&spec) {
                let kind = spec.storage.kind.clone();
                let (environment, neighbour) = (spec.name.clone(), one.name.clone());
                return Err(NeighbourError::OtherDevice { environment, neighbour, kind }.into());
            }
            let cpus = cpus(one, &spec, context)?;
            neighbours.push(Box::new(RunningNeighbour::new(context, &spec.name, one, cpus)));
        }
        Ok(Box::new(Self::new(inner, neighbours)))
    }

    fn new(inner: Box<dyn Environment>, neighbours: Vec<Box<dyn Beside>>) -> Self {
        Self { inner, neighbours }
    }

    /// Calls every neighbour, and returns the first error.
    fn each(
        &mut self,
        mut act: impl FnMut(&mut dyn Beside) -> Result<(), PartError>,
    ) -> Result<(), PartError> {
        let results: Vec<_> = self.neighbours.iter_mut().map(|one| act(&mut **one)).collect();
        results.into_iter().collect()
    }

    /// Starts the neighbours of a started environment. After an error everything is stopped.
    fn with_neighbours<T>(&mut self, started: Result<T, PartError>) -> Result<T, PartError> {
        let value = started?;
        match self.neighbours.iter_mut().try_for_each(|one| one.start()) {
            Ok(()) => Ok(value),
            Err(error) => {
                // The first error names the cause; the journal keeps what is left.
                let _ = self.stop();
                Err(error)
            }
        }
    }
}

impl Environment for EnvironmentWithNeighbours {
    fn spec(&self) -> &EnvironmentSpec {
        self.inner.spec()
    }

    fn start_from(&mut self, data: &Rc<dyn DataSnapshot>) {
        self.inner.start_from(data);
    }

    fn restored(&self) -> Option<RestoreStats> {
        self.inner.restored()
    }

    fn start(&mut self, launch: &Launch) -> Result<Endpoint, PartError> {
        self.each(|one| one.stop())?;
        let started = self.inner.start(launch);
        self.with_neighbours(started)
    }

    fn start_all(&mut self, launches: &[Launch]) -> Result<Vec<Endpoint>, PartError> {
        self.each(|one| one.stop())?;
        let started = self.inner.start_all(launches);
        self.with_neighbours(started)
    }

    fn read_back(&mut self) -> Result<Vec<LayerState>, PartError> {
        let mut layers = self.inner.read_back()?;
        layers.extend(self.neighbours.iter_mut().map(|one| one.read_back()));
        Ok(layers)
    }

    fn freeze(&mut self) -> Result<(), PartError> {
        // The system first: it must not run alone.
        let frozen = self.inner.freeze();
        frozen.and(self.each(|one| one.freeze()))
    }

    fn thaw(&mut self) -> Result<(), PartError> {
        let thawed = self.each(|one| one.thaw()).and_then(|()| self.inner.thaw());
        if thawed.is_err() {
            // The first error names the cause. A neighbour must not run into other slices.
            let _ = self.each(|one| one.freeze());
        }
        thawed
    }

    fn withdraw(&mut self) -> Result<(), PartError> {
        self.inner.withdraw()
    }

    fn publish(&mut self) -> Result<(), PartError> {
        self.inner.publish()
    }

    fn usage(&mut self) -> Result<Usage, PartError> {
        let mut usage = self.inner.usage()?;
        usage.neighbour_cpu_ns =
            self.neighbours.iter().map(|one| one.cpu_ns()).collect::<Result<_, _>>()?;
        Ok(usage)
    }

    fn processes(&mut self) -> Processes {
        self.inner.processes()
    }

    fn config(&self) -> Option<String> {
        self.inner.config()
    }

    fn log_tail(&self) -> String {
        self.inner.log_tail()
    }

    fn stop(&mut self) -> Result<(), PartError> {
        let neighbours = self.each(|one| one.stop());
        self.inner.stop().and(neighbours)
    }
}

/// Returns the state of the layer for one neighbour.
fn state(neighbour: &Neighbour, found: String, in_force: bool) -> LayerState {
    let (layer, wanted) = (Layer::Neighbours.name().into(), neighbour.to_string());
    LayerState { layer, wanted, found, in_force }
}

#[cfg(test)]
mod tests;
