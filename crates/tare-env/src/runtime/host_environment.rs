//! The parts that the runtimes of host processes (`process`, `oci`) share: the state of an
//! environment and its lifecycle.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use tare_host::journal::EntryId;
use tare_lab::PartError;
use tare_lab::environment::{
    DataSnapshot, Endpoint, Environment, EnvironmentSpec, Launch, LayerState, Processes,
    RestoreStats, Usage,
};

use super::contract;
use crate::layer::Layers;
use crate::layer::network::SystemNetwork;
use crate::run_context::RunContext;
use crate::storage::{self, InitialData, Storage};
use crate::system::{self, System};

/// The environment has no running system.
#[derive(Debug, thiserror::Error)]
#[error("environment {environment:?} is not started")]
pub struct NotStarted {
    environment: String,
}

/// The state that all environments of host processes have.
pub(super) struct Common {
    pub(super) context: Arc<RunContext>,
    pub(super) spec: EnvironmentSpec,
    pub(super) layers: Layers,
    pub(super) storage: Box<dyn Storage>,
    pub(super) initial_data: InitialData,
    /// The number of the last start.
    pub(super) number: u32,
    pub(super) entries: Vec<EntryId>,
    /// The last lines that the previous system printed.
    log: String,
}

impl Common {
    pub(super) fn new(
        context: &Arc<RunContext>,
        spec: EnvironmentSpec,
        layers: Layers,
    ) -> Result<Self, PartError> {
        Ok(Self {
            context: Arc::clone(context),
            storage: storage::parse(&spec)?,
            spec,
            layers,
            initial_data: InitialData::default(),
            number: 0,
            entries: Vec::new(),
            log: String::new(),
        })
    }

    /// Returns the directory of the last start.
    pub(super) fn folder(&self) -> PathBuf {
        self.context.work().join(format!("e{}", self.number))
    }

    /// Returns the files of the system's standard output and standard error.
    pub(super) fn logs(&self) -> [PathBuf; 2] {
        ["stdout", "stderr"].map(|name| self.folder().join(name))
    }

    pub(super) fn not_started(&self) -> NotStarted {
        NotStarted { environment: self.spec.name.clone() }
    }

    fn log_tail(&self) -> String {
        let logs = self.logs();
        match self.entries.is_empty() {
            true => self.log.clone(),
            false => system::log_tail(&[&logs[0], &logs[1]]),
        }
    }
}

/// A runtime whose systems are ordinary processes of this host.
pub(super) trait HostRuntime {
    fn common(&self) -> &Common;

    fn common_mut(&mut self) -> &mut Common;

    /// Returns the running system, if there is one.
    fn system(&mut self) -> Option<&mut System>;

    /// Returns the network of the running system, if there is one.
    fn network(&mut self) -> Option<&mut SystemNetwork>;

    /// Reads back the network layer of the running system.
    fn read_network(&mut self) -> Result<LayerState, PartError> {
        let (context, layers) = (Arc::clone(&self.common().context), self.common().layers.clone());
        let system = self.started()?;
        let (mut state, pid) = (system.read_network(&layers), system.pid);
        if let Some(network) = self.network() {
            state = network.read_links(&context, (layers.network, pid), state);
            state = network.read_reach(&context, state);
        }
        Ok(state)
    }

    /// Starts the system. After an error `end` and the journal remove what was created.
    fn begin(&mut self, launch: &Launch) -> Result<Endpoint, PartError>;

    fn read_layers(&mut self) -> Result<Vec<LayerState>, PartError>;

    fn freeze(&mut self) -> Result<(), PartError> {
        self.started()?.freeze()
    }

    fn thaw(&mut self) -> Result<(), PartError> {
        self.started()?.thaw()
    }

    fn config(&self) -> Option<String> {
        None
    }

    /// Ends the processes of the environment. Idempotent.
    fn end(&mut self) -> Result<(), PartError>;

    /// Returns the running system.
    ///
    /// # Errors
    /// Fails if there is none.
    fn started(&mut self) -> Result<&mut System, PartError> {
        let error = self.common().not_started();
        Ok(self.system().ok_or(error)?)
    }
}

/// An environment of a runtime of host processes.
pub(super) struct HostEnvironment<R: HostRuntime>(pub(super) R);

impl<R: HostRuntime> Environment for HostEnvironment<R> {
    fn spec(&self) -> &EnvironmentSpec {
        &self.0.common().spec
    }

    fn start_from(&mut self, data: &Rc<dyn DataSnapshot>) {
        self.0.common_mut().initial_data.set(data);
    }

    fn restored(&self) -> Option<RestoreStats> {
        self.0.common().initial_data.restored()
    }

    fn start(&mut self, launch: &Launch) -> Result<Endpoint, PartError> {
        self.stop()?;
        let started = self.0.begin(launch);
        if started.is_err() {
            // The first error names the cause; the journal keeps what `stop` cannot remove.
            let _ = self.stop();
        }
        started
    }

    fn read_back(&mut self) -> Result<Vec<LayerState>, PartError> {
        self.0.read_layers()
    }

    fn freeze(&mut self) -> Result<(), PartError> {
        self.0.freeze()?;
        match self.0.common().context.slot().peers() {
            Some(_) => Ok(()),
            None => self.withdraw(),
        }
    }

    fn thaw(&mut self) -> Result<(), PartError> {
        self.publish()?;
        self.0.thaw()
    }

    fn withdraw(&mut self) -> Result<(), PartError> {
        let context = Arc::clone(&self.0.common().context);
        Ok(self.0.network().map_or(Ok(()), |network| network.withdraw(&context))?)
    }

    fn publish(&mut self) -> Result<(), PartError> {
        let context = Arc::clone(&self.0.common().context);
        Ok(self.0.network().map_or(Ok(()), |network| network.publish(&context))?)
    }

    fn usage(&mut self) -> Result<Usage, PartError> {
        self.0.started()?.usage()
    }

    fn processes(&mut self) -> Processes {
        self.0.system().map(|system| system.processes()).unwrap_or_default()
    }

    fn config(&self) -> Option<String> {
        self.0.config()
    }

    fn log_tail(&self) -> String {
        self.0.common().log_tail()
    }

    fn stop(&mut self) -> Result<(), PartError> {
        let log = self.log_tail();
        self.0.common_mut().log = log;
        self.0.end()?;
        let Common { context, spec, entries, .. } = self.0.common_mut();
        Ok(contract::undo(context, &spec.name, entries)?)
    }
}

impl<R: HostRuntime> Drop for HostEnvironment<R> {
    fn drop(&mut self) {
        // Callers that need the error call `stop`; the journal keeps what is left.
        let _ = self.stop();
    }
}
