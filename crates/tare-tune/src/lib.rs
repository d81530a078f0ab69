//! Tunes a host: reads it as text ([`snapshot`]), finds its devices and topology ([`machine`]),
//! plans changes ([`plan`], [`planner`], one file per knob in [`knobs`]), and applies, verifies and
//! reverts them.
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
mod outcome;
mod persist;
pub mod plan;
pub mod planner;
mod revert;
mod revert_all;
mod setting;
mod setting_store;
pub mod snapshot;
mod status;
mod stored;
mod take;
mod tuning;
mod verify;

pub use error::TuneError;
pub use housekeeping::HOUSEKEEPING;
pub use journal::{Purpose, folder};
pub use outcome::{
    Applied, AppliedItem, OnDrift, Outcome, RevertOutcome, Reverted, RevertedSetting,
};
pub use persist::{UNIT, Units, persist, remove, store, stored_plan, unit};
pub use revert_all::{clean, revert_all};
pub use setting::{SettingError, SettingErrorClass};
pub use setting_store::{Failure, LiveHost, SettingStore, SnapshotHost};
pub use status::{SettingState, SettingStatus, TuningStatus, interrupt_cpus, status};
pub use stored::{PersistError, StoredApplied, apply_stored};
pub use tuning::{Tuning, apply_plan};
pub use verify::{
    CpuShare, InterruptCheck, LoadCheck, MisroutedInterrupt, MovedInterrupt, Verification, verify,
};
