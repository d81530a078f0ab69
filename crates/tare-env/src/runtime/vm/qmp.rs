//! QEMU's monitor protocol: stop and go on, thread numbers, the accelerator
//! (qemu.org, "QEMU Machine Protocol Specification").

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::lines::Lines;

/// How long QEMU may take to answer. It answers at once unless its disk hangs.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Why QEMU's monitor did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum QmpError {
    #[error("cannot speak to QEMU's monitor")]
    Speak(#[source] io::Error),
    #[error("QEMU refuses {command}: {reason}")]
    Refused { command: String, reason: String },
    #[error("QEMU answers {command} with {answer}, which is not understood")]
    Answer { command: String, answer: String },
}

/// A conversation with one QEMU.
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
        qmp.ask("qmp_capabilities")?;
        Ok(qmp)
    }

    /// Stops all vCPUs and the guest's clock.
    pub(crate) fn stop(&mut self) -> Result<(), QmpError> {
        self.ask("stop").map(|_| ())
    }

    pub(crate) fn cont(&mut self) -> Result<(), QmpError> {
        self.ask("cont").map(|_| ())
    }

    /// Thread of each vCPU, as the host numbers threads.
    pub(crate) fn vcpu_threads(&mut self) -> Result<Vec<u32>, QmpError> {
        let command = "query-cpus-fast";
        let answer = self.ask(command)?;
        let thread = |cpu: &Value| cpu.get("thread-id")?.as_u64()?.try_into().ok();
        let threads = answer.as_array().map(|cpus| cpus.iter().map(thread).collect());
        let odd = || QmpError::Answer { command: command.into(), answer: answer.to_string() };
        threads.flatten().ok_or_else(odd)
    }

    /// Whether the guest runs on KVM.
    pub(crate) fn kvm(&mut self) -> Result<bool, QmpError> {
        let answer = self.ask("query-kvm")?;
        Ok(answer.get("enabled").and_then(Value::as_bool).unwrap_or(false))
    }

    /// `running`, `paused`, ...
    pub(crate) fn status(&mut self) -> Result<String, QmpError> {
        let answer = self.ask("query-status")?;
        Ok(answer.get("status").and_then(Value::as_str).unwrap_or("unknown").to_string())
    }

    fn ask(&mut self, command: &str) -> Result<Value, QmpError> {
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
