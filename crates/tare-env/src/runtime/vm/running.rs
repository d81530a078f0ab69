//! A running guest: its connection to the host, and its CPU accounts.

use std::fs;
use std::time::{Duration, Instant};

use tare_host::account::Account;
use tare_host::process;
use tare_lab::PartError;
use tare_lab::environment::Usage;

use super::engine::Engine;
use super::error::VmError;
use super::kernel::Kernel;
use super::lines::Lines;
use super::monitor::Monitor;
use super::qemu::Files;
use super::uml;
use crate::guest::protocol::{Answer, Order};
use crate::layer::network::SystemNetwork;
use crate::system::System;

/// How long the guest may take for an order, such as to load modules and mount.
const ORDER_LIMIT: Duration = Duration::from_secs(60);

pub(super) struct Running {
    pub(super) monitor: Monitor,
    /// The daemon that serves a shared directory.
    pub(super) daemon: Option<Monitor>,
    pub(super) system: System,
    pub(super) network: SystemNetwork,
    pub(super) engine: Engine,
    pub(super) guest: Lines,
    pub(super) kernel: Kernel,
    pub(super) daemon_account: Account,
    pub(super) frozen: bool,
}

impl Running {
    /// Sends an order and returns the guest's answer to it.
    pub(super) fn order(&mut self, name: &'static str, order: &Order) -> Result<Answer, VmError> {
        let fail = |source| VmError::Order { order: name, source };
        self.guest.order(order).map_err(fail)?;
        match self.guest.receive(Instant::now() + ORDER_LIMIT).map_err(fail)? {
            Answer::Failed { error } => Err(VmError::Refused { order: name, error }),
            answer => Ok(answer),
        }
    }

    /// Sends an order whose answer is `Answer::Done`.
    pub(super) fn done(&mut self, name: &'static str, order: &Order) -> Result<(), VmError> {
        match self.order(name, order)? {
            Answer::Done => Ok(()),
            _ => Err(VmError::Answer { order: name }),
        }
    }

    /// Copies the small files of the guest's data directory to the host, where the probes read
    /// them.
    pub(super) fn copy_facts(&mut self, files: &Files) -> Result<(), VmError> {
        let order = "account";
        let Answer::Account(account) = self.order(order, &Order::Account)? else {
            return Err(VmError::Answer { order });
        };
        for (name, content) in account.files {
            // The guest must not choose a path on the host.
            if name.contains('/') || name.starts_with('.') {
                continue;
            }
            let path = files.shown().join(name);
            fs::write(&path, content).map_err(|source| VmError::File { path, source })?;
        }
        Ok(())
    }

    pub(super) fn freeze(&mut self) -> Result<(), PartError> {
        self.engine.freeze(&self.system)?;
        self.frozen = true;
        Ok(())
    }

    pub(super) fn thaw(&mut self) -> Result<(), PartError> {
        self.engine.thaw(&self.system)?;
        self.frozen = false;
        Ok(())
    }

    /// Kills the guest. Idempotent.
    pub(super) fn kill(&mut self) -> Result<(), PartError> {
        // A frozen process does not end when killed.
        if let Engine::Uml = self.engine {
            uml::thaw(&self.system)?;
        }
        Ok(self.monitor.kill()?)
    }

    pub(super) fn usage(&mut self) -> Result<Usage, PartError> {
        let mut usage = self.engine.usage(&mut self.system)?;
        if let Some(daemon) = &self.daemon {
            let used = self.daemon_account.read(&process::tree(daemon.pid()));
            usage.layer_cpu_ns.push(("virtiofsd".into(), used));
        }
        Ok(usage)
    }
}
