//! The stored plan with its hardware, and applying it again after a boot.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::journal::{Purpose, folder};
use super::outcome::Applied;
use super::tuning::Tuning;
use super::{SettingStore, TuneError};
use crate::plan::{Action, Item, Options, Plan, PlanError};
use crate::planner::read_machine;
use crate::snapshot::Snapshot;
use tare_host::exec::ExecError;

/// Why a plan was not stored, installed or removed.
#[derive(Debug, thiserror::Error)]
pub enum PersistError {
    #[error(
        "this host does not run systemd, which applies the plan at boot; print the unit with --print and run its command from your init system"
    )]
    NoSystemd,
    #[error("{} exists and was not created by Tare; move it away first", .path.display())]
    Foreign { path: PathBuf },
    #[error("cannot write {}; run as root", .path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("this host applies a plan of its own at boot; run tare tune persist --remove there")]
    HasOwn,
    #[error("cannot remove {}; run as root", .path.display())]
    Remove { path: PathBuf, source: io::Error },
    #[error("cannot reload systemd for the changed unit")]
    Reload(#[from] ExecError),
    #[error("no plan is stored in {}; store one with tare tune persist", .path.display())]
    NotStored { path: PathBuf },
    #[error("the stored plan {} cannot be used; store it again with tare tune persist", .path.display())]
    Unusable { path: PathBuf, source: serde_json::Error },
    #[error("cannot read {}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Tune(#[from] TuneError),
}

/// Content of `STATE/tune/plan.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Stored {
    version: u32,
    options: Options,
    hardware: Hardware,
    plan: Plan,
}

/// The hardware that a plan depends on. A reboot does not change it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hardware {
    /// CPUs of each core, by NUMA node: `node 0: 0,16 1,17`.
    cpus: Vec<String>,
    /// PCI address and driver of the network devices that are tuned.
    nics: BTreeSet<String>,
    /// PCI address, or name where it has none, of the disks that are tuned.
    disks: BTreeSet<String>,
}

/// The outcome of applying a stored plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredApplied {
    /// The differences between the current hardware and that of the stored plan, one line each. If
    /// there are any, a new plan was made with the stored options.
    pub changed: Vec<String>,
    /// The applied plan.
    pub plan: Plan,
    pub applied: Applied,
    /// Changes in a new plan that are not in the stored plan. They were not applied.
    pub left_out: Vec<Item>,
}

impl Stored {
    pub(super) fn new(options: &Options, plan: Plan, hardware: Hardware) -> Self {
        Self { version: 1, options: options.clone(), hardware, plan }
    }

    pub(super) fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

impl Hardware {
    pub(super) fn read(snapshot: &Snapshot, options: &Options) -> Result<Self, PlanError> {
        let machine = read_machine(snapshot, options)?;
        let cpus = machine.topology.nodes.iter().map(|node| {
            let cores: Vec<String> = node.cores.iter().map(|core| core.cpus.to_string()).collect();
            format!("node {}: {}", node.id, cores.join(" "))
        });
        let nics = machine
            .nics
            .iter()
            .map(|nic| format!("{} ({})", nic.pci.as_ref().unwrap_or(&nic.name), nic.driver));
        let disks =
            machine.disks.iter().map(|disk| disk.pci.as_ref().unwrap_or(&disk.name).clone());
        Ok(Self { cpus: cpus.collect(), nics: nics.collect(), disks: disks.collect() })
    }

    /// Describes the differences to `now`, one line each.
    fn differences(&self, now: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.cpus != now.cpus {
            lines.push("the CPUs or their numbers have changed".to_string());
        }
        for (what, then, now) in
            [("network device", &self.nics, &now.nics), ("disk", &self.disks, &now.disks)]
        {
            lines.extend(then.difference(now).map(|name| format!("{what} {name} is absent")));
            lines.extend(now.difference(then).map(|name| format!("{what} {name} is new")));
        }
        lines
    }
}

/// Returns a name of a setting without numbers that a boot changes, such as those of interrupts.
fn name(item: &Item) -> (String, String, String) {
    let irq = item.change().and_then(|change| change.identity.irq_name.clone());
    let what = irq.unwrap_or_else(|| without_number(&item.what));
    (item.knob.clone(), item.subject.clone(), what)
}

/// Returns the name in brackets of a text like `CPUs of interrupt 38 (virtio2-input.0)`; any other
/// text is unchanged.
fn without_number(what: &str) -> String {
    let irq = what.contains("interrupt ").then(|| what.split_once('('));
    match irq.flatten() {
        Some((_, name)) => name.trim_end_matches(')').to_string(),
        None => what.to_string(),
    }
}

/// Returns the path of the stored plan.
pub(super) fn stored_path(state: &Path) -> PathBuf {
    folder(state).join("plan.json")
}

/// Applies the stored plan. On the same hardware only its changes are applied; on other hardware a
/// new plan with the stored options.
///
/// # Errors
/// `NotStored`; those of `Tuning::apply_plan`.
pub fn apply_stored(
    store: &mut dyn SettingStore,
    state: &Path,
) -> Result<StoredApplied, PersistError> {
    let path = stored_path(state);
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(PersistError::NotStored { path });
        }
        text => text.map_err(|source| PersistError::Read { path: path.clone(), source })?,
    };
    let stored: Stored =
        serde_json::from_str(&text).map_err(|source| PersistError::Unusable { path, source })?;
    let changed = stored.hardware.differences(&Hardware::read(&store.snapshot(), &stored.options)?);
    let consented: BTreeSet<_> = stored
        .plan
        .items
        .iter()
        .filter(|item| match item.action {
            Action::Change(_) | Action::AlreadySet { .. } => true,
            Action::Leave { .. } | Action::Advise { .. } => false,
        })
        .map(name)
        .collect();
    let consent = |item: &Item| !changed.is_empty() || consented.contains(&name(item));
    let mut tuning = Tuning::begin(state, store, Purpose::Keep)?;
    let (plan, applied) = tuning.apply_where(store, &stored.options, &consent)?;
    let left_out = plan.changes().map(|(item, _)| item).filter(|item| !consent(item));
    let left_out = left_out.cloned().collect();
    Ok(StoredApplied { changed, plan, applied, left_out })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_interrupts_without_numbers() {
        let check = |what, expect| assert_eq!(without_number(what), expect);
        check("CPUs of interrupt 38 (virtio2-input.0)", "virtio2-input.0");
        check("rps_cpus of rx-0", "rps_cpus of rx-0");
    }
}
