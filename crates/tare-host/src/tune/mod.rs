//! Tuning a host: applying a plan, verifying it, putting it back.
//!
//! **Invariant:** nothing is written before its old value is in the journal, synced.

mod apply;
mod companions;
mod error;
mod hand;
mod identity;
pub mod idle;
mod journal;
mod lock;
mod persist;
mod revert;
mod status;
mod stored;
mod tuning;
mod verify;

pub use apply::{Applied, AppliedItem, Outcome};
pub use error::TuneError;
pub use hand::{Failure, Hand, LiveHost, SnapshotHost, Trouble, TroubleClass};
pub use persist::{PersistError, UNIT, Units, persist, remove, unit};
pub use revert::{OnDrift, RevertOutcome, Reverted, RevertedSetting};
pub(crate) use status::brief;
pub use status::{SettingState, SettingStatus, TuningStatus, status};
pub use stored::{StoredApplied, apply_stored};
pub use tuning::{Purpose, Tuning, apply_plan, clean, folder, revert_all};
pub use verify::{CpuShare, InterruptCheck, LoadCheck, Moved, Stray, Verification, verify};
