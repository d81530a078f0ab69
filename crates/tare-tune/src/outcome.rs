//! The outcomes of applying and of reverting a tuning, per setting.

use serde::{Deserialize, Serialize};

use crate::plan::{Group, Item};
use crate::setting::SettingError;

/// The outcomes of the changes of a plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Applied {
    /// The tuning's id; empty when nothing had to be written, so that no journal exists.
    pub id: String,
    /// In the order of the plan.
    pub items: Vec<AppliedItem>,
}

/// One item with its outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppliedItem {
    pub item: Item,
    pub outcome: Outcome,
}

/// How a write ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// It was written and reads back as wanted.
    Written { old: String },
    /// The setting had the wanted value already.
    Already,
    /// The kernel refused it, as expected (`Requirement::BestEffort`).
    Refused {
        #[serde(rename = "trouble")]
        error: SettingError,
    },
    /// The write failed.
    Failed {
        #[serde(rename = "trouble")]
        error: SettingError,
    },
}

impl Applied {
    /// Returns the items that were written.
    pub fn written(&self) -> impl Iterator<Item = &Item> {
        self.items.iter().filter_map(|applied| match applied.outcome {
            Outcome::Written { .. } => Some(&applied.item),
            _ => None,
        })
    }

    /// Returns the items whose write failed. Refusals of `BestEffort` items are not failures.
    pub fn failed(&self) -> impl Iterator<Item = (&Item, &SettingError)> {
        self.items.iter().filter_map(|applied| match &applied.outcome {
            Outcome::Failed { error } => Some((&applied.item, error)),
            _ => None,
        })
    }
}

/// The outcomes of reverting a tuning.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reverted {
    /// The tuning's id.
    pub id: String,
    /// The settings in the order of restoring: the last written first.
    pub settings: Vec<RevertedSetting>,
}

/// One setting of a tuning that was reverted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevertedSetting {
    pub knob: String,
    pub group: Group,
    pub subject: String,
    /// The setting in words.
    pub what: String,
    /// The location of the setting.
    pub place: String,
    pub outcome: RevertOutcome,
}

/// The outcome of restoring one setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum RevertOutcome {
    /// The old value was written and reads back.
    Restored { old: String },
    /// It had the old value already.
    Already,
    /// The host has rebooted since, and the kernel has lost the setting.
    Rebooted,
    /// Its device is absent.
    Gone,
    /// Another program has changed it since, so it stays. Reverting would have restored `old`.
    Drift { now: String, written: String, old: String },
    /// It could not be restored.
    Failed {
        #[serde(rename = "trouble")]
        error: SettingError,
        old: String,
    },
}

/// What to do about a setting that another program has changed since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDrift {
    /// Keep its value and keep it in the journal.
    #[default]
    Keep,
    /// Keep its value and drop it from the journal: it belongs to its new owner.
    Forget,
}

impl RevertOutcome {
    /// Whether nothing is left to restore.
    pub fn is_done(&self) -> bool {
        match self {
            Self::Restored { .. } | Self::Already | Self::Rebooted | Self::Gone => true,
            Self::Drift { .. } | Self::Failed { .. } => false,
        }
    }
}

impl Reverted {
    /// Whether every setting is as before the tuning.
    pub fn is_whole(&self) -> bool {
        self.settings.iter().all(|setting| setting.outcome.is_done())
    }

    /// Describes the settings that were not restored, one line each.
    pub fn left(&self) -> Vec<String> {
        let left = self.settings.iter().filter_map(|setting| match &setting.outcome {
            RevertOutcome::Drift { now, written, old } => Some(format!(
                "{} is {now:?}, neither the written {written:?} nor the old {old:?}; left alone",
                setting.place
            )),
            RevertOutcome::Failed { error, old } => {
                Some(format!("{} could not be restored to {old:?}: {error}", setting.place))
            }
            _ => None,
        });
        left.collect()
    }
}
