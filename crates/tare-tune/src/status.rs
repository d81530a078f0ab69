//! Lists the applied tunings and whether their settings still have the written values. Only reads,
//! and needs no lock.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::identity::SettingLocator;
use super::journal::{self, Journal, Purpose, Write, folder};
use super::{SettingErrorClass, SettingStore, TuneError, companions};
use crate::plan::{Group, Identity, Key};
use tare_host::process::ProcessHandle;
use tare_std::cpus::CpuSet;

/// A tuning that is applied in whole or in part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TuningStatus {
    pub id: String,
    pub purpose: Purpose,
    pub started_unix_s: u64,
    /// The command line that made it.
    pub command: String,
    /// The process that made it.
    pub pid: u32,
    /// The CPUs that its plan keeps for interrupts; `None` if it keeps none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupt_cpus: Option<CpuSet>,
    /// Whether that process is alive and holds the lock.
    pub alive: bool,
    /// Whether its process died while it wrote.
    pub interrupted: bool,
    /// The settings that are not restored, in write order.
    pub settings: Vec<SettingStatus>,
}

/// One setting of a tuning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingStatus {
    pub knob: String,
    pub group: Group,
    pub subject: String,
    /// The setting in words.
    pub what: String,
    pub key: Key,
    pub identity: Identity,
    /// The location of the setting, in words.
    pub place: String,
    pub old: String,
    pub written: String,
    pub state: SettingState,
}

/// The current state of a setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum SettingState {
    /// It has the written value.
    InForce,
    /// It has the value from before the tuning.
    Undone,
    /// It has a third value: another program has changed it since.
    Drifted {
        now: String,
    },
    /// A newer tuning has written it again.
    Superseded {
        by: String,
    },
    /// Its device is absent.
    Gone,
    /// The host has rebooted since, and the kernel has lost the setting.
    Rebooted,
    Unreadable {
        reason: String,
    },
}

impl TuningStatus {
    /// Whether every setting has the written value or was written again by a newer tuning.
    pub fn is_in_force(&self) -> bool {
        self.settings.iter().all(|setting| match setting.state {
            SettingState::InForce | SettingState::Superseded { .. } => true,
            SettingState::Undone
            | SettingState::Drifted { .. }
            | SettingState::Gone
            | SettingState::Rebooted
            | SettingState::Unreadable { .. } => false,
        })
    }
}

/// Lists every tuning with settings to restore, the oldest first.
///
/// # Errors
/// When a journal cannot be read.
pub fn status(store: &dyn SettingStore, state: &Path) -> Result<Vec<TuningStatus>, TuneError> {
    let folder = folder(state);
    let holder = holder(&folder);
    let mut newer: BTreeMap<Key, String> = BTreeMap::new();
    let mut tunings = Vec::new();
    let mut finder = SettingLocator::default();
    for id in journal::ids(&folder)?.iter().rev() {
        let Some(journal) = Journal::read(&folder, id)? else { continue };
        let rebooted = journal.header.boot_id != store.boot_id();
        let mut settings = Vec::new();
        for number in journal.live().iter().rev() {
            let write = &journal.entries[number].write;
            let state = match newer.get(&write.key) {
                _ if rebooted => SettingState::Rebooted,
                Some(by) => SettingState::Superseded { by: by.clone() },
                None => state_of(store, &mut finder, write),
            };
            if !rebooted {
                newer.insert(write.key.clone(), id.clone());
            }
            settings.push(of(write, state));
        }
        settings.reverse();
        if settings.is_empty() {
            continue;
        }
        let header = journal.header;
        let alive = holder == Some(header.pid) && !rebooted;
        tunings.push(TuningStatus {
            id: header.id,
            purpose: header.purpose,
            started_unix_s: header.started_unix_s,
            command: header.command.join(" "),
            pid: header.pid,
            interrupt_cpus: header.interrupt_cpus,
            alive,
            interrupted: journal.interrupted && !alive,
            settings,
        });
    }
    tunings.reverse();
    Ok(tunings)
}

/// Returns the CPUs that are kept for interrupts on this host: those of the newest plan that keeps
/// some and whose interrupts are where it moved them.
///
/// # Errors
/// When a journal cannot be read.
pub fn interrupt_cpus(store: &dyn SettingStore, state: &Path) -> Result<Option<CpuSet>, TuneError> {
    let moved = |setting: &SettingStatus| {
        setting.group == Group::Interrupts && setting.state == SettingState::InForce
    };
    let tunings = status(store, state)?.into_iter().rev();
    let mut in_force = tunings.filter(|tuning| tuning.settings.iter().any(moved));
    Ok(in_force.find_map(|tuning| tuning.interrupt_cpus))
}

/// Compares a setting's current value with the written and the old one.
fn state_of(store: &dyn SettingStore, finder: &mut SettingLocator, write: &Write) -> SettingState {
    let Some(key) = finder.locate(store, &write.key, &write.identity) else {
        return SettingState::Gone;
    };
    match store.read(&key) {
        Ok(now) if write.form.same(&now, &write.new) => SettingState::InForce,
        Ok(now) if write.form.same(&now, &write.old) => SettingState::Undone,
        Ok(now) => SettingState::Drifted { now: write.form.normalize(&now) },
        Err(error) if error.class == SettingErrorClass::Absent => SettingState::Gone,
        Err(error) => SettingState::Unreadable { reason: error.text },
    }
}

fn of(write: &Write, state: SettingState) -> SettingStatus {
    SettingStatus {
        knob: write.knob.clone(),
        group: write.group,
        subject: write.subject.clone(),
        what: write.what.clone(),
        key: write.key.clone(),
        identity: write.identity.clone(),
        place: companions::describe_location(&write.key),
        old: write.old.clone(),
        written: write.new.clone(),
        state,
    }
}

/// Returns the live process whose id is in the lock file. The lock itself is not tried, because
/// that could block another process.
fn holder(folder: &Path) -> Option<u32> {
    let pid = fs::read_to_string(folder.join("lock")).ok()?.trim().parse().ok()?;
    ProcessHandle::open(pid).filter(|process| !process.has_ended()).map(|_| pid)
}

/// Describes each tuning from its journal alone, in one line, for `doctor`. The second part is the
/// command that repairs it, if any.
pub(crate) fn summaries(state: &Path) -> Result<Vec<(String, Option<&'static str>)>, TuneError> {
    let folder = folder(state);
    let holder = holder(&folder);
    let mut lines = Vec::new();
    for id in journal::ids(&folder)? {
        let Some(journal) = Journal::read(&folder, &id)? else { continue };
        let count = journal.live().len();
        if count == 0 {
            continue;
        }
        let settings = if count == 1 { "setting" } else { "settings" };
        let line = format!("{id} ({count} {settings}");
        let alive = holder == Some(journal.header.pid);
        lines.push(match &journal.header.purpose {
            _ if alive => (format!("{line}, in progress in process {})", journal.header.pid), None),
            Purpose::Temporary { run } => {
                (format!("{line} left by run {run}, which is dead)"), Some("tare clean"))
            }
            Purpose::Keep if journal.interrupted => {
                (format!("{line}, interrupted)"), Some("tare tune revert"))
            }
            Purpose::Keep => (format!("{line})"), None),
        });
    }
    Ok(lines)
}
