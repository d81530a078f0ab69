//! Reverts tunings whose process has ended: all, those after one tuning, or those of dead runs.

use std::path::Path;

use super::journal::{self, folder};
use super::lock::Lock;
use super::outcome::{OnDrift, RevertOutcome, Reverted, RevertedSetting};
use super::tuning::{dead_temporary, revert_one};
use super::{SettingError, SettingErrorClass, SettingStore, TuneError, persist};
use crate::plan::Group;

/// Reverts tunings, the newest first: either all of them together with the unit that applies a plan
/// at boot, or those newer than `to`, which restores the host's state right after `to`.
///
/// # Errors
/// `Busy`, `Unknown`, or when a journal cannot be read. Drift is no error but an outcome.
pub fn revert_all(
    store: &mut dyn SettingStore,
    state: &Path,
    to: Option<&str>,
    drift: OnDrift,
) -> Result<Vec<Reverted>, TuneError> {
    let folder = folder(state);
    if !folder.exists() {
        return match to {
            Some(to) => Err(TuneError::Unknown { id: to.into(), known: "none".into() }),
            None => Ok(Vec::new()),
        };
    }
    let _lock = Lock::take(&folder)?;
    let mut ids = journal::ids(&folder)?;
    if let Some(to) = to {
        let Some(at) = ids.iter().position(|id| id == to) else {
            let known = if ids.is_empty() { "none".into() } else { ids.join(", ") };
            return Err(TuneError::Unknown { id: to.into(), known });
        };
        ids.drain(..=at);
    }
    let mut all: Vec<Reverted> = Vec::new();
    if to.is_none() {
        all.extend(revert_persisted(&folder));
    }
    for id in ids.iter().rev() {
        all.extend(revert_one(&folder, store, id, drift)?);
    }
    Ok(all)
}

/// Removes the unit and the stored plan and reports them as settings of a tuning.
fn revert_persisted(folder: &Path) -> Option<Reverted> {
    let setting = |place: String, outcome: RevertOutcome| RevertedSetting {
        knob: "persist".into(),
        group: Group::Limits,
        subject: "host".into(),
        what: "the unit that applies the plan at boot".into(),
        place,
        outcome,
    };
    let settings = match persist::uninstall(folder, Path::new("/run/systemd/system").is_dir()) {
        Ok(removed) => removed
            .iter()
            .map(|path| {
                let old = "absent".to_string();
                setting(path.display().to_string(), RevertOutcome::Restored { old })
            })
            .collect::<Vec<_>>(),
        Err(error) => {
            let text = tare_host::error_line(&error);
            let error = SettingError { class: SettingErrorClass::Failed, text };
            let old = "absent".to_string();
            vec![setting(persist::UNIT.into(), RevertOutcome::Failed { error, old })]
        }
    };
    (!settings.is_empty()).then(|| Reverted { id: "persist".into(), settings })
}

/// Reverts temporary tunings whose process died. Does nothing while a tuning is in progress.
///
/// # Errors
/// When a journal cannot be read.
pub fn clean(store: &mut dyn SettingStore, state: &Path) -> Result<Vec<Reverted>, TuneError> {
    let folder = folder(state);
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let _lock = match Lock::take(&folder) {
        Err(TuneError::Busy { .. }) => return Ok(Vec::new()),
        lock => lock?,
    };
    let dead = dead_temporary(&folder)?;
    dead.iter()
        .rev()
        .filter_map(|id| revert_one(&folder, store, id, OnDrift::Keep).transpose())
        .collect()
}
