//! One tuning of a host, from its first write until it is reverted.

use std::path::{Path, PathBuf};

use super::journal::{self, Journal, Purpose, folder};
use super::lock::Lock;
use super::outcome::{Applied, OnDrift, Reverted};
use super::{SettingStore, TuneError, apply, revert};
use crate::plan::{Item, Options, Plan};
use crate::planner::plan;
use tare_std::cpus::CpuSet;

/// A tuning. It holds the lock of its state directory. A temporary tuning that is dropped without a
/// revert counts as dead.
#[derive(Debug)]
pub struct Tuning {
    folder: PathBuf,
    journal: Journal,
    /// Dead temporary tunings, which must be reverted before the first write.
    dead: Vec<String>,
    // Dropped last, so that the journal's file is removed under the lock.
    _lock: Lock,
}

impl Tuning {
    /// Starts a tuning. This writes neither to the host nor to the journal.
    ///
    /// # Errors
    /// `Busy` when another tuning is in progress; when the state directory cannot be written.
    pub fn begin(
        state: &Path,
        store: &dyn SettingStore,
        purpose: Purpose,
    ) -> Result<Self, TuneError> {
        let folder = folder(state);
        let lock = Lock::take(&folder)?;
        let dead = dead_temporary(&folder)?;
        let journal = Journal::new(&folder, purpose, store.boot_id())?;
        Ok(Self { folder, journal, dead, _lock: lock })
    }

    /// Returns the id, such as `t0001`, for `tare tune status` and `revert --to`.
    pub fn id(&self) -> &str {
        &self.journal.header.id
    }

    /// Applies the items that are changes, in their order: records the current values in the
    /// journal with one sync, then writes each setting and reads it back.
    ///
    /// # Errors
    /// `NotAllowed` before the first write; `RolledBack` when a required setting failed and the
    /// whole tuning was reverted.
    pub fn apply(
        &mut self,
        store: &mut dyn SettingStore,
        items: &[Item],
    ) -> Result<Applied, TuneError> {
        self.revert_dead(store)?;
        apply::apply(&mut self.journal, store, items)
    }

    /// Records which CPUs the plan keeps for interrupts. To be called before the first write.
    pub fn keep_for_interrupts(&mut self, cpus: Option<CpuSet>) {
        self.journal.header.interrupt_cpus = cpus;
    }

    /// Plans and applies: first the channels, then, from a new plan of the changed host, the rest.
    ///
    /// # Errors
    /// Those of `apply`; when no plan can be made, after reverting the changes so far.
    pub fn apply_plan(
        &mut self,
        store: &mut dyn SettingStore,
        options: &Options,
    ) -> Result<(Plan, Applied), TuneError> {
        self.apply_where(store, options, &|_| true)
    }

    /// Like [`Self::apply_plan`], for only those changes that `wanted` accepts.
    pub(super) fn apply_where(
        &mut self,
        store: &mut dyn SettingStore,
        options: &Options,
        wanted: &dyn Fn(&Item) -> bool,
    ) -> Result<(Plan, Applied), TuneError> {
        self.revert_dead(store)?;
        let of_stage = |plan: &Plan, first: bool| -> Vec<Item> {
            let changes = plan.changes().filter(|(_, change)| (change.stage == 0) == first);
            changes.map(|(item, _)| item.clone()).filter(|item| wanted(item)).collect()
        };
        let mut made = plan(&store.snapshot(), options)?;
        self.keep_for_interrupts(made.cpus.interrupts_alone());
        let channels = of_stage(&made, true);
        let mut applied = apply::apply(&mut self.journal, store, &channels)?;
        if applied.written().next().is_some() {
            made = match plan(&store.snapshot(), options) {
                Ok(plan) => plan,
                Err(error) => {
                    self.revert(store);
                    return Err(error.into());
                }
            };
        }
        let rest = apply::apply(&mut self.journal, store, &of_stage(&made, false))?;
        applied.id = rest.id;
        applied.items.extend(rest.items);
        Ok((made, applied))
    }

    /// Restores every setting of this tuning that still has the written value. The tuning can be
    /// applied again afterwards; dropping it removes its journal.
    pub fn revert(&mut self, store: &mut dyn SettingStore) -> Reverted {
        revert::revert(&mut self.journal, store, OnDrift::Keep)
    }

    /// Reverts the tunings whose process died.
    pub(super) fn revert_dead(
        &mut self,
        store: &mut dyn SettingStore,
    ) -> Result<Vec<Reverted>, TuneError> {
        let ids = std::mem::take(&mut self.dead);
        ids.iter()
            .rev()
            .filter_map(|id| revert_one(&self.folder, store, id, OnDrift::Keep).transpose())
            .collect()
    }
}

impl Drop for Tuning {
    fn drop(&mut self) {
        self.journal.remove_if_done();
    }
}

/// Reverts a journal without a live owner. The caller must hold the lock.
pub(super) fn revert_one(
    folder: &Path,
    store: &mut dyn SettingStore,
    id: &str,
    drift: OnDrift,
) -> Result<Option<Reverted>, TuneError> {
    let Some(mut journal) = Journal::open(folder, id)? else {
        // It died before its first batch was on disk.
        let _ = std::fs::remove_file(folder.join(format!("{id}.journal")));
        return Ok(None);
    };
    let reverted = revert::revert(&mut journal, store, drift);
    journal.remove_if_done();
    Ok(Some(reverted))
}

/// Lists the temporary tunings in a directory. All are dead, because the caller holds the lock.
pub(super) fn dead_temporary(folder: &Path) -> Result<Vec<String>, TuneError> {
    let mut dead = Vec::new();
    for id in journal::ids(folder)? {
        if let Some(journal) = Journal::read(folder, &id)?
            && journal.header.purpose != Purpose::Keep
        {
            dead.push(id);
        }
    }
    Ok(dead)
}

/// Plans and applies under one lock. Leaves no journal when nothing has to change.
///
/// # Errors
/// Those of `Tuning::begin` and `Tuning::apply_plan`.
pub fn apply_plan(
    store: &mut dyn SettingStore,
    state: &Path,
    options: &Options,
    purpose: Purpose,
) -> Result<(Plan, Applied), TuneError> {
    Tuning::begin(state, store, purpose)?.apply_plan(store, options)
}
