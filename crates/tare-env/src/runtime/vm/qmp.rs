//! QEMU's monitor protocol: stop, resume, thread ids and the accelerator (qemu.org, "QEMU Machine
//! Protocol Specification").

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::lines::Lines;

/// How long QEMU may take to answer. It answers immediately unless its disk hangs.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Why a command to QEMU's monitor failed.
#[derive(Debug, thiserror::Error)]
pub enum QmpError {
    #[error("cannot communicate with QEMU's monitor")]
    Speak(#[source] io::Error),
    #[error("QEMU refuses {command}: {reason}")]
    Refused { command: String, reason: String },
    #[error("QEMU sent an unexpected answer to {command}: {answer}")]
    Answer { command: String, answer: String },
}

/// A connection to one QEMU.
#[derive(Debug)]
pub(crate) struct Qmp(Lines);

impl Qmp {
    pub(crate) fn connect(
        path: &Path,
        deadline: Instant,
        alive: impl FnMut() -> bool,
    ) -> Result<Self, QmpError> {
        let mut lines = Lines::connect(path, deadline, alive).map_err(QmpError::Speak)?;
        let _greeting: Value = lines.receive(deadline).map_err(QmpError::Speak)?;
        let mut qmp = Self(lines);
        qmp.execute("qmp_capabilities")?;
        Ok(qmp)
    }

    /// Stops all vCPUs and the guest's clock.
    pub(crate) fn stop(&mut self) -> Result<(), QmpError> {
        self.execute("stop").map(|_| ())
    }

    pub(crate) fn cont(&mut self) -> Result<(), QmpError> {
        self.execute("cont").map(|_| ())
    }

    /// Returns the host's thread id of each vCPU.
    pub(crate) fn vcpu_threads(&mut self) -> Result<Vec<u32>, QmpError> {
        let command = "query-cpus-fast";
        let answer = self.execute(command)?;
        let thread = |cpu: &Value| cpu.get("thread-id")?.as_u64()?.try_into().ok();
        let threads = answer.as_array().map(|cpus| cpus.iter().map(thread).collect());
        let odd = || QmpError::Answer { command: command.into(), answer: answer.to_string() };
        threads.flatten().ok_or_else(odd)
    }

    /// Returns whether the guest runs on KVM.
    pub(crate) fn kvm(&mut self) -> Result<bool, QmpError> {
        let answer = self.execute("query-kvm")?;
        Ok(answer.get("enabled").and_then(Value::as_bool).unwrap_or(false))
    }

    /// Returns the guest's status, such as `running` or `paused`.
    pub(crate) fn status(&mut self) -> Result<String, QmpError> {
        let answer = self.execute("query-status")?;
        Ok(answer.get("status").and_then(Value::as_str).unwrap_or("unknown").to_string())
    }

    fn execute(&mut self, command: &str) -> Result<Value, QmpError> {
        let deadline = Instant::now() + ANSWER_LIMIT;
        self.0.send(&json!({ "execute": command })).map_err(QmpError::Speak)?;
        loop {
            let mut answer: Value = self.0.receive(deadline).map_err(QmpError::Speak)?;
            if let Some(error) = answer.get("error") {
                let reason = error.get("desc").and_then(Value::as_str).unwrap_or_default();
                let (command, reason) = (command.to_string(), reason.to_string());
                return Err(QmpError::Refused { command, reason });
            }
            // Anything else is an event.
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
        }
    }
}
