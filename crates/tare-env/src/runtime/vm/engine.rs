//! The parts of a running guest that depend on its monitor: freezing, status and accounts.

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
    /// The guest's kernel is a process of the host without a monitor protocol.
    Uml,
}

/// A running QEMU.
pub(super) struct Qemu {
    pub(super) qmp: Qmp,
    /// The chosen accelerator, and the reason.
    pub(super) accelerator: (Accelerator, String),
    pub(super) vhost: bool,
    /// The threads of the vCPUs.
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

    /// Resumes the guest.
    pub(super) fn thaw(&mut self, system: &System) -> Result<(), PartError> {
        match self {
            Self::Qemu(qemu) => Ok(qemu.qmp.cont()?),
            Self::Uml => uml::thaw(system),
        }
    }

    /// Returns the guest's status, such as `running` or `paused`.
    pub(super) fn status(&mut self, system: &System) -> Result<String, PartError> {
        match self {
            Self::Qemu(qemu) => Ok(qemu.qmp.status()?),
            Self::Uml => Ok(uml::status(system)),
        }
    }

    /// Reads the accounts. QEMU's vCPUs count as the system and its other threads as the layer; all
    /// of a user-mode kernel counts as the system.
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

    /// Returns the processes outside the system that work for it.
    pub(super) fn helpers(&self) -> &[u32] {
        match self {
            Self::Qemu(qemu) => qemu.pids.get(1..).unwrap_or_default(),
            Self::Uml => &[],
        }
    }
}
