//! What of a guest that runs differs with its monitor: how it is stopped, asked and accounted.

use tare_host::account::Account;
use tare_lab::PartError;
use tare_lab::environment::Usage;

use super::qemu::Accelerator;
use super::qmp::Qmp;
use super::uml;
use crate::system::System;

/// The monitor's side of a guest.
pub(super) enum Engine {
    Qemu(Box<Qemu>),
    /// The guest's kernel is a process of the host: there is nobody to ask.
    Uml,
}

/// A QEMU that runs.
pub(super) struct Qemu {
    pub(super) qmp: Qmp,
    /// The accelerator that was chosen, and why.
    pub(super) accelerator: (Accelerator, String),
    pub(super) vhost: bool,
    /// Threads of the vCPUs.
    pub(super) vcpus: Vec<u32>,
    /// QEMU first, then the kernel's threads that work for it.
    pub(super) pids: Vec<u32>,
    pub(super) accounts: CpuAccounts,
}

/// CPU time of the vCPUs, and of all other threads of the monitor.
#[derive(Debug, Default)]
pub(super) struct CpuAccounts {
    vcpus: Account,
    others: Account,
}

impl Engine {
    /// Stops the guest.
    pub(super) fn freeze(&mut self, system: &System) -> Result<(), PartError> {
        match self {
            Self::Qemu(qemu) => Ok(qemu.qmp.stop()?),
            Self::Uml => uml::freeze(system),
        }
    }

    /// Lets it go on.
    pub(super) fn thaw(&mut self, system: &System) -> Result<(), PartError> {
        match self {
            Self::Qemu(qemu) => Ok(qemu.qmp.cont()?),
            Self::Uml => uml::thaw(system),
        }
    }

    /// `running`, `paused`, ...
    pub(super) fn status(&mut self, system: &System) -> Result<String, PartError> {
        match self {
            Self::Qemu(qemu) => Ok(qemu.qmp.status()?),
            Self::Uml => Ok(uml::status(system)),
        }
    }

    /// QEMU's vCPUs are the system and its other threads a layer's part; all that a user-mode
    /// kernel consists of is the system.
    pub(super) fn usage(&mut self, system: &mut System) -> Result<Usage, PartError> {
        let mut usage = system.usage()?;
        if let Self::Qemu(qemu) = self {
            let Qemu { pids, vcpus, accounts, .. } = qemu.as_mut();
            usage.system_cpu_ns = accounts.vcpus.read_threads(pids, |id| vcpus.contains(&id));
            let others = accounts.others.read_threads(pids, |id| !vcpus.contains(&id));
            usage.layer_cpu_ns.push(("monitor".into(), others));
        }
        Ok(usage)
    }

    /// Processes outside the system that work for it.
    pub(super) fn helpers(&self) -> &[u32] {
        match self {
            Self::Qemu(qemu) => qemu.pids.get(1..).unwrap_or_default(),
            Self::Uml => &[],
        }
    }
}
