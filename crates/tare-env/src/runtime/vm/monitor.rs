//! The monitors, and the process and threads of a running one.

use std::process::Child;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tare_host::process;
use tare_std::cpus::CpuSet;

use super::error::VmError;
use crate::runtime::contract::KILL_LIMIT;

/// How long what an ended process printed may take to reach its file.
const OUTPUT_LIMIT: Duration = Duration::from_secs(2);

/// The program that runs the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MonitorKind {
    Qemu,
    /// User-mode Linux: the guest's kernel itself.
    Uml,
}

impl MonitorKind {
    pub(super) const ALL: [Self; 2] = [Self::Qemu, Self::Uml];

    /// Returns its name in a study, after `vm:`.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Qemu => "qemu",
            Self::Uml => "uml",
        }
    }

    pub(crate) fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

/// A running monitor or daemon. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Monitor {
    child: Child,
    /// Threads that copy its output to files. Each ends with the process.
    output: Vec<JoinHandle<()>>,
}

impl Monitor {
    pub(crate) fn new(child: Child) -> Self {
        Self { child, output: Vec::new() }
    }

    /// Returns it with the threads that copy its output to files.
    pub(super) fn copied_by(mut self, output: Vec<JoinHandle<()>>) -> Self {
        self.output = output;
        self
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    pub(crate) fn alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Kills the process with its descendants, and waits for its end and its output. Idempotent.
    pub(crate) fn kill(&mut self) -> Result<(), VmError> {
        self.kill_tree()?;
        let deadline = Instant::now() + OUTPUT_LIMIT;
        while !self.output.iter().all(JoinHandle::is_finished) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn kill_tree(&mut self) -> Result<(), VmError> {
        // After the wait another process may have its pid.
        if !self.alive() {
            return Ok(());
        }
        let pid = self.pid();
        let file = |source| VmError::File { path: format!("/proc/{pid}").into(), source };
        // Descendants might outlive it.
        let alive = process::kill(&process::tree(pid), KILL_LIMIT).map_err(file)?;
        if let Some(pid) = alive.first() {
            return Err(VmError::Unkillable { pid: *pid });
        }
        self.child.wait().map(|_| ()).map_err(file)
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        // The journal kills survivors.
        let _ = self.kill();
    }
}

/// Pins each vCPU to one CPU. CPUs are shared if there are fewer of them.
pub(crate) fn pin_vcpus(vcpus: &[u32], cpus: &CpuSet) -> Result<(), VmError> {
    let each: Vec<u32> = cpus.iter().collect();
    for (thread, cpu) in vcpus.iter().zip(each.iter().cycle()) {
        let mut one = CpuSet::new();
        one.insert(*cpu);
        process::pin_thread(*thread, &one)
            .map_err(|source| VmError::Pin { thread: *thread, source })?;
    }
    Ok(())
}

/// Returns the kernel threads that carry packets for a process. Since Linux 6.4 they are threads of
/// that process, and the list is empty.
pub(crate) fn vhost_threads(pid: u32) -> Vec<u32> {
    let name = format!("vhost-{pid}");
    let ours = |thread: &u32| process::name(*thread).is_some_and(|found| found == name);
    process::all().into_iter().filter(ours).collect()
}
