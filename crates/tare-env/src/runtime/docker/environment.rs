//! The lifecycle of a container as an environment.

use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use bollard::models::ContainerState;
use tare_host::process::{self, ProcessHandle};
use tare_lab::PartError;
use tare_lab::environment::{
    DataSnapshot, Endpoint, Environment, EnvironmentSpec, Launch, LayerState, Processes,
    RestoreStats, Usage,
};

use super::{Container, DockerError};
use crate::runtime::contract;

/// How long SIGSTOP may take to stop every thread.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// How long the engine may take to notice that a container's process has ended.
const ENDED_LIMIT: Duration = Duration::from_secs(1);

impl Environment for Container {
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
            // If the container has ended, that is the cause, and its output says more.
            let error = self.ended().map_or(error, Into::into);
            // The journal keeps what `stop` cannot remove.
            let _ = self.stop();
            error
        })
    }

    fn read_back(&mut self) -> Result<Vec<LayerState>, PartError> {
        self.read_layers()
    }

    fn freeze(&mut self) -> Result<(), PartError> {
        self.running()?;
        match self.is_gvisor() {
            true => Ok(self.engine.pause(&self.name)?),
            false => Ok(process::stop(&self.running()?.system.pids(), STOP_LIMIT)?),
        }
    }

    fn thaw(&mut self) -> Result<(), PartError> {
        self.running()?;
        match self.is_gvisor() {
            true => Ok(self.engine.unpause(&self.name)?),
            false => Ok(process::resume(&self.running()?.system.pids())?),
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
        self.engine.log_tail(&self.name).unwrap_or_default().trim_end().to_string()
    }

    fn stop(&mut self) -> Result<(), PartError> {
        if self.entries.is_empty() {
            return Ok(());
        }
        if let Some(running) = self.running.take() {
            // A paused container would never end. The engine refuses to unpause a running one.
            if self.is_gvisor() {
                let _ = self.engine.unpause(&self.name);
            }
            // Faster than the engine, which sends SIGTERM first.
            let _ = process::kill(&running.system.pids(), contract::KILL_LIMIT)?;
        }
        self.entries.extend(self.image_to_drop());
        Ok(contract::undo(&self.context, &self.spec.name, &mut self.entries)?)
    }
}

impl Container {
    /// Returns the error of an ended process, with its exit code and its last output.
    pub(super) fn exit_error(&self, state: &ContainerState) -> DockerError {
        let environment = self.spec.name.clone();
        let code = state.exit_code.unwrap_or(-1);
        DockerError::Ended { environment, code, log: self.log_tail() }
    }

    /// Returns the error of a container whose process has ended, once the engine has noticed it.
    fn ended(&self) -> Option<DockerError> {
        let deadline = Instant::now() + ENDED_LIMIT;
        loop {
            let state = self.engine.inspect(&self.name).ok()?.state?;
            match pid_of(&state) {
                // Created, but never started: the first error names the cause.
                None if state.started_at.as_ref().is_none_or(|time| time.starts_with("0001-")) => {
                    return None;
                }
                None => return Some(self.exit_error(&state)),
                Some(pid) => {
                    let alive =
                        ProcessHandle::open(pid).is_some_and(|process| !process.has_ended());
                    if alive || Instant::now() > deadline {
                        return None;
                    }
                    thread::sleep(Duration::from_millis(5));
                }
            }
        }
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // Callers that need the error call `stop`; the journal keeps what is left.
        let _ = self.stop();
    }
}

/// Returns the container's first process, or `None` if it does not run.
pub(super) fn pid_of(state: &ContainerState) -> Option<u32> {
    state.pid.and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid != 0)
}
