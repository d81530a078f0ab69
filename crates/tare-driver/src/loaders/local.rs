//! A loader on this host: a child process on the client's CPUs, in the client's network namespace.

use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use tare_lab::PartError;
use tare_std::cpus::CpuSet;

use super::link::{AgentPipes, AgentProcess, StartAgent};
use crate::Client;
use crate::built_in::{DriverError, spawn_agent};

/// Starts agents on this host.
#[derive(Debug)]
pub struct LocalAgent {
    program: PathBuf,
    cpus: CpuSet,
    namespace: Option<PathBuf>,
    run: String,
}

impl LocalAgent {
    /// Returns the starter for agents where the client runs.
    pub fn new(client: &Client<'_>) -> Self {
        Self {
            program: client.program.into(),
            cpus: client.cpus.clone(),
            namespace: client.namespace.map(Into::into),
            run: client.run.into(),
        }
    }
}

impl StartAgent for LocalAgent {
    fn host(&self) -> &'static str {
        "local"
    }

    fn start(&mut self, arguments: &[String]) -> Result<AgentPipes, PartError> {
        let namespace = self.namespace.as_deref();
        let child = spawn_agent(&self.program, arguments, &self.cpus, namespace, &self.run)?;
        Ok(AgentPipes::of_child(child)?)
    }
}

impl AgentPipes {
    /// Takes the pipes of a child process that is an agent.
    ///
    /// # Errors
    /// If one of its standard streams is not a pipe.
    pub fn of_child(mut child: Child) -> Result<Self, DriverError> {
        let lost = || DriverError::Stopped;
        Ok(Self {
            orders: Box::new(child.stdin.take().ok_or_else(lost)?),
            answers: Box::new(child.stdout.take().ok_or_else(lost)?),
            errors: Box::new(child.stderr.take().ok_or_else(lost)?),
            pid: Some(child.id()),
            process: Box::new(LocalProcess(child)),
        })
    }
}

/// A child process.
#[derive(Debug)]
struct LocalProcess(Child);

impl AgentProcess for LocalProcess {
    fn end(&mut self, limit: Duration) {
        let deadline = Instant::now() + limit;
        while Instant::now() < deadline {
            match self.0.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(2)),
                Ok(Some(_)) | Err(_) => return,
            }
        }
        // It may end by itself just now; then there is nothing to kill.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
