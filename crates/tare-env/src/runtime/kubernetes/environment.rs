//! The lifecycle of a pod as an environment.

use std::rc::Rc;
use std::time::Duration;

use tare_host::process;
use tare_kube::KubeError;
use tare_lab::PartError;
use tare_lab::environment::{
    DataSnapshot, Endpoint, Environment, EnvironmentSpec, Launch, LayerState, Processes,
    RestoreStats, Usage,
};
use tare_lab::layer::Network;

use super::start::CUT_OFF;
use super::{KubernetesError, Pod};
use crate::runtime::contract;

/// How long SIGSTOP may take to stop every thread.
const STOP_LIMIT: Duration = Duration::from_secs(5);

impl Environment for Pod {
    fn spec(&self) -> &EnvironmentSpec {
        &self.spec
    }

    fn start_from(&mut self, data: &Rc<dyn DataSnapshot>) {
        self.initial_data.set(data);
    }

    fn restored(&self) -> Option<RestoreStats> {
        self.initial_data.restored()
    }

    fn start(&mut self, launch: &Launch) -> Result<Endpoint, PartError> {
        self.stop()?;
        let started = self.begin(launch);
        started.map_err(|error| {
            // What a process said before it ended says more than its exit code.
            let ended = matches!(error.downcast_ref(), Some(KubeError::Pod { .. }));
            let log = if ended { self.log_tail() } else { String::new() };
            // The journal keeps what `stop` cannot remove.
            let _ = self.stop();
            if log.is_empty() {
                return error;
            }
            let (environment, mut why) = (self.spec.name.clone(), error.to_string());
            if self.runtime_class.is_some() && self.layers.network == Network::Host {
                why += &format!("; if its runtime class is gVisor's, {CUT_OFF}");
            }
            KubernetesError::Ended { environment, why, log }.into()
        })
    }

    fn read_back(&mut self) -> Result<Vec<LayerState>, PartError> {
        self.read_layers()
    }

    fn freeze(&mut self) -> Result<(), PartError> {
        let running = self.running()?;
        // `gvisor` explains why its processes are not frozen.
        match &running.sandbox {
            Some(sandbox) => Ok(sandbox.pause()?),
            None => Ok(process::stop(&Self::pids(running), STOP_LIMIT)?),
        }
    }

    fn thaw(&mut self) -> Result<(), PartError> {
        let running = self.running()?;
        match &running.sandbox {
            Some(sandbox) => Ok(sandbox.resume()?),
            None => Ok(process::resume(&Self::pids(running))?),
        }
    }

    fn usage(&mut self) -> Result<Usage, PartError> {
        self.running()?.system.usage()
    }

    fn processes(&mut self) -> Processes {
        self.running.as_ref().map(|running| running.system.processes()).unwrap_or_default()
    }

    fn config(&self) -> Option<String> {
        self.config.clone()
    }

    fn log_tail(&self) -> String {
        let log = self.cluster.log_tail(&self.context.prefix(), &self.name);
        log.unwrap_or_default().trim_end().to_string()
    }

    fn stop(&mut self) -> Result<(), PartError> {
        if self.entries.is_empty() {
            return Ok(());
        }
        if let Some(running) = self.running.take() {
            // containerd does not notice the end of a paused sandbox.
            if let Some(sandbox) = &running.sandbox {
                let _ = sandbox.resume();
            }
            // Faster than the kubelet, which sends SIGTERM first.
            let _ = process::kill(&Self::pids(&running), contract::KILL_LIMIT)?;
        }
        Ok(contract::undo(&self.context, &self.spec.name, &mut self.entries)?)
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        // Callers that need the error call `stop`; the journal keeps what is left.
        let _ = self.stop();
    }
}
