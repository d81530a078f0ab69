//! The monitor: which there are, its process and its threads.

use std::process::Child;

use tare_host::process;
use tare_std::cpus::CpuSet;

use super::error::VmError;
use crate::runtime::contract::KILL_LIMIT;

/// What makes the guest's machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MonitorKind {
    Qemu,
    /// User-mode Linux: the guest's kernel itself.
    Uml,
}

impl MonitorKind {
    /// Every one.
    pub(super) const ALL: [Self; 2] = [Self::Qemu, Self::Uml];

    /// As a study names it: `vm:qemu`.
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

/// A monitor that runs; killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Monitor(Child);

impl Monitor {
    pub(crate) fn new(child: Child) -> Self {
        Self(child)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    pub(crate) fn alive(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }

    /// Kills it and waits for its end. Idempotent.
    pub(crate) fn kill(&mut self) -> Result<(), VmError> {
        // Once it has been waited for its number may be somebody else's.
        if !self.alive() {
            return Ok(());
        }
        let pid = self.pid();
        let file = |source| VmError::File { path: format!("/proc/{pid}").into(), source };
        // What descends from it too, which without it might go on.
        let alive = process::kill(&process::tree(pid), KILL_LIMIT).map_err(file)?;
        if let Some(pid) = alive.first() {
            return Err(VmError::Unkillable { pid: *pid });
        }
        self.0.wait().map(|_| ()).map_err(file)
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        // The journal kills what survives this.
        let _ = self.kill();
    }
}

/// Gives each vCPU a CPU of its own, as far as they go.
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

/// The kernel's own threads that carry packets for a process, where they are not threads of that
/// process (before Linux 6.4).
pub(crate) fn vhost_threads(pid: u32) -> Vec<u32> {
    let name = format!("vhost-{pid}");
    let ours = |thread: &u32| process::name(*thread).is_some_and(|found| found == name);
    process::all().into_iter().filter(ours).collect()
}
