//! A loader on this host: a child process on the client's CPUs, in the client's network namespace.

use std::path::PathBuf;

use tare_lab::PartError;
use tare_std::cpus::CpuSet;

use crate::Client;
use crate::agent::link::{AgentPipes, StartAgent};
use crate::built_in::spawn_agent;

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
