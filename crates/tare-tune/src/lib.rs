//! Tuning a host: a host as text ([`snapshot`]), what it has ([`machine`]), what should change
//! ([`plan`], [`planner`], one file per knob in [`knobs`]), and applying a plan, verifying it and
//! putting the old values back.
//!
//! **Invariant:** nothing is written before its old value is in the journal, synced.
#![forbid(unsafe_code)]

mod apply;
mod companions;
mod error;
pub mod ethtool;
pub mod fixture;
pub mod flags;
mod housekeeping;
mod identity;
pub mod idle;
pub mod irqbalance;
mod journal;
pub mod knobs;
mod lock;
pub mod machine;
mod persist;
pub mod plan;
pub mod planner;
mod revert;
mod setting_store;
pub mod snapshot;
mod status;
mod stored;
mod tuning;
mod verify;

pub use apply::{Applied, AppliedItem, Outcome};
pub use error::TuneError;
pub use housekeeping::HOUSEKEEPING;
pub use persist::{PersistError, UNIT, Units, persist, remove, unit};
pub use revert::{OnDrift, RevertOutcome, Reverted, RevertedSetting};
pub use setting_store::{
    Failure, LiveHost, SettingError, SettingErrorClass, SettingStore, SnapshotHost,
};
pub use status::{SettingState, SettingStatus, TuningStatus, status};
pub use stored::{StoredApplied, apply_stored};
pub use tuning::{Purpose, Tuning, apply_plan, clean, folder, revert_all};
pub use verify::{CpuShare, InterruptCheck, LoadCheck, Moved, Stray, Verification, verify};
