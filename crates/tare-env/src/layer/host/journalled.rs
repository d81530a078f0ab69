//! The tuner of a run: it makes every change through a temporary tuning, whose journal lets `clean`
//! put back the changes of a killed run.

use std::fmt;
use std::path::Path;

use tare_lab::PartError;
use tare_tune::plan::{Item, Key};
use tare_tune::{
    Outcome, Purpose, RevertOutcome, Reverted, SettingError, SettingStore, TuneError, Tuning,
};

use super::Tuner;

/// Why a change of the host failed or was not put back.
#[derive(Debug, thiserror::Error)]
pub enum JournalledError {
    #[error(transparent)]
    Tune(#[from] TuneError),
    #[error("cannot change {what}")]
    NotChanged { what: String, source: SettingError },
    #[error("cannot put back {what} ({place}) to {old:?}; run tare clean")]
    NotPutBack { what: String, place: String, old: String, source: SettingError },
}

/// A temporary tuning with the store that carries it out.
pub struct Journalled<H> {
    tuning: Tuning,
    store: H,
}

impl<H: SettingStore> Journalled<H> {
    /// Starts a temporary tuning for a run. The first change puts back those of a killed run.
    ///
    /// # Errors
    /// When another tuning is active, or the state directory cannot be written.
    pub fn begin(state: &Path, store: H, run: &str) -> Result<Self, JournalledError> {
        let purpose = Purpose::Temporary { run: run.to_string() };
        let tuning = Tuning::begin(state, &store, purpose)?;
        Ok(Self { tuning, store })
    }

    /// Makes all changes once and puts them back. Returns the items that the host refuses, each
    /// with the reason.
    ///
    /// # Errors
    /// When the tuning could not start, or a change was not put back.
    pub fn rehearse(&mut self, items: &[Item]) -> Result<Vec<(Item, String)>, JournalledError> {
        let applied = self.tuning.apply(&mut self.store, items);
        whole(self.tuning.revert(&mut self.store))?;
        let refused = applied?.items.into_iter().filter_map(|one| match one.outcome {
            Outcome::Refused { error } | Outcome::Failed { error } => Some((one.item, error.text)),
            Outcome::Written { .. } | Outcome::Already => None,
        });
        Ok(refused.collect())
    }
}

impl<H> fmt::Debug for Journalled<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journalled").field("tuning", &self.tuning).finish_non_exhaustive()
    }
}

impl<H: SettingStore + Send> Tuner for Journalled<H> {
    fn apply(&mut self, items: &[Item]) -> Result<(), PartError> {
        let applied = self.tuning.apply(&mut self.store, items)?;
        for one in applied.items {
            if let Outcome::Failed { error } | Outcome::Refused { error } = one.outcome {
                let what = format!("{} of {}", one.item.what, one.item.subject);
                return Err(JournalledError::NotChanged { what, source: error }.into());
            }
        }
        Ok(())
    }

    fn revert(&mut self) -> Result<(), PartError> {
        Ok(whole(self.tuning.revert(&mut self.store))?)
    }

    fn read(&self, key: &Key) -> Result<String, PartError> {
        Ok(self.store.read(key)?)
    }
}

/// Fails if a setting was not put back. A setting that another process changed meanwhile is kept
/// without an error; the read-back reports it.
fn whole(reverted: Reverted) -> Result<(), JournalledError> {
    for setting in reverted.settings {
        if let RevertOutcome::Failed { error, old } = setting.outcome {
            let (what, place) = (setting.what, setting.place);
            return Err(JournalledError::NotPutBack { what, place, old, source: error });
        }
    }
    Ok(())
}
